# SPDX-License-Identifier: Apache-2.0
"""What members would get after a restore, asked of real API servers: what is found, and time as a figure.

``DRIFT_WORKS`` says how many Works each of three members has; ``make test-full`` has a thousand, to which the goal
belongs. Time is not asserted: the machine has other tests to run at the same moment.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join, registration, works
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import drift
from ansible_collections.karmada.installer.tests.contract.conftest import CHECKOUT, ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from figures import keep_figure

WORKS = int(os.environ.get("DRIFT_WORKS", "50"))
MEMBERS = ("m1", "m2", "m3")
#: Goal in seconds for a thousand Works of each.
GOAL = 20
#: Of the objects with these numbers the members have another content, an older one, and nothing.
OTHER, OLDER, MISSING = 0, 1, 2


def config_map(number: int, **annotations: str) -> dict[str, Any]:
    labels = {"karmada.io/managed": "true"}
    metadata = {"name": f"c{number}", "namespace": "shop", "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"color": "blue"}}


def work(member: str, number: int) -> dict[str, Any]:
    manifest = config_map(number, **{drift.GENERATION: "2"})
    return {
        "apiVersion": works.WORK_API,
        "kind": "Work",
        "metadata": {"name": f"w{number}", "namespace": works.execution_namespace(member)},
        "spec": {"workload": {"manifests": [manifest]}},
    }


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def create(cluster: Cluster, objects: Iterable[dict[str, Any]]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cluster.apply, objects))


class ControlPlane(FakeCluster):
    """Real Works, and Clusters that are made up: an aggregated API server serves those."""

    def __init__(self, real: Cluster) -> None:
        clusters = [
            {"apiVersion": registration.CLUSTER_API, "kind": "Cluster", "metadata": {"name": n}} for n in MEMBERS
        ]
        super().__init__("control plane", *clusters)
        self.real = real

    def list(self, api_version: str, kind: str, *arguments: Any, **options: Any) -> Any:
        place = self.real if kind == "Work" else super()
        return place.list(api_version, kind, *arguments, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that stands for all: what Karmada claims on it is listed as a member's."""
    with running_api_server(tmp_path_factory.mktemp("drift")) as found:
        yield found


@pytest.fixture(scope="module")
def filled(server: ApiServer) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="control plane") as found:
        crds = crd_files.crds(releases.newest().karmada, Source("GoModules"))
        found.apply(next(each for each in crds if each["metadata"]["name"] == "works.work.karmada.io"))
        until(lambda: found.resource(works.WORK_API, "Work"), "the CRD of Works")
        create(found, map(namespace, ["shop", *map(works.execution_namespace, MEMBERS)]))
        create(found, (work(member, number) for member in MEMBERS for number in range(WORKS)))
        live = [config_map(number, **{drift.GENERATION: "2"}) for number in range(WORKS) if number != MISSING]
        live[OTHER]["data"]["color"] = "red"
        live[OLDER]["metadata"]["annotations"][drift.GENERATION] = "3"
        create(found, [*live, config_map(WORKS)])
        yield found


def test_each_object_of_many_works_is_judged_on_each_member(
    server: ApiServer, filled: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connected(_run: Any, entry: Any) -> Iterator[Cluster]:
        with Cluster.from_kubeconfig(str(server.kubeconfig), name=f"member {entry.name}") as found:
            yield found

    monkeypatch.setattr(join, "connected", connected)
    listed = [{"name": each, "secretRef": {"name": each}} for each in MEMBERS]
    state = samples.state(members={name: {} for name in MEMBERS})
    run = fake_run(
        samples.document({"members": listed}), FakeCluster("host cluster"), stored=state, operation="restore"
    )
    run.control_plane = ControlPlane(filled)
    began = time.monotonic()
    report = drift.look(run)
    seconds = time.monotonic() - began
    run.close()
    told = f"{len(MEMBERS)} members with {WORKS} Works each: {seconds:.1f} s (goal with 1000: {GOAL} s)"
    sys.stdout.write(f"{told}\n")
    keep_figure(CHECKOUT / "build/figures/contract.json", "what members would get after a restore", told)
    assert [each.name for each in report.members] == list(MEMBERS)
    for each in report.members:
        assert each.trouble == ""
        expected = {"same": WORKS - 3, "older": 1, "other": 1, "missing": 1, "orphan": 1, "suspended": 0, "going": 0}
        assert each.counts == expected
        assert each.plain["objects"] == {
            "other": [f"ConfigMap shop/c{OTHER}"],
            "older": [f"ConfigMap shop/c{OLDER}"],
            "missing": [f"ConfigMap shop/c{MISSING}"],
            "orphan": [f"ConfigMap shop/c{WORKS}"],
        }
