# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods that have lost their data or do not answer: which are replaced, and when nobody may be."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Members
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members,
    patience,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support import etcd_members_in_pods
from ansible_collections.karmada.installer.tests.unit.support.etcd_members_in_pods import (
    a_run,
    assert_is_well,
    brought_to,
    installed,
    servers,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import (
    NAMESPACE,
    FakeEtcdClient,
    Killed,
    PodsOfEtcd,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import (
    with_client_in_memory,
    without_lease,
    without_pauses,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)
    with_client_in_memory(monkeypatch)


def assert_is_replaced_alone(world: PodsOfEtcd, lost: str) -> None:
    """Lose the data of one of three, and see it come back under another ID while the others keep theirs."""
    before = {each.name: each.id for each in world.etcd.members.values()}
    world.lose_volume(lost)
    assert world.etcd.healthy_voters() == 2
    assert brought_to(world, 3) == [f"deleted {lost}", f"created {lost}"]
    assert_is_well(world, 3)
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert [name for name in after if after[name] != before[name]] == [lost]


@pytest.mark.parametrize("lost", ["prod-etcd-0", "prod-etcd-1", "prod-etcd-2"])
def test_a_member_whose_volume_is_another_one_is_replaced_under_a_new_id(lost: str) -> None:
    world = installed(3)
    assert_is_replaced_alone(world, lost)


@pytest.mark.parametrize("lost", ["prod-etcd-0", "prod-etcd-2"])
def test_a_lost_member_is_replaced_while_etcd_is_full(lost: str) -> None:
    """Otherwise nobody could write again: room is made only while all members work."""
    world = installed(3)
    world.etcd.full = True
    world.lose_volume(lost)
    assert brought_to(world, 3) == [f"deleted {lost}", f"created {lost}"]
    assert_is_well(world, 3)


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


@pytest.mark.parametrize(("request_", "count", "asked"), [("remove", 3, ["prod-etcd-0"]), ("add_learner", 5, [])])
def test_a_decision_is_taken_back_where_another_member_loses_its_data(
    request_: str, count: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is killed between what is put on record and what is asked of etcd."""
    world = installed(3)
    with monkeypatch.context() as killed:

        def before_it_is_asked(_client: FakeEtcdClient, _argument: str) -> Members:
            raise Killed

        killed.setattr(FakeEtcdClient, request_, before_it_is_asked)
        with pytest.raises(Killed):
            brought_to(world, count, asked)
    world.lose_volume("prod-etcd-1")
    before = {each.name: each.id for each in world.etcd.members.values()}
    brought_to(world, count)
    assert_is_well(world, count)
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert [name for name in before if after[name] != before[name]] == ["prod-etcd-1"]


# -- data in the pods (emptyDir) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["prod-etcd-0", "prod-etcd-2"])
def test_a_lost_pod_of_three_that_had_its_data_is_replaced(lost: str) -> None:
    world = installed(3, "emptyDir")
    assert_is_replaced_alone(world, lost)
    # What it had left is gone with its pod, so there is nothing to tidy up.
    assert not a_run(world, 3).state.etcd.left


def test_a_lost_pod_that_had_the_only_data_is_not_replaced() -> None:
    world = installed(1, "emptyDir")
    world.lose_volume("prod-etcd-0")
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 1)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MAJORITY_LOST
    assert "its volume is another one than it had" in problem.what
    assert "restore" in problem.remedy
    assert len(world.etcd.members) == 1


def test_a_lost_pod_is_replaced_wherever_a_run_is_killed() -> None:
    whole = installed(3, "emptyDir")
    whole.lose_volume("prod-etcd-1")
    begun = whole.writes
    brought_to(whole, 3)
    moments = range(whole.writes - begun)
    assert len(moments) > 10
    for moment in moments[::3]:
        world = installed(3, "emptyDir")
        world.lose_volume("prod-etcd-1")
        world.until = world.writes + moment
        with pytest.raises(Killed):
            brought_to(world, 3)
        world.until = None
        brought_to(world, 3)
        assert_is_well(world, 3)


def test_members_with_data_in_their_pods_come_and_go_and_leave_nothing() -> None:
    world = installed(1, "emptyDir")
    brought_to(world, 3)
    assert_is_well(world, 3)
    assert brought_to(world, 3, ["prod-etcd-1"]) == ["deleted prod-etcd-1", "created prod-etcd-1"]
    assert_is_well(world, 3)
    brought_to(world, 1)
    assert_is_well(world, 1)
    assert not a_run(world, 1).state.etcd.left


# -- requests whose answers are lost, and members that are ill ---------------------------------------------------------


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


NO_ANSWER = EtcdError(Cause.UNREACHED, "no answer in time")


@pytest.mark.parametrize("request_", ["add_learner", "promote", "remove", "move_leader"])
def test_one_answer_that_does_not_come_is_looked_after(request_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = installed(3), list[str]()
    change = getattr(FakeEtcdClient, request_)

    def without_an_answer(client: FakeEtcdClient, argument: str) -> Members:
        asked.append(argument)
        answer: Members = change(client, argument)
        if len(asked) == 1:
            raise NO_ANSWER
        return answer

    monkeypatch.setattr(FakeEtcdClient, request_, without_an_answer)
    brought_to(world, 3, ["prod-etcd-0"])
    assert len(asked) == 1, "it was done"
    assert_is_well(world, 3)


def test_answers_that_never_come_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(3)

    def without_an_answer(_client: FakeEtcdClient, _identity: str) -> None:
        raise NO_ANSWER

    monkeypatch.setattr(FakeEtcdClient, "move_leader", without_an_answer)
    with pytest.raises(ProblemsError, match="no answer in time") as refused:
        members.bring_about(a_run(world, 3), 0.2, ["prod-etcd-0"])
    assert refused.value.problems[0].reason is Reason.NOT_READY_IN_TIME


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
    with monkeypatch.context() as soon:
        # It looks again without a pause, for as long as it may wait.
        soon.setattr(etcd_members_in_pods, "TIMEOUT", 10.0)
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


def test_a_run_ends_in_words_where_clients_would_be_left_with_one_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = installed(5)
    with monkeypatch.context() as killed:

        def before_it_goes(_client: FakeEtcdClient, _identity: str) -> Members:
            raise Killed

        killed.setattr(FakeEtcdClient, "remove", before_it_goes)
        with pytest.raises(Killed):
            brought_to(world, 1)
    world.etcd.cut("prod-etcd-0")
    followed = world.log.count("apply Deployment prod-apiserver")
    with pytest.raises(ProblemsError) as refused:
        members.bring_about(a_run(world, 1), 5)
    (problem,) = refused.value.problems
    assert (problem.reason, problem.where) == (Reason.ETCD_MAJORITY_AT_RISK, "etcd member prod-etcd-0")
    assert "left with prod-etcd-0 (it does not answer), which stays and is not healthy" in problem.what
    assert world.log.count("apply Deployment prod-apiserver") == followed
    assert len(world.etcd.members) == 5
    # With the number of before, clients connect to those that work, and one that is well again lets it come to an end.
    with pytest.raises(ProblemsError):
        members.bring_about(a_run(world, 5), 5)
    assert servers(world) == [f"prod-etcd-{number}" for number in range(4)]
    world.etcd.cut("prod-etcd-0", off=False)
    brought_to(world, 5)
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
