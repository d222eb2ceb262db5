# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods come, go and are replaced, wherever a run is killed, and nobody loses a majority."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Members
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members,
    members_wanted,
    patience,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import (
    NAMESPACE,
    FakeEtcdClient,
    Killed,
    PodsOfEtcd,
    peer_url,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import (
    members_in_pods,
    with_client_in_memory,
    without_lease,
    without_pauses,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

#: Of the writes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("ETCD_MOMENTS", "3"))
#: Seconds for a step; only one that never comes to its end takes them.
TIMEOUT = 120


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)
    with_client_in_memory(monkeypatch)


def document(count: int) -> dict[str, object]:
    return samples.document({"components": {"etcd": {"local": {"replicas": count}}}})


def a_run(world: PodsOfEtcd, count: int, stored: State | None = None) -> Run:
    return fake_run(document(count), world, stored=stored)


def installed(count: int) -> PodsOfEtcd:
    """A control plane whose etcd has so many members, as an install leaves it."""
    world = PodsOfEtcd()
    world.bootstrap(members_in_pods(count))
    records = tuple(EtcdMemberState(name) for name in members_in_pods(count))
    etcd = EtcdState(token="t", bootstrapped=True, storage="volumeClaim", members=records)
    run = a_run(world, count, samples.state(etcd=etcd))
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd", "karmada-apiserver"]))
    members.note(run)
    run.apply_to_host_cluster("end the bootstrap of etcd", lambda: run.workloads(["etcd"]))
    assert members.bring_about(run, TIMEOUT) == []
    return world


def brought_to(world: PodsOfEtcd, count: int, replace: Sequence[str] = ()) -> list[str]:
    """As a whole run does it: what etcd consists of, its members, and then its clients."""
    run = a_run(world, count)
    members_wanted.begin(run)
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd"]))
    changes = [
        f"{each.action} {each.ref.name}" for each in members.bring_about(run, TIMEOUT, replace) if _is_member(each)
    ]
    run.apply_to_host_cluster("start the API server", lambda: run.workloads(["karmada-apiserver"]))
    return changes


def _is_member(change: members.Change) -> bool:
    return change.ref.kind == "EtcdMember"


def assert_is_well(world: PodsOfEtcd, count: int) -> None:
    """As many members as asked for, all with a vote and healthy; no ghost, no learner, nothing undecided on record."""
    etcd, run = world.etcd, a_run(world, count)
    assert sorted(each.name for each in etcd.members.values()) == members_in_pods(count)
    assert not any(each.learner for each in etcd.members.values())
    assert etcd.healthy_voters() == count
    assert world.names("Pod") == set(members_in_pods(count))
    records = run.state.etcd.members
    assert [each.name for each in records] == members_in_pods(count)
    assert {each.id for each in records} == set(etcd.members)
    assert not any(each.coming or each.leaving or each.lost or each.former for each in records)
    assert not any(each.initial_cluster for each in records)
    volumes = {each["metadata"]["uid"] for each in world.list("v1", "PersistentVolumeClaim", NAMESPACE)}
    assert {each.volume for each in records} <= volumes
    assert servers(world) == members_in_pods(count)


def servers(world: PodsOfEtcd) -> list[str]:
    """Names of the members to which the API server connects."""
    live = world.get("apps/v1", "Deployment", "prod-apiserver", NAMESPACE)
    assert live
    container = live["spec"]["template"]["spec"]["containers"][0]
    flags = [*container.get("command", ()), *container.get("args", ())]
    (urls,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--etcd-servers="))
    return [url.removeprefix("https://").partition(".")[0] for url in urls.split(",")]


# -- without trouble ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [(1, 3), (1, 5), (3, 1), (5, 3), (3, 7), (7, 1), (1, 3, 5, 3, 1)])
def test_members_come_and_go(way: tuple[int, ...]) -> None:
    world = installed(way[0])
    for count in way[1:]:
        brought_to(world, count)
        assert_is_well(world, count)


def test_changes_name_the_members() -> None:
    world = installed(1)
    assert brought_to(world, 3) == ["created prod-etcd-1", "created prod-etcd-2"]
    assert brought_to(world, 1) == ["deleted prod-etcd-2", "deleted prod-etcd-1"]


def test_a_second_run_writes_nothing() -> None:
    world = installed(1)
    brought_to(world, 3)
    before = world.writes
    assert brought_to(world, 3) == []
    assert world.writes == before


def test_the_configuration_of_running_members_stays_and_a_new_one_gets_a_folder_of_its_own() -> None:
    world = installed(1)
    first = world._configuration("prod-etcd-0")
    brought_to(world, 3)
    assert world._configuration("prod-etcd-0") == first
    added = world._configuration("prod-etcd-1")
    assert added
    identity = next(each.id for each in world.etcd.members.values() if each.name == "prod-etcd-1")
    assert added["data-dir"] == f"/var/lib/etcd/gen-1-{identity}"
    assert added["initial-cluster-state"] == "existing"


def test_a_member_starts_with_those_that_etcd_has_named_until_it_has_its_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(1)
    started: list[str] = []
    joined = world._joined

    def told(configuration: Any) -> str:
        started.append(configuration["initial-cluster"])
        return joined(configuration)

    monkeypatch.setattr(world, "_joined", told)
    brought_to(world, 3)
    assert started == [",".join(f"{name}={peer_url(name)}" for name in members_in_pods(count)) for count in (2, 3)]
    for name in members_in_pods(3):
        assert world._configuration(name)["initial-cluster"] == f"{name}={peer_url(name)}"


@pytest.mark.parametrize("way", [(3,), (1, 3), (3, 5, 3)])
def test_a_member_without_its_data_never_comes_back_under_its_id(way: tuple[int, ...]) -> None:
    """It has voted: with two of three that have forgotten, what clients were told is kept would be lost."""
    world = installed(way[0])
    for count in way[1:]:
        brought_to(world, count)
    for name in members_in_pods(way[-1]):
        world.lose_volume(name)
        assert world.etcd.processes[name].data == ""


def test_a_member_that_comes_back_after_a_shrink_does_not_meet_its_old_data() -> None:
    world = installed(3)
    brought_to(world, 1)
    assert len(world.claims["prod-etcd-2"]) == 1, "the claim stays"
    brought_to(world, 3)
    assert_is_well(world, 3)
    assert len(world.claims["prod-etcd-2"]) == 2


def test_clients_follow_once_when_growing_and_before_shrinking() -> None:
    world = installed(1)
    applied = world.log.count("apply Deployment prod-apiserver")
    brought_to(world, 5)
    assert world.log.count("apply Deployment prod-apiserver") == applied + 1
    brought_to(world, 1)
    assert world.log.count("apply Deployment prod-apiserver") == applied + 2


# -- lost data ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["prod-etcd-0", "prod-etcd-1", "prod-etcd-2"])
def test_a_member_whose_volume_is_another_one_is_replaced_under_a_new_id(lost: str) -> None:
    world = installed(3)
    before = {each.name: each.id for each in world.etcd.members.values()}
    world.lose_volume(lost)
    assert world.etcd.healthy_voters() == 2
    assert brought_to(world, 3) == [f"deleted {lost}", f"created {lost}"]
    assert_is_well(world, 3)
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert [name for name in after if after[name] != before[name]] == [lost]


def test_a_pod_that_is_replaced_at_the_same_time_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(3)
    world.lose_volume("prod-etcd-1")
    delete, beaten = world.delete, []

    def somebody_else_was_faster(api_version: str, kind: str, name: str, *arguments: Any, **more: Any) -> bool:
        if kind == "Pod":
            beaten.append(name)
            delete(api_version, kind, name, NAMESPACE)
        return delete(api_version, kind, name, *arguments, **more)

    monkeypatch.setattr(world, "delete", somebody_else_was_faster)
    brought_to(world, 3)
    assert beaten == ["prod-etcd-1"]
    assert_is_well(world, 3)


def test_one_that_does_not_answer_is_not_taken_for_lost() -> None:
    world = installed(3)
    world.etcd.cut("prod-etcd-1")
    assert brought_to(world, 3) == []
    assert len(world.etcd.members) == 3
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 5)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_AT_RISK
    assert "prod-etcd-1" in str(refused.value)
    assert "etcd_replace" in str(refused.value)


def test_one_that_works_with_another_volume_keeps_its_id() -> None:
    world = installed(3)
    before = set(world.etcd.members)
    kept = world.claims["prod-etcd-1"]
    world.add_claim("prod-etcd-1")
    world.claims["prod-etcd-1"] = kept
    assert brought_to(world, 3) == []
    assert_is_well(world, 3)
    assert set(world.etcd.members) == before


def test_one_is_replaced_because_it_was_asked_for_and_once() -> None:
    world = installed(3)
    world.etcd.cut("prod-etcd-1")
    world.etcd.processes["prod-etcd-1"].data = ""
    assert brought_to(world, 3, ["prod-etcd-1"]) == ["deleted prod-etcd-1", "created prod-etcd-1"]
    assert_is_well(world, 3)


def test_a_single_member_whose_data_is_lost_is_not_replaced() -> None:
    world = installed(1)
    world.lose_volume("prod-etcd-0")
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 1)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MAJORITY_LOST
    assert "restore" in problem.remedy
    assert len(world.etcd.members) == 1


def test_two_of_three_lost_volumes_found_no_empty_cluster() -> None:
    world = installed(3)
    for name in ("prod-etcd-0", "prod-etcd-2"):
        world.lose_volume(name)  # asserts that nobody begins another cluster
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 3)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MAJORITY_LOST
    assert problem.what.startswith("1 of 3 members of etcd answer, and 2 are needed")
    assert len(world.etcd.members) == 3


@pytest.mark.parametrize("request_", ["promote", "remove"])
def test_a_change_whose_answer_is_lost_is_on_record_as_any_other(
    request_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is put to the next member then, which knows it as done and refuses it."""
    world, lost = installed(3), []
    change = getattr(FakeEtcdClient, request_)

    def put_twice(client: FakeEtcdClient, identity: str) -> Members:
        if not lost:
            change(client, identity)
            lost.append(identity)
        return change(client, identity)

    monkeypatch.setattr(FakeEtcdClient, request_, put_twice)
    if request_ == "promote":
        assert brought_to(world, 5) == ["created prod-etcd-3", "created prod-etcd-4"]
        assert_is_well(world, 5)
    else:
        assert brought_to(world, 1) == ["deleted prod-etcd-2", "deleted prod-etcd-1"]
        assert_is_well(world, 1)
    assert lost


def test_one_that_has_lost_its_data_before_its_vote_is_replaced_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing proves it, and etcd cannot start it again; what comes in its place has another ID."""
    world = installed(3)
    with monkeypatch.context() as killed:

        def before_its_vote(_client: FakeEtcdClient, _identity: str) -> Members:
            raise Killed

        killed.setattr(FakeEtcdClient, "promote", before_its_vote)
        with pytest.raises(Killed):
            brought_to(world, 5)
    world.lose_volume("prod-etcd-3")
    stuck = {each.name: each.id for each in world.etcd.members.values()}["prod-etcd-3"]
    with pytest.raises(ProblemsError, match="member prod-etcd-3 does not answer"):
        brought_to(world, 5)
    brought_to(world, 5, ["prod-etcd-3"])
    assert_is_well(world, 5)
    assert stuck not in world.etcd.members


def test_one_that_works_is_not_replaced_while_another_one_is_ill() -> None:
    world = installed(5)
    before = set(world.etcd.members)
    world.etcd.cut("prod-etcd-4")
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 5, ["prod-etcd-1"])
    (problem,) = refused.value.problems
    assert (problem.reason, problem.where) == (Reason.ETCD_MAJORITY_AT_RISK, "etcd member prod-etcd-4")
    assert set(world.etcd.members) == before
    # The ill one itself may be.
    world.etcd.processes["prod-etcd-4"].data = ""
    assert brought_to(world, 5, ["prod-etcd-4"]) == ["deleted prod-etcd-4", "created prod-etcd-4"]
    assert_is_well(world, 5)


def test_a_member_that_answers_late_between_two_steps_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 120.0)
    world, looks = installed(3), []
    status = FakeEtcdClient.status

    def late(client: FakeEtcdClient) -> list[EndpointStatus]:
        looks.append(client)
        world.etcd.cut("prod-etcd-2", off=2 <= len(looks) <= 4)
        return status(client)

    monkeypatch.setattr(FakeEtcdClient, "status", late)
    brought_to(world, 5)
    assert_is_well(world, 5)


def test_no_member_goes_while_a_pod_that_knows_it_still_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looks = installed(3), []
    labels = {"app.kubernetes.io/name": "karmada-apiserver", "app.kubernetes.io/instance": "prod"}
    former = {"name": "former", "namespace": NAMESPACE, "labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put({"apiVersion": "v1", "kind": "Pod", "metadata": former})

    def a_moment(_seconds: float) -> None:
        looks.append(len(world.etcd.members))
        if len(looks) == 3:
            FakeCluster.delete(world, "v1", "Pod", "former", NAMESPACE)

    monkeypatch.setattr(members.time, "sleep", a_moment)
    brought_to(world, 1)
    assert looks[:3] == [3, 3, 3]
    assert_is_well(world, 1)


# -- others ------------------------------------------------------------------------------------------------------------


def test_a_learner_of_somebody_else_is_told_and_nothing_is_changed() -> None:
    world = installed(3)
    world.etcd.add_stranger("theirs")
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 5)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MEMBERS_DIFFER
    assert "theirs" in problem.what
    assert len(world.etcd.members) == 4


def test_a_member_that_somebody_else_removed_is_told_and_comes_anew_when_asked_for() -> None:
    world = installed(3)
    world.etcd.remove_by_others("prod-etcd-2")
    world.etcd.processes["prod-etcd-2"].data = ""
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 3)
    assert refused.value.problems[0].reason is Reason.ETCD_MEMBERS_DIFFER
    brought_to(world, 3, ["prod-etcd-2"])
    assert_is_well(world, 3)


# -- before the first change -------------------------------------------------------------------------------------------


def test_fewer_members_are_asked_for_by_their_number() -> None:
    world = installed(3)
    (problem,) = members_wanted.problems(a_run(world, 1), confirmed=0, replace_names=())
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert "etcd_confirm_members=1" in problem.remedy
    assert members_wanted.problems(a_run(world, 1), confirmed=3, replace_names=()) == [problem]
    assert members_wanted.problems(a_run(world, 1), confirmed=1, replace_names=()) == []
    assert members_wanted.problems(a_run(world, 5), confirmed=0, replace_names=()) == []


def test_a_change_that_cannot_be_made_is_told_before() -> None:
    world = installed(3)
    world.etcd.cut("prod-etcd-1")
    (problem,) = members_wanted.problems(a_run(world, 5), confirmed=0, replace_names=())
    assert problem.reason is Reason.ETCD_MAJORITY_AT_RISK
    assert members_wanted.problems(a_run(world, 3), confirmed=0, replace_names=()) == []
    (unknown,) = members_wanted.problems(a_run(world, 3), confirmed=0, replace_names=["prod-etcd-9"])
    assert unknown.reason is Reason.INVALID_ARGUMENT


def test_one_late_answer_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(3)
    world.etcd.cut("prod-etcd-1")

    def sleep(_seconds: float) -> None:
        world.etcd.processes["prod-etcd-1"].cut = False

    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    monkeypatch.setattr(members.time, "sleep", sleep)
    assert members_wanted.problems(a_run(world, 5), confirmed=0, replace_names=()) == []


def test_the_first_members_may_be_others_until_there_is_a_stateful_set() -> None:
    world = PodsOfEtcd()
    records = tuple(EtcdMemberState(name) for name in members_in_pods(3))
    stored = samples.state(etcd=EtcdState(token="t", storage="volumeClaim", members=records))
    run = a_run(world, 1, stored)
    members_wanted.begin(run)
    assert [each.name for each in run.state.etcd.members] == members_in_pods(1)
    world.put(
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "prod-etcd", "namespace": NAMESPACE}}
        | {"spec": {"replicas": 0}}
    )
    with pytest.raises(ProblemsError) as refused:
        members_wanted.begin(a_run(world, 3))
    assert "begun with 1 member," in str(refused.value)


def test_a_check_tells_who_would_come_and_go_and_writes_nothing() -> None:
    world = installed(3)
    before = world.writes
    more, fewer = ["created prod-etcd-3", "created prod-etcd-4"], ["deleted prod-etcd-1", "deleted prod-etcd-2"]
    for count, told in ((5, more), (1, fewer)):
        run = fake_run(document(count), world, check=True)
        assert [f"{each.action} {each.ref.name}" for each in members.bring_about(run, TIMEOUT)] == told
    assert world.writes == before


# -- killed ------------------------------------------------------------------------------------------------------------


def _grow(world: PodsOfEtcd) -> None:
    brought_to(world, 3)


def _shrink(world: PodsOfEtcd) -> None:
    brought_to(world, 1)


def _replace(world: PodsOfEtcd) -> None:
    brought_to(world, 3)


WAYS: dict[str, tuple[int, int, Callable[[PodsOfEtcd], None], bool]] = {
    "grow": (1, 3, _grow, False),
    "shrink": (3, 1, _shrink, False),
    "replace": (3, 3, _replace, True),
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_any_write_the_next_run_comes_to_the_same_end(way: str) -> None:
    start, end, act, loses = WAYS[way]

    def world_before() -> PodsOfEtcd:
        world = installed(start)
        if loses:
            world.lose_volume("prod-etcd-1")
        world.writes = 0
        return world

    whole = world_before()
    act(whole)
    assert_is_well(whole, end)
    assert whole.writes > 10
    for moment in range(whole.writes % MOMENTS, whole.writes, MOMENTS):
        world = world_before()
        world.until = moment
        with pytest.raises(Killed):
            act(world)
        world.until = None
        assert world.etcd.has_majority()
        act(world)
        assert_is_well(world, end)


@pytest.mark.parametrize("seed", range(5))
def test_killed_again_and_again_while_the_document_changes(seed: int) -> None:
    chance = random.Random(seed)
    world = installed(3)
    for _ in range(12):
        count = chance.choice([1, 3, 5])
        world.until = world.writes + chance.randrange(1, 60)
        with contextlib.suppress(Killed):
            brought_to(world, count)
        assert world.etcd.has_majority()
    world.until = None
    brought_to(world, 3)
    assert_is_well(world, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_members_that_older_settings_keep_from_starting_are_renewed_before_anybody_waits_for_them(count: int) -> None:
    world = installed(count)
    for name in members_in_pods(count):
        world.etcd.processes[name].up = False
    asked: list[float] = []

    def renew(_run: Run, timeout: float) -> list[members.Change]:
        asked.append(timeout)
        for name in members_in_pods(count):
            world.etcd.processes[name].up = True
        return [members.Change(members.Ref("v1", "Pod", name, NAMESPACE), "changed") for name in members_in_pods(count)]

    changes = members.bring_about(a_run(world, count), TIMEOUT, renew=renew)
    assert [each.ref.name for each in changes] == members_in_pods(count)
    assert asked == [TIMEOUT]
    # Where a majority answers, nobody is renewed on the way.
    assert members.bring_about(a_run(world, count), TIMEOUT, renew=renew) == []
    assert asked == [TIMEOUT]


def test_members_that_do_not_start_all_the_same_are_waited_for_and_told() -> None:
    world, asked = installed(3), list[bool]()
    for name in members_in_pods(3)[:2]:
        world.etcd.processes[name].up = False
    with pytest.raises(ProblemsError, match="they only have to start"):
        members.bring_about(a_run(world, 3), 0.2, renew=lambda *_: asked.append(True) or [])
    assert asked == [True], "once"
