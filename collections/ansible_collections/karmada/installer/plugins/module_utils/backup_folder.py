# SPDX-License-Identifier: Apache-2.0
"""Backups in a folder of a disk, and a server of such a folder for who has no other way to that disk.

Standard library only (Python 3.9 or newer), and nothing beside this file: where backups lie in a volume claim, a pod
that mounts it gets this text as an argument of its Python. On the machine that Ansible runs on it is called. So both
keep the same promises: a name that is there is a whole file, also after a power cut; nothing is overwritten; no link
is followed below the folder; what is wrong with one file says nothing of others.

The server listens on loopback, where a port-forward leads. A connection begins with a token, of which the server knows
only the SHA-256, and then has one question after the other: a line of JSON, with a line of JSON as the answer, ``done``
with a value or ``errno`` (its name) and ``text``. A file that is stored follows an answer that lets it come, as so many
bytes; a file that is fetched follows the answer as pieces with their length before each (four bytes, 0: no more) and
then another answer. When nobody has a connection for a while, the server ends: whoever asked is gone, or has done.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

#: What a file is called until it is whole: this is at the end, and chance before it.
PART = ".part"
CHUNK = 1 << 17
#: Bytes after which what was written goes to the disk, so that no answer waits for all of a large file.
SYNC_BYTES = 1 << 26
#: Length of a question.
LINE_BYTES = 1 << 12
#: Seconds for which a connection that was told nothing is kept, and one without a token.
IDLE_SECONDS, TOKEN_SECONDS = 3600.0, 10.0
#: Seconds without a connection after which the server ends.
LONELY_SECONDS = 120.0
LENGTH = struct.Struct(">I")
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]*")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_GO_ON = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A pipe would keep whoever opens it waiting for one who writes.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
#: Answers of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class Folder:
    """Folders of the backups of one deployment, ``below`` a root that has to be there.

    ``record`` is the file by which a backup exists, as others are only found by. All methods raise OSError; what a
    source or a sink of the caller raises passes through them.
    """

    def __init__(self, root: str, below: str, record: str) -> None:
        self._root, self._path, self._record = Path(root), Path(root, below), record

    def check(self) -> None:
        """See that files can be written and read there; makes the folder."""
        content = secrets.token_hex(8)
        if not self._root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such directory")
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = self._path / f".probe-{content}"
        try:
            with os.fdopen(os.open(probe, _NEW, 0o600), "w", encoding="ascii") as stream:
                stream.write(content)
            with os.fdopen(os.open(probe, _READ), encoding="ascii") as stream:
                if stream.read(LINE_BYTES) != content:
                    raise OSError(errno.EIO, "what is written does not come back")
        finally:
            probe.unlink(missing_ok=True)

    def free(self) -> int:
        """Bytes that a user who is not root may still write."""
        found = os.statvfs(self._path if self._path.is_dir() else self._root)
        return found.f_bavail * found.f_frsize

    def entries(self) -> list[tuple[str, str]]:
        """Name of each folder, with that of each of its files. An empty record has no name: it is none.

        Of a folder that nobody may look into, the record is told, by which its trouble is.
        """
        try:
            with os.scandir(self._path) as found:
                names = [each.name for each in found if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return [(name, file) for name in names for file in self._files(name)]

    def put(self, name: str, file: str, content: Any, size: int) -> None:
        """Store what ``content.read`` gives under a name that is not taken, and have it on the disk when it returns."""
        # By chance, so that who sends a file again meets nothing of an attempt that may still be under way.
        attempt = secrets.token_hex(4)
        self.begin(name, file, attempt, size)
        try:
            self.go_on(name, file, attempt, 0, content)
            self.end(name, file, attempt)
        except BaseException:
            with contextlib.suppress(OSError):
                self.give_up(name, file, attempt)
            raise

    def begin(self, name: str, file: str, attempt: str, size: int) -> None:
        """Begin a file of ``size`` bytes under a name that is not taken; ``attempt`` is a word for this one alone."""
        (self._path / _checked(name)).mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._opened(name) as at:
            if _is_there(at, _checked(file)):
                raise FileExistsError(errno.EEXIST, "File exists")
            if self.free() < size:
                raise OSError(errno.ENOSPC, "No space left on device")
            os.close(os.open(_part(file, attempt), _NEW, 0o600, dir_fd=at))

    def go_on(self, name: str, file: str, attempt: str, offset: int, content: Any) -> None:
        """Write what ``content.read`` gives at this byte of a file that was begun, and have it on the disk."""
        with self._opened(name) as at:
            descriptor = os.open(_part(file, attempt), _GO_ON, dir_fd=at)
            with os.fdopen(descriptor, "wb", buffering=0) as stream:
                if os.fstat(descriptor).st_size < offset:
                    raise OSError(errno.EIO, "what comes before is not there")
                # A piece whose answer was lost comes once more.
                stream.seek(offset)
                _written(content, stream)

    def end(self, name: str, file: str, attempt: str) -> None:
        """Give a file its name, unless that is taken."""
        with self._opened(name) as at:
            try:
                _named(at, _part(file, attempt), file)
            except FileNotFoundError:
                # The answer to that was lost, and it is asked once more.
                if not _is_there(at, file):
                    raise
            os.fsync(at)
        above = os.open(self._path, _FOLDER)
        try:
            os.fsync(above)
        finally:
            os.close(above)

    def give_up(self, name: str, file: str, attempt: str) -> None:
        """Delete what there is of a file that was begun, if its name was not given to it."""
        with contextlib.suppress(FileNotFoundError), self._opened(name) as at:
            os.unlink(_part(file, attempt), dir_fd=at)

    def get(self, name: str, file: str, into: Any) -> None:
        """Give the content of a file to ``into.write``."""
        with self.reading(name, file) as stream:
            while content := stream.read(CHUNK):
                into.write(content)

    @contextlib.contextmanager
    def reading(self, name: str, file: str) -> Iterator[Any]:
        """File that is open to be read."""
        with self._opened(name) as at:
            descriptor = os.open(_checked(file), _READ, dir_fd=at)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.ENXIO, "is no file")
            yield stream

    def remove(self, name: str, file: str, last: bool) -> None:
        """Delete a file, whole or in part, if it is there; with the ``last`` one of a backup the folder, if empty."""
        try:
            with self._opened(name) as at:
                with os.scandir(at) as found:
                    names = [each.name for each in found]
                for each in names:
                    if each == file or (each.startswith(f"{file}.") and each.endswith(PART)):
                        os.unlink(each, dir_fd=at)
        except FileNotFoundError:
            return
        if last:
            # What else somebody has put there stays, and its folder with it.
            with contextlib.suppress(OSError):
                (self._path / name).rmdir()

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        """Descriptor of the folder of a backup, which is no link."""
        at = os.open(self._path / _checked(name), _FOLDER | os.O_NOFOLLOW)
        try:
            yield at
        finally:
            os.close(at)

    def _files(self, name: str) -> list[str]:
        try:
            with os.scandir(self._path / name) as found:
                return ["" if self._is_empty_record(each) else each.name for each in found]
        except FileNotFoundError:
            return []
        except OSError:
            return [self._record]

    def _is_empty_record(self, entry: os.DirEntry[str]) -> bool:
        """Return whether this is what a power cut has left of a record that was written under its own name."""
        return entry.name == self._record and entry.is_file(follow_symlinks=False) and entry.stat().st_size == 0


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise OSError(errno.EINVAL, "is no name of a backup or of one of its files")
    return name


def _part(file: str, attempt: str) -> str:
    return f"{_checked(file)}.{_checked(attempt)}{PART}"


def _is_there(at: int, file: str) -> bool:
    try:
        os.stat(file, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _written(content: Any, stream: Any) -> None:
    since = 0
    while piece := content.read(CHUNK):
        view = memoryview(piece)
        while view:
            view = view[stream.write(view) :]
        since += len(piece)
        if since >= SYNC_BYTES:
            os.fsync(stream.fileno())
            since = 0
    os.fsync(stream.fileno())


def _named(at: int, part: str, file: str) -> None:
    """Give a whole file its name, unless that is taken."""
    try:
        os.link(part, file, src_dir_fd=at, dst_dir_fd=at)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if _is_there(at, file):
            raise FileExistsError(errno.EEXIST, "File exists") from None
        os.rename(part, file, src_dir_fd=at, dst_dir_fd=at)
    else:
        os.unlink(part, dir_fd=at)


# -- server ------------------------------------------------------------------------------------------------------------


class _GoneError(Exception):
    """Whoever has asked is not there any more, or speaks of something else."""


class Server:
    """Server of a folder at a socket that listens. ``digest`` is the SHA-256 (hex) of the token."""

    def __init__(self, listener: socket.socket, folder: Folder, digest: str, lonely: float = LONELY_SECONDS) -> None:
        self._listener, self._folder, self._digest, self._lonely = listener, folder, digest, lonely
        self._lock = threading.Lock()
        self._open, self._since = 0, time.monotonic()

    def serve(self) -> None:
        """Serve until nobody has had a connection for a while."""
        self._listener.settimeout(min(1.0, self._lonely))
        while not self._is_lonely():
            try:
                connection, _ = self._listener.accept()
            except socket.timeout:  # noqa: UP041 - another class before Python 3.10
                continue
            self._count(1)
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _is_lonely(self) -> bool:
        with self._lock:
            return self._open == 0 and time.monotonic() - self._since > self._lonely

    def _count(self, more: int) -> None:
        with self._lock:
            self._open, self._since = self._open + more, time.monotonic()

    def _attend(self, connection: socket.socket) -> None:
        try:
            with connection:
                _Conversation(connection, self._folder).go_on(self._digest)
        except (_GoneError, OSError):
            # Of a file, an OSError has been told: this one is of the connection.
            pass
        finally:
            self._count(-1)


class _Conversation:
    """One connection."""

    def __init__(self, connection: socket.socket, folder: Folder) -> None:
        self._connection, self._folder = connection, folder
        self._stream = connection.makefile("rb")

    def go_on(self, digest: str) -> None:
        """Answer one question after the other."""
        self._connection.settimeout(TOKEN_SECONDS)
        told = str((self._line() or {}).get("token", ""))
        if not hmac.compare_digest(hashlib.sha256(told.encode()).hexdigest(), digest):
            self._say({"errno": "EACCES", "text": "the token is another one"})
            return
        self._say({"done": True})
        self._connection.settimeout(IDLE_SECONDS)
        while (question := self._line()) is not None:
            self._answer(question)

    def _answer(self, question: dict[str, Any]) -> None:
        asked, folder = question.get("ask"), self._folder
        name, file = str(question.get("name", "")), str(question.get("file", ""))
        doing: dict[Any, Callable[[], Any]] = {
            "check": folder.check,
            "free": folder.free,
            "entries": folder.entries,
            "put": lambda: self._put(name, file, int(question["size"])),
            "get": lambda: self._get(name, file, int(question["offset"])),
            "remove": lambda: folder.remove(name, file, bool(question.get("last"))),
        }
        if asked not in doing:
            raise _GoneError
        try:
            self._say({"done": doing[asked]()})
        except _BrokenFileError as error:
            self._say(_told(error.error))
        except OSError as error:
            self._say(_told(error))

    def _put(self, name: str, file: str, size: int) -> None:
        body = _Body(self._stream, size, lambda: self._say({"done": "send"}))
        try:
            self._folder.put(name, file, body, size)
        except OSError as error:
            # Who is sending does not listen before all is sent.
            body.drain()
            raise _BrokenFileError(error) from None

    def _get(self, name: str, file: str, offset: int) -> None:
        with self._folder.reading(name, file) as stream:
            stream.seek(offset)
            self._say({"done": "read"})
            try:
                while piece := stream.read(CHUNK):
                    self._send(LENGTH.pack(len(piece)) + piece)
            except OSError as error:
                self._send(LENGTH.pack(0))
                raise _BrokenFileError(error) from None
            self._send(LENGTH.pack(0))

    def _line(self) -> dict[str, Any] | None:
        try:
            line = self._stream.readline(LINE_BYTES)
            found = json.loads(line) if line else None
        except (OSError, ValueError):
            raise _GoneError from None
        if found is not None and not isinstance(found, dict):
            raise _GoneError
        return found

    def _say(self, answer: dict[str, Any]) -> None:
        self._send(json.dumps(answer).encode() + b"\n")

    def _send(self, content: bytes) -> None:
        try:
            self._connection.sendall(content)
        except OSError:
            raise _GoneError from None


class _BrokenFileError(Exception):
    """A file cannot be read or written; nothing is the matter with the connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Body:
    """So many bytes of a connection, which come once the first of them is asked for."""

    def __init__(self, stream: Any, size: int, let_come: Callable[[], None]) -> None:
        self._stream, self._left, self._let_come = stream, size, let_come
        self._comes = False

    def read(self, most: int) -> bytes:
        """At most so many bytes; none at the end."""
        if not self._comes:
            self._let_come()
            self._comes = True
        if not self._left:
            return b""
        try:
            found: bytes = self._stream.read(min(most, self._left))
        except OSError:
            raise _GoneError from None
        if not found:
            raise _GoneError
        self._left -= len(found)
        return found

    def drain(self) -> None:
        """Pass over what still comes."""
        while self._comes and self.read(CHUNK):
            pass


def _told(error: OSError) -> dict[str, Any]:
    return {"errno": errno.errorcode.get(error.errno or 0, ""), "text": error.strerror or str(error)}


def main(arguments: list[str]) -> None:
    """Serve a folder until it is not needed any more: root, path below it, record, port, digest of the token."""
    root, below, record, port, digest, *lonely = arguments
    # The first process of a pod has no other way to end when it is told to.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        sys.stdout.write(f"serving {listener.getsockname()[1]}\n")
        sys.stdout.flush()
        Server(listener, Folder(root, below, record), digest, *map(float, lonely)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
