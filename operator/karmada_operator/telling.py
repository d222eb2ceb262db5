# SPDX-License-Identifier: Apache-2.0
"""Words of the status and the Events of an object on what happens to it, by its kind. Pure.

A control plane has the status that its report says (``status``). An EtcdBackup tells the age of its newest backup, an
EtcdRestore how far it is; neither has a report of its own.
"""

# ruff: noqa: ARG002 - not every kind needs all that the contract hands over
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason

from . import parts, restores, schedules, status
from .actions import Start, Wait
from .executor import Ending, Outcome, Task
from .kinds import Kind, Lane
from .orders import Operation, Order, Seen
from .status import Condition, Told

#: First task of the role restore after the record of a restore is open.
STEP = "Take the next step"
#: Failures of a release that has found its names wrong, or a question open, before it released anything.
_REFUSED = frozenset({Reason.INVALID_ARGUMENT, Reason.CONFIRMATION_REQUIRED})
#: Members whose drift the schema has room for.
MOST_MEMBERS = 100


@dataclass(frozen=True)
class News:
    """Something worth an Event."""

    reason: str
    note: str
    warning: bool = False


class Telling(ABC):
    """Words on objects of a kind. ``seen`` is the object as it is now, or as it was seen last."""

    @abstractmethod
    def at_rest(self, told: Told, seen: Seen, wait: Wait, clock: datetime) -> Told:
        """Status of one for which nothing is done."""

    @abstractmethod
    def refused(self, told: Told, seen: Seen, problems: Sequence[Problem]) -> Told:
        """Status of one that cannot be used."""

    @abstractmethod
    def begun(self, told: Told, seen: Seen, action: Start) -> Told:
        """Status when a run begins."""

    def gone_on(self, told: Told, seen: Seen, action: Start, phase: str) -> Told:
        """Status when a run of an earlier operator is found; ``phase`` is that of the object."""
        return self.begun(replace(told, phase=phase), seen, action)

    def at_task(self, told: Told, task: Task) -> Told:
        """Status when a task begins, or waits."""
        return status.at_task(told, task)

    @abstractmethod
    def after(self, told: Told, seen: Seen, order: Order, ending: Ending, run: Mapping[str, Any]) -> Told:
        """Status when a run has ended."""

    def news_of(self, order: Order, ending: Ending) -> News | None:
        """News that are worth an Event beside the outcome of a run that has ended; None if there are none."""
        return None


def noticed(told: Told, seen: Seen) -> Told:
    """Status of an object as soon as it is seen, whether or not anything is done for it then."""
    if seen.restore is None:
        return told
    known = restores.earlier_of(told.fields) or seen.restore.earlier
    found = restores.noted(seen.restore, known)
    if found == known:
        return told
    decision, _, about = found.partition(" ")
    # One takes the other's place, or its own away.
    more = {"earlierRelease": about or None} if about or " " in known else {}
    return replace(told, fields={**told.fields, "earlierDecision": decision, **more})


class OfControlPlanes(Telling):
    """See ``status``."""

    def at_rest(self, told: Told, seen: Seen, wait: Wait, clock: datetime) -> Told:
        waits = (wait.reason, wait.why) if wait.reason != "Idle" else None
        return status.at_rest(told, seen.generation, paused=seen.wishes.paused, waits=waits)

    def refused(self, told: Told, seen: Seen, problems: Sequence[Problem]) -> Told:
        return status.refused(told, seen.generation, problems)

    def begun(self, told: Told, seen: Seen, action: Start) -> Told:
        # An order to remove or to look has no generation, and nothing may have been told of the object yet.
        known = told if told.generation else replace(told, generation=seen.generation)
        return status.begun(known, action.order, action.lane, action.why)

    def gone_on(self, told: Told, seen: Seen, action: Start, phase: str) -> Told:
        found = self.begun(told, seen, action)
        return replace(found, phase=phase or found.phase)

    def after(self, told: Told, seen: Seen, order: Order, ending: Ending, run: Mapping[str, Any]) -> Told:
        return status.after(told, order, ending, run)


class _OfBelongings(Telling):
    """Common part of EtcdBackups and EtcdRestores: the generation told is the one that was carried out."""

    def refused(self, told: Told, seen: Seen, problems: Sequence[Problem]) -> Told:
        return status.refused(told, told.generation, problems)

    @staticmethod
    def _resting(told: Told, seen: Seen, wait: Wait) -> Told:
        rests = Condition("Progressing", False, wait.reason, wait.why)
        return told.having(status.paused_by_user(seen.wishes.paused), rests)

    @staticmethod
    def _running(told: Told, reason: str, why: str) -> Told:
        return told.having(Condition("Progressing", True, reason, why), status.paused_by_user(False))


class OfBackups(_OfBelongings):
    """See ``schedules``."""

    def at_rest(self, told: Told, seen: Seen, wait: Wait, clock: datetime) -> Told:
        """Time alone makes a backup too old."""
        found = self._resting(told, seen, wait)
        age = schedules.age(seen.backups, clock) if seen.backups else None
        if age is None:
            return found
        following = schedules.text_of(age.following) if age.following else None
        found = replace(found, fields={**found.fields, "nextTime": following})
        return found.having(Condition("BackupHealthy", age.healthy, age.reason, age.message))

    def begun(self, told: Told, seen: Seen, action: Start) -> Told:
        found = self._running(told, "BackingUp", action.why)
        if not action.order.missed:
            return found
        return found.having(Condition("BackupMissed", True, "Missed", missed(action.order)))

    def after(self, told: Told, seen: Seen, order: Order, ending: Ending, run: Mapping[str, Any]) -> Told:
        found = status.with_run(told, ending, run)
        if ending.outcome is Outcome.CANCELLED:
            return found
        if ending.outcome is not Outcome.SUCCEEDED:
            return found.having(status.failure_of(ending))
        fields = {**found.fields, **{each: ending.facts.get(each) for each in ("count", "newest")}}
        if order.run_now:
            fields["requested"] = order.run_now
        found = replace(found, generation=order.generation, fields=fields)
        if not order.missed:
            found = found.having(Condition("BackupMissed", False, "NoneMissed", ""))
        return found.having(Condition("Degraded", False, "LastRunSucceeded", ""))

    def news_of(self, order: Order, ending: Ending) -> News | None:
        newest = ending.facts.get("newest") or {}
        if ending.outcome is not Outcome.SUCCEEDED or not ending.changed or not newest:
            return None
        return News("BackupTaken", f"{newest.get('name')}, {newest.get('sizeBytes')} bytes, is proved and stored")


class OfRestores(_OfBelongings):
    """See ``restores``."""

    def at_rest(self, told: Told, seen: Seen, wait: Wait, clock: datetime) -> Told:
        """Status of one for which nothing is done. Once all is released that its spec names, that is carried out."""
        if wait.reason == restores.PARTLY_RELEASED:
            told = replace(told, generation=seen.generation)
        found = noticed(self._resting(told, seen, wait), seen)
        phase = self._phase(told, seen)
        found = replace(found, phase=phase).having(_ready(phase))
        # What was refused since is not asked for any longer.
        well = Condition("Degraded", False, phase, "")
        return found.having(well) if wait.reason == restores.PARTLY_RELEASED else found

    def begun(self, told: Told, seen: Seen, action: Start) -> Told:
        order = action.order
        if order.operation is Operation.RESTORE:
            before = self._phase(told, seen)
            phase = before if before in restores.UNDER_WAY else restores.PENDING
            told = replace(told, generation=order.generation)
        else:
            phase = restores.RELEASING if order.operation is Operation.RELEASE else restores.UNDOING
            # Its decision is carried out; who waits for a condition waits for one of this generation.
            told = replace(told, generation=seen.generation)
        reason = {restores.PENDING: "Judging", restores.QUARANTINED: "Comparing"}.get(phase, phase)
        return replace(self._running(told, reason, action.why), phase=phase).having(_ready(phase))

    def at_task(self, told: Told, task: Task) -> Told:
        """Once the record is open, a restore is under way."""
        found = super().at_task(told, task)
        if not begins(task) or told.phase != restores.PENDING:
            return found
        text = found.conditions["Progressing"].message
        return replace(self._running(found, restores.RESTORING, text), phase=restores.RESTORING)

    def after(self, told: Told, seen: Seen, order: Order, ending: Ending, run: Mapping[str, Any]) -> Told:
        found = status.with_run(told, ending, run)
        if "drift" in ending.facts:
            found = replace(found, fields={**found.fields, "drift": _drift(ending.facts["drift"])})
        if ending.outcome is Outcome.CANCELLED:
            return found
        earlier = bool(told.fields.get("released", seen.restore and seen.restore.released))
        phase = _phase_after(self._phase(told, seen), order, ending, partly=earlier)
        succeeded, fields = ending.outcome is Outcome.SUCCEEDED, dict(found.fields)
        if "released" in ending.facts and order.operation is not Operation.UNDO:
            fields |= parts.fields_of(ending.facts["released"])
        elif earlier and phase in (restores.QUARANTINED, *restores.OVER):
            fields |= {"released": None, "held": None}
        if phase == restores.QUARANTINED and told.phase not in (phase, restores.RELEASING):
            # What its user writes from now on, he could have read this before.
            fields["quarantinedGeneration"] = seen.generation
        if phase in restores.UNDER_WAY and seen.restore:
            # What a survivor has becomes a backup, whose name the run chooses.
            found_name = seen.restore.confirm or seen.restore.backup
            fields["backup"] = None if seen.restore.survivor else found_name or None
        found = replace(found, phase=phase, fields=fields).having(_ready(phase))
        if phase == restores.AWAITS:
            return found.having(
                Condition("Confirmed", False, "NotConfirmed", ending.message[:1024]),
                Condition("Degraded", False, "AwaitsConfirmation", ""),
                Condition("Progressing", False, "AwaitsConfirmation", "it was judged, and waits for its confirmation"),
            )
        if phase in restores.UNDER_WAY:
            found = found.having(Condition("Confirmed", True, "Confirmed", ""))
        degraded = Condition("Degraded", False, "LastRunSucceeded", "") if succeeded else status.failure_of(ending)
        return found.having(degraded)

    def news_of(self, order: Order, ending: Ending) -> News | None:
        phase = _phase_after(restores.RESTORING, order, ending)
        if phase == restores.AWAITS:
            return News(restores.AWAITS, ending.message)
        if phase == restores.PARTLY_RELEASED and "released" in ending.facts:
            found = parts.fields_of(ending.facts["released"])
            held, released = parts.names_in_words(found["held"]), parts.in_words(parts.released_of(found))
            return News(phase, f"released is {released}, whose members follow; held is {held}")
        if ending.outcome is not Outcome.SUCCEEDED:
            return None
        notes = {
            restores.QUARANTINED: "the control plane is the backup, and nothing has reached a member; read the drift",
            restores.RELEASED: "members follow the control plane that was restored",
            restores.UNDONE: "the control plane is what it was before the restore",
        }
        return News(phase, notes[phase])

    @staticmethod
    def _phase(told: Told, seen: Seen) -> str:
        return told.phase or (seen.restore.phase if seen.restore else "") or restores.PENDING


_ALL: Mapping[Lane, Telling] = {Lane.BACKUPS: OfBackups(), Lane.RESTORES: OfRestores()}
_OF_CONTROL_PLANES: Telling = OfControlPlanes()


def of(kind: Kind) -> Telling:
    """Words on objects of this kind."""
    return _ALL.get(kind.lane, _OF_CONTROL_PLANES)


def begins(task: Task) -> bool:
    """Return whether a restore is on record when this task begins."""
    return task.role.rpartition(".")[2] == "restore" and task.task.rpartition(" : ")[2] == STEP


def missed(order: Order) -> str:
    """Moments without a backup, in words."""
    backups = "1 backup was" if order.missed == 1 else f"{order.missed} backups were"
    return f"{backups} missed before that of {order.moment}"


def _ready(phase: str) -> Condition:
    return Condition("Ready", phase in restores.OVER, phase, "")


def _phase_after(before: str, order: Order, ending: Ending, *, partly: bool = False) -> str:
    """Phase that a restore has reached when a run has ended; ``partly``: a part was released before that run."""
    succeeded = ending.outcome is Outcome.SUCCEEDED
    if order.operation is Operation.UNDO:
        return restores.UNDONE if succeeded else before
    if order.operation is Operation.RELEASE or "released" in ending.facts:
        return _phase_after_a_release(before, ending, partly=partly)
    return _phase_after_a_restore(before, ending)


def _phase_after_a_release(before: str, ending: Ending, *, partly: bool) -> str:
    succeeded = ending.outcome is Outcome.SUCCEEDED
    refused = not succeeded and bool(ending.reasons) and ending.reasons <= _REFUSED
    if "released" in ending.facts:
        # It may have gone on from there. Members that are broken make a run fail which has come to its end.
        return restores.PARTLY_RELEASED if succeeded or refused or ending.report is not None else before
    if succeeded:
        return restores.RELEASED
    if refused:
        return restores.PARTLY_RELEASED if partly else restores.QUARANTINED
    return before


def _phase_after_a_restore(before: str, ending: Ending) -> str:
    succeeded = ending.outcome is Outcome.SUCCEEDED
    # Members that are broken make a run fail which has come to its end.
    if "drift" in ending.facts or (ending.report or {}).get("phase") == status.QUARANTINED:
        return restores.QUARANTINED
    if succeeded:
        # It was carried out and released before this object was made anew.
        return restores.RELEASED
    if ending.reason == Reason.RESTORE_NOT_CONFIRMED:
        return restores.AWAITS
    return before if before in restores.UNDER_WAY else restores.FAILED


def _drift(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Drift of members as the schema has it, those that differ most first."""
    rows = []
    for each in found.get("members") or ():
        counts = {str(verdict): int(number) for verdict, number in (each.get("counts") or {}).items()}
        trouble = {"trouble": str(each["trouble"])[:1024]} if each.get("trouble") else {}
        rows.append({"member": str(each.get("member")), **counts, **trouble})

    def differing(row: Mapping[str, Any]) -> int:
        return sum(int(row.get(each, 0)) for each in ("older", "other", "missing", "going"))

    return sorted(rows, key=lambda row: (-differing(row), row["member"]))[:MOST_MEMBERS]
