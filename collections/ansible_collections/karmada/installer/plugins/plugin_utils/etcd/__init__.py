# SPDX-License-Identifier: Apache-2.0
"""etcd as a service: its client, a prefix in one of the site's, the rollout of its members.

Imports kube, components, pki, run.
"""
