# SPDX-License-Identifier: Apache-2.0
"""Histories of restores whose runs are killed anywhere, and of people who start what is held or change their mind.

The world here has what counts: which components run, which data members of etcd start with, and the record. A run may
be killed before a step, between what it does and its record, and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    PART_RELEASED,
    RELEASED,
    UNDONE,
    RestoreState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import (
    EVERYTHING,
    SERVERS,
    WRITERS,
    Goal,
    Seen,
    Step,
    is_quarantined,
    may_begin_anew,
    next_step,
    recorded,
)
from hypothesis import given, settings
from hypothesis import strategies as st

MEMBERS = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
OLD, NEW = 1, 2
ALL = frozenset(BY_NAME)
#: Steps after which members follow.
RELEASING = (Step.OPEN, Step.START_ALL, Step.WAKE_AGENTS, Step.LET, Step.BACK_UP_AGAIN)
#: No way is longer, whatever was started meanwhile.
ENOUGH = 40


def begun() -> RestoreState:
    former = EtcdState("before", OLD)
    return RestoreState("back", "nightly", "b1", "now", "t", NEW, 10**9, former, MEMBERS)


@dataclass
class World:
    """Data of etcd by generation is the name of the control plane that it makes: "before" or "backup"."""

    journal: RestoreState = field(default_factory=begun)
    generation: int = OLD
    running: set[str] = field(default_factory=lambda: set(ALL))
    data: dict[int, str] = field(default_factory=lambda: {OLD: "before"})
    #: What members were told by: a writer that runs tells them what etcd has.
    told: set[str] = field(default_factory=set)

    def seen(self) -> Seen:
        return Seen(self.journal, self.generation, frozenset(self.running))

    def record(self, **fields: object) -> None:
        self.journal = replace(self.journal, **fields)  # type: ignore[arg-type]

    def stop(self, names: frozenset[str]) -> None:
        self.record(held=tuple(sorted({*self.journal.held, *names})))
        self.running -= names

    def start(self) -> None:
        """The stages of a control plane: they start all that is not held."""
        self.running |= ALL - set(self.journal.held)

    def act(self, step: Step) -> None:  # noqa: C901, PLR0912 - one case for each step
        """What a step does, before its end is recorded."""
        match step:
            case Step.PREPARE:
                assert ETCD.name in self.running, "etcd serves while its new data is prepared"
                self.data[NEW] = "backup"
                self.record(prepared=MEMBERS)
            case Step.STOP_WRITERS:
                self.stop(WRITERS)
            case Step.CLOSE:
                self.record(closed=True)
            case Step.STOP_SERVERS:
                self.stop(SERVERS)
            case Step.STOP_ETCD:
                self.stop(frozenset({ETCD.name}))
            case Step.STOP_ALL:
                self.stop(EVERYTHING)
            case Step.SWITCH | Step.SWITCH_BACK:
                assert not self.running & EVERYTHING, f"{step} while {self.running & EVERYTHING} run"
                self.generation = NEW if step is Step.SWITCH else OLD
                self.record(step=step)
            case Step.START_ETCD | Step.START_FORMER:
                self.record(held=tuple(set(self.journal.held) - {ETCD.name}))
                self.running.add(ETCD.name)
            case Step.START_SERVERS:
                self.record(held=tuple(WRITERS))
                self.start()
            case Step.OPEN | Step.OPEN_AGAIN:
                self.record(held=(), closed=False)
            case Step.START_ALL:
                self.start()
            case Step.TURN_BACK:
                self.record(undoing=True)
        if self.running & WRITERS and ETCD.name in self.running:
            self.told.add(self.data[self.generation])

    def run(self, goal: Goal, killed_after: int | None = None) -> Problem | None:
        """One run towards a goal. ``killed_after`` counts moments: two for each step, its act and its record."""
        moments = 0
        for _ in range(ENOUGH):
            step = next_step(self.seen(), goal)
            if step is None or isinstance(step, Problem):
                return step
            done = recorded(self.seen(), step)
            for moment in (lambda: self.act(step), lambda: self.record(step=done)):  # noqa: B023 - used at once
                if moments == killed_after:
                    return None
                moment()
                moments += 1
        raise AssertionError(f"no end after {ENOUGH} steps: {self.journal}")


def is_the_backup_in_quarantine(world: World) -> bool:
    return (
        is_quarantined(world.journal)
        and world.data[world.generation] == "backup"
        and world.running == ALL - WRITERS
        and world.journal.closed
    )


def is_undisturbed(world: World) -> bool:
    return (
        world.data[world.generation] == "before"
        and world.running == ALL
        and not world.journal.held
        and not world.journal.closed
    )


def test_steps_come_in_their_order() -> None:
    world, steps = World(), list[Step]()
    for goal in (Goal.QUARANTINE, Goal.RELEASE):
        while isinstance(step := next_step(world.seen(), goal), Step):
            steps.append(step)
            done = recorded(world.seen(), step)
            world.act(step)
            world.record(step=done)
    until_quarantine = list(Step)[: list(Step).index(Step.OPEN)]
    assert steps == [*until_quarantine, *RELEASING, Step.RELEASED]
    assert world.told == {"before", "backup"}
    assert world.running == ALL


@pytest.mark.parametrize("killed_after", range(24))
def test_a_run_that_is_killed_anywhere_ends_as_undisturbed_or_is_undone(killed_after: int) -> None:
    going_on, undone = World(), World()
    for world in (going_on, undone):
        world.run(Goal.QUARANTINE, killed_after)
        assert "backup" not in world.told
    assert going_on.run(Goal.QUARANTINE) is None
    assert is_the_backup_in_quarantine(going_on)
    assert undone.run(Goal.UNDO) is None
    assert is_undisturbed(undone)
    assert undone.told <= {"before"}
    assert undone.journal.step == UNDONE


@pytest.mark.parametrize("killed_after", range(18))
def test_the_way_back_and_the_release_go_on_where_they_were_killed(killed_after: int) -> None:
    for goal, ends, data in ((Goal.UNDO, UNDONE, "before"), (Goal.RELEASE, RELEASED, "backup")):
        world = World()
        world.run(Goal.QUARANTINE)
        world.run(goal, killed_after)
        assert world.run(goal) is None
        assert world.journal.step == ends
        assert world.data[world.generation] == data
        assert world.running == ALL
        assert not world.journal.closed


EVENTS = st.one_of(
    st.tuples(st.just("run"), st.sampled_from(list(Goal)), st.integers(0, 30)),
    st.tuples(st.just("somebody starts"), st.sampled_from(sorted(SERVERS | {ETCD.name})), st.just(0)),
)


@given(st.lists(EVENTS, max_size=8))
@settings(max_examples=300, deadline=None)
def test_whatever_happens_there_is_an_end_and_members_get_the_backup_by_a_release_only(
    events: list[tuple[str, str, int]],
) -> None:
    world = World()
    for event, what, moments in events:
        if event == "run":
            world.run(Goal(what), moments)
        elif world.journal.held:
            world.running.add(what)
        released = world.journal.step in (*RELEASING, RELEASED)
        opened = not world.journal.held and world.generation == NEW
        assert "backup" not in world.told or released or opened
        assert OLD in world.data, "data is put aside and never deleted"
    ways: dict[Goal, Callable[[World], bool]] = {
        Goal.QUARANTINE: is_the_backup_in_quarantine,
        Goal.UNDO: is_undisturbed,
    }
    ended = [
        goal for goal, holds in ways.items() if world.run(goal) is None and (holds(world) or world.journal.is_over)
    ]
    assert ended or world.journal.is_over
    # A writer that somebody starts in quarantine is stopped before anything else.
    if not world.journal.is_over:
        assert world.told <= {"before"}


def test_what_somebody_starts_in_quarantine_is_stopped() -> None:
    world = World()
    world.run(Goal.QUARANTINE)
    world.running |= WRITERS
    for goal in (Goal.QUARANTINE, Goal.RELEASE):
        assert next_step(world.seen(), goal) is Step.STOP_WRITERS


def test_what_was_compared_while_a_writer_ran_is_compared_again() -> None:
    world = World()
    world.run(Goal.QUARANTINE)
    world.running |= WRITERS
    world.run(Goal.QUARANTINE, 2)
    assert next_step(world.seen(), Goal.QUARANTINE) is Step.PROVE_CLOSED
    world.run(Goal.QUARANTINE, 2)
    assert next_step(world.seen(), Goal.QUARANTINE) is Step.COMPARE
    world.run(Goal.QUARANTINE)
    assert is_the_backup_in_quarantine(world)


@pytest.mark.parametrize("killed_after", range(20))
def test_nothing_is_released_that_nobody_has_seen(killed_after: int) -> None:
    world = World()
    world.run(Goal.QUARANTINE, killed_after)
    told = next_step(world.seen(), Goal.RELEASE)
    assert isinstance(told, Problem)
    assert "has not come to its quarantine" in told.what


@pytest.mark.parametrize("done", RELEASING)
def test_from_the_release_on_there_is_no_way_back_and_one_way_only(done: Step) -> None:
    world = World(journal=replace(begun(), step=done), generation=NEW, data={OLD: "before", NEW: "backup"})
    told = next_step(world.seen(), Goal.UNDO)
    assert isinstance(told, Problem)
    assert "released" in told.what
    assert next_step(world.seen(), Goal.QUARANTINE) == next_step(world.seen(), Goal.RELEASE) != Step.OPEN


def test_what_is_taken_back_does_not_go_on() -> None:
    world = World()
    world.run(Goal.QUARANTINE, 8)
    world.run(Goal.UNDO, 2)
    for goal in (Goal.QUARANTINE, Goal.RELEASE):
        assert isinstance(next_step(world.seen(), goal), Problem)


def test_another_restore_begins_where_none_is_or_the_former_data_is_back_in_its_place() -> None:
    journal = begun()
    assert not may_begin_anew(journal, OLD)
    assert may_begin_anew(replace(journal, step=RELEASED), NEW)
    assert may_begin_anew(replace(journal, step=UNDONE), OLD)
    assert may_begin_anew(replace(journal, undoing=True), OLD)
    assert not may_begin_anew(replace(journal, undoing=True), NEW)
    part = replace(journal, step=PART_RELEASED, parts={"m1": ()})
    assert may_begin_anew(part, NEW)
    # Not while members are being let go.
    for step in (Step.OPEN, Step.START_ALL, Step.WAKE_AGENTS, Step.LET, Step.BACK_UP_AGAIN):
        assert not may_begin_anew(replace(part, step=step), NEW)


def test_a_part_that_came_back_is_what_was_to_be_reached_and_no_other_is_taken_back() -> None:
    part = replace(begun(), step=PART_RELEASED, parts={"m1": ()}, before="b0")
    refused = next_step(World(journal=part, generation=NEW).seen(), Goal.UNDO)
    assert isinstance(refused, Problem)
    assert refused.remedy == "restore the backup that was taken before it, b0"
    refused = next_step(World(journal=replace(part, before=""), generation=NEW).seen(), Goal.UNDO)
    assert isinstance(refused, Problem)
    assert refused.remedy == "restore another backup", "none was taken, as of a move"
    assert next_step(World(journal=replace(part, came_back=True), generation=NEW).seen(), Goal.UNDO) is None


def test_one_that_was_released_has_nothing_to_do_and_is_not_taken_back() -> None:
    world = World(journal=replace(begun(), step=RELEASED), generation=NEW)
    assert next_step(world.seen(), Goal.QUARANTINE) is None
    assert next_step(world.seen(), Goal.RELEASE) is None
    assert isinstance(next_step(world.seen(), Goal.UNDO), Problem)


def test_every_component_is_a_writer_a_server_or_neither() -> None:
    assert not WRITERS & SERVERS
    assert set(BY_NAME) - EVERYTHING == {"karmada-scheduler-estimator"}
