# SPDX-License-Identifier: Apache-2.0
"""Directory of a plain host as a target of backups: a module of that host works in it, and files go over SSH.

The step has to be delegated to the host, so that its connection leads there. A small file is part of a question or an
answer. A large one comes and goes in pieces, each in a file there for the user of SSH alone, so that neither machine
needs room for more than one of them beside the backup. Records come with the list of all files: one question for all.
"""

from __future__ import annotations

import base64
import errno
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from ansible_collections.karmada.installer.plugins.module_utils import host_backup

from ..document.backups import HostDirectory
from ..problems import Problem, ProblemsError, Reason
from ..run.host_access import LostError
from ..run.run import Run
from . import workplace
from .encryption import Writable, reader_only
from .record import MAX_BYTES, RECORD
from .targets import CHUNK, FolderTarget, Target

#: Bytes of the largest file that is fetched: a database of etcd has 8 GiB at most.
MOST_BYTES = 16 << 30
#: Names of errors → their numbers here.
_CODES = {name: code for code, name in errno.errorcode.items()}
_OWNED = "have it, and each directory above it, belong to root, and let nobody else write there: chown root, chmod go-w"
#: Reason of the host → what is wrong with a directory of it, and the mend.
_UNFIT = {
    host_backup.MISSING: ("there is no such directory", "create or mount it there, or name another one"),
    host_backup.LINK: ("is a link", "name the directory that it leads to"),
    host_backup.NO_DIRECTORY: ("is no directory", "name one"),
    host_backup.OTHERS_OWN: ("does not belong to root, so that others can change what is in it", _OWNED),
    host_backup.OTHERS_WRITE: ("others than root may write in it", _OWNED),
}


class Host(Protocol):
    """Part of ``DelegatedHost`` that is used. All methods raise ProblemsError."""

    @property
    def name(self) -> str:
        """Name in the document."""

    @property
    def login(self) -> str:
        """User that brings and fetches files."""

    def ask(self, module: str, *, is_long: bool = False, **arguments: Any) -> dict[str, Any]:
        """Answer of a module in its form."""

    def send(self, file: Path, path: str) -> None:
        """Write a file into one of the host."""

    def fetch(self, path: str, file: Path, size: int) -> None:
        """Write a file of the host into one that is here."""

    def refused(self, what: str) -> ProblemsError:
        """Error for an answer that is not used."""


def opened(run: Run, wanted: HostDirectory, field: str) -> Target:
    """Target in a directory of the host that this step is delegated to; ``field`` is the one that names it."""
    if run.delegated is None or run.delegated.name != wanted.host:
        there = f"is delegated to {run.delegated.name}" if run.delegated else "is delegated to no host"
        what = f"these backups lie on host {wanted.host}, and this step {there}"
        remedy = (
            "run again, if the document was just changed; a playbook of your own does as the tasks of "
            "karmada.installer.backup do: state placed tells the host for delegate_to"
        )
        raise ProblemsError(Problem(what, field, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))
    return HostTarget(run.name, wanted, run.delegated)


class HostTarget(FolderTarget):
    """Folder in the directory of a plain host."""

    def __init__(self, deployment: str, wanted: HostDirectory, host: Host) -> None:
        below = "/".join(filter(None, (wanted.prefix, deployment)))
        where = f"host {host.name}: {PurePosixPath(wanted.path) / below}"
        access = "have the file system let root read and write there; on a share of NFS with no_root_squash"
        super().__init__(deployment, where, HostFolder(host, wanted.path, below), access)


class HostFolder:
    """Folder of backups on a plain host, by the methods of ``targets.Store``.

    Methods raise the OSError of the folder there, and ProblemsError.
    """

    def __init__(self, host: Host, root: str, below: str) -> None:
        self._host, self._root, self._below = host, root, below
        #: records that came with the last list, until they are asked for
        self._records: dict[str, bytes] = {}

    def check(self) -> None:
        """See that files can be written and read there."""
        self._asked("checked")

    def free(self) -> int:
        """Bytes that there is room for."""
        return self._number(self._asked("free"), "free")

    def entries(self) -> Sequence[tuple[str, str]]:
        """Name and file of everything there."""
        # One byte more than a record may have, which is how one that is too large is known.
        found = self._asked("listed", length=MAX_BYTES + 1)
        if "entries" not in found:
            raise self._host.refused("it did not answer with a list")
        told = [(str(name), str(file)) for name, file in found["entries"]]
        self._records = {name: self._decoded(text) for name, text in found.get("records", {}).items()}
        return told

    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Store a file of ``size`` bytes, whole or not at all."""
        self._records.pop(name, None)
        if size <= host_backup.INLINE:
            with _locally():
                text = base64.b64encode(content.read(size)).decode()
            self._asked("stored", name=name, file=file, size=size, content=text)
            return
        about: dict[str, Any] = {"name": name, "file": file, "attempt": secrets.token_hex(8), "size": size}
        with _piece() as here, self._on_its_way(**about) as there:
            self._asked("expected", **there)
            for offset in range(0, size, host_backup.PIECE):
                length = min(size - offset, host_backup.PIECE)
                with _locally():
                    _copy(content, here, length)
                self._host.send(here, _path(there))
                last = offset + length == size
                self._asked("stored", is_long=True, **there, offset=offset, length=length, last=last)

    def get(self, name: str, file: str, into: Writable) -> None:
        """Give the content of a file to a sink."""
        if file == RECORD and (known := self._records.pop(name, None)) is not None:
            into.write(known)
            return
        offset, size = 0, -1
        with ExitStack() as stack, self._on_its_way(name=name, file=file) as there:
            here: Path | None = None
            while offset != size:
                found = self._asked("read", is_long=True, **there, offset=offset)
                told, length = self._number(found, "size"), self._number(found, "length")
                if told > MOST_BYTES:
                    raise self._host.refused(f"{name}/{file} has {told >> 30} GiB there, which no backup has")
                if size not in (-1, told) or offset + length > told or (not length and told):
                    raise self._host.refused(f"{name}/{file} changes there while it is read")
                if "content" in found:
                    self._give_small(found["content"]["base64"], length, into)
                else:
                    here = here or stack.enter_context(_piece())
                    self._host.fetch(_path(there), here, length)
                    _give(here, into)
                offset, size = offset + length, told
            if here:
                self._forget(**there)

    def remove(self, name: str, file: str, last: bool) -> None:
        """Delete a file, if it is there; with the ``last`` one of a backup its folder."""
        self._records.pop(name, None)
        self._asked("removed", name=name, file=file, last=last)

    @contextmanager
    def _on_its_way(self, **about: Any) -> Iterator[dict[str, Any]]:
        """Options of questions about a file that comes or goes in pieces; if that fails, nothing of it stays there."""
        # By a name of ours: what a host tells is in no command.
        asked = {**about, "staged": secrets.token_hex(8), "reader": self._host.login}
        try:
            yield asked
        except LostError:
            raise
        except BaseException:
            self._forget(**asked)
            raise

    def _forget(self, **about: Any) -> None:
        """Delete what is there of a file on its way. Where that fails, a later question or run does it."""
        with suppress(ProblemsError, OSError):
            self._asked("forgotten", **about)

    def _asked(self, state: str, *, is_long: bool = False, **more: Any) -> dict[str, Any]:
        of_it = {"root": self._root, "below": self._below, "record": RECORD, "folder": host_backup.FOLDER}
        found = self._host.ask("_backup_folder", is_long=is_long, **of_it, state=state, **more)
        if unfit := found.get("unfit"):
            path, (what, remedy) = PurePosixPath(unfit["path"]), _UNFIT[unfit["why"]]
            whole = PurePosixPath(self._root)
            if path not in (whole, *whole.parents):
                raise self._host.refused("it tells of a directory that it was not asked for")
            where = f"host {self._host.name}: {path}"
            raise ProblemsError(Problem(what, where, remedy, reason=Reason.BACKUP_TARGET_UNUSABLE))
        if fault := found.get("fault"):
            raise OSError(_CODES.get(fault["errno"], errno.EIO), fault["text"])
        return found

    def _number(self, found: dict[str, Any], key: str) -> int:
        if key not in found:
            raise self._host.refused(f"it did not answer with the {key}")
        return int(found[key])

    def _decoded(self, text: str) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise self._host.refused("what it answered is no base64") from None

    def _give_small(self, text: str, length: int, into: Writable) -> None:
        content = self._decoded(text)
        if len(content) != length:
            raise self._host.refused(f"it answered {len(content)} of {length} bytes")
        into.write(content)


def _path(there: Mapping[str, Any]) -> str:
    """Path on the host of a file on its way."""
    return f"{host_backup.FOLDER}/{there['staged']}"


@contextmanager
def _locally() -> Iterator[None]:
    """Context in which what fails is no error of the host."""
    try:
        yield
    except OSError as error:
        raise workplace.unusable(error) from None


@contextmanager
def _piece() -> Iterator[Path]:
    """File here for a piece that comes or goes."""
    with workplace.opened() as folder:
        path = folder / "piece"
        with _locally(), open(path, "xb", opener=reader_only):
            pass
        yield path


def _copy(source: BinaryIO, path: Path, length: int) -> None:
    with path.open("wb") as sink:
        while length and (content := source.read(min(length, CHUNK))):
            sink.write(content)
            length -= len(content)


def _give(path: Path, into: Writable) -> None:
    with _locally(), path.open("rb") as stream:
        while content := stream.read(CHUNK):
            into.write(content)
