# SPDX-License-Identifier: Apache-2.0
"""Member clusters: plan, join, leave, agents, taints, rights.

Imports kube, components, document, pki, render, run, control_plane.
"""
