# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods come and go, wherever a run is killed, and nobody loses a majority."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import UNAVAILABLE, Members
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import (
    EtcdMemberState,
    EtcdState,
    LeftFolder,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members,
    members_wanted,
    patience,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_members_in_pods import (
    TIMEOUT,
    a_run,
    assert_is_well,
    brought_to,
    installed,
    left_by,
)
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

#: Of the writes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("ETCD_MOMENTS", "3"))


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)
    with_client_in_memory(monkeypatch)


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


def test_a_member_that_etcd_does_not_add_at_once_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world, said, asked = installed(1), list[str](), list[str]()
    add = FakeEtcdClient.add_learner

    def later(client: FakeEtcdClient, url: str) -> Members:
        asked.append(url)
        if asked.count(url) < 4:
            raise EtcdError(Cause.WRONG, "it answers: unhealthy cluster", UNAVAILABLE)
        return add(client, url)

    monkeypatch.setattr(FakeEtcdClient, "add_learner", later)
    run = a_run(world, 3)
    run.say = said.append
    members.bring_about(run, TIMEOUT)
    assert len(asked) == 8
    assert [each for each in said if "adding" in each] == ["etcd: adding prod-etcd-1", "etcd: adding prod-etcd-2"]


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
    assert left_by(a_run(world, 3), "prod-etcd-2") == {"gen-1"}


def test_what_one_has_left_that_was_replaced_is_on_record_by_its_volume() -> None:
    world = installed(3)
    brought_to(world, 3, ["prod-etcd-1"])
    assert_is_well(world, 3)
    (left,) = a_run(world, 3).state.etcd.left
    claim = world.get("v1", "PersistentVolumeClaim", "data-prod-etcd-1", NAMESPACE)
    assert claim
    assert left == LeftFolder("prod-etcd-1", "gen-1", claim["metadata"]["uid"])
    world.lose_volume("prod-etcd-1")
    brought_to(world, 3)
    assert_is_well(world, 3)
    (left,) = a_run(world, 3).state.etcd.left_beside()
    assert left.folder != "gen-1", "the volume that had it is gone"
    assert left.volume != claim["metadata"]["uid"], "what its pod has begun in the new volume, before it was replaced"


def test_clients_follow_once_when_growing_and_before_shrinking() -> None:
    world = installed(1)
    applied = world.log.count("apply Deployment prod-apiserver")
    brought_to(world, 5)
    assert world.log.count("apply Deployment prod-apiserver") == applied + 1
    brought_to(world, 1)
    assert world.log.count("apply Deployment prod-apiserver") == applied + 2


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


@pytest.mark.parametrize("forced", ["prod-etcd-0", "prod-etcd-2"])
@pytest.mark.parametrize("count", [3, 5, 1])
def test_one_that_was_forced_to_go_on_alone_is_told_by_lists_that_differ(forced: str, count: int) -> None:
    """It keeps its cluster's ID and calls itself healthy; nobody says from here whose data counts."""
    world = installed(3)
    world.forced, writes = forced, world.writes
    others = ", ".join(name for name in members_in_pods(3) if name != forced)
    with pytest.raises(ProblemsError) as refused:
        members.bring_about(a_run(world, count), TIMEOUT)
    (problem,) = refused.value.problems
    assert (problem.reason, problem.where) == (Reason.ETCD_MEMBERS_DIFFER, "etcd")
    assert f"{forced} lists {forced}" in problem.what
    assert f"{others} list prod-etcd-0, prod-etcd-1, prod-etcd-2" in problem.what
    assert "etcd_replace" not in str(problem)
    assert "force-new-cluster" in problem.remedy
    assert world.writes == writes
    assert members_wanted.problems(a_run(world, count), confirmed=1, replace_names=["prod-etcd-1"])[-1] == problem


def test_one_that_another_one_goes_on_without_is_not_called_removed() -> None:
    """With the third one down, only the forced one has a leader, and so a list."""
    world = installed(3)
    world.etcd.cut("prod-etcd-2")
    world.forced = "prod-etcd-0"
    with pytest.raises(ProblemsError) as refused:
        members.bring_about(a_run(world, 3), TIMEOUT)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MEMBERS_DIFFER
    assert "prod-etcd-0 does not list the member prod-etcd-1" in problem.what
    assert "etcd_replace" not in str(problem)


def test_a_change_between_two_answers_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    world, looks = installed(3), []
    status = FakeEtcdClient.status

    def once(client: FakeEtcdClient) -> list[EndpointStatus]:
        looks.append(client)
        world.forced = "prod-etcd-0" if len(looks) in (2, 4, 9) else ""
        return status(client)

    monkeypatch.setattr(FakeEtcdClient, "status", once)
    brought_to(world, 5)
    assert_is_well(world, 5)
    assert len(looks) > 9


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


def test_members_that_somebody_else_has_changed_are_told_before_whatever_the_run_is_about() -> None:
    world = installed(3)
    world.etcd.add_stranger("theirs")
    run = a_run(world, 3)
    looked = members_wanted.look_before(run)
    (problem,) = members_wanted.problems(run, confirmed=0, replace_names=(), looked=looked)
    assert problem.reason is Reason.ETCD_MEMBERS_DIFFER
    assert "a learner that this installer has not added: theirs" in problem.what
    assert world.etcd.members["bad"], "it is left alone"
    stored = run.stored_state
    assert stored
    settled = a_run(world, 3, replace(stored, document=run.deployment, journal=Journal()))
    assert members_wanted.look_before(settled) is None, "a run with nothing to do leaves it to the report"
    assert members_wanted.problems(settled, confirmed=0, replace_names=()) == []


@pytest.mark.parametrize("recorded", [True, False], ids=["its cluster is on record", "of an earlier version"])
def test_an_etcd_that_was_restored_by_hand_is_another_cluster_of_which_nobody_is_removed(recorded: bool) -> None:
    world = installed(3)
    stored = a_run(world, 3).stored_state
    assert stored
    assert stored.etcd.cluster == "c"
    if not recorded:
        stored = replace(stored, etcd=replace(stored.etcd, cluster=""))
    world.etcd.restore_by_hand()
    for count in (3, 5):
        run = a_run(world, count, stored)
        looked = members_wanted.look_before(run)
        (problem,) = members_wanted.problems(run, confirmed=0, replace_names=(), looked=looked)
        assert problem.reason is Reason.ETCD_MEMBERS_DIFFER
        assert problem.what.endswith("somebody has restored all of it by hand, or begun it anew")
        assert ("are the cluster dd, and the one of this control plane is c" in problem.what) == recorded
        assert problem.remedy.startswith("remove none of its members")
    run = a_run(world, 5, stored)
    with pytest.raises(ProblemsError):
        members.bring_about(run, TIMEOUT)
    assert run.state.etcd.cluster == stored.etcd.cluster, "who is not known is not noted"


def test_one_late_answer_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(3)
    world.etcd.cut("prod-etcd-1")

    def sleep(_seconds: float) -> None:
        world.etcd.processes["prod-etcd-1"].cut = False

    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    monkeypatch.setattr(members.time, "sleep", sleep)
    assert members_wanted.problems(a_run(world, 5), confirmed=0, replace_names=()) == []


def test_a_late_answer_has_its_time_to_settle_whatever_was_waited_for_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here for etcd itself, which adds nobody for a while after the members have changed."""
    world, clock, seen = installed(3), [1000.0], list[float]()
    add = FakeEtcdClient.add_learner

    def later(client: FakeEtcdClient, url: str) -> Members:
        if clock[0] < 1035.0:
            raise EtcdError(Cause.WRONG, "unhealthy cluster", UNAVAILABLE)
        return add(client, url)

    def sleep(_seconds: float) -> None:
        clock[0] += 5.0
        if clock[0] == 1035.0:
            seen.append(clock[0])
        world.etcd.processes["prod-etcd-1"].cut = clock[0] == 1035.0

    monkeypatch.setattr(FakeEtcdClient, "add_learner", later)
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    monkeypatch.setattr(members.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(members.time, "sleep", sleep)
    brought_to(world, 5)
    assert seen == [1035.0]
    assert_is_well(world, 5)


def test_an_api_server_that_does_not_follow_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an overlay sets the URLs of the members that it connects to."""
    world, clock, told = installed(3), [1000.0], list[str]()

    def follow(run: Run, _timeout: float) -> list[Change]:
        told.append(run.name)
        assert len(told) < 100, "a loop without end"
        return []

    def sleep(_seconds: float) -> None:
        clock[0] += 5.0

    monkeypatch.setattr(members.clients, "follow", follow)
    monkeypatch.setattr(members.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(members.time, "sleep", sleep)
    with pytest.raises(ProblemsError) as refused:
        brought_to(world, 1)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.NOT_READY_IN_TIME
    assert "etcd-servers" in problem.what


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


def test_the_first_look_tells_what_members_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = installed(3)
    looked = members_wanted.look_before(a_run(world, 3))
    assert looked
    assert looked.versions == {"3.6.14"}
    # What was just looked at is not looked at again.
    monkeypatch.setattr(members_wanted, "look", None)
    assert members_wanted.problems(a_run(world, 5), confirmed=0, replace_names=(), looked=looked) == []
    begun = samples.state(etcd=EtcdState(token="t", storage="volumeClaim"))
    assert members_wanted.look_before(a_run(PodsOfEtcd(), 3, begun)) is None, "it has no members yet"


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
        return [Change(Ref("v1", "Pod", name, NAMESPACE), "changed") for name in members_in_pods(count)]

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
