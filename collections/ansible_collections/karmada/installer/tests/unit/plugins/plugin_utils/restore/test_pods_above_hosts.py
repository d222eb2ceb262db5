# SPDX-License-Identifier: Apache-2.0
"""Restores of a control plane in pods above etcd on hosts: order of both sides, and what is released of it in parts.

Histories that are alike wherever etcd is on hosts are in ``test_on_hosts``, and those of each step in
``test_killed_at_each_step``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import (
    etcd_snapshot,
    host_components,
    host_programs,
    restore_on_host,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import PART_RELEASED
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    carry_out,
    check,
    closed,
    on_hosts,
    survivor,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.means import STAGES
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import (
    PART,
    Inside,
    assert_all_let_go,
    names,
    set_to_work,
    space,
)
from ansible_collections.karmada.installer.tests.unit.support.released_parts import assert_killed_part_is_gone_on_with
from ansible_collections.karmada.installer.tests.unit.support.restore_below_pods_in_memory import World, made, never
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import (
    Role,
    assert_quarantined,
    assert_undisturbed,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import MOMENTS, Killed


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return made(monkeypatch, tmp_path)


def in_quarantine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[World, Inside]:
    """One whose restore has come to its quarantine, and what is inside of it."""
    world = made(monkeypatch, folder)
    inside = Inside(world)
    set_to_work(world, inside, monkeypatch)
    begin("above hosts, in quarantine", (world, inside, world.host), lambda: take_steps(world, Goal.QUARANTINE))
    assert not inside.carried_out
    world.changes = 0
    return world, inside


def test_pods_stop_here_and_members_by_tasks_when_no_pod_is_left(world: World) -> None:
    role = take_steps(world, Goal.QUARANTINE)
    assert role.taken == [
        Step.BACK_UP,
        Step.PREPARE,
        Step.STOP_WRITERS,
        Step.CLOSE,
        Step.STOP_SERVERS,
        Step.STOP_ETCD,
        Step.SWITCH,
        Step.START_ETCD,
        Step.PROVE,
        Step.START_SERVERS,
        Step.PROVE_CLOSED,
        Step.COMPARE,
    ]
    # Hosts are looked at once before each, and three times while nobody is served.
    assert role.rests == [on_hosts.BACKED_UP, on_hosts.PREPARED, on_hosts.STOPPED, on_hosts.ETCD_RESTORED, STAGES]
    role = take_steps(world, Goal.UNDO)
    assert role.rests == [on_hosts.STOPPED, on_hosts.ETCD_STARTED, STAGES]
    assert_undisturbed(world)


def test_a_member_that_does_not_stop_is_named_with_its_host(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Role, "on_hosts", lambda *_: None)
    with pytest.raises(ProblemsError, match="still running: etcd on cp1, etcd on etcd1, etcd on etcd2"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == {ETCD.name}


@pytest.mark.parametrize(("goal", "content"), [(Goal.QUARANTINE, "before"), (Goal.UNDO, "backup")])
def test_a_pod_that_does_not_stop_is_named_and_keeps_every_member_running(
    world: World, monkeypatch: pytest.MonkeyPatch, goal: Goal, content: str
) -> None:
    if goal is Goal.UNDO:
        take_steps(world, Goal.QUARANTINE)
    pods = world.host._pods_of

    def lasting(workload: Any) -> None:
        if workload["metadata"]["name"] != "prod-apiserver":
            pods(workload)

    with monkeypatch.context() as lost:
        lost.setattr(world.host, "_pods_of", lasting)
        with_patience(lost, -1)
        with pytest.raises(ProblemsError, match="still there: prod-apiserver-0"):
            take_steps(world, goal)
    assert world.content() == {content}
    take_steps(world, Goal.UNDO)
    assert_undisturbed(world)


def with_patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have runs wait for so long."""
    begun = carry_out.Restoring.__post_init__

    def begin_run(restoring: Any) -> None:
        restoring.timeout = seconds
        begun(restoring)

    monkeypatch.setattr(carry_out.Restoring, "__post_init__", begin_run)


def test_an_api_server_that_is_silent_for_a_moment_is_asked_again_within_the_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked from here, so that no look at hosts has to come before."""
    asked: list[bool] = []

    def late(_run: Any) -> list[str]:
        asked.append(True)
        if len(asked) == 1:
            raise Unreachable("the API server", "GET", closed.PATH, 0, "", "it starts")
        return world.host.accepting_agents()

    monkeypatch.setattr(closed, "accepting_agents", late)
    monkeypatch.setattr(carry_out, "LOOK_SECONDS", 0)
    with_patience(monkeypatch, 60)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert len(asked) == 2


def test_there_is_no_quarantine_with_a_pod_that_accepts_agents(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed, "accepting_agents", lambda _run: ["prod-apiserver-0"])
    with pytest.raises(ProblemsError, match="certificates of agents are accepted by prod-apiserver-0"):
        take_steps(world, Goal.QUARANTINE)


def test_a_member_that_somebody_starts_after_it_was_stopped_is_stopped_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = carry_out.Restoring.note

    def noted(restoring: Any, step: Step, done: str = "") -> None:
        note(restoring, step, done)
        if step is Step.STOP_ETCD:
            raise Killed

    with monkeypatch.context() as killed:
        killed.setattr(carry_out.Restoring, "note", noted)
        take_steps(world, Goal.QUARANTINE)
    assert (stored(world).step, world.running()) == (Step.STOP_ETCD, set())
    for machine in world.machines.values():
        machine.running.add(ETCD.name)
        machine.serving = "gen-1"
    role = take_steps(world, Goal.QUARANTINE)
    assert role.taken[0] == Step.STOP_ETCD
    assert_quarantined(world)


@pytest.mark.parametrize("step", [etcd_snapshot, host_components, host_programs, restore_on_host])
def test_what_may_take_long_on_a_host_keeps_the_lease_of_its_run(step: Any) -> None:
    assert step.ActionModule.KEEPS_LOCK


# -- parts -------------------------------------------------------------------------------------------------------------


def assert_released(world: World, inside: Inside, before: dict[str, Any]) -> None:
    assert stored(world).step == "Released"
    assert world.running() == world.components()
    assert_all_let_go(inside, before)


def test_one_cluster_follows_and_the_other_does_not_until_it_is_released_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world, inside = in_quarantine(monkeypatch, tmp_path)
    before = inside.works()
    role = take_steps(world, Goal.RELEASE, **PART)
    assert role.taken.index(Step.HOLD) < role.taken.index(Step.OPEN) < role.taken.index(Step.START_ALL)
    assert role.rests == [STAGES, on_hosts.BACKED_UP], "what holds it is written here"
    assert (stored(world).step, dict(stored(world).parts)) == (PART_RELEASED, {"m1": ()})
    assert inside.carried_out == names("m1")
    assert inside.labels() == {space("m2")}
    changes = world.changes
    assert take_steps(world, Goal.RELEASE, **PART).taken == []
    assert world.changes == changes
    with pytest.raises(ProblemsError, match="it is released"):
        take_steps(world, Goal.UNDO)
    take_steps(world, Goal.RELEASE)
    assert_released(world, inside, before)
    assert take_steps(world, Goal.RELEASE).taken == []


def test_a_part_that_is_killed_at_any_change_tells_nobody_else_and_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert_killed_part_is_gone_on_with(lambda: in_quarantine(monkeypatch, tmp_path), MOMENTS, more_than=20)


def test_the_rest_that_is_killed_at_any_change_ends_as_a_full_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, _ = in_quarantine(monkeypatch, tmp_path)
    take_steps(whole, Goal.RELEASE, **PART)
    begun = whole.changes
    take_steps(whole, Goal.RELEASE)
    for killed_after in range(0, whole.changes - begun, MOMENTS):
        world, inside = in_quarantine(monkeypatch, tmp_path)
        before = inside.works()
        take_steps(world, Goal.RELEASE, **PART)
        take_steps(world, Goal.RELEASE, killed_after)
        take_steps(world, Goal.RELEASE)
        assert_released(world, inside, before)


def test_before_a_part_is_released_it_may_be_taken_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world, inside = in_quarantine(monkeypatch, tmp_path)
    take_steps(world, Goal.RELEASE, 12, **PART)
    assert inside.labels()
    take_steps(world, Goal.UNDO)
    assert (stored(world).step, world.content()) == ("Undone", {"before"})
    assert world.running() == world.components()
    known = world.state()
    assert replace(known.etcd) == stored(world).former


# -- a member that has survived ----------------------------------------------------------------------------------------


def test_what_a_member_has_that_has_survived_is_what_came_from_its_host(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in world.machines.values():
        machine.serving = ""
    role = Role(world, Goal.QUARANTINE)
    role.look()
    chosen: Any = check.choose(None, Asked())  # type: ignore[arg-type]
    asked = Asked(survivor="etcd1", confirm="etcd1", keys=("a key",), fetched={"file": "x"})
    monkeypatch.setattr(survivor.Copy, "of", lambda plain: f"copy of {plain['file']}")
    monkeypatch.setattr(survivor.survivor_copy, "taken", never)
    monkeypatch.setattr(survivor, "_found", lambda *given: SimpleNamespace(told=(), copy=given[-1]))
    found = survivor.judged(role.run(), asked, check.Place(chosen.wanted, chosen.series, chosen.target), 0)
    assert found.copy == "copy of x"
