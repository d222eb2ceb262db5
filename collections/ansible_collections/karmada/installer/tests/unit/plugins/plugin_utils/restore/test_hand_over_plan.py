# SPDX-License-Identifier: Apache-2.0
"""Histories of hand-overs whose runs are killed anywhere, of people who start what is held, and of ways back.

The world here has what counts: which components run, the record, and whether somebody could write when the final backup
was taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import SILENT, HandOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.hand_over_plan import (
    ended,
    final_backup,
    next_step,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import EVERYTHING, SERVERS, WRITERS, Step
from hypothesis import given, settings
from hypothesis import strategies as st

ALL = frozenset(BY_NAME)
ENOUGH = 30
_STOPS = {Step.STOP_WRITERS: WRITERS, Step.STOP_SERVERS: SERVERS, Step.STOP_ETCD: frozenset({ETCD.name})}


@dataclass
class World:
    """``backups`` are those taken, each with whether it says that it is the final one."""

    journal: HandOverState | None = field(default_factory=lambda: HandOverState("disk", "now"))
    running: set[str] = field(default_factory=lambda: set(ALL))
    backups: list[bool] = field(default_factory=list)
    #: whether members refuse a place that takes the final backup over
    claimed: bool = False
    data_in_pods: bool = False

    def record(self, **fields: object) -> None:
        assert self.journal is not None
        self.journal = replace(self.journal, **fields)  # type: ignore[arg-type]

    def next(self, *, undo: bool) -> Step | Problem | None:
        if self.journal is None:
            return None
        running = frozenset(self.running) & EVERYTHING
        return next_step(self.journal, running, undo=undo, data_in_pods=self.data_in_pods)

    def act(self, step: Step) -> None:
        assert self.journal is not None
        if step in _STOPS:
            held = tuple(sorted({*self.journal.held, *_STOPS[step]}))
            self.record(held=held, backup=final_backup(self.journal, step, frozenset(self.running)))
            self.running -= _STOPS[step]
        elif step is Step.CLOSE:
            self.record(closed=True)
        elif step is Step.BACK_UP:
            assert ETCD.name in self.running, "etcd has to answer"
            assert not self.running & (WRITERS | SERVERS), "nobody writes any more"
            self.record(step=SILENT)
            self.backups.append(self.journal.is_silent)
            self.record(backup=f"b{len(self.backups)}")
        elif step is Step.TURN_BACK:
            self.record(undoing=True, step=Step.TURN_BACK.value)
        elif step is Step.CLAIM:
            self.claimed = True
        elif step is Step.START_FORMER:
            assert self.claimed, "another place may begin to work on the members"
            self.record(held=tuple(each for each in self.journal.held if each != ETCD.name))
            self.running.add(ETCD.name)
        elif step is Step.OPEN_AGAIN:
            self.record(held=(), closed=False)
        elif step is Step.START_ALL:
            self.running |= ALL - set(self.journal.held)

    def end(self, step: Step) -> None:
        if step is Step.UNDONE:
            self.journal = None
        else:
            assert self.journal is not None
            self.journal = ended(self.journal, step)

    def go(self, *, undo: bool, steps: int = ENOUGH, recorded: bool = True) -> list[Step]:
        """Steps of a run that ends after this many; with ``recorded`` False it is killed before it records the last."""
        taken: list[Step] = []
        while len(taken) < steps and (step := self.next(undo=undo)) is not None:
            assert isinstance(step, Step), step
            self.act(step)
            taken.append(step)
            if recorded or len(taken) < steps:
                self.end(step)
        assert len(taken) < ENOUGH
        return taken


def test_the_order_of_one_that_nobody_disturbs() -> None:
    world = World()
    assert world.go(undo=False) == [
        Step.STOP_WRITERS,
        Step.CLOSE,
        Step.STOP_SERVERS,
        Step.BACK_UP,
        Step.STOP_ETCD,
        Step.HANDED_OVER,
    ]
    assert world.backups == [True]
    assert not world.running & EVERYTHING
    assert world.journal is not None
    assert world.journal.is_over


def test_it_is_taken_back_to_what_it_was() -> None:
    world = World()
    world.go(undo=False)
    world.go(undo=True)
    assert world.journal is None
    assert world.running >= EVERYTHING


def test_while_it_is_taken_back_it_is_not_gone_on_with() -> None:
    world = World()
    world.go(undo=False)
    world.go(undo=True, steps=1)
    assert isinstance(world.next(undo=False), Problem)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("after", range(1, 7))
def test_a_run_that_is_killed_is_gone_on_with_or_taken_back(after: int, recorded: bool) -> None:
    for undo in (False, True):
        world = World()
        world.go(undo=False, steps=after, recorded=recorded)
        world.go(undo=undo)
        assert all(world.backups)
        if undo:
            assert world.journal is None
            assert world.running >= EVERYTHING
        else:
            assert world.journal is not None
            assert world.journal.is_over
            assert not world.running & EVERYTHING


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("after", range(1, 7))
def test_data_that_goes_with_pods_has_a_way_back_until_etcd_stops_and_then_the_final_backup_stays_of_use(
    after: int, recorded: bool
) -> None:
    world = World(data_in_pods=True)
    world.go(undo=False, steps=after, recorded=recorded)
    assert world.journal
    if ETCD.name in world.running:
        world.go(undo=True)
        assert world.journal is None
        return
    before = world.journal
    problem = world.next(undo=True)
    assert isinstance(problem, Problem)
    assert "take b1 over at another place" in problem.remedy
    assert (world.journal, world.claimed) == (before, False)
    world.go(undo=False)
    assert (world.journal.is_over, world.journal.backup) == (True, "b1")


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sets(st.sampled_from(sorted(EVERYTHING)), max_size=3))))
def test_whatever_is_started_meanwhile_the_final_backup_says_the_truth(
    history: list[tuple[int, bool, set[str]]],
) -> None:
    world = World()
    for steps, recorded, started in history:
        world.go(undo=False, steps=steps, recorded=recorded)
        world.running |= started
        if ETCD.name not in world.running and world.journal and not world.journal.backup:
            # A person has stopped what the backup needs: no history of ours.
            world.running.add(ETCD.name)
    world.go(undo=False)
    assert world.journal is not None
    assert world.journal.is_over
    assert not world.running & EVERYTHING
    assert all(world.backups)


@pytest.mark.parametrize("started", sorted({"karmada-apiserver", "karmada-controller-manager"}))
def test_a_backup_after_which_something_wrote_is_not_the_final_one(started: str) -> None:
    world = World()
    while world.journal and not world.journal.backup:
        world.go(undo=False, steps=1)
    world.running.add(started)
    world.go(undo=False)
    assert world.journal
    assert (world.journal.is_over, world.journal.backup, len(world.backups)) == (True, "b2", 2)


def test_the_final_backup_stays_that_once_etcd_was_left() -> None:
    world = World()
    world.go(undo=False, steps=5)
    world.running |= {"karmada-apiserver"}
    world.go(undo=False)
    assert world.journal
    assert world.journal.backup == "b1", "without etcd nothing is written"
    world.running |= {"karmada-apiserver", "karmada-controller-manager", ETCD.name}
    for step in (Step.STOP_WRITERS, Step.STOP_SERVERS, Step.STOP_ETCD):
        assert world.go(undo=False, steps=1) == [step]
        assert world.journal.is_over, "a run that is killed here leaves it to the other place, too"
    assert world.next(undo=False) is None
    assert world.journal.backup == "b1", "the other place may have it already"
    assert world.backups == [True]


def test_etcd_that_was_started_again_with_it_has_another_one_taken() -> None:
    world = World()
    world.go(undo=False, steps=5)
    world.running |= {"karmada-apiserver", ETCD.name}
    world.go(undo=False)
    assert world.journal
    assert (world.journal.is_over, world.journal.backup) == (True, "b2")
    assert not world.running & EVERYTHING


def test_a_backup_that_is_not_the_final_one_any_more_may_be_taken_over_all_the_same() -> None:
    world = World()
    world.go(undo=False, steps=4)
    world.running |= {"karmada-controller-manager"}
    assert world.go(undo=False, steps=1) == [Step.STOP_WRITERS]
    assert world.journal
    assert not world.journal.backup
    assert world.journal.may_be_taken_over, "who takes it back has members refuse that"
