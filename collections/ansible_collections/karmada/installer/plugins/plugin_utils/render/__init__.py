# SPDX-License-Identifier: Apache-2.0
"""The table as objects of a cluster, or as units and files of plain hosts. Pure.

Imports kube, components, pki.

``templates`` has the texts of programs of others: HAProxy and keepalived.
"""
