# SPDX-License-Identifier: Apache-2.0
"""ServiceExport and ServiceImport of Karmada's own CRDs, brought to a real API server and taken away again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import Mode, StepRunner
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import service_types
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

M1 = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
EXPORTS, IMPORTS = service_types.KINDS


@pytest.fixture
def member(api_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(api_server.kubeconfig), name="member m1") as found:

        @contextmanager
        def connected(*_: Any) -> Iterator[Cluster]:
            yield found

        monkeypatch.setattr(member_cleanup, "connected", connected)
        yield found
        for name in service_types.KINDS:
            found.delete(service_types.CRD_API, service_types.CRD, name)
        until(lambda: not crds(found))


@pytest.fixture(params=[each.karmada for each in releases.RELEASES])
def run(request: pytest.FixtureRequest) -> Run:
    found = fake_run(document({"members": [M1]}), FakeCluster("host cluster"), stored=state(version=request.param))
    found.__dict__["_crds"] = crd_files.crds(request.param, Source("GoModules"))
    return found


def changes(run: Run, member: Cluster, mode: Mode) -> list[Change]:
    """Changes that the step makes on the member, in that mode."""
    return StepRunner(member, mode, [], run.say).take([service_types.step(run)])


def crds(member: Cluster) -> set[str]:
    return {name for name in service_types.KINDS if member.get(service_types.CRD_API, service_types.CRD, name)}


def test_they_come_stay_as_they_are_and_go(member: Cluster, run: Run) -> None:
    looked = changes(run, member, Mode.PREDICT)
    assert [change.action for change in looked] == ["created", "created"]
    assert all(change.diff["after"].startswith("CustomResourceDefinition ") for change in looked)
    assert crds(member) == set()

    changes(run, member, Mode.WRITE)
    assert crds(member) == {EXPORTS, IMPORTS}
    before = dict(member.counts)
    assert {change.action for change in changes(run, member, Mode.LOOK)} == {"unchanged"}
    assert {verb for verb, count in member.counts.items() if count != before.get(verb)} == {"get"}

    member_cleanup.clean_member(run, MemberEntry(M1), 30)
    assert crds(member) == set()


def test_what_is_in_use_stays_and_what_others_brought_is_not_touched(member: Cluster, run: Run) -> None:
    of_others = next(each for each in run.crds() if each["metadata"]["name"] == IMPORTS)
    made = member.create(of_others)
    changes(run, member, Mode.WRITE)
    live = member.get(service_types.CRD_API, service_types.CRD, IMPORTS)
    assert live
    assert (live["metadata"]["uid"], live["metadata"].get("labels")) == (made["metadata"]["uid"], None)

    export = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceExport",
        "metadata": {"name": "web", "namespace": "default"},
    }
    member.apply(export)
    said: list[str] = []
    run.say = said.append
    member_cleanup.clean_member(run, MemberEntry(M1), 30)
    assert crds(member) == {EXPORTS, IMPORTS}
    assert "it is in use: ServiceExport default/web" in said[0]

    # Joined and left once more, when nobody uses it any more.
    member.delete("multicluster.x-k8s.io/v1alpha1", "ServiceExport", "web", "default")
    changes(run, member, Mode.WRITE)
    member_cleanup.clean_member(run, MemberEntry(M1), 30)
    assert crds(member) == {IMPORTS}
