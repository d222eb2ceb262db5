# SPDX-License-Identifier: Apache-2.0
"""A snapshot as it comes into a pod of etcd and becomes the data of all members, shown with real etcds.

Members here are processes on loopback; what is sent to them, and the words of ``etcdutl``, are those of a restore.
"""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.components import etcd_configuration
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import EtcdMember
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import raft_snapshot
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EtcdClient, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_restore
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster, Member
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import quickly_rendered, rendered

BUMP = 10**9
TOKEN = "0d6c2a35-new"
MEMBER = EtcdMember("prod-etcd-0", "https://prod-etcd-0:2379", "https://prod-etcd-0:2380")
NEW = etcd_restore.NewData(TOKEN, 2, BUMP, [MEMBER])


@pytest.fixture(scope="module", params=VERSIONS)
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path_factory.mktemp("etcd") / "etcd", request.param).voters(3)
        for prefix in COUNTED.values():
            for number in range(5):
                found.client().put_if_absent(prefix + str(number).encode(), os.urandom(1000))
        yield found


@pytest.fixture(scope="module")
def snapshot(etcd: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshot") / "snapshot.db"
    with path.open("xb") as stream:
        etcd.client(etcd.members[0]).snapshot(stream)
    return path


@pytest.fixture
def carrier(etcd: Cluster, tmp_path: Path) -> Iterator[tuple[Cluster, Member]]:
    """An etcd with an empty folder, as the sidecar of a restore is one."""
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path / "carrier", etcd.version).voters(1)
        yield found, found.members[0]


def deliver(carrier: Cluster, member: Member, content: bytes, size: int | None = None) -> None:
    (status,) = carrier.client(member).status()
    peer = EtcdClient([member.peer_url], carrier._files, "here")
    peer.deliver(io.BytesIO(content), len(content) if size is None else size, status)


def delivered(member: Member) -> Path:
    return member.directory / "data" / raft_snapshot.FILE


def is_there(etcd: Cluster, member: Member) -> bool:
    """What the startup probe of the sidecar asks."""
    found = etcd_restore.pod(samples.rendered().instance, MEMBER, NEW, raft_snapshot.FILE, "")
    (receiver,) = found["spec"]["initContainers"]
    (_program, *words, path) = receiver["startupProbe"]["exec"]["command"]
    path = path.replace(f"{etcd_restore.SCRATCH}/etcd", str(member.directory / "data"))
    command = [str(programs(etcd.version).etcdutl), *words, path]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_etcd_keeps_the_file_as_it_is_and_goes_on_as_before(
    carrier: tuple[Cluster, Member], snapshot: Path, etcd: Cluster
) -> None:
    cluster, member = carrier
    deliver(cluster, member, snapshot.read_bytes())
    assert delivered(member).read_bytes() == snapshot.read_bytes()
    assert cluster.client().status()[0].healthy
    assert cluster.client().put_if_absent(b"k", b"v")
    assert is_there(etcd, member)


def test_of_a_file_that_breaks_off_nothing_is_there(
    carrier: tuple[Cluster, Member], snapshot: Path, etcd: Cluster
) -> None:
    cluster, member = carrier
    content = snapshot.read_bytes()
    with pytest.raises(EtcdError):
        deliver(cluster, member, content[: len(content) // 2], size=len(content))
    assert not delivered(member).exists()
    assert not is_there(etcd, member)
    # It is sent again from its begin.
    deliver(cluster, member, content)
    assert delivered(member).read_bytes() == content


def test_a_file_for_another_etcd_is_refused(carrier: tuple[Cluster, Member], etcd: Cluster, snapshot: Path) -> None:
    cluster, member = carrier
    (other,) = etcd.client(etcd.members[0]).status()
    with pytest.raises(EtcdError, match="cluster ID mismatch"):
        EtcdClient([member.peer_url], cluster._files, "here").deliver(io.BytesIO(b"x"), 1, other)
    assert not delivered(member).exists()


def restore(etcd: Cluster, member: Member, snapshot: Path, folder: str = "gen-2") -> subprocess.CompletedProcess[bytes]:
    """What the pod beside a member runs, with paths of this machine."""
    members = [EtcdMember(each.name, each.client_url, each.peer_url) for each in etcd.members]
    (own,) = [each for each in members if each.name == member.name]
    new = etcd_restore.NewData(TOKEN, 2, BUMP, members)
    path = str(member.directory / folder)
    command = etcd_restore.command(str(programs(etcd.version).etcdutl), str(snapshot), own, new, path)
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_snapshot_that_was_damaged_on_the_way_is_not_restored(
    etcd: Cluster, snapshot: Path, tmp_path: Path, damage: str
) -> None:
    content = bytearray(snapshot.read_bytes())
    content = content[:-1000] if damage == "cut" else content
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.db").write_bytes(content)
    assert restore(etcd, etcd.members[0], tmp_path / "damaged.db", f"gen-{damage}").returncode != 0


def test_members_start_as_a_new_cluster_with_the_content_of_the_backup_and_an_old_one_is_rejected(
    etcd: Cluster, snapshot: Path
) -> None:
    """The members that were there are stopped one after the other, and one of them is forgotten."""
    before = etcd.client().status()
    count = {kind: etcd.client().count_below(prefix) for kind, prefix in COUNTED.items()}
    etcd.client().put_if_absent(COUNTED["works"] + b"later", b"x")
    for member in etcd.members:
        done = restore(etcd, member, snapshot)
        assert done.returncode == 0, done.stderr
    etcd.stop(*etcd.members)
    for member in etcd.members:
        (member.directory / "data").rename(member.directory / "gen-1")
        (member.directory / "gen-2").rename(member.directory / "data")
    # With the flags of a member that has been healthy before.
    etcd.start(*etcd.members, known=tuple(etcd.members), state="existing")
    etcd.wait_for_health()
    now = etcd.client().status()
    (identity,) = {each.cluster_id for each in now}
    assert identity not in {each.cluster_id for each in before}
    assert {each.member_id for each in now}.isdisjoint(each.member_id for each in before)
    assert all(each.revision > BUMP for each in now)
    assert len({etcd.client(each).hash_at(now[0].revision) for each in etcd.members}) == 1
    assert {kind: etcd.client().count_below(prefix) for kind, prefix in COUNTED.items()} == count
    (away, *others) = etcd.members
    etcd.stop(away)
    (away.directory / "data").rename(away.directory / "gen-2")
    (away.directory / "gen-1").rename(away.directory / "data")
    etcd.start(away, known=tuple(etcd.members), state="existing")
    log = away.directory / "etcd.log"
    until(lambda: b"cluster ID mismatch" in log.read_bytes(), "the old member to be rejected")
    assert {each.cluster_id for each in etcd.client(*others).status()} == {identity}
    assert etcd.client(*others).count_below(COUNTED["works"]) == 5


def test_its_pod_is_admitted_where_pods_may_do_least(api_server: ApiServer) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restored", "labels": labels}}
    assert api_server.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    for node in ("", "node-a"):
        pod = etcd_restore.pod(rendered().instance, MEMBER, NEW, raft_snapshot.FILE, node)
        pod["metadata"]["namespace"] = "restored"
        path = "/api/v1/namespaces/restored/pods?dryRun=All&fieldValidation=Strict"
        status, answer = api_server.request("POST", path, pod)
        assert (status, answer.get("message")) == (201, None)
        (sidecar,) = answer["spec"]["initContainers"]
        assert sidecar["restartPolicy"] == "Always"


@pytest.mark.parametrize("on_record", [True, False])
@pytest.mark.parametrize("version", [each for each in VERSIONS if not each.startswith("v3.5.")])
def test_members_that_start_with_data_at_once_wait_for_one_another_where_each_compares_it_first(
    tmp_path: Path, version: str, *, on_record: bool
) -> None:
    layout = quickly_rendered({}).layout
    (member, *_others) = layout.etcd_members
    record = EtcdMemberState(member.name, "a1" if on_record else "")
    ours = etcd_configuration.of_member(member, layout, token="t", existing=True, generation=1, extra={}, record=record)
    with ExitStack() as stack:
        cluster = Cluster(stack, tmp_path / "etcd", version).voters(3)
        cluster.stop(*cluster.members)
        cluster.gates = ours["feature-gates"]
        cluster.start(*cluster.members, known=tuple(cluster.members), state="existing")
        cluster.wait_for_health()
        logs = [(each.directory / "etcd.log").read_text() for each in cluster.members]
    assert all(("starting initial corruption check" in each) == on_record for each in logs)
    assert any("failed hash kv request" in each for each in logs) == on_record
