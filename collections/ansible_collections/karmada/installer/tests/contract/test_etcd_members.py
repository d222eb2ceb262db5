# SPDX-License-Identifier: Apache-2.0
"""Each request of ours to etcd about members, hashes, alarms and room, and each refusal that the code tells apart.

Asked of real members of the minors that a control plane may meet: the one that is installed, and those of an etcd that
is somebody else's. The lab builds them once.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EtcdClient, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.health import Seen, assess
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.look import look
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.test_external_etcd import authority, leaf
from ansible_collections.karmada.installer.tests.unit.support.moments import IN_VAIN_SECONDS, closed_port, until

#: The installed version; with all releases also the next minor, and the one before, which an external etcd may have.
VERSIONS = ("v3.6.16", *(("v3.7.3", "v3.5.35") if os.environ.get("TEST_ALL_RELEASES") else ()))
#: etcd reads a quota of 0 as its own, 2 GiB.
OWN_QUOTA = 0


@dataclass
class Member:
    """A member as a process; it is stopped and started on the same data."""

    name: str
    directory: Path
    client: int
    peer: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def client_url(self) -> str:
        return f"https://127.0.0.1:{self.client}"

    @property
    def peer_url(self) -> str:
        return f"https://127.0.0.1:{self.peer}"


@dataclass
class Cluster:
    """An etcd of one version whose members come and go."""

    stack: ExitStack
    directory: Path
    version: str
    quota: int = OWN_QUOTA
    gates: str = ""
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir()
        ca = authority("etcd-ca")
        server, client = leaf(ca, server=True), leaf(ca)
        for name, content in (("ca.crt", ca.certificate), ("tls.crt", server.certificate), ("tls.key", server.key)):
            (self.directory / name).write_bytes(content)
        self._files = {"ca.crt": ca.certificate, "tls.crt": client.certificate, "tls.key": client.key}

    def client(self, *members: Member) -> EtcdClient:
        return EtcdClient([each.client_url for each in members or self.members], self._files, "here")

    def new(self) -> Member:
        number = len(self.members)
        client, peer = conftest.free_ports(2)
        member = Member(f"m{number}", self.directory / f"m{number}", client, peer)
        member.directory.mkdir()
        self.members.append(member)
        return member

    def start(self, *members: Member, known: tuple[Member, ...] = (), state: str = "new", alone: bool = False) -> None:
        """Start members together; ``known`` are those of the initial cluster. One may be forced to go on ``alone``."""
        for member in members:
            member.process = self._started(member, known or members, state, alone)

    def _started(self, member: Member, known: tuple[Member, ...], state: str, alone: bool) -> subprocess.Popen[bytes]:
        tls = {
            f"{kind}{name}": str(self.directory / file)
            for kind in ("", "peer-")
            for name, file in (("cert-file", "tls.crt"), ("key-file", "tls.key"), ("trusted-ca-file", "ca.crt"))
        }
        flags = {
            "name": member.name,
            "data-dir": str(member.directory / "data"),
            "listen-client-urls": member.client_url,
            "advertise-client-urls": member.client_url,
            "listen-peer-urls": member.peer_url,
            "initial-advertise-peer-urls": member.peer_url,
            "initial-cluster": ",".join(f"{each.name}={each.peer_url}" for each in known),
            "initial-cluster-state": state,
            "client-cert-auth": "true",
            "peer-client-cert-auth": "true",
            "unsafe-no-fsync": "true",
            "quota-backend-bytes": str(self.quota),
            "force-new-cluster": str(alone).lower(),
            **tls,
        }
        if self.gates:
            flags["feature-gates"] = self.gates
        command = [binary(self.version), *(f"--{name}={value}" for name, value in flags.items())]
        return conftest.started(self.stack, member.directory / "etcd.log", command)

    def stop(self, *members: Member) -> None:
        for member in members:
            assert member.process is not None
            member.process.kill()
            member.process.wait(IN_VAIN_SECONDS)

    def voters(self, count: int) -> Cluster:
        """This cluster, with so many members founding it, all healthy."""
        self.start(*(self.new() for _ in range(count)))
        self.wait_for_health()
        return self

    def wait_for_health(self) -> None:
        until(lambda: all(each.healthy for each in self.client().status()), "health of every member")

    def leader(self) -> Member:
        found: list[Member] = []

        def led() -> bool:
            states = self.client().status()
            found[:] = [member for member, state in zip(self.members, states, strict=True) if state.leader]
            return len(found) == 1

        until(led, "a leader that is known to all")
        return found[0]

    def id_of(self, member: Member) -> str:
        return self.client(member).status()[0].member_id

    def fill(self, keys: int, size: int = 100_000) -> None:
        for number in range(keys):
            self.client().put_if_absent(f"/fill/{number}".encode(), b"x" * size)

    def empty(self) -> None:
        """Delete what was filled in, which a full database lets through, too."""
        first = self.client().get(b"/fill/0")
        assert first is not None
        assert self.client().delete_below(b"/fill/", first)


@functools.cache
def binary(version: str) -> str:
    """Program of this version, built by the lab the first time."""
    return conftest.binary("etcd", f"TEST_ETCD_{version[1:4].replace('.', '_')}", "--etcd", version)


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as processes:
        yield processes


@pytest.fixture
def cluster(stack: ExitStack, tmp_path: Path, version: str) -> Cluster:
    return Cluster(stack, tmp_path / "etcd", version)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory, version: str) -> Iterator[Cluster]:
    """Three members for tests that leave them as they are, but for keys and who leads."""
    with ExitStack() as processes:
        yield Cluster(processes, tmp_path_factory.mktemp("trio") / "etcd", version).voters(3)


def refused(ask: Callable[[], object]) -> EtcdError:
    with pytest.raises(EtcdError) as caught:
        ask()
    return caught.value


def accepted_in_time(ask: Callable[[], object], code: int, words: str) -> float:
    """Seconds until etcd accepts what it refuses at first with this code and these words."""
    begun = time.monotonic()
    while time.monotonic() - begun < IN_VAIN_SECONDS:
        try:
            ask()
        except EtcdError as error:
            if error.code != code or words not in str(error):
                raise
            time.sleep(0.1)
        else:
            return time.monotonic() - begun
    raise AssertionError("it was refused to the end")


def test_a_status_tells_all_that_the_report_shows(trio: Cluster, version: str) -> None:
    found = trio.client().status()
    assert {each.version for each in found} == {version.removeprefix("v")}
    assert len({each.cluster_id for each in found}) == 1
    assert {each.member_id for each in found} == {each.id for each in trio.client().members().members}
    assert [each.leader for each in found].count(True) == 1
    for each in found:
        assert 0 < each.db_size_in_use <= each.db_size
        assert each.index > 0
        assert each.revision > 0
        assert not each.learner
        # dbSizeQuota came with 3.6.
        assert (each.db_quota > each.db_size) is (not version.startswith("v3.5."))


def test_the_list_has_every_member_by_name_and_addresses(trio: Cluster) -> None:
    found = trio.client().members()
    assert {(each.name, each.peer_urls, each.client_urls, each.learner) for each in found.members} == {
        (each.name, (each.peer_url,), (each.client_url,), False) for each in trio.members
    }
    assert found.cluster_id == trio.client().status()[0].cluster_id


def test_hashes_are_equal_at_one_revision(trio: Cluster) -> None:
    trio.fill(3)
    states = trio.client().status()
    common = min(each.revision for each in states)
    found = [trio.client(each).hash_at(common) for each in trio.members]
    assert {each.revision for each in found} == {common}
    assert len({each.value for each in found}) == 1
    assert found[0].value != 0
    assert trio.client().hash_at(common - 1).value != found[0].value


def test_a_hash_of_a_revision_that_is_compacted_or_still_to_come_is_refused(trio: Cluster) -> None:
    trio.fill(3)
    trio.empty()
    newest = trio.client().status()[0].revision
    trio.client().compact(newest)
    assert "compacted" in str(refused(lambda: trio.client().hash_at(newest - 1)))
    future = refused(lambda: trio.client().hash_at(newest + 1000))
    assert "future revision" in str(future)


def test_a_compaction_to_what_is_compacted_or_still_to_come_is_refused(trio: Cluster) -> None:
    trio.fill(1)
    trio.empty()
    newest = trio.client().status()[0].revision
    trio.client().compact(newest)
    error = refused(lambda: trio.client().compact(newest))
    assert "has been compacted" in str(error)
    assert error.code == etcd_requests.OUT_OF_RANGE
    assert refused(lambda: trio.client().compact(newest + 1000)).code == etcd_requests.OUT_OF_RANGE


def test_the_leader_is_moved_by_itself_only(trio: Cluster) -> None:
    leader = trio.leader()
    follower = next(each for each in trio.members if each is not leader)
    error = refused(lambda: trio.client(follower).move_leader(trio.id_of(follower)))
    assert "not leader" in str(error)
    assert error.code == etcd_requests.FAILED_PRECONDITION
    trio.client(leader).move_leader(trio.id_of(follower))
    assert trio.leader() is follower


def test_the_removal_of_a_member_that_is_none_is_refused(trio: Cluster) -> None:
    error = refused(lambda: trio.client().remove("deadbeef"))
    assert error.code == etcd_requests.NOT_FOUND
    assert "member not found" in str(error)
    assert refused(lambda: trio.client().promote("deadbeef")).code == etcd_requests.NOT_FOUND


def test_a_member_comes_as_learner_is_promoted_in_sync_and_goes(cluster: Cluster) -> None:
    cluster.voters(1)
    cluster.fill(20)
    first, second = cluster.members[0], cluster.new()
    client = cluster.client(first)
    added = client.add_learner(second.peer_url)
    listed = {each.id: each for each in client.members().members}
    assert listed[added.added].learner
    assert listed[added.added].name == ""
    assert listed[added.added].peer_urls == (second.peer_url,)
    # It has not started: it has none of the leader's entries.
    error = refused(lambda: client.promote(added.added))
    assert error.code == etcd_requests.FAILED_PRECONDITION
    assert "in sync with leader" in str(error)
    with closed_port() as port:
        many = refused(lambda: client.add_learner(f"https://127.0.0.1:{port}"))
    assert "too many learner members" in str(many)
    assert many.code == etcd_requests.FAILED_PRECONDITION
    cluster.start(second, known=(first, second), state="existing")
    until(lambda: cluster.client(second).status()[0].healthy, "the start of the learner")
    learner = cluster.client(second).status()[0]
    assert learner.learner
    assert learner.member_id == added.added
    accepted_in_time(lambda: client.promote(added.added), etcd_requests.FAILED_PRECONDITION, "in sync with leader")
    assert not any(each.learner for each in client.members().members)
    assert not cluster.client(second).status()[0].learner
    error = refused(lambda: client.promote(added.added))
    assert error.code == etcd_requests.FAILED_PRECONDITION
    assert "promote a learner member" in str(error)
    leader = cluster.leader()
    other = next(each for each in cluster.members if each is not leader)
    gone = cluster.id_of(other)
    accepted_in_time(lambda: cluster.client(leader).remove(gone), etcd_requests.UNAVAILABLE, "unhealthy cluster")
    assert [each.id for each in cluster.client(leader).members().members] == [cluster.id_of(leader)]
    assert refused(lambda: cluster.client(leader).remove(gone)).code == etcd_requests.NOT_FOUND


def test_a_member_that_is_there_already_is_refused(cluster: Cluster) -> None:
    cluster.voters(1)
    error = refused(lambda: cluster.client().add_learner(cluster.members[0].peer_url))
    assert error.code == etcd_requests.FAILED_PRECONDITION
    assert "Peer URLs already exists" in str(error)


def test_the_change_after_a_promotion_is_refused_for_some_seconds(cluster: Cluster) -> None:
    cluster.voters(1)
    first, second = cluster.members[0], cluster.new()
    client = cluster.client(first)
    added = client.add_learner(second.peer_url)
    cluster.start(second, known=(first, second), state="existing")
    accepted_in_time(lambda: client.promote(added.added), etcd_requests.FAILED_PRECONDITION, "in sync with leader")
    with closed_port() as port:
        late = accepted_in_time(
            lambda: client.add_learner(f"https://127.0.0.1:{port}"), etcd_requests.UNAVAILABLE, "unhealthy cluster"
        )
    assert 1 < late < 60


def test_a_list_without_a_majority_fails_in_time(cluster: Cluster) -> None:
    cluster.voters(3)
    one, *others = cluster.members
    cluster.stop(*others)
    begun = time.monotonic()
    refused(lambda: cluster.client(one).members())
    assert time.monotonic() - begun < etcd_requests.ANSWER_SECONDS + 5
    until(lambda: not cluster.client(one).status()[0].healthy, "its own word that it has no leader")
    # Its alarms are answered from what it has itself, its hash too.
    assert cluster.client(one).status()[0].revision > 0
    assert cluster.client(one).hash_at(1).value != 0
    cluster.start(*others, known=tuple(cluster.members), state="existing")
    cluster.wait_for_health()


def test_a_removal_that_costs_the_majority_is_refused(cluster: Cluster) -> None:
    cluster.voters(3)
    leader = cluster.leader()
    followers = [each for each in cluster.members if each is not leader]
    healthy = cluster.id_of(followers[0])
    cluster.stop(followers[1])

    def told() -> bool:
        try:
            cluster.client(leader).remove(healthy)
        except EtcdError as error:
            return error.code == etcd_requests.UNAVAILABLE and "unhealthy cluster" in str(error)
        raise AssertionError("it was removed")

    until(told, "the refusal")


def test_space_comes_back_by_compaction_and_defragmentation(cluster: Cluster) -> None:
    cluster.voters(3)
    cluster.fill(100)
    cluster.empty()
    before = cluster.client().status()
    cluster.client().compact(max(each.revision for each in before))

    def freed() -> bool:
        # Pages that a compaction frees are counted as free with the next transactions, which an API server has always.
        cluster.client().put_if_absent(f"/other/{time.monotonic()}".encode(), b"")
        return all(each.db_size_in_use < 1_000_000 for each in cluster.client().status())

    until(freed, "free space in each")
    compacted = cluster.client().status()
    assert all(each.db_size > 8_000_000 for each in compacted)
    for member in cluster.members:
        cluster.client(member).defragment()
        (found,) = cluster.client(member).status()
        assert found.healthy
        assert found.db_size < 2_000_000
    # Each gives back its own space only.
    assert all(each.db_size < 2_000_000 for each in cluster.client().status())


def test_a_full_database_raises_an_alarm_until_it_is_disarmed(cluster: Cluster) -> None:
    cluster.quota = 4_000_000
    cluster.voters(1)
    full = refused(lambda: cluster.fill(100))
    assert "database space exceeded" in str(full)
    assert full.code == etcd_requests.RESOURCE_EXHAUSTED
    identity = cluster.id_of(cluster.members[0])
    assert cluster.client().alarms() == {identity: ("NOSPACE",)}
    (state,) = cluster.client().status()
    assert (state.alarms, state.healthy) == (("NOSPACE",), False)
    # Deletions, compaction and changes of alarms are let through.
    cluster.empty()
    cluster.client().compact(cluster.client().status()[0].revision)
    cluster.client().defragment()
    assert cluster.client().alarms() == {identity: ("NOSPACE",)}
    assert "database space exceeded" in str(refused(lambda: cluster.fill(1)))
    cluster.client().disarm(identity, "NOSPACE")
    assert cluster.client().alarms() == {}
    cluster.fill(1)
    assert cluster.client().status()[0].healthy
    # Of an alarm that is not raised it says nothing, and nothing happens.
    cluster.client().disarm(identity, "NOSPACE")


def test_a_lost_member_of_a_full_cluster_is_replaced_and_the_rest_makes_room(cluster: Cluster) -> None:
    cluster.quota = 4_000_000
    cluster.voters(3)
    assert refused(lambda: cluster.fill(100)).code == etcd_requests.RESOURCE_EXHAUSTED
    until(lambda: all(each.only_full for each in cluster.client().status()), "the alarm at each")
    # A member that sees another one's alarm before it is full itself raises none (EtcdServer.applyEntryNormal).
    lost = next(each for each in cluster.members if cluster.id_of(each) in cluster.client().alarms())
    gone, others = cluster.id_of(lost), tuple(each for each in cluster.members if each is not lost)
    cluster.stop(lost)
    shutil.rmtree(lost.directory / "data")
    rest, new = cluster.client(*others), cluster.new()
    cluster.members.remove(lost)
    # It may have led them.
    cluster.leader()
    accepted_in_time(lambda: rest.remove(gone), etcd_requests.UNAVAILABLE, "unhealthy cluster")
    accepted_in_time(lambda: rest.add_learner(new.peer_url), etcd_requests.UNAVAILABLE, "unhealthy cluster")
    (added,) = (each.id for each in rest.members().members if each.learner)
    cluster.start(new, known=(*others, new), state="existing")
    until(lambda: cluster.client(new).status()[0].only_full, "the start of the learner")
    accepted_in_time(lambda: rest.promote(added), etcd_requests.FAILED_PRECONDITION, "in sync with leader")
    assert {each.id for each in rest.members().members if not each.learner} == {*map(cluster.id_of, cluster.members)}
    cluster.client(cluster.leader()).move_leader(added)
    assert cluster.leader() is new
    assert "database space exceeded" in str(refused(lambda: cluster.client().put_if_absent(b"/more", b"x")))
    # Room is made by those that there are now. An alarm outlives the member that has raised it.
    raised = rest.alarms()
    assert gone in raised
    assert {*raised} == {identity for each in cluster.client().status() for identity in each.full_members}
    cluster.empty()
    rest.compact(rest.status()[0].revision)
    for member in cluster.members:
        cluster.client(member).defragment()
    for identity in raised:
        rest.disarm(identity, "NOSPACE")
    cluster.wait_for_health()
    cluster.fill(1)


def test_a_member_that_names_nobody_but_itself_starts_with_its_data_and_without_it_not(cluster: Cluster) -> None:
    cluster.voters(3)
    one, *others = cluster.members
    cluster.fill(1)
    cluster.stop(one)
    cluster.start(one, known=(one,), state="existing")
    cluster.wait_for_health()
    # All of it goes. With the names of the others they might come back under their IDs, depending on who leads.
    for member in (one, others[0]):
        cluster.stop(member)
        shutil.rmtree(member.directory / "data")
    cluster.start(one, known=(one,), state="existing")
    cluster.start(others[0], known=(others[0],), state="existing")
    for member in (one, others[0]):
        assert member.process is not None
        assert member.process.wait(IN_VAIN_SECONDS) != 0
        assert "cannot fetch cluster info" in (member.directory / "etcd.log").read_text()
        assert not (member.directory / "data" / "member" / "wal").exists()


def test_one_that_is_forced_to_go_on_alone_is_told_by_its_list_only(cluster: Cluster) -> None:
    cluster.voters(3)
    one = cluster.members[0]
    whole = {each.cluster_id for each in cluster.client().status()}
    cluster.stop(one)
    # At another port, so that the others do not find it: they would end once it says that it has removed them.
    (one.peer,) = conftest.free_ports(1)
    cluster.start(one, known=(one,), state="existing", alone=True)
    cluster.wait_for_health()
    seen: list[Seen] = []

    def led() -> bool:
        # The other two may have lost their leader with the one, and elect another.
        seen[:] = look(cluster.client(), {each.client_url: each.name for each in cluster.members}, dict)
        return [each.status.leader for each in seen].count(True) == 2

    until(led, "a leader of the one and one of the others")
    assert {each.status.cluster_id for each in seen} == whole
    found = assess(seen)
    assert found.reason == "MembersDiffer"
    assert "m0 lists m0; m1, m2 list m0, m1, m2" in found.message
