# SPDX-License-Identifier: Apache-2.0
"""Releases of a part on plain hosts whose runs are killed at any change, inside the control plane and on the hosts.

Each API server is asked by a look at its host, and what is to be held is written by tasks of the role, once it is on
record.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import restore_on_host
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import PART_RELEASED
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held, on_hosts, partial
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import (
    PART,
    Inside,
    assert_all_let_go,
    going_work,
    names,
    space,
    work,
)
from ansible_collections.karmada.installer.tests.unit.support.released_parts import assert_killed_part_is_gone_on_with
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import (
    Role,
    World,
    everything,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import MOMENTS


def in_quarantine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[World, Inside]:
    """Hosts whose restore has come to its quarantine, and the control plane on them."""
    world = made(monkeypatch, folder)
    found = Inside(world)
    world.inside = found
    controllers = world._controllers

    def all_controllers() -> None:
        controllers()
        found.controllers()

    monkeypatch.setattr(world, "_controllers", all_controllers)
    begin("hosts in quarantine", (world, found), lambda: take_steps(world, Goal.QUARANTINE))
    assert not found.carried_out
    world.changes = 0
    return world, found


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[World, Inside]:
    return in_quarantine(monkeypatch, tmp_path)


def assert_released(world: World, inside: Inside, before: dict[str, Any]) -> None:
    assert stored(world).step == "Released"
    assert world.running() == everything()
    assert_all_let_go(inside, before)


def test_one_cluster_follows_and_the_other_does_not_until_it_is_released_too(both: tuple[World, Inside]) -> None:
    world, inside = both
    before = inside.works()
    role = take_steps(world, Goal.RELEASE, **PART)
    assert role.taken.index(Step.HOLD) < role.taken.index(Step.OPEN) < role.taken.index(Step.START_ALL)
    assert (stored(world).step, dict(stored(world).parts)) == (PART_RELEASED, {"m1": ()})
    assert inside.carried_out == names("m1")
    assert inside.labels() == {space("m2")}
    assert inside.works()["m2/by-design"] == (True, {}), "it was suspended by somebody else, and stays so"
    assert not world.begun_anew, "nothing was refused to it"

    changes = world.changes
    assert take_steps(world, Goal.RELEASE, **PART).taken == []
    assert world.changes == changes

    take_steps(world, Goal.RELEASE)
    assert_released(world, inside, before)
    assert world.begun_anew == 1
    assert take_steps(world, Goal.RELEASE).taken == []


def test_a_part_that_is_killed_at_any_change_tells_nobody_else_and_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert_killed_part_is_gone_on_with(lambda: in_quarantine(monkeypatch, tmp_path), min(MOMENTS, 2), more_than=10)


def test_the_rest_that_is_killed_at_any_change_ends_as_a_full_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole, _ = in_quarantine(monkeypatch, tmp_path)
    take_steps(whole, Goal.RELEASE, **PART)
    begun = whole.changes
    take_steps(whole, Goal.RELEASE)
    # There are few, and each may be the one after which something is let go that is not on record.
    for killed_after in range(whole.changes - begun):
        world, inside = in_quarantine(monkeypatch, tmp_path)
        before = inside.works()
        take_steps(world, Goal.RELEASE, **PART)
        take_steps(world, Goal.RELEASE, killed_after)
        loose = inside.labels() != {space("m2")} or inside.works()["m2/absent"][0] is not True
        assert not loose or held.EVERY_CLUSTER in stored(world).parts, "it is let go, and on record as held"
        take_steps(world, Goal.RELEASE)
        assert_released(world, inside, before)


def test_a_run_that_goes_on_with_a_part_releases_what_it_was_given_beside_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once members follow the first part, that comes to its end before the second, by one and the same run."""
    whole, _ = in_quarantine(monkeypatch, tmp_path)
    take_steps(whole, Goal.RELEASE, **PART)
    moment = whole.changes
    while moment:
        moment -= 1
        world, inside = in_quarantine(monkeypatch, tmp_path)
        inside.put({**work("m2", "bank"), "spec": {"workload": {"manifests": [{"metadata": {"namespace": "bank"}}]}}})
        take_steps(world, Goal.RELEASE, moment, **PART)
        if stored(world).step == Step.START_ALL:
            break
    else:
        pytest.fail("no run was killed after all were started")
    with pytest.raises(ProblemsError, match="m9 is not registered"):
        take_steps(world, Goal.RELEASE, parts=[Part(("m1",)), Part(("m9",))])
    assert stored(world).step == PART_RELEASED, "what was begun has come to its end before anything else is asked"
    world, inside = in_quarantine(monkeypatch, tmp_path)
    inside.put({**work("m2", "bank"), "spec": {"workload": {"manifests": [{"metadata": {"namespace": "bank"}}]}}})
    take_steps(world, Goal.RELEASE, moment, **PART)
    role = take_steps(world, Goal.RELEASE, parts=[Part(("m1",)), Part(("m2",), ("shop",))])
    assert role.taken.count(Step.PART_RELEASED) == 2
    assert dict(stored(world).parts) == {"m1": (), "m2": ("shop",)}
    assert inside.carried_out == names("m1", "m2")


def test_an_api_server_that_does_not_refuse_keeps_everything_stopped(
    both: tuple[World, Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, inside = both
    with monkeypatch.context() as slow:
        slow.setattr(inside, "admit", lambda _wanted: None)
        role = Role(world, Goal.RELEASE, **PART)
        role.look()
        assert role.action().take(Step.HOLD) == on_hosts.HELD
        role.written()
        role.rest(Step.HOLD, on_hosts.HELD)
        role.look()
        assert not role.action().end(Step.HOLD, Done(last=False)), "the role looks once more"
        with pytest.raises(ProblemsError, match="the API server of cp1 does not refuse Works of m2"):
            role.action().end(Step.HOLD, Done(last=True))
    assert stored(world).step == Step.COMPARE
    assert not inside.carried_out
    assert not any(suspended for name, (suspended, _) in inside.works().items() if not name.endswith("by-design"))
    take_steps(world, Goal.RELEASE, **PART)
    assert inside.carried_out == names("m1")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 0, "message": "timed out"}, "timed out"),
        ({"status": 403, "message": "no rights"}, "no rights"),
        ({"status": 500, "message": "etcd is away"}, "etcd is away"),
    ],
)
def test_an_api_server_that_cannot_be_asked_is_not_taken_for_one_that_refuses(
    both: tuple[World, Inside], answer: dict[str, Any], said: str
) -> None:
    world, _ = both
    role = Role(world, Goal.RELEASE, **PART)
    role.look()
    role.action().take(Step.HOLD)
    role.written()
    role.rest(Step.HOLD, on_hosts.HELD)
    role.look()
    restore_seen = {**role.runs.handover.observed("cp2").restore, "admission": {"m2": answer}}
    role.runs.see(cp2={"restore": restore_seen})
    with pytest.raises(ProblemsError, match=said):
        role.action().end(Step.HOLD, Done(last=True))
    role.runs.see(cp2={"restore": {**restore_seen, "admission": {}}})
    with pytest.raises(ProblemsError, match="it was not asked"):
        role.action().end(Step.HOLD, Done(last=True))


def test_what_somebody_has_let_loose_is_told_and_held_anew(
    both: tuple[World, Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, inside = both
    take_steps(world, Goal.RELEASE, **PART)
    told: list[Problem] = []
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    del inside.objects["v1", "Namespace", None, space("m2")]["metadata"]["labels"]
    take_steps(world, Goal.RELEASE, **PART)
    assert [each.reason for each in told] == [Reason.QUARANTINE_OPEN]
    assert inside.labels() == {space("m2")}
    assert stored(world).step == PART_RELEASED


def test_a_namespace_is_released_and_controllers_begin_anew_for_it(both: tuple[World, Inside]) -> None:
    world, inside = both
    take_steps(world, Goal.RELEASE, **PART)
    inside.put({**work("m2", "bank", True), "spec": {"suspendDispatching": True, "workload": {"manifests": [{}]}}})
    take_steps(world, Goal.RELEASE, parts=[Part(("m2",), ("shop",))])
    assert inside.carried_out == names("m1", "m2")
    assert inside.works()["m2/bank"][0] is True
    assert stored(world).step == PART_RELEASED
    assert world.begun_anew == 1


def test_what_is_going_is_decided_before_anything_starts(both: tuple[World, Inside]) -> None:
    world, inside = both
    inside.put(going_work("m2", "old"))
    with pytest.raises(ProblemsError) as refused:
        take_steps(world, Goal.RELEASE, **PART)
    assert [each.reason for each in refused.value.problems] == [Reason.CONFIRMATION_REQUIRED]
    assert not inside.labels()
    take_steps(world, Goal.RELEASE, **PART, let_go=["m2/old"])
    assert inside.carried_out == {*names("m1"), "m2/old"}


def test_it_may_be_taken_back_until_a_part_is_released(
    both: tuple[World, Inside], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, inside = both
    role = Role(world, Goal.RELEASE, **PART)
    role.look()
    role.action().take(Step.HOLD)
    role.written()
    role.rest(Step.HOLD, on_hosts.HELD)
    assert inside.labels() == {space("m2")}
    with monkeypatch.context() as away:
        # The API servers are down, as who takes it back may find them: nobody has to be asked.
        away.setattr(partial, "holding", lambda *_: (_ for _ in ()).throw(ProblemsError(_silent())))
        take_steps(world, Goal.UNDO)
    assert stored(world).step == "Undone"
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.RELEASE, **PART)
    with pytest.raises(ProblemsError, match="it is released"):
        take_steps(world, Goal.UNDO)


def test_hosts_are_asked_about_what_is_held_alone(both: tuple[World, Inside], monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = both
    before = world.run(world.runs(), "release")
    assert on_hosts.admission(before, "cp1") == {}, "nothing is held in that way"
    take_steps(world, Goal.RELEASE, **PART)
    run = world.run(world.runs(), "release")
    asked = on_hosts.admission(run, "cp2")
    assert asked["url"] == "https://192.0.2.2:5443"
    assert asked["certificate"].encode() == run.snapshot.own_identity.certificate
    assert list(asked["requests"]) == ["m2"]
    assert asked["requests"]["m2"]["body"]["metadata"]["namespace"] == space("m2")
    assert on_hosts.admission(run, "etcd1") == {}, "it has no API server"
    with monkeypatch.context() as away:
        away.setattr(partial, "holding", lambda *_: (_ for _ in ()).throw(ProblemsError(_silent())))
        assert on_hosts.admission(run, "cp2") == {}
    assert on_hosts.restarted(run, "cp2") == ["karmada-prod-controller-manager.service"]
    assert on_hosts.restarted(run, "etcd1") == []


@pytest.mark.parametrize("answer", [{"restarted": ["u"]}, {"restarted": []}, {"failed": True, "msg": "no"}])
def test_a_host_restarts_what_is_to_begin_anew(
    both: tuple[World, Inside], monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    world, _ = both
    step: Any = restore_on_host.ActionModule.__new__(restore_on_host.ActionModule)
    step.karmada, step.variables = world.run(world.runs(), "release"), {"inventory_hostname": "cp1"}
    step._task = SimpleNamespace(delegate_to=None, check_mode=False)
    given: list[Any] = []

    def on_host(module: str, **arguments: Any) -> dict[str, Any]:
        given.append((module, arguments))
        return answer

    monkeypatch.setattr(step, "on_host", on_host)
    found = step.perform({"state": "restarted", "snapshot": {}})
    unit = "karmada-prod-controller-manager.service"
    assert given == [("_host_restore", {"state": "restarted", "units": [unit]})]
    changes = [f"restart {each}" for each in answer.get("restarted", [])]
    assert found == (answer if "failed" in answer else {"changed": bool(changes), "changes": changes})


def _silent() -> Problem:
    return Problem("no API server can be reached", "control plane", "", reason=Reason.CONTROL_PLANE_UNREACHABLE)
