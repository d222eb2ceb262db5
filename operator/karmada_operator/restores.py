# SPDX-License-Identifier: Apache-2.0
"""Next action for an EtcdRestore, by its phase and its spec. Pure.

It is judged at once, and restored when its spec confirms the backup, or the survivor, by name; then it waits in
quarantine for a decision. A decision to release counts only if it was written in quarantine: before that there was
nothing to decide upon. So the status notes the decision that stood there when the quarantine was first to be seen,
with the parts that it was about, until it was taken out or another one stands there; whatever else of the spec is
edited tells nothing of it.

Where parts are named, these are released and the rest is held; each that is added is released, too, until the decision
is about all that is left. What is released stays so.

Deleting the object takes nothing back; a run under way comes to its end, so that nothing stays half done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE, UNDO

from . import parts
from .actions import Action, Start, Wait
from .backups import belonging, hindrance
from .kinds import Lane
from .orders import NOTHING_AROUND, Around, Beside, Operation, Order, Restore, Seen
from .reconcile import Memory, decide_by, ends_with_object, repeats

PENDING, AWAITS, FAILED = "Pending", "AwaitsConfirmation", "Failed"
RESTORING, QUARANTINED, RELEASING, UNDOING = "Restoring", "Quarantined", "Releasing", "Undoing"
PARTLY_RELEASED, RELEASED, UNDONE = "PartlyReleased", "Released", "Undone"
#: Phases in which the control plane is held by this restore, and those after which nothing is done any more.
UNDER_WAY = frozenset({RESTORING, QUARANTINED, RELEASING, PARTLY_RELEASED, UNDOING})
OVER = frozenset({RELEASED, UNDONE})
#: Phases that a restore which has come to its end can have.
_RESTORED = frozenset({QUARANTINED, RELEASING, PARTLY_RELEASED, UNDOING, *OVER})
#: Those in which it waits for a decision.
_WAITING = frozenset({QUARANTINED, PARTLY_RELEASED})
#: Note in the status that no decision stands in the spec any more that was there before the quarantine.
NONE_EARLIER = "None"
#: Seconds between two looks at what it waits for.
LOOK = 60.0


def seen_of(obj: Object) -> Seen:
    """Parts of an EtcdRestore that decide, of the object as an API server gives it."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    known = Restore(
        backup=str(spec.get("backup") or ""),
        confirm=str(spec.get("confirm") or ""),
        decision=str(spec.get("decision") or ""),
        phase=str(status.get("phase") or ""),
        carried_out=int(status.get("observedGeneration") or 0),
        earlier=earlier_of(status),
        survivor=str(spec.get("survivor") or ""),
        named=parts.Named.of(spec),
        released=parts.released_of(status),
        held=tuple(map(str, status.get("held") or ())),
    )
    return replace(belonging(obj), restore=known)


def earlier_of(fields: Mapping[str, Any]) -> str:
    """Decision that these fields of a status note, in the form of ``Restore.decided``; empty if they note none."""
    return f"{fields.get('earlierDecision') or ''} {fields.get('earlierRelease') or ''}".strip()


def noted(restore: Restore, known: str) -> str:
    """Decision of before the quarantine that stands there still, or NONE_EARLIER; empty before the quarantine.

    ``known`` is what was noted last, empty if nothing was. The status of the same version of the object says that the
    quarantine is there, so what is decided in the first such version was decided before.
    """
    if restore.phase not in _WAITING:
        return known
    if not known:
        return restore.decided or NONE_EARLIER
    return known if known == restore.decided else NONE_EARLIER


def decide(seen: Seen | None, memory: Memory, now: float, beside: Beside, around: Around = NOTHING_AROUND) -> Action:
    """Next action; None means that the object is gone."""
    restore = (seen.restore if seen else None) or Restore()
    return decide_by(
        seen,
        memory,
        ends=lambda running: _ends(seen, running, beside),
        next_run=lambda seen, memory: (
            _held(seen, beside, now + LOOK) or _next_run(seen, restore, memory, now, beside, around)
        ),
        problems=restore.named.problems,
        over=Wait(f"it is over: {restore.phase}", reason=restore.phase) if restore.phase in OVER else None,
        paused=Wait("is paused", reason="Paused"),
    )


def _held(seen: Seen, beside: Beside, until: float) -> Wait | None:
    if found := hindrance(seen, beside, until):
        return found
    if beside.deployment and beside.deployment.wishes.paused:
        return Wait(f"KarmadaDeployment {seen.deployment} is paused", until, "Paused")
    if beside.under_way:
        return Wait(f"EtcdRestore {beside.under_way} comes first", until, "AnotherRestore")
    return None


def _next_run(seen: Seen, restore: Restore, memory: Memory, now: float, beside: Beside, around: Around) -> Action:
    if memory.done is not None and memory.done.operation is Operation.RESTORE and restore.phase not in _RESTORED:
        # Whatever was edited meanwhile: it is not restored once more.
        return Wait("its end is being told", now + LOOK)
    operation, idle = _wanted(seen, restore, memory, beside)
    if operation is None:
        return idle
    # Steps after the quarantine need no Secret, and a word or an edit only after a failure.
    judges, named = operation is Operation.RESTORE, restore.named if operation is Operation.RELEASE else parts.Named()
    order = Order(
        operation,
        seen.uid,
        seen.generation if judges else 0,
        run_now=seen.wishes.run_now or (memory.failed.run_now if memory.failed else ""),
        inputs=around.inputs if judges else "",
        document=seen.generation,
        parts=named.parts,
        kept=named.kept,
        let_go=named.let_go,
    )
    done = memory.done if judges or memory.done is None else replace(memory.done, run_now=order.run_now)
    if order == done:
        return idle if restore.phase == PARTLY_RELEASED else Wait("its end is being told")
    if repeats(order, memory.failed) and now < memory.retry_at:
        if restore.phase == AWAITS:
            return _awaits(restore, memory.retry_at)
        return Wait("the last run failed", memory.retry_at, "Failed")
    return Start(order, Lane.RESTORES, _why(operation, restore))


def _wanted(  # noqa: PLR0911 - a line for each thing that may be seen
    seen: Seen, restore: Restore, memory: Memory, beside: Beside
) -> tuple[Operation | None, Wait]:
    """Operation that brings it on; None if it waits for its user, and for what."""
    nothing = Wait("nothing was restored, so there is nothing to take back", reason="NothingToUndo")
    in_quarantine = bool(beside.deployment and beside.deployment.quarantined)
    if restore.phase == RELEASING:
        # Who has withdrawn it releases nothing more: a release that is on record comes to its end, and where there is
        # none it is in quarantine still.
        return (Operation.RELEASE if restore.decision == RELEASE else Operation.RESTORE), nothing
    if restore.phase == PARTLY_RELEASED:
        named = restore.named.parts
        due = _counts(restore) and not parts.covered(named, restore.released, restore.held)
        return (Operation.RELEASE if due else None), _after_a_part(restore)
    if restore.decision == UNDO or restore.phase == UNDOING:
        # One that was killed before its phase was told may have begun nevertheless.
        return (Operation.UNDO if restore.phase in UNDER_WAY or in_quarantine else None), nothing
    if restore.phase == QUARANTINED:
        if _counts(restore):
            return Operation.RELEASE, nothing
        asked = memory.done is not None and seen.wishes.run_now not in ("", memory.done.run_now)
        return (Operation.RESTORE if asked else None), _in_quarantine(restore)
    if restore.phase == AWAITS and restore.carried_out == seen.generation and memory.failed is None:
        # As an earlier operator has left it.
        return None, _awaits(restore)
    return Operation.RESTORE, nothing


def _counts(restore: Restore) -> bool:
    """Return whether its decision is to release, and was written when there was something to read."""
    return restore.decision == RELEASE and restore.earlier == NONE_EARLIER


def _after_a_part(restore: Restore) -> Wait:
    told = f"released is {parts.in_words(restore.released)}; held is {parts.names_in_words(restore.held)}"
    if restore.decision == UNDO:
        what = f"{told}. Nothing takes it back once a part is released: restore another backup, or decide {RELEASE}"
        return Wait(what, reason="CannotUndo")
    if restore.decision != RELEASE:
        return Wait(f"{told}. To release more, decide: spec.decision {RELEASE}", reason="AwaitsDecision")
    if not _counts(restore):
        return _in_quarantine(restore)
    if left := parts.beyond(restore.named.parts, restore.released):
        told = f"{told}. What spec.release does not name any longer stays released: {parts.in_words(left)}"
    return Wait(f"{told}. Name more in spec.release, or take that out to release the rest", reason=PARTLY_RELEASED)


def _in_quarantine(restore: Restore) -> Wait:
    if restore.decision == RELEASE and restore.earlier == restore.decided:
        what = "its decision was written before there was a quarantine; read the drift, take it out, and write it again"
        return Wait(what, reason="DecidedTooEarly")
    if restore.decision == RELEASE:
        what = "status.earlierDecision is being written; if that does not come, the CRD is older than the operator"
        return Wait(what, reason="AwaitsDecision")
    about = f" ({RELEASE}: {parts.asked_in_words(restore.named.parts)})" if restore.named.parts else ""
    return Wait(f"in quarantine; decide: spec.decision {RELEASE} or {UNDO}{about}", reason="AwaitsDecision")


def _awaits(restore: Restore, until: float | None = None) -> Wait:
    named = f"the survivor, {restore.survivor}" if restore.survivor else "the backup"
    what = f"the loss is told; if it is meant, write the name of {named}: spec.confirm"
    return Wait(what, until, "AwaitsConfirmation" if not restore.confirm else "NotConfirmed")


def _ends(seen: Seen | None, running: Order, beside: Beside) -> str:
    """Reason why a run is to end. That its object is gone is none to leave a control plane half restored."""
    if beside.deployment is not None and beside.deployment.deleting:
        return "the control plane is being deleted"
    if beside.deployment is not None and beside.deployment.wishes.paused:
        return "the control plane was paused"
    return ends_with_object(seen, running) if seen is not None and seen.uid == running.uid else ""


def _why(operation: Operation, restore: Restore) -> str:
    if operation is Operation.RELEASE:
        what = parts.asked_in_words(restore.named.parts)
        if not what and restore.released:
            what = "the rest"
        return f"its decision is to release {what}".rstrip()
    if operation is Operation.UNDO:
        return "its decision is to take it back"
    if restore.phase in UNDER_WAY:
        return "it goes on"
    return f"{restore.confirm} is confirmed" if restore.confirm else "to see what would be lost"
