# SPDX-License-Identifier: Apache-2.0
"""Status report of a control plane.

Imports kube, components, pki, render, run, etcd, backup, members, restore, preflight.
"""
