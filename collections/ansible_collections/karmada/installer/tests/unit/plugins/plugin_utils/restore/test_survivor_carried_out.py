# SPDX-License-Identifier: Apache-2.0
"""Restores of what one member alone has, in memory: journaled and gone on with like those of any backup."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check, source, survivor
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Place
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.survivor import Survivor
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    DOCUMENT,
    NAMES,
    World,
    assert_quarantined,
    assert_undisturbed,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import BACKUP, MOMENTS

NAME = NAMES[0]


def survived(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which one member has all that is left."""
    world = made(monkeypatch)
    chosen: Any = check.choose(None, Asked())  # type: ignore[arg-type]
    place = Place(chosen.wanted, chosen.series, chosen.target)

    def judged(_run: Any, asked: Asked, _place: Place, _timeout: float) -> Survivor:
        if asked.confirm != NAME:
            what = "it was not confirmed"
            raise ProblemsError(Problem(what, "here", "name it", reason=Reason.RESTORE_NOT_CONFIRMED))
        return Survivor(NAME, {}, ["the last writes may be missing"], None, samples.NOW - survivor.UNKNOWN_AGE)

    def backed_up(*_: Any) -> Any:
        # A run may be killed before it, and after.
        world.moment()
        return chosen.record

    monkeypatch.setattr(check, "opened", lambda *_: place)
    monkeypatch.setattr(source.survivor, "judged", judged)
    monkeypatch.setattr(source.survivor, "backed_up", backed_up)
    return world


def test_it_is_on_record_with_the_member_and_a_revision_above_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = survived(monkeypatch)
    take_steps(world, Goal.QUARANTINE, survivor=NAME, confirm=NAME)
    assert_quarantined(world)
    restore = stored(world)
    assert (restore.survivor, restore.backup) == (NAME, BACKUP)
    assert restore.bump >= 3650 * 86_400 * 50_000
    take_steps(world, Goal.RELEASE)
    before = world.writes
    take_steps(world, Goal.QUARANTINE, survivor=NAME, confirm=NAME)
    assert (world.writes, stored(world).step) == (before, "Released")


def test_nothing_begins_without_the_name_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    world = survived(monkeypatch)
    before = world.writes
    for confirm in ("", BACKUP):
        with pytest.raises(ProblemsError, match="not confirmed"):
            take_steps(world, Goal.QUARANTINE, survivor=NAME, confirm=confirm)
    assert world.writes == before
    assert_undisturbed(world)


def test_its_document_may_name_it_and_confirm_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = survived(monkeypatch)
    wanted = WantedRestore("back", "nightly", survivor=NAME)
    monkeypatch.setattr(check, "_all_wanted", lambda *_: {"back": wanted})
    with pytest.raises(ProblemsError, match="not confirmed"):
        take_steps(world, Goal.QUARANTINE, confirm="")
    place: Any = check.opened(None, Asked())  # type: ignore[arg-type]
    confirmed = replace(wanted, confirm=NAME)
    monkeypatch.setattr(check, "_all_wanted", lambda *_: {"back": confirmed})
    monkeypatch.setattr(check, "opened", lambda *_: replace(place, wanted=confirmed))
    take_steps(world, Goal.QUARANTINE, 12, confirm="")
    assert (stored(world).survivor, stored(world).backup) == (NAME, BACKUP)
    take_steps(world, Goal.QUARANTINE, confirm="")
    assert_quarantined(world)
    take_steps(world, Goal.RELEASE)
    before = world.writes
    take_steps(world, Goal.QUARANTINE, confirm="")
    assert (world.writes, stored(world).step) == (before, "Released"), "it is restored once"


def test_a_document_that_names_another_member_meanwhile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = survived(monkeypatch)
    take_steps(world, Goal.QUARANTINE, 12, survivor=NAME, confirm=NAME)
    other = WantedRestore("back", "nightly", survivor=NAMES[1])
    monkeypatch.setattr(check, "_all_wanted", lambda *_: {"back": other})
    with pytest.raises(ProblemsError, match=f"{NAME} is being restored .*{NAMES[1]} is meant now"):
        take_steps(world, Goal.QUARANTINE, confirm="")


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        ({"back": "m0"}, {}, "m0"),
        ({"back": "m0"}, {"survivor": "m1"}, "m1"),
        ({"back": "m0", "forth": ""}, {"name": "forth"}, ""),
        ({"back": "m0", "forth": ""}, {"name": "back"}, "m0"),
        # Which one is meant is asked for elsewhere.
        ({"back": "m0", "forth": "m1"}, {}, ""),
        ({"back": "m0"}, {"name": "other"}, ""),
        ({}, {}, ""),
    ],
)
def test_whose_data_is_meant(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str], asked: dict[str, str], found: str
) -> None:
    there = {name: WantedRestore(name, "nightly", survivor=member) for name, member in names.items()}
    monkeypatch.setattr(check, "_all_wanted", lambda *_: there)
    assert check.survivor(None, Asked(**asked)) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "earlier", "sends"),
    [
        ({}, "", ""),
        ({"back": NAME}, "", NAME),
        # One that goes on, and one that was carried out, copy nothing.
        ({"back": NAME}, "Prepare", ""),
        ({"back": NAME}, "Released", ""),
        # Upon one of which a part is released, only what another one names.
        ({"back": NAME}, "PartReleased", ""),
        ({"back": NAMES[1]}, "PartReleased", NAMES[1]),
    ],
)
def test_a_plain_host_sends_what_it_has_if_the_document_says_so(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], earlier: str, sends: str
) -> None:
    there = {name: WantedRestore(name, "nightly", survivor=member) for name, member in asked.items()}
    monkeypatch.setattr(check, "_all_wanted", lambda *_: there)
    place: Any = SimpleNamespace(wanted=WantedRestore("back", "nightly", survivor=asked.get("back", NAME)))
    monkeypatch.setattr(check, "opened", lambda *_: place)
    monkeypatch.setattr(survivor, "seen", lambda *_: {})
    monkeypatch.setattr(survivor, "not_lost", lambda *_: iter(()))
    now, etcd = samples.NOW.isoformat(timespec="seconds"), EtcdState(samples.TOKEN)
    record = RestoreState("back", "nightly", BACKUP, now, samples.TOKEN, 2, 1, etcd, NAMES, step=earlier, survivor=NAME)
    run = fake_run(DOCUMENT, FakeCluster("host"), stored=samples.state(restore=record if earlier else None))
    assert survivor.sender(run, Asked(keys=("key",)), run.state.restore) == sends
    assert survivor.sender(fake_run(DOCUMENT, FakeCluster("nothing")), Asked(keys=("key",)), None) == ""


@pytest.mark.parametrize(
    ("asked", "goes_on"),
    [
        ({"survivor": NAME, "confirm": NAME}, True),
        ({"survivor": NAME, "confirm": ""}, True),
        ({"confirm": ""}, True),
        ({"confirm": BACKUP}, True),
        ({"survivor": NAMES[1], "confirm": NAMES[1]}, False),
        ({"confirm": NAMES[1]}, False),
        ({"confirm": "prod-20261125t020000z-999999"}, False),
    ],
)
def test_one_under_way_is_gone_on_with_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], goes_on: bool
) -> None:
    world = survived(monkeypatch)
    monkeypatch.setattr(check, "_all_wanted", lambda *_: {})
    take_steps(world, Goal.QUARANTINE, 12, survivor=NAME, confirm=NAME)
    assert stored(world).survivor == NAME
    if goes_on:
        take_steps(world, Goal.QUARANTINE, **asked)  # type: ignore[arg-type]
        assert_quarantined(world)
        return
    with pytest.raises(ProblemsError, match=f"{NAME} is being restored"):
        take_steps(world, Goal.QUARANTINE, **asked)  # type: ignore[arg-type]


def test_a_survivor_is_not_mixed_into_the_restore_of_a_backup(monkeypatch: pytest.MonkeyPatch) -> None:
    world = survived(monkeypatch)
    monkeypatch.setattr(check, "_all_wanted", lambda *_: {})
    take_steps(world, Goal.QUARANTINE, 12)
    with pytest.raises(ProblemsError, match=f"{BACKUP} is being restored .*{NAME} is meant now"):
        take_steps(world, Goal.QUARANTINE, survivor=NAME, confirm=NAME)


def test_a_run_that_is_killed_at_any_write_is_gone_on_with_or_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = survived(monkeypatch)
    take_steps(whole, Goal.QUARANTINE, survivor=NAME, confirm=NAME)
    for killed_after in range(0, whole.writes, MOMENTS):
        for goal, holds in ((Goal.QUARANTINE, assert_quarantined), (Goal.UNDO, assert_undisturbed)):
            here = survived(monkeypatch)
            take_steps(here, Goal.QUARANTINE, killed_after, survivor=NAME, confirm=NAME)
            assert here.told <= {"before"}
            if goal is Goal.UNDO and fake_run(DOCUMENT, here).state.restore is None:
                assert_undisturbed(here)
                continue
            again = {"survivor": NAME, "confirm": NAME} if goal is Goal.QUARANTINE else {}
            take_steps(here, goal, **again)  # type: ignore[arg-type]
            holds(here)
