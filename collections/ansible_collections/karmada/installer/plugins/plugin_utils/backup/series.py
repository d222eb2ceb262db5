# SPDX-License-Identifier: Apache-2.0
"""Backups that lie in the targets of an instance: listing, ownership, deletion."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from ..api_object import Object
from ..components.state import PART_RELEASED, RELEASED, UNDONE, State
from ..document import backups, manifest, restores
from ..document.backups import HostDirectory, Wanted
from ..kube.errors import ApiError
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import claim, due, host_folder, record, retention, targets
from .record import RECORD, Purpose, Record
from .targets import Target

#: Why no backup that is due is taken (``waits``).
HELD = "a restore holds the control plane; the release takes one"


@dataclass(frozen=True)
class Found:
    """A backup in a target: its record, or why that is of no use. ``ours``: signed by the key of this instance.

    ``signer`` is the public key that has signed the record.
    """

    name: str
    record: Record | None
    ours: bool = False
    trouble: str = ""
    signer: str = ""


def wanted(run: Run, beside: Iterable[Mapping[str, Any]], alone: str = "") -> list[Wanted]:
    """EtcdBackups of the document: ``beside`` it in its file, or objects in its namespace. Raises ProblemsError.

    With the name of the one that is needed ``alone``, objects that are not valid are no problem of that one.
    """
    if run.connection.object_uid is None:
        return [Wanted.of(each) for each in beside]
    objects = _objects(run)
    only = [each for each in objects if each["metadata"]["name"] == alone]
    return [Wanted.of(each) for each in backups.of_objects(only or objects, run.deployment)]


def names(run: Run, beside: Iterable[Mapping[str, Any]]) -> list[str] | None:
    """Names of these EtcdBackups, valid or not; None where they cannot be listed, as without the right to it."""
    if run.connection.object_uid is None:
        return [each["metadata"]["name"] for each in beside]
    try:
        return backups.names_of_objects(_objects(run), run.deployment)
    except ApiError:
        return None


def placed(run: Run, beside: Iterable[Mapping[str, Any]], alone: str = "") -> str:
    """Name of the plain host with the backups that lie on one; empty if none do, or nobody can tell which.

    Then whatever needs the backups tells why. ``alone`` as of ``wanted``, where not all objects are valid.
    """
    for only in dict.fromkeys(("", alone)):
        try:
            found = wanted(run, beside, only)
        except (ApiError, ProblemsError):
            continue
        # The documents were refused if there were several.
        return next((each.target.host for each in found if isinstance(each.target, HostDirectory)), "")
    return ""


def at_risk(run: Run, all_wanted: Sequence[Wanted], beside: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Warning if all backups lie on a plain host that has a member of etcd, too; None if not, or nobody can tell."""
    hosts = {each.target.host if isinstance(each.target, HostDirectory) else "" for each in all_wanted}
    name = hosts.pop() if len(hosts) == 1 else ""
    of_etcd = any(each.name == name and "etcd" in each.roles for each in run.spec.hosts)
    if not of_etcd or len(names(run, beside) or ()) != len(all_wanted):
        return None
    what = f"all backups lie on host {name}, which has a member of etcd: who loses it loses that member and all of them"
    remedy = "write an EtcdBackup with another target, too, or name a host without etcd"
    return replace(Problem.warning(what, Reason.BACKUP_AT_RISK, f"host {name}"), remedy=remedy)


def _objects(run: Run) -> list[Object]:
    found: list[Object] = run.home.list(manifest.API_VERSION, backups.KIND, run.deployment["metadata"]["namespace"])
    return found


def opened(run: Run, series: Wanted) -> Target:
    """Target of an EtcdBackup, closed with the step: the same one for all that lead there. Raises ProblemsError."""

    def made() -> _Closing:
        elsewhere = {"in_claim": partial(claim.opened, run), "on_host": partial(host_folder.opened, run)}
        return _Closing(targets.opened(series, run.name, run.connection.backups, run.secret, **elsewhere))

    return run.shared(("target", series.target, run.connection.backups), made)


def signer(run: Run) -> str:
    """Public key whose backups are ours; empty before the first one. Raises ProblemsError for a key that is none."""
    key = run.stored_state.backup_key if run.stored_state else b""
    try:
        return record.signer_of(key) if key else ""
    except ValueError as error:
        what = f"the key that signs backups cannot be used: {error}"
        remedy = "restore the state from a backup"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.INVALID_STATE)) from None


def found(target: Target, own_signer: str) -> list[Found]:
    """Backups in a target, the oldest first. Raises ProblemsError if it cannot be read."""
    listed = []
    for name in target.names():
        sink = _Record()
        try:
            target.get(name, RECORD, sink)
        except targets.FileError as error:
            # One that another run has deleted since the list was made is none.
            if not error.is_gone:
                listed.append(Found(name, None, trouble=str(error.problems[0])))
            continue
        where = f"{target.where.rstrip('/')}/{name}/{RECORD}"
        try:
            read = record.opened(sink.getvalue(), where)
        except ProblemsError as error:
            listed.append(Found(name, None, trouble=str(error.problems[0])))
            continue
        if read.name != name:
            listed.append(Found(name, None, trouble=f"{where}: is the record of {read.name}"))
            continue
        signer = record.signer_in(sink.getvalue())
        listed.append(Found(name, read, ours=bool(own_signer) and signer == own_signer, signer=signer))
    return listed


def own(listed: Iterable[Found], series: str, state: State | None) -> dict[str, Record]:
    """Verified backups of a series of this instance: name → record. Nothing else is counted, or deleted.

    Owner, key and series move along with a control plane, so what another place of it has taken meanwhile is none of
    these. ``state`` None: of whatever control plane, as the signature alone tells whose they are.
    """
    return {
        each.name: each.record
        for each in listed
        if each.record
        and each.ours
        and each.record.series == series
        and (state is None or (each.record.owner == state.owner and _is_of_this_place(each.record, state)))
    }


def _is_of_this_place(found: Record, state: State) -> bool:
    """Return whether a backup is of the history of this place: taken here, or before the control plane came here."""
    theirs, taken = found.of_place, state.taken_over
    if theirs.epoch >= state.claim.epoch:
        return theirs == state.claim
    if taken is None or theirs.epoch >= taken.epoch:
        return True
    came = record.start_in(taken.backup)
    return came is None or found.start <= came


def refuse_left(listed: Iterable[Found], state: State, target: Target) -> None:
    """Raise ProblemsError if this place was left: handed over, or another place of it has backed up here since.

    A place that was lost and comes back knows of nothing: its timer would go on in the series of the other place.
    """
    remedy = "work on it there, and uninstall it here, which leaves members as they are"
    if state.handed_over and state.handed_over.is_over:
        what = "the control plane was handed over, and backs up where it is now"
        raise ProblemsError(Problem(what, target.where, remedy, reason=Reason.MOVED))
    for each in listed:
        found = each.record
        if found and each.ours and found.owner == state.owner and found.of_place.epoch > state.claim.epoch:
            what = (
                f"{found.name} is of the same control plane at another place, {found.home}/{found.deployment}, since "
                f"its move number {found.of_place.epoch}; this place knows of {state.claim.epoch}, so it was left, and "
                "does not back up any more"
            )
            more = "; if that place was given up before members followed it, delete its backups from the target"
            raise ProblemsError(Problem(what, target.where, remedy + more, reason=Reason.MOVED))


def starts(own_backups: Mapping[str, Record]) -> dict[str, datetime]:
    """Name → start."""
    return {name: each.start for name, each in own_backups.items()}


def newest(own_backups: Mapping[str, Record], now: datetime) -> Record | None:
    """Newest of them that a clock can have shown; None if there is none. Who means another one names it."""
    at = due.newest_of(starts(own_backups).values(), now)
    return next((each for each in own_backups.values() if each.start == at), None)


def delete_old(
    target: Target, series: Wanted, own_backups: Mapping[str, Record], in_use: Collection[str], now: datetime
) -> Deleted:
    """Delete what is not kept any more, and what killed runs have left by ``now``; only after a success."""
    gone: list[str] = []
    problems: list[Problem] = []
    # By the younger of both clocks: by one that was ahead once, what is being stored right now would be abandoned.
    by = min(now, max(each.start for each in own_backups.values()))
    for name in (*retention.to_delete(starts(own_backups), series.retention, in_use), *target.abandoned(by)):
        try:
            target.delete(name)
        except ProblemsError as error:
            problems += error.problems
        else:
            gone.append(name)
    return Deleted(tuple(gone), tuple(problems))


def waits(state: State) -> bool:
    """Return whether what is there now may be taken back by a restore, so that only who asks for it backs it up."""
    found = state.restore
    # From its first part on a release cannot be taken back, and what is there goes on.
    return found is not None and not found.is_over and found.step != PART_RELEASED


def refuse_held(run: Run, purpose: Purpose) -> None:
    """Raise ProblemsError if a backup that nobody has asked for would be one of a quarantine (``waits``).

    That is asked before each attempt: a restore may have put the data of another etcd there since the last one began.
    """
    if purpose is Purpose.SCHEDULED and waits(run.state):
        remedy = "if what is there now is meant, name the EtcdBackup: -e backup_now=NAME"
        raise ProblemsError(Problem(f"no backup is taken: {HELD}", run.place.where, remedy, reason=Reason.QUARANTINED))


def in_use(state: State) -> tuple[str, ...]:
    """Names of backups that a restore under way needs, or was preceded by."""
    found = state.restore
    if found is None or found.is_over:
        return ()
    upon = (found.former_restore.backup, found.former_restore.before) if found.former_restore else ()
    return (found.backup, found.before, *upon)


def meant(run: Run, beside: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of backups that EtcdRestores name which are not over: one may wait for days to be confirmed.

    Of objects, those that may be listed; a backup is taken without the right to that, too.
    """
    documents = beside
    if run.connection.object_uid is not None:
        home = run.deployment["metadata"]["namespace"]
        try:
            documents = run.home.list(manifest.API_VERSION, restores.KIND, home)
        except ApiError:
            return set()
    done = run.state.restore if run.state.restore and run.state.restore.is_over else None
    found = set[str]()
    for each in documents:
        asked, status = each.get("spec") or {}, each.get("status") or {}
        names = {asked.get("backup") or "", asked.get("confirm") or "", status.get("backup") or ""} - {""}
        over = done is not None and done.name == each["metadata"]["name"] and done.backup in names
        if not over and status.get("phase") not in (RELEASED, UNDONE):
            found |= {str(name) for name in names}
    return found


@dataclass(frozen=True)
class Deleted:
    """Names of what was deleted, and problems with what was not."""

    names: tuple[str, ...]
    problems: tuple[Problem, ...]


class _Record(io.BytesIO):
    """Content of a record as it is read: one byte more than it may have, however large the file is."""

    def write(self, content: Any, /) -> int:
        super().write(content[: record.MAX_BYTES + 1 - self.tell()])
        return len(content)


class _Closing:
    """Target as a context."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __enter__(self) -> Target:
        return self._target

    def __exit__(self, *_error: object) -> None:
        self._target.close()
