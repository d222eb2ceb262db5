# SPDX-License-Identifier: Apache-2.0
"""The message with which a leader of etcd begins to send its database to a member that has fallen behind. Pure.

A member that gets such a message on its peer port writes what follows into ``member/snap/<index>.snap.db`` of its data
folder, whole or not at all, and answers 204 when it is on the disk (etcd 3.1 to 3.7: ``snapshotHandler`` in
server/etcdserver/api/rafthttp/http.go). The message itself is of an old term, so that raft does not follow it. So a
file comes into a pod that has etcd and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

PATH = "/raft/snapshot"
#: Number of the entry that the file is named after; far from any that this etcd writes by itself.
INDEX = 0x7FFFFFFF
#: File below the data folder in which it ends.
FILE = f"member/snap/{INDEX:016x}.snap.db"
#: Sender, which no cluster knows.
_FROM = 1
_OLD_TERM = 1
_SNAPSHOT_MESSAGE = 7
_LENGTH_BYTES = 8


def head(to: str) -> bytes:
    """Begin of the body of the request; the file follows it. ``to`` is the member's ID, hexadecimal."""
    metadata = _field(2, INDEX) + _field(3, _OLD_TERM)
    snapshot = _embedded(2, _embedded(1, b"") + metadata)
    message = b"".join(
        (
            _field(1, _SNAPSHOT_MESSAGE),
            _field(2, int(to, 16)),
            _field(3, _FROM),
            _field(4, _OLD_TERM),
            _embedded(9, snapshot),
        )
    )
    return len(message).to_bytes(_LENGTH_BYTES, "big") + message


def _field(number: int, value: int) -> bytes:
    return bytes([number << 3, *_varint(value)])


def _embedded(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, *_varint(len(content))]) + content


def _varint(value: int) -> Iterator[int]:
    """Number in the encoding of protocol buffers: seven bits in each byte, the lowest first."""
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
