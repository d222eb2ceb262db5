# SPDX-License-Identifier: Apache-2.0
"""Snapshot of a member of etcd by its JSON API, and the checksum at its end.

Runs on a host with the Python of its distribution and nothing else (standard library, Python 3.9 or newer), and in the
engine. The answer is a stream of lines of JSON, each with a part of the database in base64 (etcd 3.5, 3.6 and 3.7:
api/etcdserverpb/rpc.proto, SnapshotResponse); one line is in memory at a time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any, BinaryIO

PATH = "/v3/maintenance/snapshot"
#: Silence of a member after which it is given up: it reads its disk while it sends.
SILENT_SECONDS = 60.0
#: A part has 32 KiB and is a third longer in base64; more than this is no answer of etcd.
MOST_LINE = 1 << 20
#: The database consists of pages, and what follows them is the SHA-256 of all.
_PAGE, _DIGEST = 512, 32
_CHUNK = 1 << 20
_MESSAGE = 500


class SnapshotError(Exception):
    """The stream or the file is no snapshot. The message names no credentials."""


@dataclass(frozen=True)
class Received:
    """A whole stream: bytes that were written, and the version of what is stored, whose minor is etcd's."""

    size: int
    version: str


def receive(answer: BinaryIO, into: BinaryIO) -> Received:
    """Write a snapshot into a file as it comes. Raises SnapshotError if the stream is no snapshot or breaks off."""
    size, left, version = 0, -1, ""
    while True:
        line = answer.readline(MOST_LINE + 1)
        if not line:
            break
        if len(line) > MOST_LINE:
            raise SnapshotError("what answers there is not etcd: a line of its answer is too long")
        if not line.strip():
            continue
        part = _part(line)
        content = _content(part)
        left = _number(part, "remaining_bytes", "remainingBytes")
        version = str(part.get("version") or version)
        size += len(content)
        into.write(content)
    if left != 0:
        raise SnapshotError(f"the snapshot breaks off after {size} bytes")
    return Received(size, version[:_MESSAGE])


def check(snapshot: BinaryIO) -> str:
    """Check the size of a snapshot and the checksum at its end; returns that of the whole file (SHA-256, hex).

    Raises SnapshotError. etcdutl reads damaged files without a word; only this finds them all.
    """
    snapshot.seek(0, 2)
    size = snapshot.tell()
    if size % _PAGE != _DIGEST or size <= _DIGEST:
        raise SnapshotError(f"it has {size} bytes, and a snapshot ends {_DIGEST} bytes after a multiple of {_PAGE}")
    snapshot.seek(0)
    of_pages, left = hashlib.sha256(), size - _DIGEST
    while left:
        content = snapshot.read(min(_CHUNK, left))
        if not content:
            raise SnapshotError("it becomes shorter while it is read")
        of_pages.update(content)
        left -= len(content)
    written = snapshot.read(_DIGEST)
    of_all = of_pages.copy()
    of_all.update(written)
    if written != of_pages.digest():
        raise SnapshotError("its content does not have the checksum at its end")
    return of_all.hexdigest()


def _part(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("result"), dict):
        return dict(found["result"])
    told = found if isinstance(found, dict) else {}
    error = told.get("error")
    message = error.get("message") if isinstance(error, dict) else error or told.get("message")
    if message:
        raise SnapshotError(f"it answers: {str(message)[:_MESSAGE]}")
    raise SnapshotError("what answers there is not etcd: its answer is no snapshot")


def _content(part: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(part.get("blob") or "", validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise SnapshotError("what answers there is not etcd: its answer is no snapshot") from error


def _number(part: dict[str, Any], *names: str) -> int:
    """Number of 64 bits, which is text in JSON; absent for 0, and named in one of two ways."""
    given = next((part[name] for name in names if name in part), 0)
    try:
        return int(given)
    except (TypeError, ValueError) as error:
        raise SnapshotError("what answers there is not etcd: its answer is no snapshot") from error
