# SPDX-License-Identifier: Apache-2.0
"""Pods with older settings are replaced by what etcd says of its members, not by their pods alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import UNAVAILABLE
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members, members_seen, patience, rollout
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store as store_module
from ansible_collections.karmada.installer.plugins.plugin_utils.run.in_pods import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import (
    NAMESPACE,
    FakeEtcdClient,
    PodsOfEtcd,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import Object, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = [f"prod-etcd-{ordinal}" for ordinal in range(3)]


class RevisedPods(PodsOfEtcd):
    """Pods that say of which revision of their StatefulSet they are; ``broken`` ones do not become healthy members."""

    revision = "a"
    broken = ""
    #: what etcd says of a lack of space
    alarm = ""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []

    def _metadata(self, name: str) -> Object:
        found = super()._metadata(name)
        return {**found, "labels": {**found["labels"], rollout.REVISION_LABEL: self.revision}}

    def _reconcile(self) -> None:
        super()._reconcile()
        for pod in super().list("v1", "Pod", NAMESPACE):
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.put({**pod, "status": ready})
            if pod["metadata"]["name"] == self.broken and pod["metadata"]["labels"][rollout.REVISION_LABEL] != "a":
                self.etcd.cut(self.broken)
        live = self.get("apps/v1", "StatefulSet", "prod-etcd", NAMESPACE)
        if live:
            self.put({**live, "status": {"updateRevision": self.revision}})

    def delete(self, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        assert self.etcd.healthy_voters() == len(NAMES), "a second member goes"
        self.happened.append(f"replace {name}")
        return super().delete(api_version, kind, name, *arguments, **more)


class TellingClient(FakeEtcdClient):
    """Client whose changes of the leader are noted."""

    def at(self, url: str) -> TellingClient:
        return TellingClient(self.world, list(self.urls), url)

    def _status(self, url: str) -> EndpointStatus:
        found = super()._status(url)
        assert isinstance(self.world, RevisedPods)
        if not self.world.alarm or not found.healthy:
            return found
        return replace(found, healthy=False, message=self.world.alarm, alarms=("NOSPACE",), only_full=True)

    def move_leader(self, identity: str) -> None:
        super().move_leader(identity)
        assert isinstance(self.world, RevisedPods)
        self.world.happened.append(f"{self.world.etcd.name_of(identity)} leads")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> RevisedPods:
    """Three members, of which the one in the middle leads, and a revision that none of their pods has."""
    monkeypatch.setattr(store_module, "Lock", lambda *_, **_named: NoLock())
    monkeypatch.setattr(patience, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rollout, "CLIENTS_RETURN_SECONDS", 0.0)
    monkeypatch.setattr(rollout, "wait_until", lambda *_, **__: None)
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 0.0)
    issue, issued = InPods.issued, dict[str, Any]()
    monkeypatch.setattr(InPods, "issued", lambda place, seen: issued.setdefault("once", issue(place, seen)))
    monkeypatch.setattr(
        members_seen,
        "client",
        lambda run: TellingClient(run.host_cluster, [each.client_url for each in run.layout.etcd_members]),
    )
    found = RevisedPods()
    found.bootstrap(NAMES)
    records = tuple(EtcdMemberState(name) for name in NAMES)
    etcd = EtcdState(token="t", bootstrapped=True, storage="volumeClaim", members=records)
    run = a_run(found, samples.state(etcd=etcd))
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd"]))
    members.note(run)
    found.etcd._leader = list(found.etcd.members)[1]
    found.revision = "b"
    found._reconcile()
    return found


def a_run(world: PodsOfEtcd, stored: Any = None) -> Run:
    return fake_run(
        samples.document({"components": {"etcd": {"local": {"replicas": len(NAMES)}}}}), world, stored=stored
    )


def test_followers_go_first_and_the_leader_after_it_has_handed_over(world: RevisedPods) -> None:
    changes = rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        "replace prod-etcd-0", "replace prod-etcd-2", "prod-etcd-0 leads", "replace prod-etcd-1",
    ]  # fmt: skip
    assert [each.ref.name for each in changes] == ["prod-etcd-0", "prod-etcd-2", "prod-etcd-1"]
    assert rollout.replace_outdated(a_run(world), 60) == []


def test_a_full_etcd_gets_its_larger_quota(world: RevisedPods) -> None:
    world.alarm = "memberID:1 alarm:NOSPACE "
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        "replace prod-etcd-0", "replace prod-etcd-2", "prod-etcd-0 leads", "replace prod-etcd-1",
    ]  # fmt: skip


def test_a_full_etcd_with_a_member_away_stays_as_it_is(world: RevisedPods) -> None:
    world.alarm = "memberID:1 alarm:NOSPACE "
    world.etcd.cut("prod-etcd-2")
    with pytest.raises(ProblemsError, match="prod-etcd-2 is not healthy"):
        rollout.replace_outdated(a_run(world), 60)
    assert world.happened == []


def test_clients_come_back_to_a_member_before_the_next_one_goes(
    world: RevisedPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        world.happened.append("wait")

    monkeypatch.setattr(rollout, "CLIENTS_RETURN_SECONDS", 30.0)
    monkeypatch.setattr(patience, "LOOK_SECONDS", 15.0)
    monkeypatch.setattr(rollout.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(rollout.time, "sleep", sleep)
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        *("replace prod-etcd-0", "wait", "wait", "replace prod-etcd-2", "wait", "wait"),
        *("prod-etcd-0 leads", "replace prod-etcd-1"),
    ]


def test_a_pod_that_somebody_else_has_replaced_is_replaced(world: RevisedPods, monkeypatch: pytest.MonkeyPatch) -> None:
    delete = world.delete

    def beaten(api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        if name == "prod-etcd-0":
            delete(api_version, kind, name, NAMESPACE)
        return delete(api_version, kind, name, *arguments, **more)

    monkeypatch.setattr(world, "delete", beaten)
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened.count("replace prod-etcd-0") == 2
    assert world.happened[-1] == "replace prod-etcd-1"


def test_it_stops_at_the_first_that_is_not_well_although_its_pod_is_ready(world: RevisedPods) -> None:
    world.broken = "prod-etcd-0"
    with pytest.raises(ProblemsError) as refused:
        rollout.replace_outdated(a_run(world), 60)
    assert not isinstance(refused.value, NotReady)
    (problem,) = refused.value.problems
    assert (problem.reason, problem.where) == (Reason.ETCD_MAJORITY_AT_RISK, "etcd member prod-etcd-0")
    assert world.happened == ["replace prod-etcd-0"]


def test_one_that_answers_late_is_waited_for(world: RevisedPods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 60.0)
    world.etcd.cut("prod-etcd-2")
    looks = []

    def sleep(_seconds: float) -> None:
        looks.append(world.happened.copy())
        world.etcd.processes["prod-etcd-2"].cut = False

    monkeypatch.setattr(rollout.time, "sleep", sleep)
    rollout.replace_outdated(a_run(world), 60)
    assert looks[0] == [], "nothing went before it answered"
    assert len(world.happened) == 4


def test_a_leader_that_nobody_follows_stays_where_it_is(world: RevisedPods, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: FakeEtcdClient, _identity: str) -> None:
        raise EtcdError(Cause.WRONG, "it answers: request timed out, leader transfer took too long", UNAVAILABLE)

    monkeypatch.setattr(TellingClient, "move_leader", refuse)
    with pytest.raises(
        ProblemsError, match="it leads, and prod-etcd-0 does not take over: it answers: request timed out"
    ):
        rollout.replace_outdated(a_run(world), 60)
    assert world.happened == ["replace prod-etcd-0", "replace prod-etcd-2"]
