# SPDX-License-Identifier: Apache-2.0
"""The next step of a restore, of its release, or of the way back, from its journal and from what runs. No I/O.

A caller looks, asks for the next step, does it, records it, and looks again. A step that was done and not recorded is
done again, so each has to be one that may be. The rules:

* Nothing stops before the data of every member is prepared.
* The data is switched only while nothing runs that reads or writes it, also if somebody has started it meanwhile.
* What is held is held until the release: what runs nevertheless is stopped first.
* From the release on there is no way back, because members follow; until then there always is. Another restore may
  begin then, also where only a part was released: its quarantine holds everything, and taken back it leads to the part.
* Where only a part is released, nothing starts before the rest is held by the API server itself, and what was released
  is never held again. The release of all that is left ends as one of everything does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..components.moving import HANDED_OVER
from ..components.state import PART_RELEASED, RELEASED, UNDONE, RestoreState
from ..components.table import (
    BY_NAME,
    ETCD,
    KARMADA_CONTROLLER_MANAGER,
    KARMADA_DESCHEDULER,
    KARMADA_SCHEDULER,
    KARMADA_SCHEDULER_ESTIMATOR,
    KUBE_CONTROLLER_MANAGER,
)
from ..problems import Problem, Reason
from . import held

#: What writes to members, or creates what others write there.
WRITERS = frozenset(
    each.name for each in (KARMADA_CONTROLLER_MANAGER, KARMADA_SCHEDULER, KARMADA_DESCHEDULER, KUBE_CONTROLLER_MANAGER)
)
#: Every other client of etcd, and what needs one. Estimators know their member only.
SERVERS = frozenset(BY_NAME) - WRITERS - {ETCD.name, KARMADA_SCHEDULER_ESTIMATOR.name}
EVERYTHING = WRITERS | SERVERS | {ETCD.name}


class Step(StrEnum):
    """One step. Its value is recorded as the last one that has come to its end."""

    BACK_UP = "BackUp"
    PREPARE = "Prepare"
    STOP_WRITERS = "StopWriters"
    CLOSE = "Close"
    STOP_SERVERS = "StopServers"
    STOP_ETCD = "StopEtcd"
    SWITCH = "Switch"
    START_ETCD = "StartEtcd"
    PROVE = "Prove"
    START_SERVERS = "StartServers"
    PROVE_CLOSED = "ProveClosed"
    COMPARE = "Compare"
    OPEN = "Open"
    START_ALL = "StartAll"
    WAKE_AGENTS = "WakeAgents"
    BACK_UP_AGAIN = "BackUpAgain"
    TURN_BACK = "TurnBack"
    STOP_ALL = "StopAll"
    SWITCH_BACK = "SwitchBack"
    START_FORMER = "StartFormer"
    OPEN_AGAIN = "OpenAgain"
    HOLD = "Hold"
    LET = "Let"
    #: Of a move: the mark on members is raised, before anything starts that follows it; the place is left.
    FENCE = "Fence"
    HANDED_OVER = HANDED_OVER
    #: Of a hand-over that is taken back: the mark on members is raised, so that no place takes its final backup over.
    CLAIM = "Claim"
    PART_RELEASED = PART_RELEASED
    #: The last ones, after which nothing is held.
    RELEASED = RELEASED
    UNDONE = UNDONE


class Goal(StrEnum):
    """End that the user has asked for."""

    QUARANTINE = "quarantine"
    RELEASE = "release"
    UNDO = "undo"


#: Step → components that it stops.
STOPS = {
    Step.STOP_WRITERS: WRITERS,
    Step.STOP_SERVERS: SERVERS,
    Step.STOP_ETCD: frozenset({ETCD.name}),
    Step.STOP_ALL: EVERYTHING,
}
#: Steps after which nothing is left unfinished until a person decides.
ENDS = (Step.COMPARE, Step.PART_RELEASED, Step.RELEASED, Step.UNDONE, Step.HANDED_OVER)


@dataclass(frozen=True)
class Seen:
    """A restore as it stands: its journal, the generation that etcd has by the state, and components with pods.

    ``parts`` are what is to be released, by what the user asks for now and what was released before. ``loose``: what is
    to be held by what is on record is not. ``fenced`` is False while members may follow the place that it came from.
    """

    journal: RestoreState
    generation: int
    running: frozenset[str]
    parts: held.Parts = field(default_factory=lambda: held.EVERYTHING)
    loose: bool = False
    fenced: bool = True

    @property
    def is_switched(self) -> bool:
        """True if members of etcd start with the new data."""
        return self.generation == self.journal.generation

    @property
    def asks_for_more(self) -> bool:
        """True if other parts are to be released than those on record."""
        return dict(self.parts) != dict(self.journal.parts or held.EVERYTHING)


#: Steps with the new data, in their order.
_AFTER_SWITCH = (
    Step.SWITCH,
    Step.START_ETCD,
    Step.PROVE,
    Step.START_SERVERS,
    Step.PROVE_CLOSED,
    Step.COMPARE,
)
_RELEASE = (Step.OPEN, Step.START_ALL, Step.WAKE_AGENTS, Step.LET, Step.BACK_UP_AGAIN, Step.RELEASED)
#: Steps with the former data again.
_WAY_BACK = (Step.START_FORMER, Step.OPEN_AGAIN, Step.START_ALL, Step.WAKE_AGENTS, Step.UNDONE)


def next_step(seen: Seen, goal: Goal) -> Step | Problem | None:
    """Next step towards the goal; None if it is reached, a Problem if it cannot be reached from here."""
    journal = seen.journal
    if journal.is_over:
        # One that is to be restored once more has a record of its own by now.
        reached = {Goal.QUARANTINE: RELEASED, Goal.RELEASE: RELEASED, Goal.UNDO: UNDONE}
        return None if reached.get(goal) == journal.step else _refused("it is over", "see karmada.installer.report")
    if goal is Goal.UNDO:
        return _back(seen)
    if journal.undoing:
        return _refused("it is being taken back", "go on with karmada.installer.restore_undo")
    if is_released(journal):
        # Members follow already, so that there is one way only, whatever was asked for.
        return _on(seen, goal)
    step = _until_quarantine(seen)
    if goal is Goal.QUARANTINE or (step is Step.STOP_WRITERS and is_quarantined(journal)):
        return step
    return _refused_before_quarantine() if step else _first_of_release(seen)


def recorded(seen: Seen, step: Step) -> str:
    """Step that is put on record for one that has come to its end: itself, or the one before what is done again."""
    if step is Step.FENCE:
        return seen.journal.step
    if step is not Step.STOP_WRITERS or not seen.is_switched:
        return step
    # What ran meanwhile may have changed what was compared.
    return Step.START_SERVERS if is_quarantined(seen.journal) else seen.journal.step


def may_begin_anew(journal: RestoreState, generation: int) -> bool:
    """Return whether another restore may take the place of this one, which holds nothing that another would not hold.

    That is so once it is over; and while it is being taken back with the former data in its place, because that may be
    the very data that does not start. Where a part is released, the rest is held inside the control plane: it goes with
    the data of that, and comes back with it.
    """
    part = journal.step == Step.PART_RELEASED
    return journal.is_over or part or (journal.undoing and generation != journal.generation)


def is_quarantined(journal: RestoreState) -> bool:
    """Return whether a restore has done all that it does before a person decides."""
    return journal.step in (Step.COMPARE, Step.HOLD) and not journal.undoing


def is_released(journal: RestoreState) -> bool:
    """Return whether members follow, or some of them, so that there is no way back."""
    return journal.step in (*_RELEASE, Step.PART_RELEASED) and not journal.undoing


def _until_quarantine(seen: Seen) -> Step | None:
    if not seen.is_switched:
        return _until_switch(seen)
    if _runs(seen, WRITERS):
        return Step.STOP_WRITERS
    return None if is_quarantined(seen.journal) else _following(_AFTER_SWITCH, seen.journal.step)


def _first_of_release(seen: Seen) -> Step:
    """Step that lets members follow, but only where all that is to be held is, and where they follow nobody else."""
    if not seen.fenced:
        return Step.FENCE
    nothing_was_held = not seen.journal.parts and held.EVERY_CLUSTER in seen.parts
    stands = seen.journal.step == Step.HOLD and not seen.asks_for_more and not seen.loose
    return Step.OPEN if nothing_was_held or stands else Step.HOLD


def _on(seen: Seen, goal: Goal) -> Step | None:
    """Next step of a release that has begun."""
    journal = seen.journal
    if journal.step == Step.PART_RELEASED:
        return Step.LET if goal is Goal.RELEASE and (seen.asks_for_more or seen.loose) else None
    step = _following(_RELEASE, journal.step)
    return Step.PART_RELEASED if step is Step.RELEASED and is_partial(journal) else step


def is_partial(journal: RestoreState) -> bool:
    """Return whether something is held after the release by what is on record."""
    return bool(journal.parts) and held.EVERY_CLUSTER not in journal.parts


def _until_switch(seen: Seen) -> Step:
    journal = seen.journal
    if not journal.step:
        return Step.BACK_UP
    if set(journal.prepared) != set(journal.members):
        return Step.PREPARE
    if _to_stop(seen, WRITERS):
        return Step.STOP_WRITERS
    if not journal.closed:
        return Step.CLOSE
    if _to_stop(seen, SERVERS):
        return Step.STOP_SERVERS
    return Step.STOP_ETCD if _to_stop(seen, frozenset({ETCD.name})) else Step.SWITCH


def _back(seen: Seen) -> Step | Problem | None:
    journal = seen.journal
    if journal.step == Step.PART_RELEASED and journal.came_back:
        # What was to be taken back is.
        return None
    if is_released(journal):
        taken = f"the backup that was taken before it, {journal.before}"
        before = f"restore {taken if journal.before else 'another backup'}"
        ended = journal.step == Step.PART_RELEASED
        remedy = before if ended else f"have the release come to its end (karmada.installer.release); then {before}"
        return _refused("it is released, and members follow it", remedy)
    if not journal.undoing:
        return Step.TURN_BACK
    if seen.is_switched:
        return Step.STOP_ALL if _to_stop(seen, EVERYTHING) else Step.SWITCH_BACK
    return _following(_WAY_BACK, journal.step)


def _to_stop(seen: Seen, components: frozenset[str]) -> bool:
    """Return whether some of these are not held yet, or run."""
    return not components <= set(seen.journal.held) or _runs(seen, components)


def _runs(seen: Seen, components: frozenset[str]) -> bool:
    return bool(seen.running & components)


def _following(steps: tuple[Step, ...], done: str) -> Step:
    """Step after the last one that was done; the first if that is none of them."""
    return steps[steps.index(Step(done)) + 1] if done in steps else steps[0]


def _refused_before_quarantine() -> Problem:
    what = "it has not come to its quarantine, so nobody has seen what members would get"
    return _refused(what, "go on with karmada.installer.restore, and read what it tells of members")


def _refused(what: str, remedy: str) -> Problem:
    return Problem(what, "the restore", remedy, reason=Reason.RESTORE_IMPOSSIBLE)
