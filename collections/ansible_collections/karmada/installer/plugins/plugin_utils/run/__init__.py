# SPDX-License-Identifier: Apache-2.0
"""One step's hold on one control plane: facts, state, lock, handover, the bases of actions. The only package that
imports Ansible.

Imports kube, components, document, pki, artifacts, render.
"""
