# SPDX-License-Identifier: Apache-2.0
"""Decisions about runs: a history of edits, runs and failures keeps what must hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from karmada_operator.actions import Cancel, Claim, Forget, Release, Start, Wait
from karmada_operator.executor import Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Around, Operation, Order, Seen
from karmada_operator.reconcile import (
    BY_ITSELF,
    FIRST_RETRY,
    JITTER,
    LONGEST_RETRY,
    LOOK_AGAIN,
    Memory,
    decide,
    doubted,
    ended,
    found_unready,
    noticed,
    order_of,
    repeats,
    started,
)
from karmada_operator.wishes import Wishes

from operator_tests.test_reconcile import BAD, PERIOD, WITH_MEMBERS

#: Errors of a run, and those that no repetition mends.
REASONS: list[frozenset[str]] = [
    frozenset(),
    frozenset({Reason.MEMBER_UNREACHABLE}),
    frozenset({Reason.MEMBER_UNREACHABLE, Reason.INVALID_DOCUMENT}),
    frozenset({Reason.INVALID_DOCUMENT}),
    frozenset({Reason.MOVED, Reason.MEMBER_UNREACHABLE}),
    frozenset({Reason.DOCUMENT_CHANGED}),
]
HOPELESS = (REASONS[3], REASONS[4])
#: What others change, which health sees, and what they stop, which a look finds.
INTERFERENCE = st.tuples(st.sampled_from(["", "somebody has deleted it"]), st.sampled_from(["", "it does not run"]))


@dataclass
class _World:
    """The object as users edit it, what was carried out, and what is wrong with it until a run has put that right.

    ``drift`` is what health sees, ``stopped`` what only a look finds: in pods while nothing answers (``trouble``).
    ``installed`` are generation and inputs with which the last run began that succeeded, ``began`` those of the run
    under way. ``answers`` are runs in a row that answered a doubt; ``quiet_until`` is when the next one may come.
    ``luck`` is how the next runs will end, ``again`` how often somebody will interfere once more; ``excuses`` counts
    both, as far as they have come about. ``passes``: trouble is over when a look has ended.
    """

    seen: Seen | None = WITH_MEMBERS
    made: int = 1
    memory: Memory = field(default_factory=Memory)
    around: Around = field(default_factory=Around)
    now: float = 0.0
    drift: str = ""
    stopped: str = ""
    installed: tuple[int, str] | None = None
    began: tuple[int, str] | None = None
    answering: bool = False
    answers: int = 0
    quiet_until: float = 0.0
    looked_at: float | None = None
    hopeless: tuple[Order, float] | None = None
    luck: tuple[tuple[Outcome, frozenset[str]], ...] = ()
    again: tuple[tuple[str, str], ...] = ()
    excuses: int = 0
    passes: bool = False

    @property
    def wanted(self) -> Order:
        """Order for which the object asks; where it has no word any more, the last one stays."""
        assert self.seen
        order, known = order_of(self.seen, self.around), self.memory.done or self.memory.failed
        if known is None or order.run_now or self.memory.uid not in ("", self.seen.uid):
            return order
        return replace(order, run_now=known.run_now)

    def begins(self, action: Start) -> None:
        """Start a run."""
        assert self.seen
        if action.order.operation is not Operation.LOOK:
            self.began = (self.seen.generation, self.around.inputs)
            self.answering, self.looked_at = action.order == self.memory.done and self.now < self.memory.next_at, None
            self.hopeless = None
        self.memory = started(self.memory, action.order)

    def ends(self, outcome: Outcome, reasons: frozenset[str] = frozenset(), chance: float = 0.0) -> None:
        """End the run under way: one that succeeded has put right what was wrong, and a look has seen that."""
        order = self.memory.running
        assert order
        on_hosts = self.seen is not None and self.seen.on_hosts
        found: dict[str, Any] = {"unready": "" if on_hosts else None}
        if order.operation is Operation.LOOK:
            self.looked_at = self.now
            if outcome is Outcome.SUCCEEDED:
                # A dry run puts nothing right.
                stopped = "" if order.dry_run else self.stopped
                found = {"held": False, **({"unready": stopped} if on_hosts else {"amiss": stopped})}
            if self.passes:
                self.around = replace(self.around, trouble="")
        elif outcome is Outcome.SUCCEEDED and not order.dry_run:
            self.installed, self.drift, self.stopped = self.began, "", ""
            if self.again and order.operation is Operation.INSTALL:
                ((self.drift, self.stopped), *rest) = self.again
                self.again, self.excuses = tuple(rest), self.excuses + 1
        if outcome is Outcome.SUCCEEDED or order.operation is Operation.LOOK:
            reasons = frozenset()
        self.memory = ended(self.memory, outcome, self.now, period=PERIOD, chance=chance, reasons=reasons, **found)
        if order.operation is Operation.LOOK:
            return
        if outcome is Outcome.SUCCEEDED:
            in_a_row = self.answers + 1 if self.now <= self.quiet_until + LONGEST_RETRY else 1
            self.answers = in_a_row if self.answering else 0
            pause = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** (self.answers - 1)) if self.answers else 0.0
            self.quiet_until = self.now + pause
        elif outcome is not Outcome.CANCELLED and reasons in HOPELESS:
            self.hopeless = (order, self.now + PERIOD * (1 - JITTER))

    def ends_by_luck(self, *, cancelled: bool) -> None:
        """End the run under way as it will."""
        outcome, reasons = (Outcome.CANCELLED if cancelled else Outcome.SUCCEEDED), frozenset[str]()
        if self.luck and not cancelled and self.memory.running and self.memory.running.operation != Operation.LOOK:
            ((outcome, reasons), *rest) = self.luck
            self.luck, self.excuses = tuple(rest), self.excuses + 1
        self.ends(outcome, reasons)

    def heard(self) -> None:
        """Take what the watches of the operator have seen."""
        if self.seen is None:
            return
        self.memory = noticed(self.memory, self.seen, self.now)
        # A dry run puts nothing right.
        drift = "" if self.seen.deleting or self.seen.wishes.dry_run else self.drift
        if drift or not self.seen.on_hosts:
            self.memory = doubted(self.memory, drift)
        if not self.seen.on_hosts:
            self.memory = found_unready(self.memory, drift, self.now)


class History(RuleBasedStateMachine):
    """Users edit, time passes, runs end in every way; the operator may look at any moment, or not."""

    def __init__(self) -> None:
        super().__init__()
        self.world = _World()

    @initialize(on_hosts=st.booleans(), settled=st.booleans(), installed=st.booleans())
    def begins(self, on_hosts: bool, settled: bool, installed: bool) -> None:
        """As an operator finds it that starts: ``settled`` by an earlier one, or new. Or ``installed`` by this one."""
        self._edit(on_hosts=on_hosts, settled=settled)
        if installed and self.world.seen:
            self.world.begins(Start(order_of(self.world.seen), Lane.CHANGES, "it is new"))
            self.world.ends(Outcome.SUCCEEDED)

    def _edit(self, **changes: Any) -> None:
        if self.world.seen is not None:
            self.world.seen = replace(self.world.seen, **changes)

    @rule()
    def edit(self) -> None:
        if self.world.seen:
            self._edit(generation=self.world.seen.generation + 1, settled=False)

    @rule(paused=st.booleans(), dry_run=st.booleans(), bad=st.booleans(), token=st.sampled_from(["", "a", "b"]))
    def annotate(self, paused: bool, dry_run: bool, bad: bool, token: str) -> None:
        wishes = replace(BAD if bad else Wishes(), paused=paused, dry_run=dry_run, run_now=token)
        if self.world.seen and wishes != self.world.seen.wishes:
            self._edit(wishes=wishes)

    @rule(token=st.sampled_from(["", "a", "b"]))
    def ask(self, token: str) -> None:
        """Change nothing but the word of run-now, or take it away."""
        if self.world.seen:
            self._edit(wishes=replace(self.world.seen.wishes, run_now=token))

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
        self.world.installed, self.world.drift, self.world.stopped, self.world.hopeless = None, "", "", None

    @rule(
        trouble=st.booleans(),
        lost=st.booleans(),
        going=st.booleans(),
        inputs=st.sampled_from(["", "a", "b"]),
        suspicion=st.sampled_from(["", "one", "two"]),
        passes=st.booleans(),
    )
    def things_happen(self, trouble: bool, lost: bool, going: bool, inputs: str, suspicion: str, passes: bool) -> None:
        self.world.passes = passes
        gone = frozenset({"k1"}) if lost else frozenset[str]()
        self.world.around = Around(inputs, gone, going, trouble="trouble" if trouble else "", suspicion=suspicion)

    @rule(now=INTERFERENCE, again=st.lists(INTERFERENCE, max_size=3))
    def others_interfere(self, now: tuple[str, str], again: list[tuple[str, str]]) -> None:
        (self.world.drift, self.world.stopped), self.world.again = now, tuple(again)

    @rule(luck=st.lists(st.tuples(st.sampled_from(list(Outcome)), st.sampled_from(REASONS)), max_size=3))
    def runs_will_end(self, luck: list[tuple[Outcome, frozenset[str]]]) -> None:
        self.world.luck = tuple(luck)

    @rule(seconds=st.sampled_from([0.1, 6.0, 700.0, 30_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def operator_hears(self) -> None:
        self.world.heard()

    @rule()
    def operator_looks(self) -> None:
        world = self.world
        action = decide(world.seen, world.memory, world.now, world.around)
        match action:
            case Claim():
                assert world.seen
                self._edit(claimed=True)
            case Start():
                self._starts(world, action)
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

    def _starts(self, world: _World, action: Start) -> None:
        seen, memory, order = world.seen, world.memory, action.order
        assert seen
        assert seen.claimed
        assert not seen.wishes.paused
        assert not seen.wishes.problems
        if order.operation is Operation.LOOK:
            assert action.lane is Lane.ROUTINE
            assert not seen.deleting
            self._may_look(world, seen)
        else:
            assert order == world.wanted
            assert seen.wishes.run_now or action.why != "run-now asks for it", (
                "a word that is not there asks for nothing"
            )
            if action.lane is Lane.ROUTINE and memory.done is None:
                sign = world.around.trouble or memory.doubt or (seen.on_hosts and world.around.suspicion)
                assert seen.settled, "what is new waits for nobody's first look"
                assert not sign, "nor does what does not work"
            assert (action.lane is Lane.DELETIONS) == seen.deleting == (order.operation is Operation.REMOVE)
            if memory.uid == seen.uid and memory.done == order and world.now < memory.next_at:
                self._answers_a_doubt(world, action)
            if world.hopeless is not None and repeats(order, world.hopeless[0]):
                assert world.now >= world.hopeless[1], "what no repetition mends is not repeated"
        world.begins(action)

    def _may_look(self, world: _World, seen: Seen) -> None:
        """A look comes where nothing else is to be done, and no sooner after another one than that has a reason."""
        order, memory = world.wanted, world.memory
        assert memory.done == order or (memory.moved is not None and memory.failed == order)
        if world.looked_at is not None:
            soonest = LOOK_AGAIN if seen.on_hosts or memory.moved is not None else BY_ITSELF
            assert world.now >= world.looked_at + soonest

    def _answers_a_doubt(self, world: _World, action: Start) -> None:
        """No order is repeated before its period is over but for a doubt, and for that less and less often."""
        assert action.lane is Lane.CHANGES
        assert world.now >= world.quiet_until
        if action.why == world.memory.doubt:
            return
        assert action.why == world.memory.amiss == "it does not run"
        assert world.around.trouble, "it may have come back"
        assert world.looked_at is not None
        assert world.now >= world.looked_at + BY_ITSELF

    @precondition(lambda self: self.world.memory.running is not None)
    @rule(outcome=st.sampled_from(list(Outcome)), reasons=st.sampled_from(REASONS), chance=st.floats(0, 0.999))
    def run_ends(self, outcome: Outcome, reasons: frozenset[str], chance: float) -> None:
        self.world.ends(outcome, reasons, chance)

    @rule()
    def a_run_succeeds(self) -> None:
        """What is due is done without another event in its course."""
        self.operator_looks()
        if self.world.memory.running is not None and not self.world.memory.cancelled:
            self.world.ends(Outcome.SUCCEEDED)

    @invariant()
    def everything_settles(self) -> None:
        """Left alone, an object comes to rest after one run more for all edits, and one for each that had to follow."""
        world = replace(self.world, excuses=0)
        runs = 0
        for _ in range(80):
            world.heard()
            action = decide(world.seen, world.memory, world.now, world.around)
            if isinstance(action, Wait) and world.memory.running is None:
                if action.until is None or action.until - world.now > 1000:
                    break
                world.now = action.until
            elif world.memory.running is not None:
                world.ends_by_luck(cancelled=isinstance(action, Cancel) or bool(world.memory.cancelled))
            elif isinstance(action, Claim):
                assert world.seen
                world.seen = replace(world.seen, claimed=True)
            elif isinstance(action, Start):
                runs += action.order.operation is not Operation.LOOK
                self._starts(world, action)
            elif isinstance(action, Release):
                world.seen = None
            else:
                break
        else:
            pytest.fail(f"does not come to rest: {self.world}")
        assert runs <= 1 + world.excuses
        if world.seen and not world.seen.wishes.paused and not world.seen.wishes.problems:
            self._is_carried_out(world, world.seen)

    def _is_carried_out(self, world: _World, seen: Seen) -> None:
        if world.hopeless is not None and world.memory.failed == world.wanted:
            return
        assert world.memory.done == world.wanted
        if seen.deleting or seen.wishes.dry_run:
            return
        assert world.installed == (seen.generation, world.around.inputs)
        assert world.drift == "", "what others have changed is put right"
        assert not world.memory.doubt, "and what a look has found on hosts"
        assert not (world.memory.amiss and world.around.trouble), "or in pods"


TestHistory = pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")(History.TestCase)
TestHistory.settings = settings(
    max_examples=250, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
