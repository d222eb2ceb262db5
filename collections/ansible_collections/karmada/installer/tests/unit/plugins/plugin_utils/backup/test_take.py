# SPDX-License-Identifier: Apache-2.0
"""What a snapshot of a member has to have; how a whole backup is taken is in the contract tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests
from ansible_collections.karmada.installer.plugins.module_utils.backup_folder import Folder
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import record, take, targets, trial, verification
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Level, Purpose
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import DirectoryTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.trial import Programs
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import Content
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    MOST_SERIES,
    LastBackup,
    RestoreState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.backup.test_record import SAMPLE
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.backup_series import document
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

SIZE = 3 << 20


class Etcd:
    """Three members; the follower lags behind until it is asked for what a majority has acknowledged."""

    def __init__(self) -> None:
        self.url, self.asked = "", list[tuple[str, str]]()

    def status(self) -> list[EndpointStatus]:
        return [
            EndpointStatus(
                f"https://{name}:2379", healthy=True, version="3.6.16", leader=name == "a", revision=at, db_size=SIZE
            )
            for name, at in (("a", 90), ("b", 40), ("c", 40))
        ]

    def at(self, url: str) -> Etcd:
        self.url = url
        return self

    def revision(self) -> int:
        self.asked.append(("revision", self.url))
        return 90

    def snapshot(self, into: BinaryIO) -> None:
        self.asked.append(("snapshot", self.url))
        into.write(b"database")


def test_a_follower_catches_up_before_it_sends_and_a_snapshot_that_is_older_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    etcd = Etcd()
    monkeypatch.setattr(access, "connect", lambda _run: etcd)
    monkeypatch.setattr(access, "names", lambda _run: {})
    monkeypatch.setattr(take, "programs", lambda _run: Programs(tmp_path / "etcd", tmp_path / "etcdutl"))
    for name in ("etcd", "etcdutl"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(verification, "check", lambda *_: "digest")
    monkeypatch.setattr(trial, "run", lambda *_: '{"revision": 40, "totalKey": 3}')
    run = fake_run(samples.document({}), FakeCluster("host"), stored=samples.state(backup_key=record.new_signing_key()))
    wanted = Wanted.of(backups.resolved([document()], run.deployment)[0])
    (tmp_path / "backups").mkdir()
    with pytest.raises(ProblemsError, match="revision 40, and the member had revision 90 before") as caught:
        take.backup(run, wanted, DirectoryTarget("prod", tmp_path / "backups", ""), Purpose.SCHEDULED)
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP
    assert [each for each, _ in etcd.asked] == ["revision", "snapshot"]
    assert {url for _, url in etcd.asked} <= {"https://b:2379", "https://c:2379"}


def test_a_place_without_room_is_told_before_a_member_sends_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    etcd = Etcd()
    monkeypatch.setattr(access, "connect", lambda _run: etcd)
    run = fake_run(samples.document({}), FakeCluster("host"), stored=samples.state(backup_key=record.new_signing_key()))
    wanted = Wanted.of(backups.resolved([document()], run.deployment)[0])
    target = DirectoryTarget("prod", tmp_path, "")
    monkeypatch.setattr(Folder, "free", lambda _self: SIZE - 1)
    with pytest.raises(ProblemsError, match="a backup takes 3 MiB there, and 2 MiB are free"):
        take.backup(run, wanted, target, Purpose.SCHEDULED)
    assert etcd.asked == []


@pytest.mark.parametrize("purpose", [Purpose.SCHEDULED, Purpose.REQUESTED])
def test_one_that_a_restore_overtakes_is_not_begun_anew_of_the_quarantine_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purpose: Purpose
) -> None:
    """It would be the newest of its series after the way back, of an etcd that nobody uses."""
    run, wanted, target, attempts = overtaken(tmp_path, monkeypatch, generation=2)
    if purpose is Purpose.SCHEDULED:
        with pytest.raises(ProblemsError, match="a restore holds the control plane; the release takes one") as caught:
            take.backup(run, wanted, target, purpose)
        assert caught.value.problems[0].reason is Reason.QUARANTINED
        assert (attempts, target.names(), run.state.backups) == ([1], [], {})
    else:
        take.backup(run, wanted, target, purpose)
        assert attempts == [1, 2]


def test_one_of_the_etcd_before_a_restore_is_a_backup_though_that_has_begun_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, wanted, target, attempts = overtaken(tmp_path, monkeypatch, generation=1)
    made = take.backup(run, wanted, target, Purpose.SCHEDULED)
    assert (attempts, run.state.backups["nightly"].name) == ([1], made.record.name)


def overtaken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> tuple[Run, Wanted, DirectoryTarget, list[int]]:
    """A control plane of which a restore is begun while its backup is proved, and the generation of etcd at the end of
    that; last the attempts that are made, by the generation that each begins with.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setattr(targets, "read_back", lambda *_: None)
    state = samples.state(backup_key=record.new_signing_key())
    run = fake_run(samples.document({}), FakeCluster("host"), stored=state)
    (folder / "backups").mkdir()
    target = DirectoryTarget("prod", folder / "backups", "")
    wanted = Wanted.of(backups.resolved([document()], run.deployment)[0])
    attempts = list[int]()

    def taken(attempt: take._Attempt, *_: Any) -> Any:
        attempts.append(run.state.etcd.generation)
        found = replace(run.state.etcd, generation=generation)
        restore = RestoreState(
            "back", "nightly", "b", "2026-11-25T02:00:00+00:00", "0d6c", 2, 10**9, state.etcd, step="Compare"
        )
        with run.recording():
            run.save(replace(run.state, etcd=found, restore=restore))
        return replace(SAMPLE, name=attempt.name)

    monkeypatch.setattr(take._Attempt, "fetched", lambda _attempt: None)
    monkeypatch.setattr(take._Attempt, "take", taken)
    return run, wanted, target, attempts


class Counting:
    """Member that counts at one revision, and has discarded all others."""

    def count_below(self, prefix: bytes, revision: int) -> int:
        if revision != 90:
            raise EtcdError(Cause.WRONG, "required revision has been compacted", etcd_requests.OUT_OF_RANGE)
        return 2 if prefix == verification.COUNTED["works"] else 0


def compared(run: Any, content: Content, *, last: bool = True) -> tuple[Level, list[Problem]]:
    """Level of a content of which no hash can be compared, and what is told."""
    etcd: Any = Etcd()
    sent = take.Sent(Path(), etcd, [], 90, lambda _: None, lambda at: take.counts_of(cast("Any", Counting()), at))
    wanted: Any = None
    attempt = take._Attempt(run, wanted, wanted, Path(), take.Beginning.now(run.state), last=last)
    attempt._look_at_sentinels(content)
    return attempt._compared(content, None, sent), attempt.problems


def content(**changes: Any) -> Content:
    counts = {**dict.fromkeys(verification.COUNTED, 0), "works": 2}
    return replace(Content("c", 90, 3, Hash(90, 7), counts, ()), **changes)


def test_a_proof_that_was_not_made_is_not_on_record() -> None:
    """Without a hash, numbers of keys are a proof only where a member has counted them."""
    run = fake_run(samples.document({}), FakeCluster("host"), stored=samples.state())
    level, (told,) = compared(run, content())
    assert (level, told.reason) == (Level.COUNTS, Reason.CHECK_SKIPPED)
    level, (told,) = compared(run, content(revision=91))
    assert (level, told.reason) == (Level.RESTORED, Reason.CHECK_SKIPPED)
    assert "not compared with a member" in told.what
    with pytest.raises(ProblemsError, match="other numbers of keys: 0 secrets and not 1"):
        compared(run, content(counts={**content().counts, "secrets": 1}))
    with pytest.raises(take.AnewError):
        compared(run, content(), last=False)


def test_a_secret_in_plain_is_told_where_secrets_are_to_be_encrypted() -> None:
    plain = content(sentinels={"secrets": b"k8s\0"})
    state = samples.state()
    for provider, told in (("secretbox", ["InvalidSecret"]), ("identity", [])):
        run = fake_run(samples.document({"encryption": {"provider": provider}}), FakeCluster("host"), stored=state)
        _, problems = compared(run, plain)
        assert [each.reason.value for each in problems] == [*told, "CheckSkipped"]
    with pytest.raises(ProblemsError, match="one of its clusters is no object"):
        compared(run, content(sentinels={"clusters": b"\0\0"}))


class Electing:
    """Member that has no leader for a while, or never."""

    def __init__(self, code: int, times: int) -> None:
        self.code, self.left, self.asked = code, times, 0

    def revision(self) -> int:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise EtcdError(Cause.WRONG, "leader changed", self.code)
        return 90


def test_members_that_elect_a_leader_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take, "_LOOK_SECONDS", 0.0)
    assert take._acknowledged(cast("Any", Electing(etcd_requests.UNAVAILABLE, 3))) == 90
    refuses = Electing(etcd_requests.OUT_OF_RANGE, 1)
    with pytest.raises(EtcdError):
        take._acknowledged(cast("Any", refuses))
    assert refuses.asked == 1
    monkeypatch.setattr(take, "ELECTION_SECONDS", -1.0)
    with pytest.raises(EtcdError):
        take._acknowledged(cast("Any", Electing(etcd_requests.UNAVAILABLE, 3)))


def test_a_series_without_a_document_is_forgotten_and_no_number_of_them_is_more_than_a_state_holds() -> None:
    """A name for each change of a system comes to more in weeks than a state is read with."""

    def last(name: str, hour: int) -> LastBackup:
        return LastBackup(name, f"2026-11-25T{hour:02}:00:00+00:00", 1, 1, 1)

    before = {"nightly": last("n1", 2), "before-1234": last("x", 1)}
    assert take.with_last(before, "nightly", last("n2", 3), ["nightly", "weekly"]) == {"nightly": last("n2", 3)}
    assert take.with_last(before, "weekly", last("w", 3), None).keys() == {"nightly", "before-1234", "weekly"}
    many = {f"before-{number}": last("x", 1) for number in range(MOST_SERIES)} | {"nightly": last("n1", 2)}
    # Its own clock may be behind.
    kept = take.with_last(many, "weekly", last("w", 0), None)
    assert len(kept) == MOST_SERIES
    assert {"nightly", "weekly"} < kept.keys()
