# SPDX-License-Identifier: Apache-2.0
"""Requests to API servers: who we are, transport, watches, port-forward, objects, apply, wait, lease.

Imports the files beside it only: free of Ansible and of Karmada.
"""
