# SPDX-License-Identifier: Apache-2.0
"""Folder of backups that a server of ``module_utils.backup_folder`` has, by the methods of such a folder.

What breaks off is begun again over another connection, which is safe: a question changes nothing when it is asked
twice; a file that is fetched goes on at the byte; one that is stored is not there until it is whole, and if it is there
although no answer came, it is compared.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol, TypeVar

from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import CHUNK, LENGTH

from ..problems import ProblemsError
from . import workplace
from .encryption import Hashed, Writable

T = TypeVar("T")

#: Connections over which one thing is tried.
ATTEMPTS = 3
PAUSE_SECONDS = 1.0
#: Seconds within which a server that was just started takes a connection.
GREET_SECONDS = 20.0
_GREET_PAUSE_SECONDS = 0.3
#: Seconds without a byte after which a connection counts as broken: of a question, and while a file is on its way, of
#: which some MiB may have to reach a slow disk first.
ASK_SECONDS, MOVE_SECONDS = 30.0, 120.0
#: Bytes of an answer, of which the list of all files is the longest, and of a piece of a file.
MOST_BYTES, MOST_PIECE = 1 << 26, 1 << 20


class Wire(Protocol):
    """Part of a socket that is used."""

    def recv(self, size: int, /) -> bytes:
        """Some bytes, none at the end."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it."""

    def settimeout(self, seconds: float | None, /) -> None:
        """Set the timeout of each receipt and sending."""

    def close(self) -> None:
        """Close it."""


class RemoteFolder:
    """Folder of backups at the other end of connections that ``dial`` opens, each with the token.

    ``broken`` makes an error of the reason for which no connection holds, and ``say`` tells of one that did not.
    Methods raise the OSError of the folder at the other end, and ProblemsError.
    """

    def __init__(
        self,
        dial: Callable[[], Wire],
        token: str,
        broken: Callable[[str], ProblemsError],
        say: Callable[[str], None],
    ) -> None:
        self._dial, self._token, self._broken, self._say = dial, token, broken, say
        self._open: _Connection | None = None

    def check(self) -> None:
        """See that files can be written and read there."""
        self._asked("check")

    def free(self) -> int:
        """Bytes that there is room for."""
        return self._tried(lambda it: it.number(it.ask("free").answer()))

    def entries(self) -> Sequence[tuple[str, str]]:
        """Name and file of everything there."""
        return self._tried(lambda it: it.pairs(it.ask("entries").answer()))

    def put(self, name: str, file: str, content: BinaryIO, size: int) -> None:
        """Store a file."""
        begin, attempts = content.tell(), 0

        def store(connection: _Connection) -> None:
            nonlocal attempts
            attempts += 1
            content.seek(begin)
            connection.ask("put", name=name, file=file, size=size).answer()
            connection.wait(MOVE_SECONDS)
            for piece in _pieces(content, size):
                connection.send(piece)
            connection.answer()

        try:
            self._tried(store)
        except FileExistsError:
            # One of ours may be whole, of which only the answer was lost.
            if attempts == 1 or not self._is_same(name, file, content, begin, size):
                raise

    def get(self, name: str, file: str, into: Writable) -> None:
        """Give the content of a file to a sink."""
        done = 0

        def fetch(connection: _Connection) -> None:
            nonlocal done
            connection.ask("get", name=name, file=file, offset=done).answer()
            connection.wait(MOVE_SECONDS)
            for piece in connection.pieces():
                into.write(piece)
                done += len(piece)
            connection.answer()

        self._tried(fetch)

    def remove(self, name: str, file: str, last: bool) -> None:
        """Delete a file, if it is there; with the ``last`` one of a backup its folder."""
        self._asked("remove", name=name, file=file, last=last)

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _asked(self, what: str, **more: Any) -> None:
        self._tried(lambda connection: connection.ask(what, **more).answer())

    def _tried(self, do: Callable[[_Connection], T]) -> T:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return do(self._connected())
            except _AnsweredError as answer:
                raise answer.error from None
            except _LostError as error:
                self.close()
                if attempt == ATTEMPTS:
                    raise self._broken(str(error)) from None
                self._say(f"{error}; it is tried again")
            except BaseException:
                # What comes next over it would be the rest of this.
                self.close()
                raise
            time.sleep(PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> _Connection:
        """The connection that there is, or a new one. A server that has only just started may not listen yet."""
        until = time.monotonic() + GREET_SECONDS
        while self._open is None:
            try:
                self._open = _Connection.greeted(self._dial, self._token)
            except _LostError:
                if time.monotonic() > until:
                    raise
                time.sleep(_GREET_PAUSE_SECONDS)
        return self._open

    def _is_same(self, name: str, file: str, content: BinaryIO, begin: int, size: int) -> bool:
        here, there = Hashed(), Hashed()
        content.seek(begin)
        for piece in _pieces(content, size):
            here.write(piece)
        self.get(name, file, there)
        return (here.size, here.sha256) == (there.size, there.sha256)


class _LostError(Exception):
    """A connection has broken, or what comes over it is no answer."""


class _AnsweredError(Exception):
    """The folder at the other end has raised an error."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Connection:
    """Connection that has shown its token."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._received = bytearray()

    @classmethod
    def greeted(cls, dial: Callable[[], Wire], token: str) -> _Connection:
        """New connection. Raises _LostError."""
        try:
            found = cls(dial())
        except OSError as error:
            raise _LostError(str(error)) from None
        try:
            found.wait(ASK_SECONDS)
            found._say({"token": token})
            found.answer()
        except _AnsweredError as answer:
            found.close()
            raise _LostError(f"the connection is refused: {answer}") from None
        except BaseException:
            found.close()
            raise
        return found

    def ask(self, what: str, **more: Any) -> _Connection:
        """Ask a question."""
        self.wait(ASK_SECONDS)
        self._say({"ask": what, **more})
        return self

    def wait(self, seconds: float) -> None:
        """Have each part of what follows wait for so many seconds at most."""
        with _losing():
            self._wire.settimeout(seconds)

    def answer(self) -> Any:
        """Value that the next answer has. Raises _AnsweredError if it is an error."""
        try:
            found = json.loads(self._line())
        except ValueError:
            found = None
        if not isinstance(found, dict) or not ({"done", "errno"} & found.keys()):
            raise _LostError("what comes back is no answer")
        if "done" in found:
            return found["done"]
        name, text = str(found["errno"]), str(found.get("text") or "it fails")
        # Numbers differ between machines, names do not. One that is not known here says nothing of one file.
        number = getattr(errno, name, errno.EIO) if name in errno.errorcode.values() else errno.EIO
        raise _AnsweredError(OSError(number, text))

    def pieces(self) -> Iterator[bytes]:
        """Pieces of a file, each as soon as it is there."""
        while size := LENGTH.unpack(self._taken(LENGTH.size))[0]:
            if size > MOST_PIECE:
                raise _LostError("what comes back is no piece of a file")
            yield self._taken(size)

    def send(self, content: bytes) -> None:
        """Send a piece of a file."""
        with _losing():
            self._wire.sendall(content)

    def close(self) -> None:
        """Close it, whatever has become of it."""
        with suppress(OSError):
            self._wire.close()

    @staticmethod
    def number(found: Any) -> int:
        """Answer that has to be a number."""
        if not isinstance(found, int):
            raise _LostError("what comes back is no number")
        return found

    @staticmethod
    def pairs(found: Any) -> list[tuple[str, str]]:
        """Answer that has to be a list of names and files."""
        if not isinstance(found, list):
            raise _LostError("what comes back is no list")
        pairs = [(each[0], each[1]) for each in found if isinstance(each, list) and len(each) == 2]
        if len(pairs) != len(found) or not all(isinstance(one, str) for each in pairs for one in each):
            raise _LostError("what comes back is no list of files")
        return pairs

    def _say(self, question: dict[str, Any]) -> None:
        self.send(json.dumps(question).encode() + b"\n")

    def _line(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > MOST_BYTES:
                raise _LostError("an answer has no end")
            self._more()
        found = bytes(self._received[:end])
        del self._received[: end + 1]
        return found

    def _taken(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        found = bytes(self._received[:size])
        del self._received[:size]
        return found

    def _more(self) -> None:
        with _losing():
            found = self._wire.recv(CHUNK)
        if not found:
            raise _LostError("the connection has ended")
        self._received += found


@contextmanager
def _losing() -> Iterator[None]:
    """Errors of a connection as what they are here."""
    try:
        yield
    except OSError as error:
        raise _LostError(str(error) or type(error).__name__) from None


def _pieces(content: BinaryIO, size: int) -> Iterator[bytes]:
    """So many bytes of a file of this machine. Raises ProblemsError if it cannot be read, or has changed."""
    left = size
    while left:
        try:
            piece = content.read(min(CHUNK, left))
            if not piece:
                raise OSError("a file has changed on the disk")
        except OSError as error:
            raise workplace.unusable(error) from None
        left -= len(piece)
        yield piece
