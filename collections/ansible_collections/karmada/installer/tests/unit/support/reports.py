# SPDX-License-Identifier: Apache-2.0
"""A control plane that works, as the steps that look at it see it: what tests of the report start from."""

from __future__ import annotations

from datetime import timedelta

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import (
    ComponentStatus,
    MemberStatus,
    Observation,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW

SINCE = (NOW - timedelta(hours=5)).isoformat()
MEMBER = MemberStatus(name="m1", mode="Push", version="v1.35.4", ready=True, reason="ClusterReady", since=SINCE)
WORKING = Observation(
    now=NOW,
    generation=3,
    karmada_version="v1.18.2",
    kubernetes_version="v1.35.4",
    components=[ComponentStatus("etcd", 1, 1), ComponentStatus("karmada-apiserver", 2, 2)],
    members=[MEMBER],
    api_ready=True,
    aggregated_ready=True,
    crds_installed=True,
    etcd_storage="volumeClaim",
    etcd_desired=1,
    etcd_ready=1,
    certificates={"karmada-webhook": (NOW + timedelta(days=365)).isoformat()},
    kubeconfig_secret="prod-admin-config",
    wanted_members=["m1"],
    etcd_endpoints=[EndpointStatus("https://prod-etcd-0:2379", True, version="3.6.16", db_size=20480, leader=True)],
)
