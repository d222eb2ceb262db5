# SPDX-License-Identifier: Apache-2.0
"""Answers that an API server should never give: their bytes, a piece at a time, by the path that was asked for.

Each has the form of ``stub_api.Fault.pieces``: from the path with its query to what is sent behind the request, status
line and all. One that goes on for ever does so until whoever reads it goes away.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

Pieces = Callable[[str], Iterator[bytes]]
MIB = 1024 * 1024
#: How many bytes the bomb is when it is unpacked, and how many brackets are in one another.
BOMB_BYTES, BRACKETS = 1024 * MIB, 200_000
#: Between two bytes of what trickles.
TRICKLE_SECONDS = 0.05
#: A title for the window, colours, a line that goes back, and one that is read from the right.
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\rback\nline\u202eright\x9b5A\x7f"
NOT_UTF8 = b"\xff\xfe\xfd"


def head(length: int | None, status: str = "200 OK", **headers: str) -> bytes:
    """Status line and headers; without a length the content comes in chunks."""
    how = {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in {**how, **headers}.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", "Content-Type: application/json", *lines, "", ""]).encode()


def chunk(data: bytes) -> bytes:
    """One chunk of an answer without a length."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(data: bytes, status: str = "200 OK", **headers: str) -> Pieces:
    """An answer in one piece."""
    return lambda _path: iter([head(len(data), status, **headers) + data])


def refusal(message: str) -> Pieces:
    """What an API server answers to those who may not, with these words."""
    return whole(json.dumps({"kind": "Status", "code": 403, "message": message}).encode(), "403 Forbidden")


def gzip_bomb(_path: str) -> Iterator[bytes]:
    """Some MiB that unpack to ``BOMB_BYTES``, none of which anybody has asked for to be packed."""
    begin = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    yield head(None, Content_Encoding="gzip")
    yield chunk(begin.compress(b'{"kind": "') + begin.flush(zlib.Z_FULL_FLUSH))
    block = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    # Behind a full flush the same bytes mean the same wherever they stand.
    a_mib = block.compress(b"a" * MIB) + block.flush(zlib.Z_FULL_FLUSH)
    for _ in range(BOMB_BYTES // MIB):
        yield chunk(a_mib)
    yield b"0\r\n\r\n"


def too_long(_path: str) -> Iterator[bytes]:
    """As many bytes, not packed."""
    yield head(None)
    for _ in range(BOMB_BYTES // MIB):
        yield chunk(b" " * MIB)
    yield b"0\r\n\r\n"


def trickle(answer: bytes) -> Pieces:
    """A good answer, byte by byte from its first header on."""

    def pieces(_path: str) -> Iterator[bytes]:
        for each in answer:
            time.sleep(TRICKLE_SECONDS)
            yield bytes([each])

    return pieces


def namespace(name: str = "kube-system", **more: Any) -> bytes:
    """A namespace as it should be, with what else is given."""
    return json.dumps({"metadata": {"name": name, "uid": "id-of-it", **more}}).encode()


def endless_list(path: str) -> Iterator[bytes]:
    """A page with one more behind it, whichever is asked for; each has a mark of its own."""
    asked = parse_qs(urlsplit(path).query).get("continue", ["0"])[0]
    yield from whole(_page(str(int(asked) + 1)))(path)


def circular_list(path: str) -> Iterator[bytes]:
    """A server that does not heed ``continue``: the first page is followed by the first page."""
    yield from whole(_page("again"))(path)


def _page(following: str) -> bytes:
    items = [{"metadata": {"name": f"{following}-{number}", "uid": "u"}} for number in range(500)]
    return json.dumps({"metadata": {"continue": following, "resourceVersion": "1"}, "items": items}).encode()


def many_values(_path: str) -> Iterator[bytes]:
    """A few MiB of JSON that take a hundred times as much as data."""
    yield from whole(b'{"items": [' + b"{}," * 4_000_000 + b"{}]}")(_path)


#: How a member may be faulty at its first answer, which is that to its namespace kube-system.
FIRST_ANSWERS: dict[str, Pieces] = {
    "gzip-bomb": gzip_bomb,
    "too-long": too_long,
    "many-values": many_values,
    "trickle": trickle(head(len(namespace()), X_Padding="x" * 2000) + namespace()),
    "cut-json": whole(namespace()[:-10]),
    "nested": whole(b'{"metadata":' + b"[" * BRACKETS),
    "not-utf8": whole(b'{"metadata": {"name": "' + NOT_UTF8 + b'"}}'),
    "escapes": refusal(ESCAPES),
    "other-types": whole(b'{"metadata": "a text"}'),
    "packed-otherwise": whole(namespace(), Content_Encoding="br"),
    "dates-for-names": whole(b'{"metadata": {"name": 2026-02-31, "uid": 0001-01-01T00:00:00+99:00}}'),
}
#: What is no answer at all. It may pass, so it is asked for again while there is time.
NO_ANSWERS: dict[str, Pieces] = {"garbage": lambda _path: iter([bytes(range(256)) * 256])}
#: And how at its lists.
LISTS: dict[str, Pieces] = {"endless-list": endless_list, "circular-list": circular_list}
