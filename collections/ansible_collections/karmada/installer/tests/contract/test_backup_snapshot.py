# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a real etcd: streamed from a member, proved by a restore on trial, and refused with any damage.

The programs are those of the lab, of the installed version; with all releases those of the other minors as well.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take, verification
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Level
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.trial import Programs
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED, Content
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster, binary
from ansible_collections.karmada.installer.tests.unit.support.moments import until

WHERE = "etcd of prod"


@functools.cache
def programs(version: str) -> Programs:
    etcdutl = conftest.binary("etcdutl", f"TEST_ETCDUTL_{version[1:4].replace('.', '_')}", "--etcd", version)
    return Programs(Path(binary(version)), Path(etcdutl))


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path_factory.mktemp("etcd") / "etcd", request.param).voters(3)
        for kind, prefix in COUNTED.items():
            for number in range(3):
                found.client().put_if_absent(prefix + f"{kind}-{number}".encode(), os.urandom(100))
        found.fill(30)
        yield found


@pytest.fixture(scope="module")
def snapshot(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.db"
    with path.open("xb") as stream:
        received = one(cluster).snapshot(stream)
    assert received.size == path.stat().st_size
    # It is the version of what is stored, which is that of the first patch of a minor.
    assert received.version.rpartition(".")[0] == cluster.version[1:].rpartition(".")[0]
    return path


def one(cluster: Cluster) -> Any:
    return cluster.client(cluster.members[0])


def live(cluster: Cluster, revision: int) -> Hash:
    found: Hash = cluster.client(cluster.members[1]).hash_at(revision)
    return found


def restored(snapshot: Path, cluster: Cluster, folder: Path) -> Content:
    tools = programs(cluster.version)
    return verification.restored(snapshot, verification.status(snapshot, tools, WHERE), tools, folder, WHERE)


def test_a_snapshot_is_proved_by_another_member(cluster: Cluster, snapshot: Path, tmp_path: Path) -> None:
    assert verification.check(snapshot, WHERE) == hashlib.sha256(snapshot.read_bytes()).hexdigest()
    status = verification.status(snapshot, programs(cluster.version), WHERE, one(cluster).status()[0].revision)
    content = restored(snapshot, cluster, tmp_path)
    assert (content.revision, content.total_keys) == (status.revision, status.keys)
    assert content.counts == dict.fromkeys(COUNTED, 3)
    assert content.clusters == ("clusters-0", "clusters-1", "clusters-2")
    assert content.cluster_id != one(cluster).status()[0].cluster_id
    # what was written since is not in it, and does not matter
    cluster.client().put_if_absent(b"/later", b"x")
    assert verification.compared(content, live(cluster, status.revision)) is Level.HASH
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_nobody_else_can_read_what_is_restored_on_trial(cluster: Cluster, snapshot: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        restored(snapshot, cluster, tmp_path)
    finally:
        os.umask(before)
    made = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert made
    assert [each for each in made if each.stat().st_mode & 0o077] == []


def test_another_content_at_the_same_revision_is_refused(cluster: Cluster, snapshot: Path, tmp_path: Path) -> None:
    content = restored(snapshot, cluster, tmp_path)
    found = live(cluster, content.revision)
    with pytest.raises(ValueError, match="its content differs from that of a member"):
        verification.compared(content, Hash(found.revision, found.value ^ 1, found.compacted))


def counts(cluster: Cluster, revision: int) -> dict[str, int] | None:
    return take.counts_of(cluster.client(cluster.members[1]), revision)


def test_a_member_that_has_discarded_old_revisions_proves_numbers_only(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("compacted") / "snapshot.db"
    with path.open("xb") as stream:
        one(cluster).snapshot(stream)
    content = restored(path, cluster, tmp_path)
    cluster.client().compact(content.revision - 3)
    # the others follow in their own time
    until(lambda: live(cluster, content.revision).compacted == content.revision - 3, "compaction of every member")
    assert verification.compared(content, live(cluster, content.revision)) is Level.RESTORED
    # Of the revision itself it has everything, whatever came since.
    cluster.client().put_if_absent(COUNTED["works"] + b"later", b"x")
    told = live(cluster, content.revision), counts(cluster, content.revision)
    assert verification.compared(content, *told) is Level.COUNTS
    cluster.client().put_if_absent(b"/more", b"x")
    cluster.client().compact(one(cluster).status()[0].revision)
    with pytest.raises(EtcdError, match="compacted"):
        live(cluster, content.revision)
    assert counts(cluster, content.revision) is None


def flip(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


#: What may be wrong with a file → how it comes about.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "header": lambda content: flip(content, 20),
    "first page": lambda content: flip(content, 100),
    "middle": lambda content: flip(content, len(content) // 2),
    "last page": lambda content: flip(content, len(content) - 40),
    "trailer": lambda content: flip(content, len(content) - 5),
    "cut by a byte": lambda content: content[:-1],
    "cut by 1000 bytes": lambda content: content[:-1000],
    "cut by a page": lambda content: content[:-4096],
    "half": lambda content: content[: len(content) // 2],
    "half with a tail": lambda content: content[: len(content) // 1024 * 512] + content[-32:],
    "trailer gone": lambda content: content[:-32],
    "empty": lambda _: b"",
    "a trailer alone": lambda content: content[-32:],
    "random": lambda content: random.Random(21).randbytes(len(content)),
    "a byte more": lambda content: content + b"x",
    "twice": lambda content: content + content,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_refused_by_the_first_proof(snapshot: Path, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "snapshot.db"
    path.write_bytes(DAMAGES[damage](snapshot.read_bytes()))
    with pytest.raises(ProblemsError) as caught:
        verification.check(path, WHERE)
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP


def test_random_damage_is_refused_by_the_first_proof(snapshot: Path, tmp_path: Path) -> None:
    content, path = snapshot.read_bytes(), tmp_path / "snapshot.db"
    places = random.Random(21).sample(range(len(content)), 30)
    for place in places:
        path.write_bytes(flip(content, place))
        with pytest.raises(ProblemsError):
            verification.check(path, WHERE)


def sealed(content: bytes) -> bytes:
    """Damaged pages with a checksum that is right, as by somebody who knows how it is made."""
    pages = content[:-32]
    return pages + hashlib.sha256(pages).digest()


@pytest.mark.parametrize("damage", ["no database", "half of it", "raw database"])
def test_what_has_a_checksum_and_is_no_snapshot_is_refused_by_the_others(
    cluster: Cluster, snapshot: Path, tmp_path: Path, damage: str
) -> None:
    content, path = snapshot.read_bytes(), tmp_path / "snapshot.db"
    if damage == "raw database":
        member = next((cluster.members[2].directory / "data").glob("member/snap/db"))
        path.write_bytes(member.read_bytes())
        with pytest.raises(ProblemsError):
            verification.check(path, WHERE)
        return
    path.write_bytes(
        sealed(random.Random(21).randbytes(64 * 512) + bytes(32))
        if damage == "no database"
        else sealed(content[: len(content) // 8192 * 4096] + bytes(32))
    )
    verification.check(path, WHERE)
    folder = tmp_path / "trial"
    folder.mkdir(mode=0o700)
    with pytest.raises(ProblemsError) as caught:
        restored(path, cluster, folder)
    assert caught.value.problems[0].reason is Reason.INVALID_BACKUP


def test_an_older_snapshot_than_the_member_had_is_refused(cluster: Cluster, snapshot: Path) -> None:
    with pytest.raises(ProblemsError, match="the member had revision 1000000 before"):
        verification.status(snapshot, programs(cluster.version), WHERE, 1_000_000)


def test_a_stream_that_breaks_off_is_told(cluster: Cluster) -> None:
    member = cluster.members[2]

    class Slow(io.BytesIO):
        def write(self, content: Any, /) -> int:
            if self.tell() > 500_000 and member.process is not None and member.process.poll() is None:
                cluster.stop(member)
            return super().write(content)

    try:
        with pytest.raises(EtcdError, match="breaks"):
            cluster.client(member).snapshot(Slow())
    finally:
        cluster.start(member, known=tuple(cluster.members), state="existing")
        cluster.wait_for_health()


def test_a_full_disk_is_told_as_what_it_is(cluster: Cluster) -> None:
    class Full(io.BytesIO):
        def write(self, _content: Any, /) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        one(cluster).snapshot(Full())


def test_memory_does_not_grow_with_the_database(cluster: Cluster) -> None:
    class Counting(io.RawIOBase):
        size = 0

        def write(self, content: Any, /) -> int:
            self.size += len(content)
            return len(content)

    cluster.fill(150, 500_000)
    sink = Counting()
    one(cluster).snapshot(sink)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    one(cluster).snapshot(sink)
    assert sink.size > 2 * 75_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert threading.active_count() < 50
