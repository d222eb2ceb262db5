# SPDX-License-Identifier: Apache-2.0
"""Decisions about runs: a history of edits, runs and failures keeps what must hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from karmada_operator.actions import Cancel, Claim, Forget, Release, Start, Wait
from karmada_operator.kinds import Lane
from karmada_operator.orders import Around, Operation, Outcome, Seen
from karmada_operator.reconcile import Memory, decide, ended, noticed, order_of, started
from karmada_operator.wishes import Wishes

from operator_tests.test_reconcile import BAD, PERIOD, WITH_MEMBERS


@dataclass
class _World:
    """The object as users edit it, and what was carried out."""

    seen: Seen | None = WITH_MEMBERS
    made: int = 1
    memory: Memory = field(default_factory=Memory)
    around: Around = field(default_factory=Around)
    now: float = 0.0


class History(RuleBasedStateMachine):
    """Users edit, time passes, runs end in every way; the operator may look at any moment, or not."""

    def __init__(self) -> None:
        super().__init__()
        self.world = _World()

    def _edit(self, **changes: Any) -> None:
        if self.world.seen is not None:
            self.world.seen = replace(self.world.seen, **changes)

    @rule()
    def edit(self) -> None:
        if self.world.seen:
            self._edit(generation=self.world.seen.generation + 1)

    @rule(paused=st.booleans(), dry_run=st.booleans(), bad=st.booleans(), token=st.sampled_from(["", "a", "b"]))
    def annotate(self, paused: bool, dry_run: bool, bad: bool, token: str) -> None:
        wishes = replace(BAD if bad else Wishes(), paused=paused, dry_run=dry_run, run_now=token)
        if self.world.seen and wishes != self.world.seen.wishes:
            self._edit(wishes=wishes)

    @rule(keep=st.booleans())
    def delete(self, keep: bool) -> None:
        if self.world.seen and not self.world.seen.deleting:
            self._edit(deleting=True, keep=keep, generation=self.world.seen.generation + 1)
            if not self.world.seen.claimed:
                self.world.seen = None

    @precondition(lambda self: self.world.seen is None)
    @rule(claimed=st.booleans())
    def create_again(self, claimed: bool) -> None:
        self.world.made += 1
        self.world.seen = replace(WITH_MEMBERS, uid=f"u{self.world.made}", claimed=claimed)

    @rule(trouble=st.booleans(), lost=st.booleans(), going=st.booleans())
    def things_happen(self, trouble: bool, lost: bool, going: bool) -> None:
        gone = frozenset({"k1"}) if lost else frozenset[str]()
        self.world.around = Around(trouble="trouble" if trouble else "", lost=gone, going=going)

    @rule(seconds=st.sampled_from([0.1, 6.0, 700.0, 30_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def operator_hears(self) -> None:
        if self.world.seen:
            self.world.memory = noticed(self.world.memory, self.world.seen, self.world.now)

    @rule()
    def operator_looks(self) -> None:
        world = self.world
        action = decide(world.seen, world.memory, world.now, world.around)
        match action:
            case Claim():
                assert world.seen
                self._edit(claimed=True)
            case Start(order, lane, _why):
                seen = world.seen
                assert seen
                assert seen.claimed
                assert not seen.wishes.paused
                assert not seen.wishes.problems
                if order.operation is Operation.LOOK:
                    assert world.memory.done == order_of(seen, world.around), "nothing else is to be done"
                    assert lane is Lane.ROUTINE
                    assert not seen.deleting
                    world.memory = started(world.memory, order)
                    return
                assert order == order_of(seen, world.around)
                assert (lane is Lane.DELETIONS) == seen.deleting == (order.operation is Operation.REMOVE)
                # No order is repeated but after a failure or a period.
                if world.memory.uid == seen.uid:
                    assert world.memory.done != order or world.now >= world.memory.next_at
                world.memory = started(world.memory, order)
            case Cancel(why):
                assert world.memory.running
                world.memory = replace(world.memory, cancelled=why)
            case Release(kept, left):
                assert world.seen
                assert world.seen.deleting
                assert not world.seen.wishes.paused or world.seen.keep
                removed = world.memory.done and world.memory.done.operation is Operation.REMOVE
                assert kept or removed or (left and world.around.going and world.memory.failed)
                assert kept or not (world.memory.done and world.memory.done.dry_run)
                world.seen = None
            case Forget():
                assert world.seen is None
                world.memory = Memory()

    @precondition(lambda self: self.world.memory.running is not None)
    @rule(outcome=st.sampled_from(list(Outcome)), chance=st.floats(0, 0.999))
    def run_ends(self, outcome: Outcome, chance: float) -> None:
        memory = self.world.memory
        self.world.memory = ended(memory, outcome, self.world.now, period=PERIOD, chance=chance)

    @invariant()
    def everything_settles(self) -> None:
        """Left alone, with runs that succeed, an object comes to rest after at most one run more for all edits."""
        world = replace(self.world)
        runs = 0
        for _ in range(12):
            action = decide(world.seen, world.memory, world.now, world.around)
            if isinstance(action, Wait) and world.memory.running is None:
                if action.until is None or action.until - world.now > 1000:
                    break
                world.now = action.until
            elif world.memory.running is not None:
                outcome = (
                    Outcome.CANCELLED if isinstance(action, Cancel) or world.memory.cancelled else Outcome.SUCCEEDED
                )
                world.memory = ended(world.memory, outcome, world.now, period=PERIOD, chance=0.0)
            elif isinstance(action, Claim):
                assert world.seen
                world.seen = replace(world.seen, claimed=True)
            elif isinstance(action, Start):
                runs += action.order.operation is not Operation.LOOK
                world.memory = started(world.memory, action.order)
            elif isinstance(action, Release):
                world.seen = None
            else:
                break
        else:
            pytest.fail(f"does not come to rest: {self.world}")
        assert runs <= 1
        if world.seen and not world.seen.wishes.paused and not world.seen.wishes.problems:
            assert world.memory.done == order_of(world.seen, world.around)


TestHistory = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")(History.TestCase)
TestHistory.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
