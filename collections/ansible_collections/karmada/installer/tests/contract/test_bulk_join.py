# SPDX-License-Identifier: Apache-2.0
"""Many members at once, some of them broken, joined to a real API server with a type for Clusters."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration, service_types
from ansible_collections.karmada.installer.tests.unit.support.bulk_join import ControlPlane
from ansible_collections.karmada.installer.tests.unit.support.simulated_members import BROKEN, SimulatedMembers

GOOD = [f"good-{number}" for number in range(6)]
BAD = {f"bad-{way}": way for way in BROKEN}


@pytest.fixture
def control_plane(api_server: Any, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(api_server.kubeconfig, tmp_path / "secrets", f"bulk-{uuid.uuid4().hex[:8]}") as found:
        yield found


def test_the_sound_ones_join_and_each_broken_one_says_why(control_plane: ControlPlane) -> None:
    with SimulatedMembers(GOOD, BAD) as simulated:
        simulated.write_secrets(control_plane.secrets)
        result = control_plane.join([*GOOD, *BAD])
        found = {each["name"]: each for each in result["members"]}
        assert {name for name, each in found.items() if each["joined"]} == set(GOOD)
        for name, way in BAD.items():
            assert REASONS[way] in found[name]["problem"], found[name]

        for name in GOOD:
            check_joined(control_plane.cluster, simulated.members[name].names(), name)
        for name in BAD:
            assert simulated.members[name].names() == set()
        left = {each["metadata"]["name"] for each in control_plane.cluster.list("v1", "Secret", "karmada-cluster")}
        assert not [each for each in left if each.startswith("bad-")]
        registered = control_plane.registered()
        assert registered == set(GOOD)

        before = {name: simulated.members[name].connections for name in GOOD}
        again = control_plane.join(GOOD)
        assert not again["changed"], again["members"]
        assert not again.get("failed")
        for name in GOOD:
            more = simulated.members[name].connections - before[name]
            assert more == 1, f"{more} connections to find that there is nothing to do on {name}"


REASONS = {
    "refuses": "refused",
    "is-silent": "no answer",
    "other-authority": "certificate",
    "other-token": "401",
    "no-kubernetes": "not a Kubernetes API",
}


def check_joined(cluster: Cluster, on_member: set[str], name: str) -> None:
    """What karmadactl makes, too."""
    assert on_member == {
        "namespaces karmada-cluster",
        *(f"serviceaccounts karmada-cluster/{each}" for each in (f"karmada-{name}", "karmada-impersonator")),
        *(f"secrets karmada-cluster/{each}" for each in (f"karmada-{name}", "karmada-impersonator")),
        f"clusterroles karmada-controller-manager:karmada-{name}",
        f"clusterrolebindings karmada-controller-manager:karmada-{name}",
        *(f"customresourcedefinitions {each}" for each in service_types.KINDS),
    }
    live = cluster.get(registration.CLUSTER_API, "Cluster", name)
    assert live
    assert live["spec"]["id"] == f"id-of-{name}"
    for secret, account in ((name, f"karmada-{name}"), (f"{name}-impersonator", "karmada-impersonator")):
        found = cluster.get("v1", "Secret", secret, "karmada-cluster")
        assert found
        assert base64.b64decode(found["data"]["token"]).decode() == f"token-of-{account}-on-{name}"
        assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [live["metadata"]["uid"]]
