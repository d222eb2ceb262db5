# SPDX-License-Identifier: Apache-2.0
"""Clients of API servers for tests."""

from __future__ import annotations

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig_fields import Origin


def cluster_of(config: Object, name: str = "cluster") -> Cluster:
    """Client from a kubeconfig in memory. Raises ProblemsError when it does not describe an access."""
    return Cluster(kubeconfig.from_dict(config, None, Origin(f"kubeconfig of {name}")), name)
