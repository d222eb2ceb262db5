# SPDX-License-Identifier: Apache-2.0
"""Pods with older settings are replaced by what etcd says of its members, not by their pods alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = [f"prod-etcd-{ordinal}" for ordinal in range(3)]


class RevisedPods(PodsOfEtcd):
    """Pods that say of which revision of their StatefulSet they are; ``broken`` ones do not become healthy members."""

    revision = "a"
    broken = ""
    #: names of those whose probes fail with the former revision, whether their members work or not
    unready: frozenset[str] = frozenset()
    #: whether there was no majority, so that none can be lost
    nobody_is_served = False
    #: names of members that do not answer us, and vote all the same
    silent: frozenset[str] = frozenset()

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[str] = []

    def _metadata(self, name: str) -> Object:
        found = super()._metadata(name)
        return {**found, "labels": {**found["labels"], rollout.REVISION_LABEL: self.revision}}

    def _reconcile(self) -> None:
        super()._reconcile()
        for pod in super().list("v1", "Pod", NAMESPACE):
            name, former = pod["metadata"]["name"], pod["metadata"]["labels"][rollout.REVISION_LABEL] == "a"
            ready = str(not (former and name in self.unready))
            self.put({**pod, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}})
            if name == self.broken and not former:
                self.etcd.cut(self.broken)
        live = self.get("apps/v1", "StatefulSet", "prod-etcd", NAMESPACE)
        if live:
            self.put({**live, "status": {"updateRevision": self.revision}})

    def delete(self, api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        works = any(self.etcd.answers(each.id) for each in self.etcd.voters() if each.name == name)
        assert self.etcd.healthy_voters() == len(NAMES) or not works or self.nobody_is_served, "a second member goes"
        self.happened.append(f"replace {name}")
        return super().delete(api_version, kind, name, *arguments, **more)


class TellingClient(FakeEtcdClient):
    """Client whose changes of the leader are noted."""

    def at(self, url: str) -> TellingClient:
        return TellingClient(self.world, list(self.urls), url)

    def _status(self, url: str) -> EndpointStatus:
        assert isinstance(self.world, RevisedPods)
        if any(f"//{name}." in url for name in self.world.silent):
            return EndpointStatus(url, cause=Cause.UNREACHED, message="it does not answer")
        return super()._status(url)

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
    world.etcd.full = True
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        "replace prod-etcd-0", "replace prod-etcd-2", "prod-etcd-0 leads", "replace prod-etcd-1",
    ]  # fmt: skip


def test_a_full_etcd_with_a_member_away_stays_as_it_is(world: RevisedPods) -> None:
    world.etcd.full = True
    world.etcd.cut("prod-etcd-2")
    with pytest.raises(ProblemsError, match="prod-etcd-2 is not healthy"):
        rollout.replace_outdated(a_run(world), 60)
    assert world.happened == []


def without_readiness(world: RevisedPods, *names: str) -> None:
    """Have the probes of these members fail."""
    world.unready = frozenset(names)
    world._reconcile()


@dataclass
class Clock:
    """Time that passes with each pause; ``then`` happens in a pause."""

    then: Callable[[], None] = lambda: None
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += 1.0
        self.then()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock, by which a member has half a minute to say that it works."""
    found = Clock()
    monkeypatch.setattr(rollout, "time", found)
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    return found


def test_members_that_work_go_in_turn_although_the_probes_of_all_fail(world: RevisedPods) -> None:
    without_readiness(world, *NAMES)
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        "replace prod-etcd-0", "replace prod-etcd-2", "prod-etcd-0 leads", "replace prod-etcd-1",
    ]  # fmt: skip


def test_one_whose_probe_fails_stays_until_the_one_that_is_down_works_again(world: RevisedPods) -> None:
    world.etcd.cut("prod-etcd-2")
    without_readiness(world, "prod-etcd-0", "prod-etcd-2")
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [
        "replace prod-etcd-2", "replace prod-etcd-0", "prod-etcd-0 leads", "replace prod-etcd-1",
    ]  # fmt: skip


def test_one_whose_probe_fails_stays_while_a_current_one_is_down(world: RevisedPods) -> None:
    world.broken = "prod-etcd-2"
    FakeCluster.delete(world, "v1", "Pod", "prod-etcd-2", NAMESPACE)
    without_readiness(world, "prod-etcd-0", "prod-etcd-1")
    with pytest.raises(ProblemsError, match="prod-etcd-2 is not healthy"):
        rollout.replace_outdated(a_run(world), 60)
    assert world.happened == []


def test_one_that_may_be_needed_has_time_to_say_that_it_works(world: RevisedPods, clock: Clock) -> None:
    world.etcd.cut("prod-etcd-2")
    without_readiness(world, "prod-etcd-0", "prod-etcd-2")
    world.silent = frozenset(["prod-etcd-0"])

    def speaks_after_a_while() -> None:
        if clock.now == 25.0:
            world.silent = frozenset()
        assert world.happened == [] or clock.now > 25.0

    clock.then = speaks_after_a_while
    run = a_run(world)
    said: list[str] = []
    run.say = said.append
    rollout.replace_outdated(run, 60)
    assert world.happened[:2] == ["replace prod-etcd-2", "replace prod-etcd-0"]
    waited = [each for each in said if "prod-etcd-0 may be needed, and does not say" in each]
    assert waited, said


def test_those_that_know_no_leader_have_time_to_choose_one(world: RevisedPods, clock: Clock) -> None:
    for name in ("prod-etcd-0", "prod-etcd-2"):
        world.etcd.cut(name)
    world.nobody_is_served = True
    without_readiness(world, *NAMES)
    clock.then = lambda: world.happened.append("wait")
    rollout.replace_outdated(a_run(world), 60)
    # All together then: with settings that keep them from each other there is no other way.
    assert world.happened == ["wait"] * 30 + [f"replace {name}" for name in NAMES]


def test_settings_with_which_none_answers_are_replaced_at_once(world: RevisedPods, clock: Clock) -> None:
    for name in NAMES:
        world.etcd.cut(name)
    without_readiness(world, *NAMES)
    rollout.replace_outdated(a_run(world), 60)
    assert world.happened == [f"replace {name}" for name in NAMES]
    assert clock.now == 0.0


def test_what_works_is_not_renewed_and_what_does_not_is(world: RevisedPods) -> None:
    world.etcd.cut("prod-etcd-2")
    without_readiness(world, *NAMES)
    assert [each.ref.name for each in rollout.renew_broken(a_run(world), 60)] == ["prod-etcd-2"]
    assert rollout.renew_broken(a_run(world), 60) == []
    assert world.happened == ["replace prod-etcd-2"]


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


@pytest.mark.parametrize("seconds", [29.0, 31.0])
def test_an_election_has_time_to_end(
    world: RevisedPods, clock: Clock, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """All pods are ready then, and all members answer, but none lists them."""
    ends = clock.now + seconds
    monkeypatch.setattr(world.etcd, "has_majority", lambda: not world.happened or clock.now >= ends)
    if seconds < patience.SETTLE_SECONDS:
        rollout.replace_outdated(a_run(world), 60)
        assert len(world.happened) == 4
        return
    with pytest.raises(ProblemsError) as refused:
        rollout.replace_outdated(a_run(world), 60)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST
    assert world.happened == ["replace prod-etcd-0"]


def test_a_leader_that_nobody_follows_stays_where_it_is(world: RevisedPods, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: FakeEtcdClient, _identity: str) -> None:
        raise EtcdError(Cause.WRONG, "it answers: request timed out, leader transfer took too long", UNAVAILABLE)

    monkeypatch.setattr(TellingClient, "move_leader", refuse)
    with pytest.raises(
        ProblemsError, match="it leads, and prod-etcd-0 does not take over: it answers: request timed out"
    ):
        rollout.replace_outdated(a_run(world), 60)
    assert world.happened == ["replace prod-etcd-0", "replace prod-etcd-2"]
