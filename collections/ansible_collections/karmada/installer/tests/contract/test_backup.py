# SPDX-License-Identifier: Apache-2.0
"""A whole backup of a real etcd into a directory: taken, listed, verified, restored by hand, and what goes wrong."""

from __future__ import annotations

import base64
import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    encryption,
    record,
    series,
    take,
    verify,
    workplace,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import (
    KEYS,
    RECORD,
    SNAPSHOT,
    Level,
    Purpose,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import DirectoryTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Directory, Retention, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until

KEY = pyrage.x25519.Identity.generate()
#: What must be nowhere in plain.
CANARY = b"canary-of-a-secret-5f3a"
NIGHTLY = Wanted("nightly", (str(KEY.to_public()),), schedule_of("", ""), False, Directory(""), Retention(24, 7, 4))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path_factory.mktemp("etcd") / "etcd", VERSIONS[0]).voters(3)
        for prefix in COUNTED.values():
            found.client().put_if_absent(prefix + b"one", b"k8s:enc:" + CANARY)
        # While the lab has its own cache: in that of a test it would build them anew.
        programs(found.version)
        yield found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's cache, which is where plain files lie meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def run(etcd: Cluster, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(access, "connect", lambda _run: etcd.client())
    monkeypatch.setattr(take, "programs", lambda _run: programs(etcd.version))
    members = tuple(EtcdMemberState(f"prod-etcd-{each}") for each in range(3))
    stored = samples.state(
        etcd=EtcdState(token="t", storage="volumeClaim", bootstrapped=True, members=members),
        encryption_key=base64.b64encode(CANARY.ljust(32)).decode(),
    )
    found = fake_run(samples.document({}), FakeCluster("host cluster"), stored=stored)
    found.said = []  # type: ignore[attr-defined]
    found.say = found.said.append  # type: ignore[attr-defined]
    yield found
    found.close()


@pytest.fixture
def target(tmp_path: Path) -> DirectoryTarget:
    (tmp_path / "backups").mkdir()
    return DirectoryTarget("prod", tmp_path / "backups", "")


def taken(run: Run, target: DirectoryTarget) -> record.Record:
    target.check()
    return take.backup(run, NIGHTLY, target, Purpose.REQUESTED).record


def content(target: DirectoryTarget, name: str, file: str) -> bytes:
    sink = io.BytesIO()
    target.get(name, file, sink)
    return sink.getvalue()


def plain(target: DirectoryTarget, name: str, file: str) -> bytes:
    sink = io.BytesIO()
    encryption.decrypt(io.BytesIO(content(target, name, file)), sink, [KEY], file)
    return sink.getvalue()


def test_a_backup_is_proved_listed_and_noted(run: Run, target: DirectoryTarget, etcd: Cluster) -> None:
    journal = run.state.journal
    made = taken(run, target)
    assert run.state.journal == journal, "no operation of the control plane"
    assert made.levels == (Level.TRAILER, Level.STATUS, Level.RESTORED, Level.HASH)
    assert made.counts == dict.fromkeys(COUNTED, 1)
    assert made.clusters == ("one",)
    assert made.members == ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
    assert made.revision == etcd.client().status()[0].revision
    assert made.versions.etcd == etcd.version
    assert set(made.authorities) == set(run.state.authorities)
    assert made.dirty == ""
    (listed,) = series.found(target, series.signer(run))
    assert (listed.record, listed.ours) == (made, True)
    last = run.state.backups["nightly"]
    assert (last.name, last.size, last.revision, last.allowed) == (made.name, made.size, made.revision, 7200)
    assert record.opened(content(target, made.name, RECORD), "here", {series.signer(run)}) == made


def test_a_member_that_is_away_and_a_run_that_was_killed_are_no_reason_to_have_no_backup(
    run: Run, target: DirectoryTarget, etcd: Cluster
) -> None:
    """They are a reason to say so: what was unfinished stands in the record."""
    away = etcd.members[2]
    with run.recording():
        run.save(replace(run.state, journal=Journal("install", "somebody", "2026-11-25T02:00:00+00:00", "", "etcd")))
    etcd.stop(away)
    try:
        until(lambda: sum(each.healthy for each in etcd.client().status()) == 2, "two members that lead without it")
        made = taken(run, target)
    finally:
        etcd.start(away, known=tuple(etcd.members), state="existing")
        etcd.wait_for_health()
    assert "install had not come to its end (etcd)" in made.dirty
    assert f"{away.client_url} was not healthy" in made.dirty
    assert made.levels[-1] is Level.HASH


def test_what_is_in_it_is_all_that_a_restore_needs(
    run: Run, target: DirectoryTarget, etcd: Cluster, tmp_path: Path
) -> None:
    made = taken(run, target)
    keys = tmp_path / "keys.json"
    keys.write_bytes(plain(target, made.name, KEYS))
    # Also the first backup has the key that signs all of them.
    assert run.state.backup_key
    assert verify.state_of(keys, "here") == replace(run.state, backups={})
    assert json.loads(keys.read_text())["document"] == run.deployment
    (tmp_path / "snapshot.db").write_bytes(plain(target, made.name, SNAPSHOT))
    command = [
        programs(etcd.version).etcdutl,
        "snapshot",
        "restore",
        tmp_path / "snapshot.db",
        f"--data-dir={tmp_path}/data",
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_nothing_secret_is_in_the_target_and_nothing_stays_here(
    run: Run, target: DirectoryTarget, home: Path, tmp_path: Path
) -> None:
    made = taken(run, target)
    stored = b"".join(path.read_bytes() for path in (tmp_path / "backups").rglob("*") if path.is_file())
    for each in (
        CANARY,
        run.state.encryption_key.encode(),
        run.state.service_account_key,
        run.state.backup_key,
        b"PRIVATE",
    ):
        assert each not in stored
    assert CANARY in plain(target, made.name, SNAPSHOT)
    assert list(workplace.folder().iterdir()) == []
    assert not any(CANARY.decode() in each for each in run.said)  # type: ignore[attr-defined]


def test_a_backup_is_verified_again(run: Run, target: DirectoryTarget) -> None:
    made = taken(run, target)
    assert verify.verify(run, target, made, []) == ["stored"]
    assert verify.verify(run, target, made, [KEY]) == [
        *("stored", "decrypted", Level.TRAILER, Level.STATUS, Level.RESTORED)
    ]
    with pytest.raises(ProblemsError, match="cannot be decrypted"):
        verify.verify(run, target, made, [pyrage.x25519.Identity.generate()])
    for other in (replace(made, hash=made.hash ^ 1), replace(made, total_keys=1), replace(made, revision=1)):
        with pytest.raises(ProblemsError, match="is not what its record says"):
            verify.verify(run, target, other, [KEY])
    with pytest.raises(ProblemsError, match=r"it is of etcd v3\.4\.1"):
        verify.verify(run, target, replace(made, versions=replace(made.versions, etcd="v3.4.1")), [KEY])


@pytest.mark.parametrize("file", [SNAPSHOT, KEYS])
@pytest.mark.parametrize("keys", [[], [KEY]], ids=["stored", "decrypted"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "gone", "other"])
def test_damage_in_the_target_is_found(
    run: Run, target: DirectoryTarget, tmp_path: Path, file: str, keys: list[Any], damage: str
) -> None:
    made = taken(run, target)
    path = tmp_path / "backups" / "prod" / made.name / file
    before = path.read_bytes()
    if damage == "other":
        sink = io.BytesIO()
        encryption.encrypt(io.BytesIO(b"something of mine"), sink, [KEY.to_public()])
        path.write_bytes(sink.getvalue())
    else:
        flipped = before[:-1000] + bytes([before[-1000] ^ 1]) + before[-999:]
        path.write_bytes({"flipped": flipped, "cut": before[:-1], "empty": b"", "gone": b""}[damage])
    if damage == "gone":
        path.unlink()
    with pytest.raises(ProblemsError) as caught:
        verify.verify(run, target, made, keys)
    reason = Reason.BACKUP_TARGET_UNUSABLE if damage == "gone" else Reason.INVALID_BACKUP
    assert caught.value.problems[0].reason is reason


def test_a_backup_by_somebody_else_is_listed_and_never_deleted(run: Run, target: DirectoryTarget) -> None:
    made = taken(run, target)
    other = replace(made, name=record.new_name("prod", made.start - timedelta(days=300), "1f3a9c"))
    text = record.signed(other, record.new_signing_key())
    target.put(other.name, RECORD, io.BytesIO(text), len(text))
    listed = series.found(target, series.signer(run))
    assert [(each.name, each.ours) for each in listed] == [(other.name, False), (made.name, True)]
    own = series.own(listed, "nightly", run.state)
    assert set(own) == {made.name}
    gone = series.delete_old(target, replace(NIGHTLY, retention=Retention(0, 0, 0)), own, (), datetime.now(UTC))
    assert gone.names == ()
    assert len(target.names()) == 2


def test_old_ones_go_after_a_success(run: Run, target: DirectoryTarget) -> None:
    first = taken(run, target)
    # Their order is that of the seconds in which they began.
    until(lambda: datetime.now(UTC).replace(microsecond=0) > datetime.fromisoformat(first.started), "the next second")
    second = taken(run, target)
    own = series.own(series.found(target, series.signer(run)), "nightly", run.state)
    assert series.delete_old(
        target, replace(NIGHTLY, retention=Retention(0, 0, 0)), own, (), datetime.now(UTC)
    ).names == (first.name,)
    assert target.names() == [second.name]


def changed_meanwhile(run: Run, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run gives etcd another member, as often, while a backup is taken."""
    stored, left = take._Attempt._stored, [times]

    def store(self: Any, *arguments: Any) -> Any:
        if left[0] and arguments[0] == KEYS:
            left[0] -= 1
            member = EtcdMemberState("prod-etcd-3", id=f"{left[0]:x}")
            with run.recording():
                run.save(replace(run.state, etcd=run.state.etcd.with_member(member)))
        return stored(self, *arguments)

    monkeypatch.setattr(take._Attempt, "_stored", store)


def test_members_that_change_meanwhile_begin_it_anew(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_meanwhile(run, 1, monkeypatch)
    made = taken(run, target)
    assert "prod-etcd-3" in made.members
    assert any("begun anew" in each for each in run.said)  # type: ignore[attr-defined]
    assert list(target._found()) == [made.name]


def test_members_that_change_each_time_end_it(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_meanwhile(run, 9, monkeypatch)
    with pytest.raises(ProblemsError, match="changed by other runs each time"):
        taken(run, target)
    assert target._found() == {}
    assert "nightly" not in run.state.backups


def test_a_revision_that_is_discarded_meanwhile_is_told(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take, "hash_of", lambda *_: None)
    target.check()
    found = take.backup(run, NIGHTLY, target, Purpose.SCHEDULED)
    assert found.record.levels[-1] is Level.COUNTS
    assert [each.reason for each in found.problems] == [Reason.CHECK_SKIPPED]
    monkeypatch.setattr(take, "counts_of", lambda *_: None)
    found = take.backup(run, NIGHTLY, target, Purpose.SCHEDULED)
    assert found.record.levels[-1] is Level.RESTORED
    assert [each.reason for each in found.problems] == [Reason.CHECK_SKIPPED]


def test_a_member_that_is_corrupt_is_no_proof(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = take.hash_of
    monkeypatch.setattr(take, "hash_of", lambda *given: replace(honest(*given), value=1))  # type: ignore[type-var]
    with pytest.raises(ProblemsError, match="its content differs from that of a member"):
        taken(run, target)
    assert target._found() == {}


def test_a_target_that_loses_data_has_no_backup(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "get", lambda _name, _file, into: into.write(b"other"))
    with pytest.raises(ProblemsError, match="does not come back as it was written"):
        taken(run, target)
    assert target._found() == {}


def test_what_a_killed_run_has_left_in_plain_is_swept(run: Run, target: DirectoryTarget, home: Path) -> None:
    left = workplace.folder() / "run-killed"
    left.mkdir(parents=True)
    (left / "snapshot.db").write_bytes(CANARY)
    (left / "holder").write_text(workplace.run_process.holder_identity().rpartition("/")[0] + "/1")
    other = workplace.folder() / "run-of-another-machine"
    other.mkdir()
    (other / "holder").write_text("elsewhere/boot/1/1")
    taken(run, target)
    assert list(workplace.folder().iterdir()) == [other]


def test_no_room_is_told_before_anything_is_asked_of_a_member(
    run: Run, target: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take, "COPIES", 1e12)
    with pytest.raises(ProblemsError, match=r"are needed, and .* are free"):
        taken(run, target)


def test_without_a_leader_nothing_is_taken(
    run: Run, target: DirectoryTarget, etcd: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent:
        def status(self) -> list[Any]:
            return [replace(each, message="it knows no leader", healthy=False) for each in etcd.client().status()]

    monkeypatch.setattr(access, "connect", lambda _run: Silent())
    with pytest.raises(ProblemsError, match="no member of etcd can be asked that has a leader"):
        taken(run, target)
