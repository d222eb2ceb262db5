# SPDX-License-Identifier: Apache-2.0
"""An answer of an API server as far as it is taken: so many bytes, so many values, so many seconds, and no more.

What answers at an address may be anything. An answer that never ends, or that unpacks to gigabytes, is an error like
any other, and costs what the limits say before it is one.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import urllib3
from urllib3.util.ssltransport import SSLTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1024 * 1024
_PIECE = 64 * 1024
#: Of an answer below this size the values are not counted: a tenth of a millisecond for what costs no memory.
_SMALL = MIB


@dataclass(frozen=True)
class Limits:
    """What is taken from one API server.

    ``answer_bytes`` is the size of one answer, unpacked; ``answer_values`` how many values of JSON may be in it, each
    of which takes more memory than its text; ``answer_seconds`` how long one may take from the first byte that is sent
    to the last that comes. A list is all of its pages: ``list_items`` objects in ``list_bytes``, for at most
    ``list_seconds``.
    """

    answer_bytes: int = 64 * MIB
    answer_values: int = 4_000_000
    # An API server ends a request after a minute itself, unless it is a watch or follows a log.
    answer_seconds: float = 65.0
    list_items: int = 500_000
    list_bytes: int = 512 * MIB
    list_seconds: float = 600.0


#: For a member, of which nothing large is read, and of which many are worked with at once. One that is reached by
#: mistake, or that means harm, takes no more of the machine than this.
OF_A_MEMBER = Limits(
    answer_bytes=16 * MIB,
    answer_values=300_000,
    # What the longest admission webhook takes, and some more.
    answer_seconds=35.0,
    list_items=50_000,
    list_bytes=32 * MIB,
    list_seconds=120.0,
)


class Answer(NamedTuple):
    """An answer that was read to its end; ``data`` is unpacked."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class TooMuchError(Exception):
    """The answer goes beyond a limit, or comes in a form that was not asked for. Says which in words."""


class EndlessError(TimeoutError):
    """The answer did not come to its end in the time that it has as a whole."""


class Seconds(float):
    """A limit for each wait, as sockets want it, that knows when all of them together must be over.

    ``until`` is a moment of time.monotonic(). urllib3 hands its limits on as they are, and so this gets to the
    connection that is chosen, from many threads.
    """

    until: float = math.inf

    @classmethod
    def of(cls, each: float, together: float) -> Seconds:
        """``each`` wait takes no longer than that, and all of them no longer than ``together`` from now on."""
        found = cls(min(each, together))
        found.until = time.monotonic() + together
        return found


class Ending:
    """Of a urllib3 connection: answers end when the limit says (``Seconds``), whatever trickles in until then."""

    sock: Any
    timeout: Any

    def connect(self) -> None:
        """Connect, and see that whole records of TLS inside TLS are not waited for either."""
        super().connect()  # type: ignore[misc]  # of the connection that this is mixed into
        if isinstance(self.sock, SSLTransport) and not hasattr(self.sock.socket, "until"):
            self.sock.socket = _Below(self.sock.socket)  # type: ignore[assignment]

    def response_class(self, sock: Any, *args: Any, **options: Any) -> http.client.HTTPResponse:
        """What http.client reads an answer with."""
        return http.client.HTTPResponse(_Source(sock, getattr(self.timeout, "until", math.inf)), *args, **options)  # type: ignore[arg-type]


class _Source:
    """As much of a socket as an HTTPResponse asks for."""

    def __init__(self, sock: Any, until: float) -> None:
        self._sock, self._until = sock, until
        below: Any = getattr(sock, "socket", None)
        if hasattr(below, "until"):
            below.until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock.makefile(mode).detach(), self._sock, self._until))


class _Reader(io.RawIOBase):
    """Reads from a socket until a moment."""

    def __init__(self, raw: Any, sock: Any, until: float) -> None:
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        hurry(self._sock, self._until)
        try:
            found: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            hurry(self._sock, self._until)
            raise
        return found

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Below:
    """The socket under a TLS of Python's own, which calls it until a record is complete."""

    def __init__(self, sock: Any) -> None:
        self._sock, self.until = sock, math.inf

    def recv(self, *args: Any) -> bytes:
        hurry(self._sock, self.until)
        found: bytes = self._sock.recv(*args)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def hurry(sock: Any, until: float) -> None:
    """Let the next wait of a socket end at this moment, if it would be longer. Raises EndlessError behind it."""
    left = until - time.monotonic()
    if left <= 0:
        raise EndlessError("the answer does not come to an end")
    limit = sock.gettimeout()
    if left < math.inf and (limit is None or limit > left):
        sock.settimeout(left)


def ending(pool: Any) -> Any:
    """A pool of urllib3 whose connections are ``Ending``."""
    kind = pool.ConnectionCls
    pool.ConnectionCls = type("Ending" + kind.__name__, (Ending, kind), {})
    return pool


# -- content -----------------------------------------------------------------------------------------------------------


def pieces(response: urllib3.BaseHTTPResponse, most: int) -> Iterator[bytes]:
    """The content of an answer, unpacked, a piece at a time, until there are ``most`` bytes. Raises TooMuchError.

    Nothing is asked for in a packed form, but what is in between may know better.
    """
    packed = (response.headers.get("Content-Encoding") or "identity").strip().lower()
    if packed not in ("identity", "gzip", "x-gzip"):
        raise TooMuchError(f"it is packed in a way that nobody asked for ({packed[:40]})")
    unpack = None if packed == "identity" else zlib.decompressobj(16 + zlib.MAX_WBITS)
    taken = 0
    for raw in response.stream(_PIECE, decode_content=False):
        rest = raw
        while rest:
            if unpack is None:
                piece, rest = rest, b""
            else:
                try:
                    piece = unpack.decompress(rest, _PIECE)
                except zlib.error:
                    raise TooMuchError(f"it says that it is packed ({packed}), and cannot be unpacked") from None
                rest = unpack.unconsumed_tail
            taken += len(piece)
            if taken > most:
                raise TooMuchError(f"it is larger than {_size(most)}")
            if piece:
                yield piece


def content(response: urllib3.BaseHTTPResponse, most: int) -> bytes:
    """The whole content of an answer, and the connection back in its pool. Raises TooMuchError, and closes it."""
    try:
        found = b"".join(pieces(response, most)) if "Content-Encoding" in response.headers else _plain(response, most)
    except TooMuchError:
        response.close()
        raise
    response.release_conn()
    return found


def _plain(response: urllib3.BaseHTTPResponse, most: int) -> bytes:
    """Nearly every answer: not packed, and there in one read."""
    found = response.read(most + 1, decode_content=False)
    # What was announced and did not come is an error of the read behind it.
    while found and len(found) <= most and (more := response.read(most + 1 - len(found), decode_content=False)):
        found += more
    if len(found) > most:
        raise TooMuchError(f"it is larger than {_size(most)}")
    return found


def lines(response: urllib3.BaseHTTPResponse, longest: int) -> Iterator[bytes]:
    """The lines of an answer that may go on for ever, none longer than that. Raises TooMuchError."""
    rest = bytearray()
    for piece in _endless(response):
        first, *more = piece.split(b"\n")
        rest += first
        for line in more:
            if rest:
                yield bytes(rest)
            rest = bytearray(line)
        if len(rest) > longest:
            raise TooMuchError(f"it has a line that is longer than {_size(longest)}")


def _endless(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    # No sum: what is read is gone.
    return pieces(response, 2**62)


def parsed(data: bytes | str, most: int) -> Any:
    """What a JSON text says. Raises TooMuchError for more than about ``most`` values, ValueError for anything else."""
    if len(data) > _SMALL:
        text = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
        # Each value has one of these before it. Those inside of strings are counted, too.
        if sum(map(text.count, (b",", b"[", b"{"))) > most:
            raise TooMuchError(f"it has more than {most} values")
    try:
        return json.loads(data)
    except RecursionError:
        raise TooMuchError("it is nested too deep") from None


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size} bytes"
