# SPDX-License-Identifier: Apache-2.0
"""A snapshot as it comes from a member, line by line, and what is no snapshot. Real members: the contract tests."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from contextlib import suppress

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import etcd_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.etcd_snapshot import Received, SnapshotError
from hypothesis import given
from hypothesis import strategies as st

PAGES = os.urandom(20 * 512)
SNAPSHOT = PAGES + hashlib.sha256(PAGES).digest()


def lines(content: bytes, size: int = 4096, **more: str) -> list[bytes]:
    """A snapshot as a member sends it: the pages in parts, then the checksum with nothing left."""
    pages, found = content[:-32], []
    for begin in range(0, len(pages), size):
        blob = pages[begin : begin + size]
        left = len(pages) - begin - len(blob)
        found.append(_line(blob, remaining_bytes=str(left) if left else "0", **more))
    return [*found, _line(content[-32:], **more)]


def _line(blob: bytes, **more: str) -> bytes:
    return json.dumps({"result": {"blob": base64.b64encode(blob).decode(), **more}}).encode() + b"\n"


def received(answer: bytes) -> tuple[Received, bytes]:
    target = io.BytesIO()
    return etcd_snapshot.receive(io.BytesIO(answer), target), target.getvalue()


def test_the_file_is_what_was_sent() -> None:
    found, content = received(b"".join(lines(SNAPSHOT, version="3.6.0")))
    assert (content, found) == (SNAPSHOT, Received(len(SNAPSHOT), "3.6.0"))
    assert etcd_snapshot.check(io.BytesIO(content)) == hashlib.sha256(SNAPSHOT).hexdigest()


def test_names_in_either_spelling_and_empty_lines() -> None:
    sent = b"\n".join(each.replace(b"remaining_bytes", b"remainingBytes") for each in lines(SNAPSHOT))
    assert received(sent)[1] == SNAPSHOT


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (b"", "breaks off after 0 bytes"),
        (b"".join(lines(SNAPSHOT)[:1]), "breaks off after 4096 bytes"),
        (b"<html>\n", "is not etcd"),
        (b"[]\n", "is not etcd"),
        (b'{"result": []}\n', "is not etcd"),
        (b'{"result": {"blob": "?"}}\n', "is not etcd"),
        (b'{"result": {"blob": 1}}\n', "is not etcd"),
        (b'{"result": {"remaining_bytes": "x"}}\n', "is not etcd"),
        (b'{"result": {"remaining_bytes": []}}\n', "is not etcd"),
        (b'{"error": {"message": "etcdserver: permission denied"}}\n', "it answers: etcdserver: permission denied"),
        (b'{"message": "etcdserver: no space"}\n', "it answers: etcdserver: no space"),
        (b"x" * (etcd_snapshot.MOST_LINE + 2), "too long"),
    ],
)
def test_what_is_no_snapshot_is_refused(answer: bytes, part: str) -> None:
    with pytest.raises(SnapshotError, match=part):
        received(answer)


def test_an_error_in_the_middle_is_told() -> None:
    sent = [*lines(SNAPSHOT)[:2], b'{"error": {"code": 14, "message": "etcdserver: server stopped"}}\n']
    with pytest.raises(SnapshotError, match="server stopped"):
        received(b"".join(sent))


@given(st.binary(max_size=2000))
def test_whatever_answers_is_a_snapshot_or_refused(answer: bytes) -> None:
    with suppress(SnapshotError):
        received(answer)


@given(st.integers(0, len(SNAPSHOT) - 1), st.integers(1, 255))
def test_no_changed_byte_passes(place: int, flip: int) -> None:
    changed = bytearray(SNAPSHOT)
    changed[place] ^= flip
    with pytest.raises(SnapshotError, match="checksum at its end"):
        etcd_snapshot.check(io.BytesIO(changed))


@given(st.integers(1, len(SNAPSHOT)))
def test_no_cut_file_passes(cut: int) -> None:
    with pytest.raises(SnapshotError):
        etcd_snapshot.check(io.BytesIO(SNAPSHOT[:-cut]))
