# SPDX-License-Identifier: Apache-2.0
"""Backups that lie in the targets of an instance: listing, ownership, deletion."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..api_object import Object
from ..components.state import State
from ..document import backups, manifest
from ..document.backups import Wanted
from ..kube.errors import ApiError
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import record, retention, targets
from .record import RECORD, Record
from .targets import Target


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


def _objects(run: Run) -> list[Object]:
    found: list[Object] = run.home.list(manifest.API_VERSION, backups.KIND, run.deployment["metadata"]["namespace"])
    return found


def opened(run: Run, series: Wanted) -> Target:
    """Target of an EtcdBackup, to be closed with the step. Raises ProblemsError."""
    found = targets.opened(series, run.name, run.connection.backups, run.secret)
    run.until_closed(_Closing(found))
    return found


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
        target.get(name, RECORD, sink)
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


def own(listed: Iterable[Found], series: str, owner: str | None) -> dict[str, Record]:
    """Verified backups of a series of this instance: name → record. Nothing else is counted, or deleted.

    ``owner`` None: of whatever control plane, as the signature alone tells whose they are.
    """
    return {
        each.name: each.record
        for each in listed
        if each.record and each.ours and each.record.series == series and owner in (None, each.record.owner)
    }


def starts(own_backups: Mapping[str, Record]) -> dict[str, datetime]:
    """Name → start."""
    return {name: each.start for name, each in own_backups.items()}


def delete_old(target: Target, series: Wanted, own_backups: Mapping[str, Record], in_use: Collection[str]) -> Deleted:
    """Delete what is not kept any more, and what killed runs have left; only after a success."""
    gone: list[str] = []
    problems: list[Problem] = []
    newest = max(each.start for each in own_backups.values())
    for name in (*retention.to_delete(starts(own_backups), series.retention, in_use), *target.abandoned(newest)):
        try:
            target.delete(name)
        except ProblemsError as error:
            problems += error.problems
        else:
            gone.append(name)
    return Deleted(tuple(gone), tuple(problems))


def in_use(state: State) -> tuple[str, ...]:
    """Names of backups that a restore under way needs, or was preceded by."""
    found = state.restore
    return () if found is None or found.is_over else (found.backup, found.before)


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
