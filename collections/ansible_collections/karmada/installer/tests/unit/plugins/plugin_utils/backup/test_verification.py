# SPDX-License-Identifier: Apache-2.0
"""Proofs of a snapshot where the programs fail or contents differ. With real programs: the contract tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import trial, verification
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Level
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.trial import Programs
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import Content
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason

CONTENT = Content("c1", 100, 7, Hash(100, 7, 40), {}, ())


@pytest.mark.parametrize(
    ("live", "level"),
    [
        (Hash(100, 7, 40), Level.HASH),
        # of other revisions, or over what the other has discarded: neither proves nor refutes
        (Hash(100, 8, 41), Level.RESTORED),
        (Hash(101, 8, 40), Level.RESTORED),
        (None, Level.RESTORED),
    ],
)
def test_hashes_are_compared_where_they_can_be(live: Hash | None, level: Level) -> None:
    assert verification.compared(CONTENT, live) is level


@pytest.mark.parametrize("live", [None, Hash(100, 8, 41)])
def test_numbers_of_keys_prove_only_what_a_member_has_counted(live: Hash | None) -> None:
    content = replace(CONTENT, counts={**dict.fromkeys(verification.COUNTED, 0), "works": 3})
    assert verification.compared(content, live, {**content.counts}) is Level.COUNTS
    assert verification.compared(content, Hash(100, 7, 40), {}) is Level.HASH
    with pytest.raises(ValueError, match=r"at revision 100 a member has other numbers of keys: 4 works and not 3$"):
        verification.compared(content, live, {**content.counts, "works": 4})
    with pytest.raises(ValueError, match="None secrets and not 0"):
        verification.compared(content, live, {"works": 3})


@pytest.mark.parametrize("head", [b"k8s\0\n\x0f", b'{"apiVersion"', b"k8s:enc:secretb"])
def test_what_an_api_server_writes_is_an_object(head: bytes) -> None:
    verification.require_objects(replace(CONTENT, sentinels={"works": head}), "etcd of prod")
    assert not verification.is_in_plain(replace(CONTENT, sentinels={"works": head}))


@pytest.mark.parametrize("head", [b"", b"\0\0\0\0", b"k8s"])
def test_anything_else_is_none(head: bytes) -> None:
    with pytest.raises(ProblemsError, match="one of its works is no object") as caught:
        verification.require_objects(replace(CONTENT, sentinels={"clusters": b"{", "works": head}), "etcd of prod")
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP


def test_a_secret_in_plain_is_seen() -> None:
    assert verification.is_in_plain(replace(CONTENT, sentinels={"secrets": b"k8s\0\n"}))
    assert not verification.is_in_plain(replace(CONTENT, sentinels={"secrets": b"k8s:enc:secretb"}))


def test_another_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="00000008 at the member and 00000007 in the snapshot"):
        verification.compared(CONTENT, Hash(100, 8, 40))


def program(folder: Path, script: str) -> Programs:
    path = folder / "etcdutl"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Programs(folder / "etcd", path)


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("echo 'Error: file is broken' >&2; exit 1", "refuses it: Error: file is broken"),
        ("echo 'panic: page 7' >&2; echo 'goroutine 1' >&2; exit 2", "refuses it: panic: page 7"),
        ("exit 3", "refuses it: exit code 3"),
        ("kill -9 $$", "refuses it: exit code -9"),
        ("echo nothing", "tells nothing of it"),
        ("echo '{}'", "tells nothing of it"),
        ("""echo '{"revision": 9, "totalKey": 3}'""", "the member had revision 10 before"),
        ("""echo '{"revision": 10, "totalKey": 0}'""", "it has 0 keys"),
    ],
)
def test_what_etcdutl_says_is_told(tmp_path: Path, script: str, part: str) -> None:
    with pytest.raises(ProblemsError, match=part) as caught:
        verification.status(tmp_path / "snapshot.db", program(tmp_path, script), "etcd of prod", 10)
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PROGRAM_SECONDS", 0.2)
    with pytest.raises(ProblemsError, match="status does not come to an end"):
        verification.status(tmp_path / "snapshot.db", program(tmp_path, "exec /bin/sleep 60"), "here")


def test_programs_get_nothing_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd takes each of its flags from a variable, too."""
    monkeypatch.setenv("ETCD_DATA_DIR", "/elsewhere")
    script = """[ -z "$ETCD_DATA_DIR" ] && echo '{"revision": 10, "totalKey": 1}'"""
    status = verification.status(tmp_path / "snapshot.db", program(tmp_path, script), "here")
    assert status == verification.Status(revision=10, keys=1)
