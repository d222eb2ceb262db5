# SPDX-License-Identifier: Apache-2.0
"""Reading an API server's answer within limits of bytes, values and seconds.

Anything may listen at an address. An answer that never ends, or that unpacks to gigabytes, is an ordinary error and
costs no more than the limits allow.
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
#: Values are not counted in an answer below this size: that would take time and save no memory.
_SMALL = MIB


@dataclass(frozen=True)
class Limits:
    """Limits on what is read from one API server.

    ``answer_bytes`` bounds one answer, unpacked; ``answer_values`` its JSON values, each of which takes more memory
    than its text; ``answer_seconds`` the time from the first byte sent to the last byte read. The limits of a list
    cover all of its pages: ``list_items`` objects in ``list_bytes``, within ``list_seconds``.
    """

    answer_bytes: int = 64 * MIB
    answer_values: int = 4_000_000
    # An API server itself ends a request after a minute, unless it is a watch or follows a log.
    answer_seconds: float = 65.0
    list_items: int = 500_000
    list_bytes: int = 512 * MIB
    list_seconds: float = 600.0


#: For members: nothing large is read from them, and many are worked on at once. A member that is reached by mistake,
#: or that is hostile, takes no more of this machine than this.
OF_A_MEMBER = Limits(
    answer_bytes=16 * MIB,
    answer_values=300_000,
    # The longest timeout of an admission webhook (30 s), and a little more.
    answer_seconds=35.0,
    list_items=50_000,
    list_bytes=32 * MIB,
    list_seconds=120.0,
)


class Answer(NamedTuple):
    """An answer read to its end; ``data`` is unpacked."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class TooMuchError(Exception):
    """An answer exceeds a limit, or has an encoding that was not requested. The message says which."""


class EndlessError(TimeoutError):
    """An answer did not end before its deadline."""


class Seconds(float):
    """A socket timeout in seconds that also carries a deadline for all reads together.

    ``until`` is a moment of time.monotonic(). urllib3 passes timeouts on unchanged, so the deadline reaches whichever
    connection is chosen, from any thread.
    """

    until: float = math.inf

    @classmethod
    def of(cls, each: float, together: float) -> Seconds:
        """A timeout of ``each`` seconds per read, and a deadline ``together`` seconds from now."""
        found = cls(min(each, together))
        found.until = time.monotonic() + together
        return found


class Ending:
    """Mixin for a urllib3 connection that ends an answer at the deadline of its timeout (``Seconds``)."""

    sock: Any
    timeout: Any

    def connect(self) -> None:
        """Connect, and keep the deadline also while a record of TLS in TLS is completed."""
        super().connect()  # type: ignore[misc]  # of the connection that this is mixed into
        if isinstance(self.sock, SSLTransport) and not hasattr(self.sock.socket, "until"):
            self.sock.socket = _Below(self.sock.socket)  # type: ignore[assignment]

    def response_class(self, sock: Any, *args: Any, **options: Any) -> http.client.HTTPResponse:
        """Response of http.client whose reads stop at the deadline."""
        return http.client.HTTPResponse(_Source(sock, getattr(self.timeout, "until", math.inf)), *args, **options)  # type: ignore[arg-type]


class _Source:
    """The part of a socket that an HTTPResponse uses."""

    def __init__(self, sock: Any, until: float) -> None:
        self._sock, self._until = sock, until
        below: Any = getattr(sock, "socket", None)
        if hasattr(below, "until"):
            below.until = until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock.makefile(mode).detach(), self._sock, self._until))


class _Reader(io.RawIOBase):
    """Reader of a socket that stops at a deadline."""

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
    """The socket under Python's own TLS, which reads from it until a record is complete."""

    def __init__(self, sock: Any) -> None:
        self._sock, self.until = sock, math.inf

    def recv(self, *args: Any) -> bytes:
        hurry(self._sock, self.until)
        found: bytes = self._sock.recv(*args)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def hurry(sock: Any, until: float) -> None:
    """Shorten the timeout of a socket so that it ends at this moment. Raises EndlessError after that moment."""
    left = until - time.monotonic()
    if left <= 0:
        raise EndlessError("the answer does not come to an end")
    limit = sock.gettimeout()
    if left < math.inf and (limit is None or limit > left):
        sock.settimeout(left)


def ending(pool: Any) -> Any:
    """Make the connections of a urllib3 pool ``Ending``; returns the pool."""
    kind = pool.ConnectionCls
    pool.ConnectionCls = type("Ending" + kind.__name__, (Ending, kind), {})
    return pool


# -- content -----------------------------------------------------------------------------------------------------------


def pieces(response: urllib3.BaseHTTPResponse, most: int) -> Iterator[bytes]:
    """Unpacked content of an answer, piece by piece. Raises TooMuchError above ``most`` bytes.

    No compression is requested, but a proxy on the way may add it.
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
    """Whole content of an answer. Returns the connection to its pool, or closes it and raises TooMuchError."""
    try:
        found = b"".join(pieces(response, most)) if "Content-Encoding" in response.headers else _plain(response, most)
    except TooMuchError:
        response.close()
        raise
    response.release_conn()
    return found


def _plain(response: urllib3.BaseHTTPResponse, most: int) -> bytes:
    """Content of an answer that is not packed, mostly in one read."""
    found = response.read(most + 1, decode_content=False)
    # If less came than was announced, the next read raises.
    while found and len(found) <= most and (more := response.read(most + 1 - len(found), decode_content=False)):
        found += more
    if len(found) > most:
        raise TooMuchError(f"it is larger than {_size(most)}")
    return found


def lines(response: urllib3.BaseHTTPResponse, longest: int) -> Iterator[bytes]:
    """Lines of an answer that may never end. Raises TooMuchError for a line above ``longest`` bytes."""
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
    # Bytes are not limited in total: each line is dropped once it is read.
    return pieces(response, 2**62)


def parsed(data: bytes | str, most: int) -> Any:
    """Parse JSON. Raises TooMuchError above about ``most`` values, and ValueError if it is not JSON."""
    if len(data) > _SMALL:
        text = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
        # Each value follows one of these characters. Those inside strings are counted as well.
        if sum(map(text.count, (b",", b"[", b"{"))) > most:
            raise TooMuchError(f"it has more than {most} values")
    try:
        return json.loads(data)
    except RecursionError:
        raise TooMuchError("it is nested too deep") from None


def _size(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size} bytes"
