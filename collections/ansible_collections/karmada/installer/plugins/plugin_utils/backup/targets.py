# SPDX-License-Identifier: Apache-2.0
"""Places where backups lie: a directory of this machine or of a plain host (``host_folder``), a volume claim
(``claim``), or a bucket of S3 (``s3``).

Every place has the same paths: ``<prefix>/<deployment>/<name>/<file>``. A file is never written twice. The record comes
last and goes first, so a backup whose record is there is whole; what has none is what a killed run has left.
"""

from __future__ import annotations

import errno
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Protocol

from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import Folder

from ..document.backups import CLAIM, ON_HOST, S3, Directory, HostDirectory, VolumeClaim, Wanted
from ..problems import Problem, ProblemsError, Reason
from . import workplace
from .encryption import Hashed, Writable
from .record import KEYS, RECORD, SNAPSHOT, StoredFile, is_name

CHUNK = 1 << 20
#: Age from which a backup without a record belongs to a run that was killed.
ABANDONED = timedelta(days=1)
#: Files of a backup in the order in which they are deleted.
FILES = (RECORD, SNAPSHOT, KEYS)
#: Errors of one file, which say nothing about the rest of the place.
_OF_A_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.EISDIR)
#: Answers of a disk that is full, or of which the user has no more.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_STAMP = re.compile(r"-(\d{8}t\d{6}z)-[0-9a-f]{6}\Z")


class FileError(ProblemsError):
    """One file of a place cannot be read, which is no reason to use nothing else. ``is_gone``: it is not there."""

    def __init__(self, problem: Problem, *, is_gone: bool) -> None:
        super().__init__(problem)
        self.is_gone = is_gone


class Kept:
    """Sink for what comes from a place. That it cannot be kept here is not told as an error of that place."""

    def __init__(self, into: Writable) -> None:
        self._into = into

    def write(self, content: bytes, /) -> None:
        """Hand it on. Raises ProblemsError about this machine."""
        try:
            self._into.write(content)
        except OSError as error:
            raise workplace.unusable(error) from None


class Target(ABC):
    """Place of the backups of one deployment. ``where`` names it for people.

    All methods raise ProblemsError if the place cannot be used.
    """

    def __init__(self, deployment: str, where: str) -> None:
        self.deployment = deployment
        self.where = where

    def names(self) -> list[str]:
        """Names of the backups that have a record, the oldest first."""
        return sorted(name for name, files in self._found().items() if RECORD in files)

    def abandoned(self, now: datetime) -> list[str]:
        """Names that have files and no record, and had the time to get one."""
        before = now - ABANDONED
        return sorted(name for name, files in self._found().items() if RECORD not in files and _start_of(name) < before)

    def delete(self, name: str) -> None:
        """Delete a backup, its record first. Raises ProblemsError if the place refuses, such as by an object lock."""
        for file in FILES:
            self._remove(name, file)

    def _found(self) -> dict[str, set[str]]:
        """Name → its files, of what can be a backup of the deployment; whatever else lies there is nothing of ours."""
        found: dict[str, set[str]] = {}
        for name, file in self._entries():
            if is_name(name, self.deployment):
                found.setdefault(name, set()).add(file)
        return found

    @abstractmethod
    def check(self) -> None:
        """See whether the place can be written and read, before anything is done for it."""

    def require_room(self, size: int) -> None:
        """See that a backup of ``size`` bytes fits there, as far as the place tells; before anything is done for it."""
        del size

    @abstractmethod
    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Store a file of ``size`` bytes under a name that is not taken."""

    @abstractmethod
    def get(self, name: str, file: str, into: Writable) -> None:
        """Write the content of a file into another one. Raises FileError for what is wrong with this file alone."""

    @abstractmethod
    def _entries(self) -> Iterable[tuple[str, str]]:
        """Name and file of everything below the deployment."""

    @abstractmethod
    def _remove(self, name: str, file: str) -> None:
        """Delete one file, if it is there."""

    def close(self) -> None:
        """Close connections."""
        return


class Store(Protocol):
    """Folders of backups, with the methods and the promises of ``backup_folder.Folder``.

    All raise OSError for what is wrong with the folder or a file of it.
    """

    def check(self) -> None:
        """See that files can be written and read there."""

    def free(self) -> int:
        """Bytes that there is room for."""

    def entries(self) -> Iterable[tuple[str, str]]:
        """Name and file of everything there."""

    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Store a file of ``size`` bytes, whole or not at all."""

    def get(self, name: str, file: str, into: Writable) -> None:
        """Give the content of a file to a sink."""

    def remove(self, name: str, file: str, last: bool) -> None:
        """Delete a file, if it is there; with the ``last`` one of a backup its folder."""


class FolderTarget(Target):
    """Folder of a disk, wherever that is. ``access`` and ``room`` say what to do if it refuses, and if it is full."""

    def __init__(self, deployment: str, where: str, store: Store, access: str, room: str = "free space there") -> None:
        super().__init__(deployment, where)
        self._store, self._access, self._room = store, access, room

    def check(self) -> None:
        """See that files can be written and read there."""
        try:
            self._store.check()
        except OSError as error:
            raise self._unusable(error) from None

    def require_room(self, size: int) -> None:
        """See that the file system has room for it."""
        try:
            free = self._store.free()
        except OSError as error:
            raise self._unusable(error) from None
        if free < size:
            what = f"a backup takes {size >> 20} MiB there, and {free >> 20} MiB are free"
            raise self._problem(what, self._room)

    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Write the file and everything that names it to the disk."""
        try:
            self._store.put(name, file, content, size)
        except FileExistsError:
            remedy = "nothing is overwritten; look who else writes there"
            raise self._problem(f"{name}/{file} is there already", remedy) from None
        except OSError as error:
            raise self._unusable(error) from None

    def get(self, name: str, file: str, into: Writable) -> None:
        """Copy the file."""
        try:
            self._store.get(name, file, Kept(into))
        except OSError as error:
            if error.errno in _OF_A_FILE:
                raise self._of_file(name, file, error) from None
            raise self._unusable(error) from None

    def _entries(self) -> Iterable[tuple[str, str]]:
        try:
            return self._store.entries()
        except OSError as error:
            raise self._unusable(error) from None

    def _remove(self, name: str, file: str) -> None:
        try:
            self._store.remove(name, file, file == FILES[-1])
        except OSError as error:
            raise not_deleted(name, self.where, _words(error)) from None

    def _of_file(self, name: str, file: str, error: OSError) -> FileError:
        remedy = "use another backup, or look who else writes there"
        where = f"{self.where.rstrip('/')}/{name}/{file}"
        problem = Problem(_words(error), where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE)
        return FileError(problem, is_gone=error.errno == errno.ENOENT)

    def _unusable(self, error: OSError) -> ProblemsError:
        return self._problem(_words(error), self._room if error.errno in _FULL else self._access)

    def _problem(self, what: str, remedy: str, where: str = "") -> ProblemsError:
        return ProblemsError(Problem(what, where or self.where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))


class DirectoryTarget(FolderTarget):
    """Directory of the machine that Ansible runs on."""

    def __init__(self, deployment: str, root: Path, prefix: str) -> None:
        below = Path(prefix) / deployment
        store = Folder(str(root), str(below), RECORD)
        super().__init__(deployment, str(root / below), store, "let the user who runs Ansible read and write it")
        self._root = root

    def check(self) -> None:
        """See that the directory is there and ours to write."""
        if not self._root.is_dir():
            remedy = "create or mount it, or name another one in the inventory source: backups: ./backups"
            raise self._problem("there is no such directory", remedy, str(self._root))
        super().check()


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def opened(
    wanted: Wanted,
    deployment: str,
    directory: str | None,
    secret: Callable[[str, str], Mapping[str, bytes]],
    in_claim: Callable[[VolumeClaim, str], Target],
    on_host: Callable[[HostDirectory, str], Target],
) -> Target:
    """Target of an EtcdBackup. ``directory`` is what the inventory source names; ``secret`` reads a Secret, by its name
    and the field that names it; ``in_claim`` opens a volume claim and ``on_host`` a directory of a plain host, each
    named by that field. Raises ProblemsError if the place is not described completely, or cannot be opened.
    """
    target = wanted.target
    if isinstance(target, VolumeClaim):
        return in_claim(target, f"{wanted.place}: spec.target.{CLAIM}")
    if isinstance(target, HostDirectory):
        return on_host(target, f"{wanted.place}: spec.target.{ON_HOST}")
    if isinstance(target, Directory):
        if directory is None:
            remedy = "name a directory in the inventory source: backups: ./backups"
            what = "needs a directory, and the inventory source names none"
            place = f"{wanted.place}: spec.target.directory"
            raise ProblemsError(Problem(what, place, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))
        return DirectoryTarget(deployment, Path(directory), target.prefix)
    return _bucket(target, deployment, wanted.place, secret)


def read_back(target: Target, name: str, file: str, expected: StoredFile) -> None:
    """Read a stored file again and compare it with what was written. Raises ProblemsError if it differs."""
    sink = Hashed()
    target.get(name, file, sink)
    if (sink.size, sink.sha256) != (expected.size, expected.sha256):
        what = f"{name}/{file} does not come back as it was written"
        remedy = "the store loses or changes data; look after it, and do not rely on what it has"
        raise ProblemsError(Problem(what, target.where, remedy, reason=Reason.INVALID_BACKUP))


def not_deleted(name: str, where: str, why: str) -> ProblemsError:
    """Error for a backup that stays although it should go."""
    remedy = "where an object lock holds it, it goes with a later backup; else let the account delete"
    return ProblemsError(Problem(f"{name} cannot be deleted: {why}", where, remedy, reason=Reason.BACKUP_NOT_DELETED))


def _bucket(target: S3, deployment: str, place: str, secret: Callable[[str, str], Mapping[str, bytes]]) -> Target:
    from .s3 import S3Target  # noqa: PLC0415 - its library takes a second to load

    where = f"{place}: spec.target.s3.secretRef"
    return S3Target(deployment, target, secret(target.secret, where), where)


def _start_of(name: str) -> datetime:
    found = _STAMP.search(name)
    try:
        return datetime.strptime(found[1] if found else "", "%Y%m%dt%H%M%Sz").replace(tzinfo=UTC)
    except ValueError:
        # A name that has a form of ours and no moment is not of ours.
        return datetime.max.replace(tzinfo=UTC)
