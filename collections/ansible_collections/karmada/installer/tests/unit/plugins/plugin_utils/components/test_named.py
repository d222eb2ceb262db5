# SPDX-License-Identifier: Apache-2.0
"""A problem that names a component says so to programs."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.named import component_in


@pytest.mark.parametrize(
    ("where", "component"),
    [
        ("spec.components.etcd.local.replicas", "etcd"),
        ("prod.yaml: spec.components.karmadaAPIServer.extraArgs", "karmada-apiserver"),
        ("StatefulSet karmada/prod-etcd", "etcd"),
        ("Pod karmada/prod-etcd-0", "etcd"),
        ("Deployment karmada/prod-scheduler", "karmada-scheduler"),
        ("Deployment karmada/prod-scheduler-estimator-m1", "karmada-scheduler-estimator"),
        ("Deployment karmada/prod-kube-controller-manager", "kube-controller-manager"),
        ("Deployment karmada/prod-controller-manager", "karmada-controller-manager"),
        ("karmada-prod-aggregated-apiserver.service", "karmada-aggregated-apiserver"),
        ("Deployment karmada/test-scheduler", ""),
        ("Deployment karmada/prod-schedulers", ""),
        ("Secret karmada/prod-etcd-cert", ""),
        ("spec.components.nothing", ""),
        ("host cluster", ""),
        ("", ""),
    ],
)
def test_the_component_in_a_place(where: str, component: str) -> None:
    assert component_in(where, "prod") == component
