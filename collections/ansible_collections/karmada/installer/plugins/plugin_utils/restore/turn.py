# SPDX-License-Identifier: Apache-2.0
"""Turn of the role in a restore or a hand-over: the end of a step, and the begin of the next. No I/O of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..components.table import ETCD
from .means import Means
from .plan import ENDS, Step

#: Lines of those that a person waits for.
TOLD = {
    Step.BACK_UP: "backing up what is there",
    Step.STOP_WRITERS: "stopping what writes to members",
    Step.STOP_SERVERS: "stopping the API servers and what needs them",
    Step.STOP_ETCD: "stopping the members of etcd",
    Step.START_ETCD: "starting the members of etcd together, with the data of the backup",
    Step.START_SERVERS: "starting the API servers; what writes to members stays away",
    Step.PROVE_CLOSED: "asking each API server whether it refuses agents",
    Step.COMPARE: "comparing what members have with what they would get",
    Step.FENCE: "having members follow this place, with other tokens, and no other one",
    Step.HOLD: "holding what is not released",
    Step.OPEN: "releasing it: members follow from here on",
    Step.LET: "letting go what is released",
    Step.WAKE_AGENTS: "having agents begin anew",
    Step.BACK_UP_AGAIN: "backing up what was released",
    Step.STOP_ALL: "stopping everything",
    Step.START_FORMER: "starting the members of etcd with the data from before",
}


def concerned(step: Step, stops: Mapping[Step, frozenset[str]]) -> frozenset[str]:
    """Components that tasks of the role stop or start in a step, where steps stop those of ``stops``."""
    if step in (Step.START_ETCD, Step.START_FORMER):
        return frozenset({ETCD.name})
    return stops.get(step, frozenset())


@dataclass(frozen=True)
class Done:
    """Outcome of the part of a step that tasks of the role have done: the backup that was taken, what went wrong with
    it, whether this was the last attempt, names of members that follow this place, and those that could not be had to,
    in their plain form.
    """

    backup: str = ""
    troubles: Sequence[str] = ()
    last: bool = True
    joined: Sequence[str] = ()
    broken: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Delivered:
    """A snapshot in plain: its file here, the size in bytes, and its SHA-256."""

    path: Path
    size: int
    digest: str


#: Outcome where there is nothing to tell.
DONE = Done()


@dataclass(frozen=True)
class Turn:
    """Outcome of one turn of the role: the last step that was taken, None if the goal is reached; the tasks that do the
    rest of it; whether that step is done again; and whether there may be a step after it.
    """

    step: Step | None = None
    tasks: str = ""
    again: bool = False

    @property
    def goes_on(self) -> bool:
        """True unless the goal is reached. After a part that an earlier run has begun, more may be asked for."""
        return self.step is not None and (self.step not in ENDS or self.step is Step.PART_RELEASED)


class Steps(Protocol):
    """Steps on the way to what the user has asked for. Each of these raises ProblemsError."""

    means: Means

    def next(self) -> Step | None:
        """Next step; None if that is reached."""

    def take(self, step: Step) -> str:
        """Take a step; returns the tasks that do the rest of it. Without any it has come to its end."""

    def end(self, step: Step, done: Done) -> bool:
        """Note that a step has come to its end; returns False if its tasks are to be done again."""


def turned(steps: Steps, taken: Step | None, done: Done) -> Turn:
    """End the step ``taken``, whose rest tasks of the role have done, and take what comes next, up to one with tasks.

    Raises ProblemsError, NotReady.
    """
    if taken and not steps.end(taken, done):
        return Turn(taken, steps.means.tasks[taken], again=True)
    turn = Turn()
    while following := steps.next():
        turn = Turn(following, steps.take(following))
        # The end of a part is on record, and told, before what else is asked for may be refused.
        ends_part = following is Step.PART_RELEASED
        if turn.tasks or not turn.goes_on or ends_part or steps.means.asks_again:
            break
    return turn
