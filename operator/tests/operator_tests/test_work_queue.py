# SPDX-License-Identifier: Apache-2.0
"""The queue: one worker a key, coalescing, lanes with bounds, times, fairness. Time passes only as a test says."""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from karmada_operator.kinds import Key, Lane
from karmada_operator.work_queue import RANK, WorkQueue

BOUNDS = {
    Lane.QUICK: 2,
    Lane.CHANGES: 2,
    Lane.DELETIONS: 1,
    Lane.ROUTINE: 1,
    Lane.RESTORES: 1,
    Lane.BACKUPS: 1,
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(BOUNDS, clock)


def key(name: str, namespace: str = "a") -> Key:
    return Key("Widget", namespace, name)


def taken(queue: WorkQueue) -> list[str]:
    """Names of all keys that can be taken now."""
    found = []
    while (turn := queue.take(0)) is not None:
        found.append(turn.key.name)
    return found


def test_one_worker_a_key_and_one_entry_for_everything_that_comes_meanwhile(queue: WorkQueue) -> None:
    queue.add(key("x"), Lane.CHANGES)
    assert taken(queue) == ["x"]
    for _ in range(5):
        queue.add(key("x"), Lane.CHANGES)
    assert taken(queue) == []
    queue.done(key("x"))
    assert taken(queue) == ["x"]
    queue.done(key("x"))
    assert taken(queue) == []


def test_lanes_have_bounds_of_their_own(queue: WorkQueue) -> None:
    for name in "abc":
        queue.add(key(name), Lane.CHANGES)
    queue.add(key("d"), Lane.DELETIONS)
    assert sorted(taken(queue)) == ["a", "b", "d"]
    assert queue.active() == {Lane.CHANGES: 2, Lane.DELETIONS: 1}
    assert queue.depth() == {Lane.CHANGES: 1}
    queue.done(key("a"))
    assert taken(queue) == ["c"]


def test_nothing_before_its_time_and_the_earliest_time_counts(queue: WorkQueue, clock: Clock) -> None:
    queue.add(key("x"), Lane.QUICK, 10)
    queue.add(key("x"), Lane.QUICK, 30)
    queue.postpone(key("x"), Lane.QUICK, 1)
    clock.now = 9.9
    assert taken(queue) == []
    clock.now = 12
    turn = queue.take(0)
    assert turn
    assert turn.waited == 2


def test_namespaces_have_their_turn(queue: WorkQueue) -> None:
    for number in range(6):
        queue.add(key(f"a{number}", "a"), Lane.ROUTINE)
    queue.add(key("b0", "b"), Lane.ROUTINE)
    queue.add(key("b1", "b"), Lane.ROUTINE)
    order = []
    for _ in range(8):
        turn = queue.take(0)
        assert turn
        order.append(turn.key.name)
        queue.done(turn.key)
    assert order == ["a0", "b0", "a1", "b1", "a2", "a3", "a4", "a5"]


def test_a_lane_may_change_while_it_waits(queue: WorkQueue) -> None:
    for name in "ab":
        queue.add(key(name), Lane.CHANGES)
    assert taken(queue) == ["a", "b"]
    queue.add(key("x"), Lane.CHANGES)
    assert taken(queue) == []
    queue.add(key("x"), Lane.DELETIONS)
    assert taken(queue) == ["x"]


def test_who_waits_keeps_its_place_however_often_it_is_looked_at(queue: WorkQueue) -> None:
    queue.bounds[Lane.CHANGES] = 1
    queue.add(key("first"), Lane.CHANGES)
    running, order = queue.take(0), []
    for number in range(3):
        queue.add(key(f"o{number}"), Lane.CHANGES)
    for _ in range(6):
        assert running
        if running.key != key("o0"):
            # A workload of o0 changes while it waits.
            queue.add(key("o0"), Lane.QUICK)
            turn = queue.take(0)
            assert turn
            assert (turn.key, turn.lane) == (key("o0"), Lane.QUICK)
            queue.add(key("o0"), Lane.CHANGES)
            queue.done(key("o0"))
        queue.done(running.key)
        running = queue.take(0)
        assert running
        order.append(running.key.name)
        # The others are edited again, and again.
        queue.add(running.key, Lane.CHANGES)
    assert order[:3] == ["o0", "o1", "o2"]
    assert sorted(order[3:]) == ["o0", "o1", "o2"]


def test_a_place_that_nobody_waits_for_any_more_is_not_kept(queue: WorkQueue) -> None:
    queue.add(key("x"), Lane.CHANGES)
    queue.add(key("x"), Lane.QUICK)
    assert taken(queue) == ["x"]
    queue.done(key("x"))
    queue.bounds[Lane.CHANGES] = 1
    for name in "yx":
        queue.add(key(name), Lane.CHANGES)
    assert taken(queue) == ["y"]


def test_who_waits_is_woken() -> None:
    queue, found = WorkQueue(BOUNDS), []
    waiting = threading.Thread(target=lambda: found.append(queue.take(300)))
    waiting.start()
    queue.add(key("x"), Lane.QUICK)
    waiting.join(300)
    assert [turn.key.name for turn in found if turn] == ["x"]
    waiting = threading.Thread(target=lambda: found.append(queue.take(300)))
    waiting.start()
    queue.close()
    waiting.join(300)
    assert found[-1] is None


def group(key: Key) -> tuple[str, bool]:
    """Control plane of a key: those of the first letters belong to one."""
    return key.namespace, key.name < "d"


def test_what_belongs_together_is_worked_on_one_after_the_other_restores_first_and_backups_last(clock: Clock) -> None:
    queue = WorkQueue(BOUNDS, clock, lambda key: key.namespace)
    lanes = {"b": Lane.BACKUPS, "i": Lane.CHANGES, "r": Lane.RESTORES}
    for name, lane in lanes.items():
        queue.add(key(name), lane)
    queue.add(key("look"), Lane.QUICK)
    queue.add(key("other", "y"), Lane.BACKUPS)
    # Looks wait for nobody, and neither does another control plane.
    assert taken(queue) == ["r", "look", "other"]
    queue.done(key("r"))
    assert taken(queue) == ["i"]
    queue.add(key("r"), Lane.RESTORES)
    assert taken(queue) == []
    queue.done(key("i"))
    assert taken(queue) == ["r"]
    queue.done(key("r"))
    queue.done(key("other", "y"))
    assert taken(queue) == ["b"]


def test_a_backup_does_not_wait_for_a_full_lane_of_others() -> None:
    """After each start of an operator all control planes wait for a look, which may take hours."""
    for lane in (Lane.ROUTINE, Lane.CHANGES):
        queue = WorkQueue({**BOUNDS, lane: 1}, Clock(), lambda key: key.namespace)
        queue.add(key("x", "x"), lane)
        assert taken(queue) == ["x"]
        for name in "ab":
            queue.add(key(name, name), lane)
            queue.add(key(f"backup of {name}", name), Lane.BACKUPS)
        assert taken(queue) == ["backup of a"]
        queue.done(key("x", "x"))
        assert taken(queue) == ["b"], "where there is room again, it comes before its backup"
        queue.done(key("backup of a", "a"))
        queue.done(key("b", "b"))
        assert taken(queue) == ["a", "backup of b"]


def test_a_restore_that_waits_for_others_is_not_overtaken_by_its_own_control_plane(clock: Clock) -> None:
    queue = WorkQueue(BOUNDS, clock, lambda key: key.namespace)
    queue.add(key("other", "y"), Lane.RESTORES)
    assert taken(queue) == ["other"]
    for name, lane in {"r": Lane.RESTORES, "i": Lane.CHANGES, "b": Lane.BACKUPS}.items():
        queue.add(key(name), lane)
    assert taken(queue) == [], "an install or a backup may take longer than the restore of another one"
    queue.done(key("other", "y"))
    assert taken(queue) == ["r"]


KEYS = st.builds(key, st.sampled_from("abcdef"), st.sampled_from("xy"))


class Histories(RuleBasedStateMachine):
    """Whatever comes in whatever order: bounds hold, no key is with two workers, none of a group beside another run of
    it or before one that comes first, none is lost, and none waits that may begin.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.queue = WorkQueue(BOUNDS, self.clock, group)
        self.owed: set[Key] = set()
        self.waiting: dict[Key, tuple[Lane, float]] = {}
        self.active: dict[Key, Lane] = {}

    @rule(found=st.lists(st.tuples(KEYS, st.sampled_from(list(Lane))), max_size=6), delay=st.sampled_from([0.0, 1.0]))
    def add(self, found: list[tuple[Key, Lane]], delay: float) -> None:
        for each, lane in found:
            self.queue.add(each, lane, delay)
            self.owed.add(each)
            _, before = self.waiting.get(each, (lane, self.clock.now + delay))
            self.waiting[each] = (lane, min(before, self.clock.now + delay))

    def may_begin(self, each: Key) -> bool:
        """Whether a key is due, has room in its lane, and nothing of its group is worked on or comes first.

        What waits for room of its own comes first only if it is a restore or a deletion.
        """
        lane, at = self.waiting[each]
        if each in self.active or at > self.clock.now or not self.has_room(lane):
            return False
        if lane is Lane.QUICK:
            return True
        beside = [group(other) for other, active in self.active.items() if active is not Lane.QUICK]
        of_group = [
            other
            for key, (other, at) in self.waiting.items()
            if group(key) == group(each) and at <= self.clock.now and other is not Lane.QUICK
        ]
        first = [other for other in of_group if other in (Lane.RESTORES, Lane.DELETIONS) or self.has_room(other)]
        return group(each) not in beside and all(RANK.index(lane) <= RANK.index(other) for other in first)

    def has_room(self, lane: Lane) -> bool:
        return sum(each is lane for each in self.active.values()) < BOUNDS[lane]

    @rule()
    def take(self) -> None:
        """Take all that may begin."""
        while self.takes_one():
            pass

    def takes_one(self) -> bool:
        may_begin = [each for each in self.waiting if self.may_begin(each)]
        turn = self.queue.take(0)
        assert bool(turn) == bool(may_begin), may_begin
        if turn:
            assert turn.key in may_begin
            assert turn.key not in self.active
            assert turn.key in self.owed
            self.owed.remove(turn.key)
            del self.waiting[turn.key]
            self.active[turn.key] = turn.lane
            assert sum(lane is turn.lane for lane in self.active.values()) <= BOUNDS[turn.lane]
        return turn is not None

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.active)))
        del self.active[chosen]
        self.queue.done(chosen)

    @rule()
    def time_passes(self) -> None:
        self.clock.now += 0.7

    def teardown(self) -> None:
        self.clock.now += 10
        for each in self.active:
            self.queue.done(each)
        while turn := self.queue.take(0):
            self.owed.remove(turn.key)
            self.queue.done(turn.key)
        assert self.owed == set()


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_who_waits_for_a_run_is_known(queue: WorkQueue, clock: Clock) -> None:
    for name in "abc":
        queue.add(key(name), Lane.CHANGES)
    queue.add(key("routine"), Lane.ROUTINE)
    queue.add(key("later"), Lane.DELETIONS, 60)
    queue.add(key("look"), Lane.QUICK)
    assert sorted(taken(queue)) == ["a", "b", "look", "routine"]
    queue.add(key("a"), Lane.CHANGES)
    queue.add(key("next"), Lane.ROUTINE)
    assert queue.waiting(2) == set()
    clock.now = 2
    assert queue.waiting(2) == {key("c")}, "an edit of one that runs waits for itself, and a look for nobody"
    assert queue.waits(key("c"))
    queue.done(key("b"))
    assert taken(queue) == ["c"]
    assert not queue.waits(key("c"))
    clock.now = 62
    assert queue.waiting(2) == {key("later")}
