# SPDX-License-Identifier: Apache-2.0
"""What an instance remembers survives being written and read, and is refused when it is damaged."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import uuid
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import stored_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import (
    MOST_LEFT,
    EtcdMemberState,
    EtcdState,
    LeftFolder,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import Claim, TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    FORMAT,
    Journal,
    LastBackup,
    RestoreState,
    State,
    from_files,
    to_files,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import ENCRYPTION_KEY, OWNER, state
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(max_size=12)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
ETCD = st.builds(EtcdState, token=TEXT, generation=st.integers(1, 9), bootstrapped=st.booleans(), storage=TEXT)
UIDS = st.dictionaries(TEXT, TEXT, max_size=3)
RESTORES = st.builds(
    RestoreState,
    **dict.fromkeys(("name", "series", "backup", "before", "started", "token", "step"), TEXT),
    **dict.fromkeys(("members", "prepared", "held", "replaced", "aside"), TEXTS),
    counts=st.dictionaries(TEXT, st.integers(0, 9), max_size=2),
    **dict.fromkeys(("generation", "bump", "revision"), st.integers(1, 9)),
    former=ETCD,
    **dict.fromkeys(("closed", "undoing", "came_back"), st.booleans()),
)
STATES = st.builds(
    State,
    owner=TEXT,
    version=TEXT,
    etcd=ETCD,
    authorities=st.dictionaries(
        st.sampled_from(["karmada-ca", "etcd-ca", "front-proxy-ca"]),
        st.builds(KeyPair, certificate=st.binary(max_size=9), key=st.binary(max_size=9)),
    ),
    service_account_key=st.binary(max_size=9),
    encryption_key=TEXT,
    endpoint_host=TEXT,
    service_subnet=TEXT,
    journal=st.builds(Journal, operation=TEXT, run=TEXT, started=TEXT, finished=TEXT, step=TEXT),
    owned=st.dictionaries(TEXT, UIDS, max_size=3),
    members=st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    hosts=st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    document=st.none() | st.dictionaries(TEXT, TEXT, max_size=2),
    collection=TEXT,
    digests=st.dictionaries(TEXT, st.from_regex("sha256:[0-9a-f]{64}", fullmatch=True), max_size=2),
    restarts=st.dictionaries(TEXT, st.integers(1, 9), max_size=2),
    restarts_due=st.lists(TEXT, max_size=2).map(tuple),
    backup_key=st.binary(max_size=9),
    backups=st.dictionaries(
        TEXT,
        st.builds(
            LastBackup,
            name=TEXT,
            started=TEXT,
            **dict.fromkeys(("size", "revision", "duration", "allowed", "epoch"), st.integers()),
        ),
        max_size=2,
    ),
    restore=st.none() | RESTORES | st.builds(replace, RESTORES, former_restore=RESTORES),
)


@given(STATES)
def test_what_is_written_is_read_back(before: State) -> None:
    assert from_files(to_files(before), "here") == before


@given(STATES)
def test_the_same_state_is_written_the_same(before: State) -> None:
    """Else a run with nothing to change would write."""
    assert to_files(from_files(to_files(before), "here")) == to_files(before)


@given(STATES)
def test_file_names_are_keys_that_a_secret_can_have(before: State) -> None:
    assert all(name.replace("-", "").replace(".", "").isalnum() for name in to_files(before))


REQUIRED = sorted(to_files(state()))


@pytest.mark.parametrize("name", [each for each in REQUIRED if not each.endswith("-ca.key")])
def test_a_missing_file_is_refused(name: str) -> None:
    files = {key: content for key, content in to_files(state()).items() if key != name}
    with pytest.raises(ProblemsError, match="state cannot be read") as refused:
        from_files(files, "Secret karmada/prod-installer-state")
    assert "prod-installer-state" in refused.value.problems[0].where


@pytest.mark.parametrize("name", [each for each in REQUIRED if each.endswith(".json")])
@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b"7", b'"text"', b"\xff"], ids=str)
def test_a_damaged_file_is_refused(name: str, content: bytes) -> None:
    with pytest.raises(ProblemsError, match="state cannot be read"):
        from_files({**to_files(state()), name: content}, "here")


def test_no_refusal_shows_a_key() -> None:
    files = to_files(state())
    newer = {**json.loads(files["instance.json"]), "format": FORMAT + 1, "collection": "9.8.7"}
    files["instance.json"] = json.dumps(newer).encode()
    with pytest.raises(ProblemsError) as refused:
        from_files(files, "here")
    assert f"9.8.7 of the collection wrote it, in format {FORMAT + 1}; this one knows {FORMAT}" in str(refused.value)
    assert state().encryption_key not in str(refused.value)
    assert "PRIVATE" not in str(refused.value)


def recorded() -> dict[str, bytes]:
    """What the collection wrote in format 1: all but the keys, which are made anew."""
    plain = json.loads((Path(__file__).parent / "state_format_1.json").read_text())
    plain["instance.json"]["encryptionKey"] = ENCRYPTION_KEY
    keys = {name: content for name, content in to_files(state()).items() if not name.endswith(".json")}
    return {**{name: json.dumps(content).encode() for name, content in plain.items()}, **keys}


def test_a_state_of_the_first_format_is_read_whole_and_what_it_did_not_have_is_empty() -> None:
    found = from_files(recorded(), "here")
    assert found.collection == ""
    assert found.authorities == state().authorities
    assert (found.encryption_key, found.service_account_key) == (ENCRYPTION_KEY, state().service_account_key)
    assert found.uids("host") == {"uid-1", "uid-2"}
    assert (found.etcd.bootstrapped, found.etcd.storage, found.version) == (True, "volumeClaim", "v1.18.2")
    assert list(found.members) == ["m1"]
    assert found.document
    assert not found.journal.interrupted
    assert found.digests == {}


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "A" * 64, "sha256:" + "a" * 65, None, 1, ["sha256:"]])
def test_what_is_compared_with_a_digest_has_to_be_one(digest: Any) -> None:
    files = to_files(state())
    for digests in ({"docker.io/karmada/karmada-webhook:v1.18.2": digest}, [digest]):
        changed = json.dumps({**json.loads(files["instance.json"]), "digests": digests}).encode()
        with pytest.raises(ProblemsError, match="digests is not a record of images"):
            from_files({**files, "instance.json": changed}, "here")


def test_it_is_written_in_the_new_format_without_losing_anything() -> None:
    before = from_files(recorded(), "here")
    files = to_files(before)
    assert json.loads(files["instance.json"])["format"] == FORMAT
    assert from_files(files, "here") == before
    assert {*recorded(), "members.json"} == set(files)


def test_of_a_backup_from_before_format_15_nobody_says_that_no_place_could_use_it() -> None:
    last = LastBackup("b", "2026-11-25T02:00:00+00:00", 9, 8, 7)
    files = to_files(replace(state(), backups={"nightly": last}, claim=Claim(2, "aa")))
    plain = json.loads(files["instance.json"])
    del plain["backups"]["nightly"]["epoch"]
    found = from_files({**files, "instance.json": json.dumps({**plain, "format": 14}).encode()}, "here")
    assert found.may_be_taken_over(found.backups["nightly"])


def test_of_a_restore_and_a_move_from_before_format_18_the_revision_was_not_noted() -> None:
    part = RestoreState("back", "nightly", "b", "2026-11-25T02:41:00+00:00", "0d6c", 2, 10**9, state().etcd, revision=7)
    taken = TakeOverState("disk", "b", "there/prod", revision=9)
    upon = replace(part, generation=3, former_restore=part)
    files = to_files(replace(state(), restore=upon, taken_over=taken))
    plain = json.loads(files["instance.json"])
    for record in (plain["restore"], plain["restore"]["former_restore"], plain["takenOver"]):
        del record["revision"]
    found = from_files({**files, "instance.json": json.dumps({**plain, "format": 17}).encode()}, "here")
    assert found.restore == replace(upon, revision=0, former_restore=replace(part, revision=0))
    assert found.taken_over == replace(taken, revision=0)


def test_of_etcd_from_before_format_19_the_cluster_is_noted_with_the_next_look() -> None:
    files = to_files(replace(state(), etcd=replace(state().etcd, cluster="c1")))
    plain = json.loads(files["instance.json"])
    del plain["etcd"]["cluster"]
    found = from_files({**files, "instance.json": json.dumps({**plain, "format": 18}).encode()}, "here")
    assert found.etcd == state().etcd


def test_of_etcd_from_before_format_20_nobody_knows_what_members_have_left() -> None:
    left = LeftFolder("prod-etcd-1", "gen-1", "1-2")
    files = to_files(replace(state(), etcd=replace(state().etcd, left=(left,))))
    assert from_files(files, "here").etcd.left == (left,)
    plain = json.loads(files["instance.json"])
    del plain["etcd"]["left"]
    found = from_files({**files, "instance.json": json.dumps({**plain, "format": 19}).encode()}, "here")
    assert found.etcd == state().etcd


def test_what_members_have_left_is_known_by_the_volume_and_bounded() -> None:
    member = EtcdMemberState("prod-etcd-1", "a2", "v2", added=True)
    etcd = replace(state().etcd, members=(member,))
    older, here = LeftFolder("prod-etcd-1", "gen-1", "v1"), LeftFolder("prod-etcd-1", "gen-1-a1", "v2")
    other = LeftFolder("prod-etcd-2", "gen-1", "v3")
    found = etcd.with_left(older).with_left(other).with_left(here).with_left(here)
    assert found.left == (other, here), "the volume that had the first one is gone"
    assert found.left_beside() == [here], "no member uses the other one's volume"
    assert replace(found, members=(replace(member, volume="v4"),)).left_beside() == [], "its volume is gone"
    for number in range(MOST_LEFT):
        found = found.with_left(LeftFolder("prod-etcd-1", f"gen-1-b{number}", "v2"))
    assert len(found.left) == MOST_LEFT
    assert other not in found.left


def test_a_cluster_is_noted_once_and_of_members_that_are_on_record() -> None:
    etcd = replace(state().etcd, members=(EtcdMemberState("one", "a1"), EtcdMemberState("two")))
    assert etcd.cluster_of("c1", {"a1", "a2"}) == "c1"
    assert etcd.cluster_of("c1", {"b1", "b2"}) == "", "a member on record is not known there"
    assert etcd.cluster_of("", ()) == ""
    assert replace(etcd, cluster="c0").cluster_of("c1", {"a1", "a2"}) == "c0"


@pytest.mark.parametrize("format_", [0, -1, None, "1", 1.5, FORMAT + 1])
def test_only_formats_that_are_known_are_read(format_: Any) -> None:
    files = recorded()
    files["instance.json"] = json.dumps({**json.loads(files["instance.json"]), "format": format_}).encode()
    with pytest.raises(ProblemsError, match="state cannot be read"):
        from_files(files, "here")


def test_a_field_of_a_later_version_is_refused_and_not_dropped() -> None:
    files = to_files(state())
    for name in ("instance.json", "journal.json"):
        plain = json.loads(files[name])
        (plain["etcd"] if name == "instance.json" else plain)["future"] = 1
        with pytest.raises(ProblemsError, match="future"):
            from_files({**files, name: json.dumps(plain).encode()}, "here")


def test_a_state_shows_nothing_of_what_it_holds() -> None:
    found = state()
    for shown in (repr(found), str(found), f"{found}", repr({"state": found})):
        assert "PRIVATE" not in shown
        assert found.encryption_key not in shown


@given(STATES, UIDS, st.sampled_from(["host", "member/m1"]))
def test_records_are_added_and_forgotten_one_cluster_at_a_time(
    before: State, uids: dict[str, str], cluster: str
) -> None:
    after = before.with_owned(cluster, uids)
    assert after.uids(cluster) >= set(uids.values())
    gone = after.without_owned(cluster, set(uids))
    assert not set(gone.owned.get(cluster, {})) & set(uids)
    for other in set(before.owned) - {cluster}:
        assert after.owned[other] == gone.owned[other] == before.owned[other]
    assert replace(after, owned=before.owned) == before


def test_a_member_that_left_is_forgotten_with_what_was_on_it() -> None:
    record: dict[str, Any] = {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}
    found = state(members={"m1": record, "m2": record}, owned={"host": {"a": "1"}, "member/m1": {"b": "2"}})
    left = found.without_member("m1")
    assert set(left.members) == {"m2"}
    assert left.owned == {"host": {"a": "1"}}


def test_a_member_that_left_is_not_named_as_one_that_may_follow_another_place() -> None:
    taken = TakeOverState("disk", "b1", "there/prod", fenced=True, unfenced=("m1", "m2"))
    found = state(members={"m1": {}, "m2": {}}, taken_over=taken).without_member("m1")
    assert found.taken_over == replace(taken, unfenced=("m2",))


@pytest.mark.parametrize(
    ("journal", "interrupted"),
    [
        (Journal(), False),
        (Journal(operation="install", started="t"), True),
        (Journal(operation="install", started="t", finished="t"), False),
    ],
)
def test_an_operation_without_an_end_was_interrupted(journal: Journal, *, interrupted: bool) -> None:
    assert journal.interrupted is interrupted


def test_the_record_of_five_thousand_members_fits_into_a_secret() -> None:
    names = [f"member-{number:04}" for number in range(5000)]
    entries = [{"name": name, "mode": "Push", "secretRef": {"name": name}, "onLeave": "Retain"} for name in names]
    objects = {
        name: [registration.namespace_on_member(OWNER), *registration.objects_on_member(name, OWNER, "karmada/prod")]
        for name in names
    }
    large = state(
        members={entry["name"]: registration.record(MemberEntry(entry)) for entry in entries},
        owned={f"member/{name}": {str(Ref.of(each)): str(uuid.uuid4()) for each in objects[name]} for name in names},
        document={"spec": {"members": entries}},
    )
    files = to_files(large)
    assert sum(map(len, files.values())) < 1024 * 1024
    assert from_files(files, "here") == large
    assert to_files(large) == files, "what is the same is not written again"


def test_a_packed_file_that_is_damaged_is_told() -> None:
    files = to_files(state(owned={"host": {f"Secret a/{number}": str(uuid.uuid4()) for number in range(3000)}}))
    (name,) = [each for each in files if each.endswith(".gz")]
    for damaged in (files[name][:100], b"x" * 100, b""):
        with pytest.raises(ProblemsError, match="the installer's state cannot be read"):
            from_files({**files, name: damaged}, "here")


def test_one_that_would_fill_the_memory_is_refused_before_it_does() -> None:
    """Of such zeros a gigabyte fits a Secret."""
    machine = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(machine.compress(bytes(1 << 20)) for _ in range(256)), machine.flush()])
    files = {name: content for name, content in to_files(state()).items() if name != "owned.json"}
    tracemalloc.start()
    try:
        with pytest.raises(ProblemsError, match="cannot be read: it is larger than 32 MiB"):
            from_files({**files, "owned.json.gz": bomb}, "here")
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_the_bound_is_that_of_all_files_together(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{name}.gz": gzip.compress(name.encode() * 100) for name in ("a", "b")} | {"c": b"c" * 100}
    monkeypatch.setattr(stored_files, "MOST", 300)
    assert stored_files.unpacked(files) == {name: name.encode() * 100 for name in ("a", "b", "c")}
    monkeypatch.setattr(stored_files, "MOST", 299)
    for order in (list(files), list(reversed(files))):
        with pytest.raises(ValueError, match="it is larger than"):
            stored_files.unpacked({name: files[name] for name in order})


def test_few_bytes_that_become_many_objects_are_refused() -> None:
    many = b"[" + b"{}," * stored_files.MOST_VALUES + b"{}]"
    with pytest.raises(ProblemsError, match="cannot be read: it has more than 1000000 values"):
        from_files({**to_files(state()), "owned.json": many}, "here")


@pytest.mark.parametrize("name", [each for each in REQUIRED if each.endswith(".json")])
@pytest.mark.parametrize("depth", [101, 2_000, 200_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_brackets_inside_each_other_end_no_run(name: str, depth: int, brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    files = {**to_files(state()), name: opening * depth + b"1" + closing * depth}
    with pytest.raises(ProblemsError, match="cannot be read: it is nested too deep"):
        from_files(files, "here")


def test_a_document_may_be_as_deep_as_anybody_writes_one() -> None:
    deep: Any = 1
    for _ in range(stored_files.MOST_DEPTH - 1):
        deep = [deep]
    found = state(document={"spec": deep})
    assert from_files(to_files(found), "here") == found
