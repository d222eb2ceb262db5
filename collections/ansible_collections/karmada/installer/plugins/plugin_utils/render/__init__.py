# SPDX-License-Identifier: Apache-2.0
"""Rendering of the component table into objects of a cluster, or into units and files of plain hosts. No I/O.

Imports kube, components, pki.

``templates`` has the configuration of third-party programs: HAProxy and keepalived.
"""
