# SPDX-License-Identifier: Apache-2.0
"""Checks before the first change.

Imports kube, components, document, pki, artifacts, render, run, etcd, backup, control_plane, members.
"""
