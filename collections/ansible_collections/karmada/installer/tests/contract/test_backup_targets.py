# SPDX-License-Identifier: Apache-2.0
"""Backups in a bucket of a real S3 server, and encrypted files that the program age reads and writes.

The server is versitygw, which the lab builds; it keeps buckets in a folder and serves them over TLS.
"""

from __future__ import annotations

import dataclasses
import io
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption, record, targets
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, RECORD, SNAPSHOT
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.s3 import PART, S3Target
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import S3
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.test_external_etcd import authority, leaf

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
NAME = record.new_name("prod", NOW, "1f3a9c")


@dataclasses.dataclass(frozen=True)
class Store:
    """A running server: its wish, its account, and the folder that has its buckets."""

    wanted: S3
    secret: dict[str, bytes]
    folder: Path

    def target(self, deployment: str = "prod", secret: dict[str, bytes] | None = None, **other: str) -> S3Target:
        wanted = dataclasses.replace(self.wanted, **other)
        return S3Target(deployment, wanted, {**self.secret, **(secret or {})}, "spec.target.s3.secretRef")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    directory = tmp_path_factory.mktemp("store")
    with ExitStack() as stack:
        yield started(stack, directory)


def started(stack: ExitStack, directory: Path) -> Store:
    ca = authority("store-ca")
    pair = leaf(ca, server=True)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (directory / name).write_bytes(content)
    (port,) = conftest.free_ports(1)
    buckets, versions = directory / "buckets", directory / "versions"
    for each in (buckets / "backups", buckets / "locked", versions):
        each.mkdir(parents=True)
    process = conftest.started(
        stack,
        directory / "versitygw.log",
        [
            conftest.binary("versitygw", "TEST_VERSITYGW"),
            *("--access", "root", "--secret", "root-secret", "--region", "eu-west-1"),
            *("--port", f"127.0.0.1:{port}", "--cert", str(directory / "tls.crt"), "--key", str(directory / "tls.key")),
            *("--versioning-dir", str(versions), str(buckets)),
        ],
    )
    wanted = S3("backups", f"https://127.0.0.1:{port}", "eu-west-1", "site-a/karmada", "store")
    secret = {"accessKeyID": b"root", "secretAccessKey": b"root-secret", "ca.crt": ca.certificate}
    found = Store(wanted, secret, buckets)

    def answers() -> bool:
        target = found.target()
        try:
            target.check()
        except ProblemsError:
            return False
        finally:
            target.close()
        return True

    conftest.wait_until(answers, (process,), directory)
    return found


@pytest.fixture
def target(store: Store, request: pytest.FixtureRequest) -> Iterator[S3Target]:
    """A target of a deployment of its own, so that no test sees what another has left."""
    found = store.target(prefix=f"site-{abs(hash(request.node.name)) % 10**9}")
    yield found
    found.close()


def put(target: targets.Target, *files: str, name: str = NAME, content: bytes = b"content") -> None:
    for file in files or (SNAPSHOT, KEYS, RECORD):
        target.put(name, file, io.BytesIO(content), len(content))


def refusal(target: S3Target, reason: Reason = Reason.BACKUP_TARGET_UNUSABLE) -> str:
    with pytest.raises(ProblemsError) as caught:
        target.check()
    target.close()
    (problem,) = caught.value.problems
    assert problem.reason is reason
    return str(problem)


def test_what_is_stored_comes_back(store: Store, target: S3Target) -> None:
    target.check()
    put(target)
    sink = io.BytesIO()
    target.get(NAME, SNAPSHOT, sink)
    assert sink.getvalue() == b"content"
    assert target.names() == [NAME]
    # at the very path that is documented, and no probe stays
    kept = [str(each.relative_to(store.folder)) for each in store.folder.rglob("*") if each.is_file()]
    assert sorted(each for each in kept if target._prefix in f"{each}/") == sorted(
        f"backups/{target._prefix}{NAME}/{file}" for file in (SNAPSHOT, KEYS, RECORD)
    )


def test_a_large_file_goes_in_parts_and_comes_back(target: S3Target) -> None:
    content = bytes(range(256)) * ((2 * PART + 12345) // 256)
    key, sealed = pyrage.x25519.Identity.generate(), io.BytesIO()
    stored = encryption.encrypt(io.BytesIO(content), sealed, [key.to_public()])
    sealed.seek(0)
    target.put(NAME, SNAPSHOT, sealed, stored.size)
    targets.read_back(target, NAME, SNAPSHOT, stored)
    with pytest.raises(ProblemsError, match="does not come back"):
        targets.read_back(target, NAME, SNAPSHOT, dataclasses.replace(stored, sha256="0" * 64))


def test_nothing_is_overwritten(target: S3Target) -> None:
    put(target)
    with pytest.raises(ProblemsError, match="is there already"):
        put(target, SNAPSHOT, content=b"other")
    sink = io.BytesIO()
    target.get(NAME, SNAPSHOT, sink)
    assert sink.getvalue() == b"content"


def test_what_goes_is_gone_and_others_stay(store: Store, target: S3Target) -> None:
    other = record.new_name("prod", NOW + timedelta(hours=1), "1f3a9c")
    put(target)
    put(target, name=other)
    target.delete(NAME)
    target.delete(NAME)
    assert target.names() == [other]
    stage = store.target("stage", prefix=target._prefix.split("/")[0])
    assert stage.names() == []
    stage.close()


def test_without_a_record_it_does_not_exist(target: S3Target) -> None:
    put(target, SNAPSHOT, KEYS)
    assert target.names() == []
    assert target.abandoned(NOW) == []
    assert target.abandoned(NOW + timedelta(days=2)) == [NAME]


def test_an_upload_that_breaks_off_leaves_nothing_under_its_name(target: S3Target) -> None:
    class Lost(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > PART:
                raise OSError(5, "Input/output error")
            return super().read(size)

    with pytest.raises(ProblemsError):
        target.put(NAME, SNAPSHOT, Lost(b"x" * (3 * PART)), 3 * PART)
    assert target._found() == {}


def test_parts_of_an_upload_that_was_killed_are_swept(target: S3Target) -> None:
    begun: Any = target._client.create_multipart_upload(Bucket="backups", Key=target._key(NAME, SNAPSHOT))
    target._client.upload_part(
        Bucket="backups", Key=target._key(NAME, SNAPSHOT), UploadId=begun["UploadId"], PartNumber=1, Body=b"x" * PART
    )
    uploads = lambda: target._client.list_multipart_uploads(Bucket="backups", Prefix=target._prefix).get("Uploads")  # noqa: E731
    target.abandoned(datetime.now(UTC))
    assert len(uploads()) == 1
    target.abandoned(datetime.now(UTC) + timedelta(days=2))
    assert not uploads()


def test_a_backup_that_is_not_there_is_told(target: S3Target) -> None:
    with pytest.raises(ProblemsError, match=r"snapshot\.age is not there"):
        target.get(NAME, SNAPSHOT, io.BytesIO())


def test_refused_keys(store: Store) -> None:
    assert "Put a valid key" in refusal(store.target(secret={"secretAccessKey": b"wrong"}))
    assert "Put a valid key" in refusal(store.target(secret={"accessKeyID": b"nobody"}))


def test_a_bucket_that_is_not_there(store: Store) -> None:
    assert "Create the bucket" in refusal(store.target(bucket="absent"))


def test_a_store_that_is_silent_or_somebody_else(store: Store) -> None:
    (port,) = conftest.free_ports(1)
    assert "Make the store reachable" in refusal(store.target(endpoint=f"https://127.0.0.1:{port}"))
    assert "ca.crt in the Secret is its authority" in refusal(
        store.target(secret={"ca.crt": authority("another").certificate})
    )


def test_no_secret_is_in_what_is_told(store: Store) -> None:
    for told in (
        refusal(store.target(secret={"secretAccessKey": b"hush-hush-hush"})),
        refusal(store.target(bucket="absent")),
    ):
        assert "hush" not in told
        assert "root-secret" not in told


def test_what_an_object_lock_holds_is_hidden_and_its_versions_stay(store: Store) -> None:
    """As a store with versions has it: what is deleted is in no list, and whoever may look at versions has it back."""
    target = store.target(bucket="locked-backups")
    client: Any = target._client
    client.create_bucket(Bucket="locked-backups", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    client.put_object_lock_configuration(
        Bucket="locked-backups", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    target.check()
    put(target)
    target.delete(NAME)
    assert target.names() == []
    assert target.abandoned(NOW + timedelta(days=2)) == []
    kept = [each["Key"] for each in client.list_object_versions(Bucket="locked-backups")["Versions"]]
    assert sum(NAME in key for key in kept) == 3
    target.close()


# -- the program age ---------------------------------------------------------------------------------------------------


def test_age_reads_what_we_encrypt_and_we_what_age_does(tmp_path: Path) -> None:
    age = conftest.binary("age", "TEST_AGE")
    key = pyrage.x25519.Identity.generate()
    (tmp_path / "keys.txt").write_text(f"# created: today\n{key}\n")
    content = b"content of etcd" * 50_000
    with open(tmp_path / "ours.age", "xb", opener=encryption.reader_only) as stream:
        stored = encryption.encrypt(io.BytesIO(content), stream, [key.to_public()])
    read = subprocess.run(
        [age, "--decrypt", "--identity", str(tmp_path / "keys.txt"), str(tmp_path / "ours.age")],
        check=True,
        capture_output=True,
    )
    assert read.stdout == content
    assert stored.size == (tmp_path / "ours.age").stat().st_size
    written = subprocess.run(
        [age, "--encrypt", "--recipient", str(key.to_public())], check=True, capture_output=True, input=content
    )
    target = io.BytesIO()
    encryption.decrypt(io.BytesIO(written.stdout), target, encryption.identities(str(key), "keys.txt"), "theirs")
    assert target.getvalue() == content
