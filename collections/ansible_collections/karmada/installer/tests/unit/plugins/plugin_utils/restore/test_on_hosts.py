# SPDX-License-Identifier: Apache-2.0
"""Restores of a control plane whose etcd is on hosts, and what members were told when runs are killed at any change.

All else is on hosts, too, or in pods above them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ETCD,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    on_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import restore_below_pods_in_memory
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import (
    FORMER,
    MEMBERS,
    REVISION,
    Role,
    World,
    assert_quarantined,
    assert_undisturbed,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import BACKUP, BACKUP_BEFORE, MOMENTS
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

#: Makes a world that nobody has restored.
Make = Callable[[pytest.MonkeyPatch, Path], World]


@pytest.fixture(params=[made, restore_below_pods_in_memory.made], ids=["on hosts", "above hosts"])
def make(request: pytest.FixtureRequest) -> Make:
    found: Make = request.param
    return found


@pytest.fixture
def world(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return make(monkeypatch, tmp_path)


@pytest.fixture
def on_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """All of it on hosts."""
    return made(monkeypatch, tmp_path)


def test_a_restore_ends_in_quarantine_and_a_release_lets_it_work(world: World) -> None:
    role = take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert not world.knows_agents()
    assert {each.authorities for each in world.api_servers()} <= {1}
    assert role.taken.index(Step.PREPARE) < role.taken.index(Step.STOP_WRITERS) < role.taken.index(Step.SWITCH)
    assert (stored(world).before, stored(world).former) == (BACKUP_BEFORE, FORMER)
    take_steps(world, Goal.RELEASE)
    assert world.told == {"before", "backup"}
    assert world.running() == world.components()
    assert world.knows_agents()
    assert (stored(world).step, stored(world).aside) == ("Released", ("gen-1",))
    assert all("gen-1" in world.machines[name].folders for name in MEMBERS), "data is never deleted"


def test_hosts_are_looked_at_twice_while_nobody_is_served(on_them: World) -> None:
    role = take_steps(on_them, Goal.QUARANTINE)
    until = role.rests.index(on_hosts.STOPPED)
    assert role.rests[until:] == [on_hosts.STOPPED, on_hosts.STOPPED, on_hosts.ETCD_RESTORED, "stages"]
    assert {Step.SWITCH, Step.START_ETCD, Step.PROVE} <= set(role.taken)


def test_members_are_asked_again_whose_first_answers_are_no_proof(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, answers = Role.counted, iter([REVISION - 1])
    monkeypatch.setattr(Role, "counted", lambda self: counted(self, revision=next(answers, REVISION)))
    role = take_steps(world, Goal.QUARANTINE)
    assert role.rests[-3:] == [on_hosts.ETCD_RESTORED, on_hosts.COUNTS, "stages"]
    assert_quarantined(world)


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE])
def test_what_is_done_is_done_once(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    if goal is Goal.RELEASE:
        take_steps(world, Goal.RELEASE)
    before = world.changes
    assert take_steps(world, goal, confirm="").taken == []
    assert world.changes == before


def test_a_run_that_is_killed_at_any_change_is_gone_on_with_or_taken_back(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = make(monkeypatch, tmp_path)
    take_steps(whole, Goal.QUARANTINE)
    assert whole.changes > 30
    for killed_after in range(0, whole.changes, MOMENTS):
        for goal, holds in ((Goal.QUARANTINE, assert_quarantined), (Goal.UNDO, assert_undisturbed)):
            here = make(monkeypatch, tmp_path)
            take_steps(here, Goal.QUARANTINE, killed_after)
            assert here.told <= {"before"}
            if goal is Goal.UNDO and here.state().restore is None:
                assert_undisturbed(here)  # nothing had begun
                continue
            take_steps(here, goal)
            holds(here)


def test_the_way_back_that_is_killed_at_any_change_is_gone_on_with(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = make(monkeypatch, tmp_path)
    take_steps(whole, Goal.QUARANTINE)
    begun = whole.changes
    take_steps(whole, Goal.UNDO)
    assert_undisturbed(whole)
    assert stored(whole).aside == ("gen-2",)
    for killed_after in range(0, whole.changes - begun, MOMENTS):
        here = make(monkeypatch, tmp_path)
        take_steps(here, Goal.QUARANTINE)
        take_steps(here, Goal.UNDO, killed_after)
        take_steps(here, Goal.UNDO)
        assert_undisturbed(here)


def test_half_of_the_data_is_not_used_and_not_deleted(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for killed_after in itertools.count():
        world = make(monkeypatch, tmp_path)
        take_steps(world, Goal.QUARANTINE, killed_after)
        if "half" in world.machines["etcd1"].folders.values():
            break
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert (stored(world).generation, stored(world).aside) == (3, ("gen-2",))
    assert world.machines["etcd1"].folders["gen-2"] == "half"


def test_a_host_that_has_made_nothing_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Role, "prepared", lambda _self: None)
    with pytest.raises(ProblemsError, match="no new data was made on cp1, etcd1, etcd2"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == world.components()


def test_what_runs_nevertheless_is_named(on_them: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Role, "on_hosts", lambda *_: None)
    with pytest.raises(ProblemsError, match=r"still running: .*karmada-scheduler on cp1"):
        take_steps(on_them, Goal.QUARANTINE)


def test_a_target_that_takes_no_backup_of_what_is_there_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Role.rest
    with monkeypatch.context() as broken:
        broken.setattr(Role, "rest", lambda self, *given: (self.troubles.append("it is full"), rest(self, *given))[1])
        with pytest.raises(ProblemsError, match="it is full"):
            take_steps(world, Goal.QUARANTINE)
    assert world.running() == world.components()
    take_steps(world, Goal.QUARANTINE)
    told: list[Problem] = []
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    monkeypatch.setattr(Role, "rest", lambda self, *given: (self.troubles.append("it is full"), rest(self, *given))[1])
    take_steps(world, Goal.RELEASE)
    assert stored(world).step == "Released"
    assert ["it is full" in each.what for each in told] == [True]


def test_etcd_that_does_not_answer_is_no_reason_to_restore_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: Any) -> None:
        raise ProblemsError(Problem("no member can be asked", "etcd", "", reason=Reason.ETCD_UNHEALTHY))

    monkeypatch.setattr(take, "chosen", dead)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).before == ""


def test_content_that_differs_is_looked_at_again_and_then_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Role.counted
    monkeypatch.setattr(Role, "counted", lambda self: counted(self, works=2))
    with pytest.raises(ProblemsError, match="it has 2 works, and the backup has 3"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == {ETCD.name}
    role = Role(world, Goal.QUARANTINE)
    role.look()
    role.counted()
    assert not role.action().end(Step.PROVE, Done(last=False)), "the role asks once more"


def test_there_is_no_quarantine_with_an_api_server_that_accepts_agents(on_them: World) -> None:
    role = Role(on_them, Goal.QUARANTINE)
    role.play()
    role.written()
    for status, said in (
        (403, "are accepted by the API server of cp2"),
        (0, "could not be asked"),
        (500, "answers 500"),
    ):
        again = Role(on_them, Goal.QUARANTINE)
        again.look()
        again.runs.see(cp2={"restore": {"running": [], "status": status}})
        with pytest.raises(ProblemsError, match=said):
            again.action().look_again()


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE, Goal.UNDO])
def test_no_step_is_taken_while_a_host_cannot_be_looked_at(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    role = Role(world, goal)
    role.look()
    role.runs.see(etcd2={"refusal": "No route to host", "restore": {}})
    with pytest.raises(ProblemsError, match="host etcd2"):
        role.action().next()


def test_without_its_name_nothing_begins(world: World) -> None:
    with pytest.raises(ProblemsError, match="loses everything since"):
        take_steps(world, Goal.QUARANTINE, confirm="")
    assert world.changes == 0


def test_the_module_is_told_what_the_data_of_a_host_is(tmp_path: Path) -> None:
    state = remembered(etcd=FORMER)
    runs = Runs(tmp_path / "run")
    runs.see_all(seen(Stored().after(state, on_hosts=False)))
    journal = RestoreState("back", "nightly", BACKUP, "", "0d6c", 4, 10**9, FORMER, members=MEMBERS, closed=True)
    runs.handover.stored = Stored().after(replace(state, restore=journal), on_hosts=False).plain
    run = runs.step()
    assert on_hosts.folder(run, "etcd1") == "/var/lib/karmada/prod/etcd/gen-4"
    new = on_hosts.new_data_of(run)
    assert [each.peer_url for each in new.members] == [f"https://192.0.2.{n}:2380" for n in (1, 3, 4)]
    question = on_hosts.question(run, "cp2")
    assert question["url"] == "https://192.0.2.2:5443/version"
    assert "BEGIN CERTIFICATE" in question["certificate"]
    assert on_hosts.question(run, "etcd1") == {}, "it has no API server"
