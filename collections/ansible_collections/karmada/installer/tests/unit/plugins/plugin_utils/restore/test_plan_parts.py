# SPDX-License-Identifier: Apache-2.0
"""Histories of restores that are released part by part, by runs that are killed and people who change their mind.

Beside what the world of a restore has (``test_plan``), this one has clusters: which of them the API server holds, which
have suspended Works, and which were told by what was restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import PART_RELEASED, RELEASED, UNDONE
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import (
    WRITERS,
    Goal,
    Seen,
    Step,
    is_partial,
    is_quarantined,
    is_released,
    next_step,
    recorded,
)
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.restore.test_plan import (
    ALL,
    ENOUGH,
    NEW,
    World,
)
from hypothesis import given, settings
from hypothesis import strategies as st

CLUSTERS = ("m1", "m2", "m3")
#: Moments at which a run may be killed on its way from the quarantine to the end of a release.
MOMENTS = 24


@dataclass
class Parted(World):
    """``asks``: names that the run at hand was given; ``told_clusters``: those that follow the backup."""

    asks: tuple[str, ...] = ()
    labelled: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    told_clusters: set[str] = field(default_factory=set)

    def seen(self, goal: Goal = Goal.RELEASE) -> Seen:
        parts, loose = self.journal.parts or held.EVERYTHING, False
        if goal is Goal.RELEASE and (is_quarantined(self.journal) or self.journal.step == PART_RELEASED):
            parts = self.wanted(goal)
            on_record = self.journal.step in (Step.HOLD, PART_RELEASED) and is_partial(self.journal)
            loose = on_record and any(self.is_loose(each) for each in self.held_by(self.journal.parts))
        return Seen(self.journal, self.generation, frozenset(self.running), parts, loose=loose)

    def wanted(self, goal: Goal) -> held.Parts:
        if goal is not Goal.RELEASE:
            return self.journal.parts or held.EVERYTHING
        before = (self.journal.parts or held.EVERYTHING) if is_released(self.journal) else {}
        named = [Part(self.asks)] if self.asks else []
        return held.together(before, held.asked_for(named, CLUSTERS), CLUSTERS)

    def held_by(self, parts: held.Parts) -> set[str]:
        return {each for each in CLUSTERS if held.holds(parts, each)}

    def is_loose(self, cluster: str) -> bool:
        return cluster not in self.labelled or cluster not in self.suspended

    def look(self) -> None:
        """What runs meanwhile: writers tell every cluster that is not held."""
        if self.running & WRITERS and ETCD.name in self.running and self.data[self.generation] == "backup":
            told = {each for each in CLUSTERS if self.is_loose(each)}
            assert not told & self.held_by(self.journal.parts or held.EVERYTHING), f"{told} are told too early"
            self.told_clusters |= told

    def moments(self, step: Step, goal: Goal) -> Iterator[Callable[[], None]]:
        """What a step does, in the pieces in which it may be left."""
        if step is Step.HOLD:
            parts = dict(self.wanted(goal))
            yield lambda: self.record(parts=parts)
            yield from self.settled(parts)
        elif step is Step.LET:
            parts = dict(self.seen(goal).parts)
            if parts != dict(self.journal.parts or held.EVERYTHING):
                yield lambda: self.record(parts=parts, step=Step.WAKE_AGENTS)
            yield from self.settled(parts)
        else:
            yield lambda: self.act(step)

    def settled(self, parts: held.Parts) -> Iterator[Callable[[], None]]:
        for each in sorted(self.held_by(parts)):
            yield lambda each=each: self.labelled.add(each)  # type: ignore[misc]
            yield lambda each=each: self.suspended.add(each)  # type: ignore[misc]
        for each in sorted(self.labelled - self.held_by(parts)):
            yield lambda each=each: self.suspended.discard(each)  # type: ignore[misc]
            yield lambda each=each: self.labelled.discard(each)  # type: ignore[misc]

    def run_with(self, goal: Goal, asks: tuple[str, ...] = (), killed_after: int | None = None) -> Problem | None:
        """One run, which was given these names."""
        self.asks, moments = asks, 0
        for _ in range(ENOUGH):
            step = next_step(self.seen(goal), goal)
            if step is None or isinstance(step, Problem):
                return step
            done = recorded(self.seen(goal), step)
            last = [lambda: self.record(step=done)]  # noqa: B023 - used at once
            for moment in [*self.moments(step, goal), *last]:
                if moments == killed_after:
                    return None
                moment()
                self.look()
                moments += 1
        raise AssertionError(f"no end after {ENOUGH} steps: {self.journal}")


def in_quarantine() -> Parted:
    world = Parted()
    assert world.run_with(Goal.QUARANTINE) is None
    return world


def assert_as_after_a_full_release(world: Parted) -> None:
    assert world.journal.step == RELEASED
    assert world.running == ALL
    assert not world.journal.held
    assert not world.journal.closed
    assert not world.labelled
    assert not world.suspended
    assert world.told_clusters == set(CLUSTERS)


def test_what_is_left_is_held_before_anything_starts() -> None:
    world, steps = in_quarantine(), list[Step]()
    world.asks = ("m1",)
    while isinstance(step := next_step(world.seen(), Goal.RELEASE), Step):
        steps.append(step)
        if step is Step.OPEN:
            assert world.labelled == world.suspended == {"m2", "m3"}
        done = recorded(world.seen(), step)
        for moment in world.moments(step, Goal.RELEASE):
            moment()
        world.record(step=done)
        world.look()
    releasing = [Step.OPEN, Step.START_ALL, Step.WAKE_AGENTS, Step.LET, Step.BACK_UP_AGAIN]
    assert steps == [Step.HOLD, *releasing, Step.PART_RELEASED]
    assert world.told_clusters == {"m1"}
    assert not world.journal.is_over


@pytest.mark.parametrize("killed_after", range(MOMENTS))
def test_a_part_whose_run_is_killed_anywhere_is_gone_on_with(killed_after: int) -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), killed_after)
    assert world.run_with(Goal.RELEASE, ("m1",)) is None
    assert world.journal.step == PART_RELEASED
    assert world.told_clusters == {"m1"}
    assert world.labelled == world.suspended == {"m2", "m3"}


@pytest.mark.parametrize("killed_after", range(MOMENTS))
def test_the_rest_whose_run_is_killed_anywhere_ends_as_a_full_release(killed_after: int) -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",))
    world.run_with(Goal.RELEASE, (), killed_after)
    assert world.run_with(Goal.RELEASE) is None
    assert_as_after_a_full_release(world)


def test_parts_that_leave_nothing_are_a_full_release() -> None:
    world = in_quarantine()
    for name in CLUSTERS:
        assert world.run_with(Goal.RELEASE, (name,)) is None
    assert_as_after_a_full_release(world)


@pytest.mark.parametrize("killed_after", range(MOMENTS))
def test_what_is_released_is_not_taken_back_and_what_was_only_chosen_is(killed_after: int) -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), killed_after)
    followed = is_released(world.journal)
    told = world.run_with(Goal.UNDO)
    if followed:
        assert isinstance(told, Problem)
        assert "it is released" in told.what
    else:
        assert world.journal.step == UNDONE
        assert not world.told_clusters


def test_before_anything_is_released_another_part_may_be_chosen() -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), 6)
    assert world.labelled
    assert world.run_with(Goal.RELEASE, ("m2",)) is None
    assert world.told_clusters == {"m2"}


def test_who_goes_on_with_a_restore_releases_nothing_more() -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), 8)
    assert is_released(world.journal)
    assert world.run_with(Goal.QUARANTINE) is None
    assert (world.journal.step, world.told_clusters) == (PART_RELEASED, {"m1"})


@pytest.mark.parametrize("left", [Step.HOLD, Step.PART_RELEASED])
def test_what_is_not_held_any_more_is_held_anew_before_anything_else(left: Step) -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), None if left is Step.PART_RELEASED else 6)
    assert world.journal.step == left
    world.labelled.discard("m2")
    assert next_step(world.seen(), Goal.RELEASE) is (Step.LET if left is Step.PART_RELEASED else Step.HOLD)


def test_a_writer_that_somebody_starts_while_parts_are_chosen_is_stopped_and_all_is_compared_again() -> None:
    world = in_quarantine()
    world.run_with(Goal.RELEASE, ("m1",), 6)
    assert world.journal.step == Step.HOLD
    world.running |= WRITERS
    seen = world.seen()
    assert next_step(seen, Goal.RELEASE) is Step.STOP_WRITERS
    assert recorded(seen, Step.STOP_WRITERS) == Step.START_SERVERS


def test_a_control_plane_that_was_backed_up_while_a_part_was_held_is_let_go_by_a_full_release() -> None:
    world = in_quarantine()
    world.labelled, world.suspended = {"m2"}, {"m2"}
    assert world.run_with(Goal.RELEASE) is None
    assert_as_after_a_full_release(world)


RUNS = st.tuples(
    st.sampled_from([Goal.RELEASE, Goal.RELEASE, Goal.RELEASE, Goal.QUARANTINE]),
    st.lists(st.sampled_from(CLUSTERS), min_size=1, max_size=2, unique=True).map(tuple),
    st.one_of(st.none(), st.integers(0, MOMENTS)),
)


@given(st.lists(RUNS, max_size=7), st.booleans())
@settings(max_examples=400, deadline=None)
def test_every_order_of_parts_and_kills_ends_as_a_full_release(
    runs: list[tuple[Goal, tuple[str, ...], int | None]], full_run_is_killed: bool
) -> None:
    """That nobody is told too early is asserted at every moment (``look``)."""
    world = in_quarantine()
    asked = set[str]()
    for goal, names, killed_after in runs:
        asked |= set(names) if goal is Goal.RELEASE else set()
        world.run_with(goal, names, killed_after)
        assert world.told_clusters <= asked
        if is_released(world.journal):
            assert isinstance(next_step(world.seen(Goal.UNDO), Goal.UNDO), Problem)
        assert world.generation == NEW
    if full_run_is_killed:
        world.run_with(Goal.RELEASE, (), 5)
    world.run_with(Goal.RELEASE)
    assert_as_after_a_full_release(world)
