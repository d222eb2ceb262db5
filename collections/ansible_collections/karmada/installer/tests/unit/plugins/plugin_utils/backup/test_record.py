# SPDX-License-Identifier: Apache-2.0
"""The record of a backup: what it holds comes back, and nobody else's or changed record is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import record
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import (
    AuthorityRecord,
    Level,
    Purpose,
    Record,
    StoredFile,
    Versions,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from hypothesis import given, settings
from hypothesis import strategies as st

KEY = record.new_signing_key()
SIGNER = record.signer_of(KEY)
SAMPLE = Record(
    name="prod-20261125t024100z-1f3a9c",
    series="nightly",
    deployment="prod",
    home="karmada-prod",
    owner="11111111-2222-3333-4444-555555555555",
    purpose=Purpose.SCHEDULED,
    started="2026-11-25T02:41:00+00:00",
    duration_seconds=12,
    files={
        record.SNAPSHOT: StoredFile(1200, "a" * 64, 1000, "b" * 64),
        record.KEYS: StoredFile(300, "c" * 64, 200, "d" * 64),
    },
    cluster_id="8e9e05c52164694d",
    revision=4711,
    hash=2190183088,
    total_keys=512,
    versions=Versions("v1.18.2", "v1.35.4", "v3.6.16", "0.1.0"),
    levels=(Level.TRAILER, Level.STATUS, Level.RESTORED, Level.HASH),
    recipients=("age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",),
    counts={"works": 12},
    members=("prod-etcd-0", "prod-etcd-1", "prod-etcd-2"),
    clusters=("member1",),
    authorities={"karmada-ca": AuthorityRecord("e" * 64, "2036-01-01T00:00:00+00:00")},
    encryption_provider="secretbox",
    mode="Container",
    host_cluster="host-uid",
    pins={"quay.io/coreos/etcd:v3.6.16": "sha256:" + "f" * 64},
)
TEXT = record.signed(SAMPLE, KEY)


def refusal(text: bytes, signers: Any = None) -> str:
    with pytest.raises(ProblemsError) as caught:
        record.opened(text, "prod/manifest.json", signers)
    (problem,) = caught.value.problems
    assert problem.reason is Reason.INVALID_BACKUP
    return str(problem)


def test_everything_comes_back() -> None:
    assert record.opened(TEXT, "here", {SIGNER}) == SAMPLE
    assert SAMPLE.size == 1500
    assert SAMPLE.start == datetime(2026, 11, 25, 2, 41, tzinfo=UTC)
    assert record.signed(record.opened(TEXT, "here"), KEY) == TEXT


TEXTS = st.text(st.characters(codec="utf-8", min_codepoint=32, max_codepoint=126), max_size=40)
COUNTS = st.dictionaries(TEXTS, st.integers(0, 2**62), max_size=5)


@given(TEXTS, COUNTS, st.lists(TEXTS, max_size=5), st.integers(0, 2**62))
def test_whatever_it_holds_comes_back(text: str, counts: dict[str, int], names: list[str], number: int) -> None:
    changed = replace(
        SAMPLE, series=text, dirty=text, counts=counts, members=tuple(names), clusters=tuple(names), revision=number
    )
    assert record.opened(record.signed(changed, KEY), "here", {SIGNER}) == changed


def test_a_record_of_another_key_is_in_lists_and_nowhere_else() -> None:
    other = record.signed(SAMPLE, record.new_signing_key())
    assert record.opened(other, "here").name == SAMPLE.name
    assert "was signed by a key that is not known here" in refusal(other, {SIGNER})
    assert refusal(TEXT, set()).startswith("prod/manifest.json: was signed")


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_a_changed_byte_is_refused_or_changes_nothing(place: int, flip: int) -> None:
    """A space may become another one; nothing that is read may."""
    changed = bytearray(TEXT)
    changed[place] ^= flip
    try:
        found = record.opened(bytes(changed), "here", {SIGNER})
    except ProblemsError:
        return
    assert found == SAMPLE


@given(
    st.sampled_from(sorted(json.loads(TEXT)["backup"])),
    st.one_of(st.none(), st.integers(), TEXTS, st.just([]), st.just({})),
)
@settings(max_examples=300)
def test_a_changed_field_is_refused(name: str, value: Any) -> None:
    whole = json.loads(TEXT)
    if whole["backup"][name] == value:
        return
    whole["backup"][name] = value
    refusal(json.dumps(whole).encode(), {SIGNER})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "Expecting value"),
        (b"{}", "backup is required"),
        (b"[1]", "must be a mapping"),
        (b"\xff\xfe", "no record of a backup"),
        (b"[" * 100_000, "no record of a backup"),
        (b" " * (record.MAX_BYTES + 1), "larger than 1 MiB"),
        (TEXT[:-1000], "no record of a backup"),
        (TEXT.replace(b'"Ed25519"', b'"none"'), "algorithm"),
    ],
)
def test_a_file_that_is_none_is_refused(text: bytes, part: str) -> None:
    assert part in refusal(text)


def signed_anyway(**changes: Any) -> bytes:
    """A record that no run writes, with a valid signature of our key."""
    content = {**json.loads(TEXT)["backup"], **changes}
    signature = {
        **json.loads(TEXT)["signature"],
        "value": record.base64.b64encode(record._private(KEY).sign(record._canonical(content))).decode(),
    }
    return json.dumps({"backup": content, "signature": signature}).encode()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"format": record.FORMAT_MOVED + 1}, "format"),
        ({"name": "../prod-20261125t024100z-1f3a9c"}, "is not the name of a backup of prod"),
        ({"deployment": "stage"}, "is not the name of a backup of stage"),
        ({"started": "yesterday"}, "started"),
        ({"started": "2026-13-25T02:41:00+00:00"}, "month must be in"),
        ({"files": {}}, "files"),
        ({"more": 1}, "more is not a field"),
    ],
)
def test_a_form_that_is_not_ours_is_refused_in_spite_of_its_signature(changes: dict[str, Any], part: str) -> None:
    assert part in refusal(signed_anyway(**changes), {SIGNER})


def test_names() -> None:
    start = datetime(2026, 11, 25, 2, 41, 7, tzinfo=UTC)
    name = record.new_name("prod", start, "00ff00")
    assert name == "prod-20261125t024107z-00ff00"
    assert record.is_name(name, "prod")
    assert not record.is_name(name, "prod-20261125t024107z")
    assert not record.is_name(f"{name}/..", "prod")
    assert record.is_name(
        record.new_name("prod-20261125t024107z-00ff00", start, "00ff00"), "prod-20261125t024107z-00ff00"
    )


def test_no_key_is_in_a_record() -> None:
    assert b"PRIVATE" not in TEXT
    assert record.signer_of(KEY).encode() in TEXT


def test_the_place_of_a_control_plane_that_was_moved_is_in_it_and_else_it_is_as_before() -> None:
    moved = replace(SAMPLE, claim="2.0a1b2c3d")
    text = record.signed(moved, KEY)
    assert record.opened(text, "here", {SIGNER}) == moved
    assert (json.loads(text)["backup"]["format"], json.loads(TEXT)["backup"]["format"]) == (2, 1)
    assert "claim" not in json.loads(TEXT)["backup"]
    assert "no record of a move" in refusal(record.signed(replace(SAMPLE, claim="2"), KEY))
    assert record.start_in(SAMPLE.name) == SAMPLE.start
    assert record.start_in("prod-99999999t999999z-1f3a9c") is None
    assert record.start_in("prod-b1") is None
