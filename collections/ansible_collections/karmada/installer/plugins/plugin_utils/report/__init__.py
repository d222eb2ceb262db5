# SPDX-License-Identifier: Apache-2.0
"""The state of a control plane as a status.

Imports kube, components, pki, render, run, etcd, members, preflight.
"""
