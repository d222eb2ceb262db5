# SPDX-License-Identifier: Apache-2.0
"""The pod that serves a volume claim with backups."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import pod_security
from ansible_collections.karmada.installer.plugins.plugin_utils.render import backup_claim
from ansible_collections.karmada.installer.tests.unit.support import samples

IMAGE = "registry.example.com/operator:v1"
SERVED = backup_claim.Served("backups", "site-a/prod", "manifest.json", "0" * 64)


def pod(node: str = "", spec: dict[str, Any] | None = None, **settings: Any) -> Any:
    instance = samples.rendered({**samples.etcd(replicas=3, **settings), **(spec or {})}).instance
    return backup_claim.pod(instance, "prod-backup-claim-1f3a9c", IMAGE, SERVED, node)


def test_it_mounts_the_claim_and_nothing_else_and_is_no_pod_of_etcd() -> None:
    found = pod()
    assert found["spec"]["volumes"] == [{"name": "backups", "persistentVolumeClaim": {"claimName": "backups"}}]
    (container,) = found["spec"]["containers"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == [backup_claim.MOUNTED]
    assert container["image"] == IMAGE
    labels = found["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == backup_claim.NAME != ETCD.name
    assert labels["installer.karmada.io/owner"] == samples.OWNER
    assert container["command"][:3] == ["python3", "-I", "-c"]
    assert container["command"][4:] == ["/backups", "site-a/prod", "manifest.json", "8474", "0" * 64]


def test_it_is_restricted_and_has_no_identity_of_its_own() -> None:
    found = pod()["spec"]
    assert pod_security.violations(found) == []
    assert found["automountServiceAccountToken"] is False
    (container,) = found["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "env" not in container
    assert found["restartPolicy"] == "Never"
    assert found["activeDeadlineSeconds"] >= 3600
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_it_has_the_settings_of_the_document() -> None:
    found = pod(
        spec={"images": {"pullSecrets": [{"name": "registry"}], "pullPolicy": "Never"}},
        nodeSelector={"disk": "fast"},
        tolerations=[{"key": "x", "operator": "Exists"}],
        priorityClassName="system-cluster-critical",
        securityContext={"runAsUser": 1000, "fsGroup": 2000},
        topologySpreadConstraints=[],
    )["spec"]
    assert found["imagePullSecrets"] == [{"name": "registry"}]
    assert found["nodeSelector"] == {"disk": "fast"}
    assert found["tolerations"] == [{"key": "x", "operator": "Exists"}]
    assert found["priorityClassName"] == "system-cluster-critical"
    assert (found["securityContext"]["runAsUser"], found["securityContext"]["fsGroup"]) == (1000, 2000)
    assert found["containers"][0]["imagePullPolicy"] == "Never"
    assert "topologySpreadConstraints" not in found


@pytest.mark.parametrize("node", ["", "n1"])
def test_where_a_node_has_mounted_the_claim_that_one_counts(node: str) -> None:
    found = pod(node, nodeSelector={"disk": "fast"})["spec"]
    if not node:
        assert "affinity" not in found
        return
    (term,) = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["n1"]
    assert "nodeSelector" not in found
