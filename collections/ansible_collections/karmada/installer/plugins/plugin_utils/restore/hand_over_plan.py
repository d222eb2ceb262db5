# SPDX-License-Identifier: Apache-2.0
"""The next step of a hand-over, or of the way back, from its journal and from what runs. No I/O.

The rules:

* The final backup is taken when nothing is left that writes to etcd, and before etcd stops.
* What is held is held for good: what runs nevertheless is stopped first, also after the end.
* A backup after which something ran that writes, and etcd with it, is not the final one: another one is taken. Once
  this place was left it stays that, because the other place may have it already.
* It is taken back in the order in which a restore is, with the data that etcd had all the while. Before anything starts
  members know of it, so that they refuse a place that takes the final backup over. Data in pods (emptyDir) goes with
  them, so from the stop of etcd on that backup is all that there is, and nothing may make it useless.
"""

from __future__ import annotations

from dataclasses import replace

from ..components.moving import HandOverState
from ..components.table import ETCD
from ..problems import Problem, Reason
from .plan import SERVERS, WRITERS, Step

#: Steps of the way back.
_WAY_BACK = (
    Step.TURN_BACK,
    Step.CLAIM,
    Step.START_FORMER,
    Step.OPEN_AGAIN,
    Step.START_ALL,
    Step.WAKE_AGENTS,
    Step.UNDONE,
)


def next_step(
    journal: HandOverState, running: frozenset[str], *, undo: bool, data_in_pods: bool = False
) -> Step | Problem | None:
    """Next step towards what was asked for; None if it is reached, a Problem if it cannot be reached from here.

    ``data_in_pods``: the data of etcd goes with its pods.
    """
    if undo:
        return _back(journal, data_in_pods)
    if journal.undoing:
        what, remedy = "it is being taken back", "go on with that: -e hand_over_undo=true"
        return Problem(what, "the hand-over", remedy, reason=Reason.RESTORE_IMPOSSIBLE)
    due = {
        Step.STOP_WRITERS: _to_stop(journal, running, WRITERS),
        Step.CLOSE: not journal.closed,
        Step.STOP_SERVERS: _to_stop(journal, running, SERVERS),
        Step.BACK_UP: not journal.backup,
        Step.STOP_ETCD: _to_stop(journal, running, frozenset({ETCD.name})),
        Step.HANDED_OVER: not journal.is_over,
    }
    return next((step for step, is_due in due.items() if is_due), None)


def final_backup(journal: HandOverState, step: Step, running: frozenset[str]) -> str:
    """Name of the final backup once a step has stopped what runs; none if that may have written since.

    Nothing writes without etcd. Once this place was left the other one may have the backup already.
    """
    wrote = step in (Step.STOP_WRITERS, Step.STOP_SERVERS) and ETCD.name in running
    return "" if wrote and not journal.is_over else journal.backup


def ended(journal: HandOverState, step: Step) -> HandOverState:
    """Journal once a step has come to its end. A place that was left stays left while what was started there stops."""
    return journal if journal.is_over else replace(journal, step=step.value)


def _back(journal: HandOverState, data_in_pods: bool) -> Step | Problem:
    if journal.undoing:
        return _WAY_BACK[_WAY_BACK.index(Step(journal.step)) + 1]
    if data_in_pods and ETCD.name in journal.held:
        what = "etcd was stopped, and its data was in its pods (emptyDir), so that there is none to go on with"
        final = journal.backup or "the final backup"
        remedy = f"take {final} over at another place, by karmada.installer.restore there"
        return Problem(what, "the hand-over", remedy, reason=Reason.RESTORE_IMPOSSIBLE)
    return Step.TURN_BACK


def _to_stop(journal: HandOverState, running: frozenset[str], components: frozenset[str]) -> bool:
    """Return whether some of these are not held yet, or run."""
    return not components <= set(journal.held) or bool(running & components)
