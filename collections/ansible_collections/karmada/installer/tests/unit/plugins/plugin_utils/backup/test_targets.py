# SPDX-License-Identifier: Apache-2.0
"""A directory as the place of backups, here and at the other end of a connection, as a pod serves a volume claim.

A bucket has the same promises, which the contract tests show.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_backup
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import record, series, targets
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT, StoredFile
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import DirectoryTarget, FolderTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import (
    S3,
    Directory,
    HostDirectory,
    Retention,
    VolumeClaim,
    Wanted,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support import served_folder
from ansible_collections.karmada.installer.tests.unit.support.backups_on_host import HostOfBackups
from botocore.response import StreamingBody
from botocore.stub import Stubber

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def name_at(start: datetime, deployment: str = "prod") -> str:
    return record.new_name(deployment, start, "1f3a9c")


NAME = name_at(NOW)


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryTarget:
    found = DirectoryTarget("prod", tmp_path, "site-a")
    found.check()
    return found


@pytest.fixture(params=["here", "served", "on a host", "on a host, in pieces"])
def target(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FolderTarget]:
    if request.param == "here":
        yield request.getfixturevalue("directory")
        return
    if request.param != "served":
        if "pieces" in request.param:
            monkeypatch.setattr(host_backup, "PIECE", 3)
            monkeypatch.setattr(host_backup, "INLINE", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
        host = HostOfBackups(tmp_path.parent)
        there = host.target(f"/{tmp_path.name}")
        there.check()
        yield there
        assert host.left == []
        return
    with served_folder.serving(tmp_path, "site-a/prod") as served:
        found = served.target()
        found.check()
        yield found
        found.close()


def put(target: targets.Target, name: str = NAME, *files: str, content: bytes = b"content") -> None:
    for file in files or (SNAPSHOT, KEYS, RECORD):
        target.put(name, file, io.BytesIO(content), len(content))


def told(error: pytest.ExceptionInfo[ProblemsError]) -> str:
    (problem,) = error.value.problems
    assert problem.reason is Reason.BACKUP_TARGET_UNUSABLE
    return str(problem)


def test_what_is_stored_comes_back_and_is_the_owners_alone(target: FolderTarget, tmp_path: Path) -> None:
    put(target)
    sink = io.BytesIO()
    target.get(NAME, SNAPSHOT, sink)
    assert sink.getvalue() == b"content"
    assert target.names() == [NAME]
    folder = tmp_path / "site-a" / "prod" / NAME
    assert {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()} == dict.fromkeys(
        (SNAPSHOT, KEYS, RECORD), 0o600
    )
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_record_it_does_not_exist(target: FolderTarget) -> None:
    put(target, NAME, SNAPSHOT, KEYS)
    assert target.names() == []
    assert target.abandoned(NOW) == []
    assert target.abandoned(NOW + timedelta(days=2)) == [NAME]
    put(target, NAME, RECORD)
    assert target.names() == [NAME]
    assert target.abandoned(NOW + timedelta(days=2)) == []


def test_nothing_is_overwritten(target: FolderTarget, tmp_path: Path) -> None:
    put(target)
    with pytest.raises(ProblemsError) as error:
        put(target, NAME, SNAPSHOT, content=b"other")
    assert "is there already" in told(error)
    assert (tmp_path / "site-a" / "prod" / NAME / SNAPSHOT).read_bytes() == b"content"


def test_the_record_goes_first(target: FolderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    put(target)
    removed: list[str] = []
    monkeypatch.setattr(target, "_remove", lambda _name, file: removed.append(file))
    target.delete(NAME)
    assert removed[0] == RECORD
    assert sorted(removed) == sorted((RECORD, SNAPSHOT, KEYS))


def test_what_goes_is_gone_with_its_folder(target: FolderTarget, tmp_path: Path) -> None:
    put(target)
    target.delete(NAME)
    target.delete(NAME)
    assert list((tmp_path / "site-a" / "prod").iterdir()) == []


def test_what_others_put_there_is_left_alone(target: FolderTarget, tmp_path: Path) -> None:
    folder = tmp_path / "site-a" / "prod"
    (folder / "notes").mkdir()
    (folder / "notes" / RECORD).write_text("{}")
    (folder / "README").write_text("mine")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / RECORD).write_text("{}")
    (folder / name_at(NOW + timedelta(hours=1))).symlink_to(elsewhere)
    put(target)
    (folder / NAME / "mine.txt").write_text("mine")
    assert target.names() == [NAME]
    target.delete(NAME)
    assert [each.name for each in (folder / NAME).iterdir()] == ["mine.txt"]
    assert DirectoryTarget("stage", tmp_path, "site-a").names() == []


def test_a_link_is_neither_read_nor_written(target: FolderTarget, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    folder = tmp_path / "site-a" / "prod" / NAME
    folder.mkdir(mode=0o700)
    (folder / SNAPSHOT).symlink_to(secret)
    with pytest.raises(ProblemsError):
        target.get(NAME, SNAPSHOT, io.BytesIO())
    with pytest.raises(ProblemsError):
        put(target, NAME, SNAPSHOT)
    assert secret.read_text() == "secret"


def test_a_name_that_is_no_moment_is_never_deleted(target: FolderTarget) -> None:
    put(target, "prod-99999999t999999z-1f3a9c", SNAPSHOT)
    assert target.abandoned(NOW + timedelta(days=9999)) == []


def test_a_directory_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as error:
        DirectoryTarget("prod", tmp_path / "mounted", "").check()
    assert "there is no such directory. Create or mount it" in told(error)
    assert not (tmp_path / "mounted").exists()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site-a").write_text("a file")
    with pytest.raises(ProblemsError) as error:
        DirectoryTarget("prod", tmp_path, "site-a").check()
    assert "not a directory" in told(error)


def test_no_room_is_told_before_anything_is_written(target: FolderTarget, tmp_path: Path) -> None:
    with pytest.raises(ProblemsError) as error:
        target.put(NAME, SNAPSHOT, io.BytesIO(b"x"), 1 << 62)
    assert "no space left on device. Free space there" in told(error)
    assert not (tmp_path / "site-a" / "prod" / NAME / SNAPSHOT).exists()


def test_what_comes_back_otherwise_is_told(target: FolderTarget) -> None:
    put(target)
    expected = StoredFile(7, record.digest(b"content"), 0, "")
    targets.read_back(target, NAME, SNAPSHOT, expected)
    for other in (StoredFile(8, expected.sha256, 0, ""), StoredFile(7, "0" * 64, 0, "")):
        with pytest.raises(ProblemsError, match="does not come back as it was written"):
            targets.read_back(target, NAME, SNAPSHOT, other)


def test_what_cannot_be_deleted_is_told_as_such(directory: DirectoryTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    put(directory)

    def refuse(_path: str, **_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(ProblemsError, match="cannot be deleted: operation not permitted") as error:
        directory.delete(NAME)
    assert error.value.problems[0].reason is Reason.BACKUP_NOT_DELETED


# -- which target ------------------------------------------------------------------------------------------------------


def wanted(target: S3 | Directory | HostDirectory | VolumeClaim) -> Wanted:
    return Wanted("nightly", (), schedule_of("", ""), False, target, Retention(24, 7, 4))


def no_secret(_name: str, _where: str) -> dict[str, bytes]:
    raise AssertionError("no Secret was named")


def no_host(_directory: HostDirectory, _field: str) -> targets.Target:
    raise AssertionError("nobody asks for a host")


def no_claim(_claim: VolumeClaim, _field: str) -> targets.Target:
    raise AssertionError("no volume claim was named")


def test_a_volume_claim_is_opened_by_who_knows_the_host_cluster(directory: DirectoryTarget) -> None:
    claim, asked = VolumeClaim("backups", "site-a", "python:3.12"), []

    def in_claim(*given: Any) -> targets.Target:
        asked.append(given)
        return directory

    assert targets.opened(wanted(claim), "prod", None, no_secret, in_claim, no_host) is directory
    assert asked == [(claim, "EtcdBackup nightly: spec.target.persistentVolumeClaim")]
    there = HostDirectory("etcd1", "/srv/backups", "site-a")
    assert targets.opened(wanted(there), "prod", None, no_secret, no_claim, in_claim) is directory
    assert asked[1:] == [(there, "EtcdBackup nightly: spec.target.hostDirectory")]


def test_a_directory_is_that_of_the_inventory_source(tmp_path: Path) -> None:
    found = targets.opened(wanted(Directory("site-a")), "prod", str(tmp_path), no_secret, no_claim, no_host)
    assert found.where == f"{tmp_path}/site-a/prod"
    with pytest.raises(ProblemsError) as error:
        targets.opened(wanted(Directory("")), "prod", None, no_secret, no_claim, no_host)
    assert "EtcdBackup nightly: spec.target.directory: needs a directory" in told(error)
    assert "backups: ./backups" in str(error.value)


@pytest.mark.parametrize("secret", [{}, {"accessKeyID": b"me"}, {"accessKeyID": b" ", "secretAccessKey": b"x"}])
def test_an_account_that_is_not_whole_is_told(secret: dict[str, bytes]) -> None:
    bucket = S3("backups", "https://s3.example.com", "us-east-1", "", "store")
    with pytest.raises(ProblemsError) as error:
        targets.opened(wanted(bucket), "prod", None, lambda _name, _where: secret, no_claim, no_host)
    (problem,) = error.value.problems
    assert problem.reason is Reason.INVALID_SECRET
    assert problem.where == "EtcdBackup nightly: spec.target.s3.secretRef"
    assert "secretAccessKey" in str(problem)


def test_nothing_of_the_users_own_settings_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that is not there is an error of the library, and a URL in the environment would lead elsewhere."""
    (tmp_path / "config").write_text("[default]\nregion = eu-south-9\nendpoint_url = http://192.0.2.1\n")
    for name, value in {
        "AWS_PROFILE": "absent",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_ENDPOINT_URL": "http://192.0.2.1",
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "theirs",
        "AWS_DEFAULT_REGION": "eu-south-9",
    }.items():
        monkeypatch.setenv(name, value)
    account = {"accessKeyID": b"ours\n", "secretAccessKey": b"secret\n"}
    bucket = S3("backups", "https://s3.example.com:9000/", "us-west-2", "a/b", "store")
    target: Any = targets.opened(wanted(bucket), "prod", None, lambda _name, _where: account, no_claim, no_host)
    assert target.where == "s3://backups/a/b/prod/"
    meta = target._client.meta
    assert (meta.endpoint_url.rstrip("/"), meta.region_name) == ("https://s3.example.com:9000", "us-west-2")
    assert target._client._request_signer._credentials.access_key == "ours"
    target.close()
    bucket = S3("backups", "", "us-west-2", "", "store")
    target = targets.opened(wanted(bucket), "prod", None, lambda _name, _where: account, no_claim, no_host)
    assert target._client.meta.endpoint_url == "https://s3.us-west-2.amazonaws.com"
    target.close()


@pytest.mark.parametrize(
    ("code", "reason", "part"),
    [
        ("AccessDenied", Reason.BACKUP_NOT_DELETED, "cannot be deleted: DeleteObject: no (AccessDenied)"),
        ("InvalidRequest", Reason.BACKUP_NOT_DELETED, "an object lock"),
    ],
)
def test_a_bucket_that_lets_nothing_go(code: str, reason: Reason, part: str) -> None:
    account = {"accessKeyID": b"ours", "secretAccessKey": b"secret"}
    bucket = S3("backups", "https://s3.example.com", "us-west-2", "", "store")
    target: Any = targets.opened(wanted(bucket), "prod", None, lambda _name, _where: account, no_claim, no_host)
    with Stubber(target._client) as stub:
        stub.add_client_error("delete_object", code, "no", 403)
        with pytest.raises(ProblemsError) as error:
            target.delete(NAME)
    target.close()
    (problem,) = error.value.problems
    assert problem.reason is reason
    assert part in str(problem)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AccessDenied", "Let the account of the Secret list, read, write and delete"),
        ("NoSuchBucket", "Create the bucket"),
        ("InvalidAccessKeyId", "Put a valid key"),
        ("QuotaExceeded", "Make room in the store"),
        ("Odd", "Look what the store says"),
    ],
)
def test_answers_of_a_bucket_have_remedies(code: str, remedy: str) -> None:
    account = {"accessKeyID": b"ours", "secretAccessKey": b"secret"}
    bucket = S3("backups", "https://s3.example.com", "us-west-2", "", "store")
    target: Any = targets.opened(wanted(bucket), "prod", None, lambda _name, _where: account, no_claim, no_host)
    with Stubber(target._asking) as stub:
        stub.add_client_error("put_object", code, "no", 403)
        with pytest.raises(ProblemsError) as error:
            target.check()
    target.close()
    assert remedy in told(error)


@pytest.fixture
def silent_store() -> Iterator[str]:
    """URL of a store that accepts connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_store_that_accepts_and_never_answers_is_told_soon(
    silent_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ansible_collections.karmada.installer.plugins.plugin_utils.backup import s3  # noqa: PLC0415 - takes a second

    # At most these seconds in all are spent on it, and pauses of a second or two between them.
    assert s3.ASK_SECONDS * s3.ASK_ATTEMPTS <= 30
    monkeypatch.setattr(s3, "ASK_SECONDS", 0.2)
    account = {"accessKeyID": b"ours", "secretAccessKey": b"secret"}
    target: Any = targets.opened(
        wanted(S3("b", silent_store, "us-west-2", "", "store")), "prod", None, lambda *_: account, no_claim, no_host
    )
    for ask in (target.check, target.names, lambda: target.abandoned(NOW)):
        begun = time.monotonic()
        with pytest.raises(ProblemsError) as error:
            ask()
        assert "Read timeout" in told(error)
        assert time.monotonic() - begun < 20
    target.close()


def test_room_is_looked_at_before_anything_is_done_for_a_backup(
    directory: DirectoryTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=100, f_frsize=1 << 20))
    directory.require_room(100 << 20)
    with pytest.raises(ProblemsError) as error:
        directory.require_room(200 << 20)
    assert "a backup takes 200 MiB there, and 100 MiB are free" in told(error)


class FullDisk:
    """File of this machine on a disk that has no room."""

    def write(self, _content: bytes, /) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_here_is_no_fault_of_the_place_that_is_read(target: FolderTarget) -> None:
    put(target)
    account = {"accessKeyID": b"ours", "secretAccessKey": b"secret"}
    bucket: Any = targets.opened(
        wanted(S3("b", "https://s3.example.com", "us-west-2", "", "store")),
        "prod",
        None,
        lambda *_: account,
        no_claim,
        no_host,
    )
    body = StreamingBody(io.BytesIO(b"content"), 7)
    with Stubber(bucket._client) as stub:
        stub.add_response("get_object", {"Body": body})
        for each in (target, bucket):
            with pytest.raises(ProblemsError) as error:
                each.get(NAME, SNAPSHOT, FullDisk())
            (problem,) = error.value.problems
            assert problem.reason is Reason.LOCAL_FILE_UNUSABLE
            assert "no space left on device" in problem.what
            assert "XDG_CACHE_HOME" in problem.remedy
    bucket.close()


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "empty"])
def test_what_is_no_record_harms_no_other_backup(target: FolderTarget, tmp_path: Path, kind: str) -> None:
    """A pipe would keep every run waiting, and one name that cannot be read would hide all others."""
    put(target, NAME, SNAPSHOT, RECORD)
    other = tmp_path / "site-a" / "prod" / name_at(NOW + timedelta(hours=1))
    other.mkdir()
    record_file = other / RECORD
    match kind:
        case "pipe":
            os.mkfifo(record_file)
        case "link":
            record_file.symlink_to(tmp_path)
        case "folder":
            record_file.mkdir()
        case "empty":
            record_file.write_bytes(b"")
    found = {each.name: each.trouble for each in series.found(target, "")}
    assert NAME in found
    assert bool(found.get(other.name)) == (kind != "empty")
    assert target.abandoned(NOW + timedelta(days=2)) == ([other.name] if kind == "empty" else [])


def test_one_that_goes_while_it_is_listed_is_none(target: FolderTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    put(target, NAME, SNAPSHOT, RECORD)
    names = target.names()
    target.delete(NAME)
    monkeypatch.setattr(target, "names", lambda: names)
    assert series.found(target, "") == []


def test_what_a_power_cut_leaves_of_a_record_is_swept(target: FolderTarget, tmp_path: Path) -> None:
    """A record that is empty, of an earlier version, or that never got its name: neither is a backup, nor stays."""
    put(target, NAME, SNAPSHOT)
    folder = tmp_path / "site-a" / "prod" / NAME
    (folder / RECORD).write_bytes(b"")
    (folder / f"{RECORD}.part").write_bytes(b"half")
    assert target.names() == []
    assert target.abandoned(NOW + timedelta(days=2)) == [NAME]
    target.delete(NAME)
    assert not folder.exists()


def test_a_store_without_hard_links_overwrites_nothing_either(
    directory: DirectoryTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **_more: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    put(directory, NAME, SNAPSHOT)
    with pytest.raises(ProblemsError, match="is there already"):
        put(directory, NAME, SNAPSHOT, content=b"other")
    folder = tmp_path / "site-a" / "prod" / NAME
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == {SNAPSHOT: b"content"}
