# SPDX-License-Identifier: Apache-2.0
"""Decisions about EtcdRestores: a history of edits, parts, runs and restarts keeps what must hold.

Nothing is restored without its confirmation, nothing is released that nobody has decided after the quarantine was
there, and what is released is what was named.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE, UNDO, Part
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from karmada_operator import parts, restores
from karmada_operator.actions import Start, Wait
from karmada_operator.executor import Ending, Outcome
from karmada_operator.orders import Beside, Operation, Order, Restore, Seen
from karmada_operator.reconcile import Memory, ended, started
from karmada_operator.restores import decide
from karmada_operator.status import Told, composed
from karmada_operator.telling import OfRestores, noticed

from operator_tests.test_restores import BACKUP, INSTALLED, NOW, RUN, SEEN

CLUSTERS = frozenset({"m1", "m2", "m3"})
STRANGER = Part(("stranger",))
#: What a spec may say of the quarantine: a decision, and the parts that it is about.
DECISIONS = [
    ("", ()),
    ("", (Part(("m1",)),)),
    (RELEASE, ()),
    (RELEASE, (Part(("m1",)),)),
    (RELEASE, (Part(("m2",)),)),
    (RELEASE, (Part(("m1", "m2")),)),
    (RELEASE, (Part(("m1",)), Part(("m2", "m3")))),
    (RELEASE, (Part(("m1",)), STRANGER)),
    (UNDO, ()),
]


def refused(reason: Reason) -> Ending:
    return Ending(Outcome.FAILED, reason=reason.value, problems=({"severity": "error", "reason": reason.value},))


@dataclass
class _World:
    """The object, what its status says, and what the collection has on record of the control plane."""

    seen: Seen = SEEN
    told: Told = field(default_factory=Told)
    memory: Memory = field(default_factory=Memory)
    now: float = 0.0
    #: "", restoring, quarantined, releasing, partly, released, undone
    record: str = ""
    #: Clusters that follow, by what was begun to be released.
    follows: frozenset[str] = frozenset()
    #: Whether the decision that counts was written when its status said that the quarantine is there.
    decided_in_time: bool = False


class History(RuleBasedStateMachine):
    """Users confirm and decide at any moment; runs end in every way; the operator is restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.world = _World()

    @property
    def restore(self) -> Restore:
        assert self.world.seen.restore
        return self.world.seen.restore

    def _edit(self, **fields: Any) -> None:
        seen, before = self.world.seen, self.restore.decided
        after = replace(self.restore, **fields)
        if after.decided != before:
            there = (restores.QUARANTINED, restores.RELEASING, restores.PARTLY_RELEASED)
            self.world.decided_in_time = self.restore.phase in there
        self.world.seen = replace(seen, generation=seen.generation + 1, restore=after)

    def _decide(self, decision: str, named: tuple[Part, ...]) -> None:
        """Edit it as far as an API server takes that."""
        if decision == UNDO and self.restore.released:
            return
        if (self.restore.decision, self.restore.named.parts) != (decision, named):
            self._edit(decision=decision, named=parts.Named(named))

    def _write(self) -> None:
        """The status that is told becomes what is seen."""
        before = self.restore
        former = {"released": [{"cluster": name} for name, _ in before.released], "held": [*before.held]}
        status = composed(former, self.world.told, NOW)
        self.world.seen = replace(
            self.world.seen,
            restore=replace(
                before,
                phase=status.get("phase", ""),
                carried_out=self.world.told.generation or before.carried_out,
                earlier=restores.earlier_of(status) or before.earlier,
                released=parts.released_of(status),
                held=tuple(status.get("held", ())),
            ),
        )

    @rule(confirm=st.sampled_from(["", BACKUP]))
    def confirm(self, confirm: str) -> None:
        if self.restore.confirm != confirm:
            self._edit(confirm=confirm)

    @precondition(lambda self: self.restore.phase not in restores.OVER)
    @rule(decision=st.sampled_from(DECISIONS))
    def decide(self, decision: tuple[str, tuple[Part, ...]]) -> None:
        self._decide(*decision)

    @rule()
    def edit(self) -> None:
        """Something that decides nothing: as the Secret with the key, which is not needed any more."""
        self._edit()

    @rule()
    def operator_sees(self) -> None:
        """Each version that the watch brings; while no operator leads, some are missed."""
        self.world.told = noticed(self.world.told, self.world.seen)

    @rule(seconds=st.sampled_from([1.0, 700.0, 30_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def restart(self) -> None:
        self.world.memory = Memory()
        self.world.told = Told()

    @rule(breaks=st.sampled_from(["", "", "early", "late"]), decision=st.one_of(st.none(), st.sampled_from(DECISIONS)))
    def operator_looks(self, breaks: str, decision: tuple[str, tuple[Part, ...]] | None) -> None:
        world, tells = self.world, OfRestores()
        self.operator_sees()
        held = world.record in ("restoring", "quarantined", "releasing", "partly")
        beside = Beside(replace(INSTALLED, quarantined=held))
        action = decide(world.seen, world.memory, world.now, beside)
        if not isinstance(action, Start):
            assert isinstance(action, Wait)
            self._rests(action)
            world.told = tells.at_rest(world.told, world.seen, action, NOW)
            self._write()
            return
        order = action.order
        world.memory = started(world.memory, order)
        world.told = tells.begun(world.told, world.seen, action)
        self._write()
        # A run is for the decision that it began with.
        in_time = world.decided_in_time
        if order.operation is Operation.RELEASE:
            assert (RELEASE, order.parts) == (self.restore.decision, self.restore.named.parts)
        if decision and self.restore.phase not in restores.OVER:
            self._decide(*decision)
        ending = self._run(order, breaks, in_time=in_time)
        world.memory = ended(world.memory, ending.outcome, world.now, period=21600, chance=0.0, reasons=ending.reasons)
        world.told = tells.after(world.told, world.seen, order, ending, RUN)
        self._write()

    def _rests(self, wait: Wait) -> None:
        """What a status tells of one that waits is so."""
        world = self.world
        if self.restore.phase == restores.PARTLY_RELEASED:
            assert {name for name, _ in self.restore.released} == world.follows != frozenset()
            assert set(self.restore.held) == CLUSTERS - world.follows
        if wait.reason == restores.PARTLY_RELEASED:
            named = {name for each in self.restore.named.parts for name in each.clusters}
            assert named <= world.follows, "what is named is released"
            gone = world.follows - named
            assert ("stays released" in wait.why) == bool(gone)

    def _run(self, order: Order, breaks: str, *, in_time: bool) -> Ending:
        """What the playbooks do and refuse; ``in_time``: see ``_World.decided_in_time``."""
        world = self.world
        if order.operation is Operation.RESTORE:
            return self._restores(breaks)
        if order.operation is Operation.UNDO:
            assert world.record in ("restoring", "quarantined"), "what members follow is not taken back"
            if breaks:
                return Ending(Outcome.FAILED)
            world.record = "undone"
            return Ending(Outcome.SUCCEEDED, report={"phase": "Completed"})
        return self._releases(order, breaks, in_time=in_time)

    def _releases(self, order: Order, breaks: str, *, in_time: bool) -> Ending:
        world = self.world
        assert world.record in ("quarantined", "releasing", "partly", "released")
        facts: dict[str, Any] = {}
        if world.record == "releasing":
            # What an earlier run has begun comes to its end first, whatever this one was given.
            if breaks == "early":
                return Ending(Outcome.FAILED)
            self._ends()
            facts = self._as_it_is().facts
        if world.record == "released":
            return Ending(Outcome.SUCCEEDED, report={"phase": "Completed"})
        assert in_time, "somebody decided who could read what differs"
        named = frozenset(name for each in order.parts for name in each.clusters)
        if named - CLUSTERS:
            return replace(refused(Reason.INVALID_ARGUMENT), facts=facts)
        if breaks == "early":
            return Ending(Outcome.FAILED, facts=facts)
        follows = world.follows | named if order.parts else CLUSTERS
        if follows != world.follows:
            world.record, world.follows = "releasing", follows
        if breaks == "late":
            return Ending(Outcome.FAILED, facts=facts)
        self._ends()
        return self._as_it_is()

    def _restores(self, breaks: str) -> Ending:
        world = self.world
        if world.record in ("released", "undone"):
            return Ending(Outcome.SUCCEEDED, report={"phase": "Completed"})
        if not world.record and not self.restore.confirm:
            return refused(Reason.RESTORE_NOT_CONFIRMED)
        if breaks:
            world.record = world.record or "restoring"
            if world.told.phase == restores.PENDING:
                world.told = replace(world.told, phase=restores.RESTORING)
            return Ending(Outcome.FAILED)
        if world.record == "releasing":
            self._ends()
        if world.record in ("partly", "released"):
            return self._as_it_is()
        world.record = "quarantined"
        return Ending(Outcome.SUCCEEDED, report={"phase": "Quarantined"}, facts={"drift": {"members": []}})

    def _ends(self) -> None:
        """A release that has begun comes to its end."""
        self.world.record = "released" if self.world.follows == CLUSTERS else "partly"

    def _as_it_is(self) -> Ending:
        if self.world.record == "released":
            return Ending(Outcome.SUCCEEDED, report={"phase": "Completed"})
        rows = [{"name": name, "namespaces": []} for name in sorted(self.world.follows)]
        released = {"clusters": rows, "held": sorted(CLUSTERS - self.world.follows)}
        return Ending(Outcome.SUCCEEDED, report={"phase": "Quarantined"}, facts={"released": released})


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=1000, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_a_person_brings_it_from_part_to_part_to_its_end() -> None:
    """One history by hand, so that those of chance are known to come to a part at all."""
    found = History()
    found.confirm(BACKUP)
    found.operator_looks("", None)
    found.operator_looks("", None)
    assert found.restore.phase == restores.QUARANTINED
    for number, (asked, breaks, phase, follows) in enumerate(
        (
            ((RELEASE, (Part(("m1",)), STRANGER)), "", restores.QUARANTINED, set()),
            ((RELEASE, (Part(("m1",)),)), "late", restores.RELEASING, {"m1"}),
            (None, "", restores.PARTLY_RELEASED, {"m1"}),
            ((RELEASE, (Part(("m1",)), STRANGER)), "", restores.PARTLY_RELEASED, {"m1"}),
            ((RELEASE, (Part(("m2",)),)), "late", restores.RELEASING, {"m1", "m2"}),
            ((UNDO, ()), "", restores.RELEASING, {"m1", "m2"}),
            (("", ()), "", restores.PARTLY_RELEASED, {"m1", "m2"}),
            ((RELEASE, ()), "", restores.RELEASED, set(CLUSTERS)),
        )
    ):
        if asked == (UNDO, ()):
            found.decide(asked)
            assert found.restore.decision == RELEASE, "an API server refuses it"
            continue
        if asked:
            found.decide(asked)
        found.world.now += 30_000.0
        found.operator_looks(breaks, None)
        assert (number, found.restore.phase, set(found.world.follows)) == (number, phase, follows)
    assert not found.restore.released
    assert not found.restore.held
