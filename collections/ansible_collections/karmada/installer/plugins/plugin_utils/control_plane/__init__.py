# SPDX-License-Identifier: Apache-2.0
"""The objects inside a control plane, the stages by which it comes, its probes, its removal.

Imports kube, components, document, pki, render, run, etcd.
"""
