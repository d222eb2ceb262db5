# SPDX-License-Identifier: Apache-2.0
"""Another backup that is restored after a part of a restore was released: whom that reaches, killed at any write.

What is inside the control plane goes with the data that members of etcd start with, and so does what holds members.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import (
    PART,
    Inside,
    assert_all_let_go,
    names,
    set_to_work,
    space,
)
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    World,
    everything,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import BACKUP, OTHER, with_another

#: Writes before which runs are killed: more than the way to the quarantine has, or the way back.
MOMENTS = range(0, 84, 7)


class InsideByData(Inside):
    """The inside of a control plane, for each folder of data that its etcd has been started with."""

    def __init__(self, world: World) -> None:
        self._by_folder: dict[str, Any] = {}
        self._first: dict[Any, Any] = {}
        self._folder = "gen-1"
        super().__init__(world)
        self._first = copy.deepcopy(self.objects)

    @property
    def objects(self) -> dict[Any, Any]:  # type: ignore[override]
        self._folder = next(iter(self.world.serving.values()), self._folder) if hasattr(self, "world") else "gen-1"
        return self._by_folder.setdefault(self._folder, copy.deepcopy(self._first))

    @objects.setter
    def objects(self, found: dict[Any, Any]) -> None:
        self._by_folder["gen-1"] = found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return made(monkeypatch)


@pytest.fixture
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> InsideByData:
    """A control plane of whose restore a part is released, and another backup of it."""
    found = InsideByData(world)
    set_to_work(world, found, monkeypatch)

    def bring_about() -> None:
        take_steps(world, Goal.QUARANTINE)
        take_steps(world, Goal.RELEASE, **PART)

    begin("pods partly released", (world, found), bring_about)
    assert stored(world).step == Step.PART_RELEASED
    assert found.carried_out == names("m1")
    with_another(monkeypatch)
    return found


def assert_quarantined(world: World, inside: InsideByData) -> None:
    restore = stored(world)
    assert (restore.step, restore.backup, dict(restore.parts)) == (Step.COMPARE, OTHER, {})
    assert set(world.serving.values()) == {f"gen-{restore.generation}"}
    assert world.running() == everything() - WRITERS
    assert not world.accepting_agents()
    # What was released is held like all else, and the data that it came from is not used any more.
    assert not inside.labels()
    assert "gen-1" in restore.aside
    assert not {"gen-2", f"gen-{restore.generation}"} & set(restore.aside)


def assert_as_it_was(world: World, inside: InsideByData) -> None:
    restore = stored(world)
    assert (restore.step, restore.backup, dict(restore.parts)) == (Step.PART_RELEASED, BACKUP, {"m1": ()})
    assert restore.former_restore is None
    assert set(world.serving.values()) == {"gen-2"}
    assert world.running() == everything()
    assert world.accepting_agents()
    assert inside.labels() == {space("m2")}
    assert inside.carried_out == names("m1")


def test_the_backup_that_is_restored_already_is_not_restored_upon_it(world: World, inside: InsideByData) -> None:
    writes = world.writes
    take_steps(world, Goal.QUARANTINE)
    assert world.writes == writes
    assert_as_it_was(world, inside)


def test_another_backup_holds_all_and_is_released_by_parts_of_its_own(world: World, inside: InsideByData) -> None:
    before = copy.deepcopy(inside.works())
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    assert_quarantined(world, inside)
    assert inside.carried_out == names("m1")
    inside.carried_out.clear()
    take_steps(world, Goal.RELEASE, parts=[Part(("m2",))])
    assert inside.labels() == {space("m1")}
    assert inside.carried_out == names("m2")
    assert dict(stored(world).parts) == {"m2": ()}
    take_steps(world, Goal.RELEASE)
    restore = stored(world)
    assert (restore.step, restore.former_restore, restore.aside) == ("Released", None, ("gen-1", "gen-2"))
    assert world.running() == everything()
    assert inside.labels() == set()
    assert inside.carried_out == names("m1", "m2")
    # Of the first one a part was held; nothing of that is in the other.
    assert {name for name, (suspended, _) in inside.works().items() if suspended} == {"m1/by-design", "m2/by-design"}
    assert {name: annotations for name, (_, annotations) in inside.works().items() if annotations} == {}
    assert set(before) == set(inside.works())


@pytest.mark.parametrize("killed_after", MOMENTS)
def test_killed_at_any_write_it_comes_to_its_quarantine(world: World, inside: InsideByData, killed_after: int) -> None:
    take_steps(world, Goal.QUARANTINE, killed_after, confirm=OTHER)
    assert inside.carried_out == names("m1")
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    assert_quarantined(world, inside)
    assert inside.carried_out == names("m1")


@pytest.mark.parametrize("killed_after", MOMENTS)
def test_killed_at_any_write_it_leads_back_to_the_part(world: World, inside: InsideByData, killed_after: int) -> None:
    take_steps(world, Goal.QUARANTINE, killed_after, confirm=OTHER)
    if stored(world).backup == BACKUP:
        with pytest.raises(ProblemsError, match="it is released"):
            take_steps(world, Goal.UNDO)
    else:
        take_steps(world, Goal.UNDO)
    assert_as_it_was(world, inside)


@pytest.mark.parametrize("killed_after", MOMENTS)
def test_a_way_back_that_is_killed_at_any_write_leads_there_and_the_rest_is_released_then(
    world: World, inside: InsideByData, killed_after: int
) -> None:
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    take_steps(world, Goal.UNDO, killed_after)
    if stored(world).backup == OTHER:
        take_steps(world, Goal.UNDO)
    assert_as_it_was(world, inside)
    take_steps(world, Goal.RELEASE)
    restore = stored(world)
    assert (restore.step, restore.backup, restore.aside) == ("Released", BACKUP, ("gen-1", "gen-3"))
    assert_all_let_go(inside, inside.works())


def test_a_third_one_may_take_the_place_of_one_that_is_given_up_half_way_back(
    world: World, inside: InsideByData
) -> None:
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    killed_after = 0
    while not (stored(world).undoing and set(world.serving.values()) == {"gen-2"}):
        killed_after += 1
        take_steps(world, Goal.UNDO, killed_after)
    assert stored(world).backup == OTHER
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    assert stored(world).generation == 4
    assert stored(world).aside == ("gen-1", "gen-3")
    assert_quarantined(world, inside)
    take_steps(world, Goal.UNDO)
    assert_as_it_was(world, inside)


def test_revisions_that_were_seen_in_the_quarantine_are_not_given_again_once_it_is_taken_back(
    world: World, inside: InsideByData
) -> None:
    first = stored(world).revision
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    seen = stored(world).revision
    assert seen > first
    take_steps(world, Goal.UNDO)
    assert_as_it_was(world, inside)
    take_steps(world, Goal.QUARANTINE, confirm=OTHER)
    assert stored(world).revision > seen
