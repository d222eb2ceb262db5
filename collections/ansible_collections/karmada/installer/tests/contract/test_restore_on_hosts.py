# SPDX-License-Identifier: Apache-2.0
"""A restore of a real etcd whose members are on plain hosts, by the action and the module that work there.

A host is a directory here, and its module a call; the snapshot comes by a copy in the place of SSH.
"""

from __future__ import annotations

import getpass
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import (
    etcd_member,
    host_lock,
    host_restore,
    host_snapshot,
    host_tree,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.tools import ETCDUTL
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take, verification, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RELEASED, RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import EtcdMember
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import on_hosts, survivor_copy
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.restore_steps import HOLDER, performed
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

#: Hosts with a member, in the order of the members.
HOSTS = ("cp1", "etcd1", "etcd2")
PKI = "/etc/karmada/prod/etcd/pki/server"
BUMP = 10**9
FORMER = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="directory",
    members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(HOSTS)),
)
STARTED = "2026-11-25T02:00:00+00:00"
JOURNAL = RestoreState(
    "back", "nightly", "prod-20261125t020000z-1f3a9c", STARTED, "0d6c2a35", 2, BUMP, FORMER, members=HOSTS
)


@pytest.fixture(scope="module", params=VERSIONS)
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path_factory.mktemp("etcd") / "etcd", request.param).voters(3)
        for prefix in COUNTED.values():
            for number in range(5):
                found.client().put_if_absent(prefix + str(number).encode(), b"x" * 1000)
        yield found


class Site:
    """Three hosts with a member each, and a run on them that has locked them."""

    def __init__(self, folder: Path, etcd: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.etcd, self.folder = etcd, folder
        self.runs = Runs(folder / "run")
        stored = Stored().after(replace(remembered(etcd=FORMER), restore=JOURNAL), on_hosts=False)
        self.runs.see_all(seen(stored))
        self.hosts = {name: Host(folder / name) for name in HOSTS}
        self.snapshot = folder / "snapshot.db"
        with self.snapshot.open("xb") as stream:
            etcd.client(etcd.members[0]).snapshot(stream)
        run = self.runs.step(holder=HOLDER)
        self.program = units.program(run.instance, ETCDUTL)
        for name, host in self.hosts.items():
            host.path("/var/lib").mkdir(parents=True)
            etcd_of_host = run.on_host(name).tree([ETCD.name])
            place = {part: etcd_of_host[part] for part in ("users", "directories")}
            host_tree.converge(host, {**units.merged([], run.instance.owner), **place})
            host.path(self.program).parent.mkdir(parents=True)
            for file, content in etcd._files.items():
                (host.path(PKI) / file).write_bytes(content)
            shutil.copyfile(programs(etcd.version).etcdutl, host.path(self.program))
            host.path(self.program).chmod(0o755)
            host_lock.take(host, "prod", HOLDER)
        monkeypatch.setattr(on_hosts, "member", self.member)

    def member(self, _run: Any, name: str) -> EtcdMember:
        """The member of a host, with the ports that it has here."""
        found = self.etcd.members[HOSTS.index(name)]
        return EtcdMember(found.name, found.client_url, found.peer_url)

    def on(self, name: str, state: str, **told: Any) -> dict[str, Any]:
        """Result of a step on a host."""
        return performed(self.runs, self.hosts[name], name, state, **told)

    def made(self, name: str) -> dict[str, Any]:
        digest = verification.check(self.snapshot, "here")
        told = {"file": str(self.snapshot), "size": self.snapshot.stat().st_size, "digest": digest}
        return self.on(name, "made", snapshot=told)

    def new(self, name: str) -> Path:
        return self.hosts[name].path("/var/lib/karmada/prod/etcd/gen-2")


@pytest.fixture
def site(tmp_path: Path, etcd: Cluster, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, etcd, monkeypatch)


def test_a_snapshot_that_is_damaged_on_its_way_becomes_no_data(site: Site) -> None:
    content = bytearray(site.snapshot.read_bytes())
    content[len(content) // 2] ^= 1
    sent = site.folder / "sent.db"
    sent.write_bytes(content)
    told = {"file": str(sent), "size": len(content), "digest": verification.check(site.snapshot, "here")}
    found = site.on("cp1", "made", snapshot=told)
    assert "is damaged" in found["msg"]
    assert not site.new("cp1").exists()
    assert not site.hosts["cp1"].path(host_snapshot.FOLDER).exists()
    assert "made" not in site.runs.handover.observed("cp1").restore


def test_what_etcdutl_says_is_told(site: Site) -> None:
    host = site.hosts["cp1"]
    host.path(site.program).write_text("#!/bin/sh\nexec false\n")
    assert "etcdutl failed" in site.made("cp1")["msg"]
    assert not host.path(host_snapshot.FOLDER).exists()


def test_members_start_as_one_new_cluster_with_the_content_of_the_backup(site: Site, etcd: Cluster) -> None:
    before = etcd.client().status()
    count = {kind: etcd.client().count_below(prefix) for kind, prefix in COUNTED.items()}
    etcd.client().put_if_absent(COUNTED["works"] + b"later", b"x")
    for name in HOSTS:
        found = site.made(name)
        assert found.get("msg") is None
        assert (found["changed"], found["changes"]) == (True, ["created /var/lib/karmada/prod/etcd/gen-2"])
        assert site.runs.handover.observed(name).restore["made"] == 2
        assert not site.hosts[name].path(host_snapshot.FOLDER).exists()
        files = [site.new(name), *site.new(name).rglob("*")]
        assert {each.stat().st_mode & 0o077 for each in files} == {0}, "for etcd's user alone"
        assert files[0].owner() == getpass.getuser()
        assert "is there already" in site.made(name)["msg"], "it is never made again"
    etcd.stop(*etcd.members)
    for name, member in zip(HOSTS, etcd.members, strict=True):
        (member.directory / "data").rename(member.directory / "gen-1")
        shutil.copytree(site.new(name), member.directory / "data")
    etcd.start(*etcd.members, known=tuple(etcd.members), state="existing")
    etcd.wait_for_health()
    now = etcd.client().status()
    assert {each.cluster_id for each in now}.isdisjoint(each.cluster_id for each in before)
    assert len({each.cluster_id for each in now}) == 1
    assert all(each.revision > BUMP for each in now)
    told = []
    for name, member in zip(HOSTS, etcd.members, strict=True):
        post = etcd_member.poster(site.hosts[name], member.client_url, PKI)
        told.append(host_restore.content(post, now[0].revision, on_hosts.PREFIXES))
    assert [each["counts"] for each in told] == [count] * 3
    assert len({(each["hash"]["value"], each["hash"]["revision"]) for each in told}) == 1


# -- what a member has that has survived -------------------------------------------------------------------------------


def test_of_a_survivor_a_copy_comes_here_and_nothing_stays_there(
    site: Site, etcd: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data is that of a member which runs: nothing of it is opened but to be read."""
    found = programs(etcd.version)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(take, "programs", lambda _run: found)
    name = HOSTS[0]
    host, data = site.hosts[name], etcd.members[0].directory / "data"
    host.path("/var/lib/karmada/prod/etcd/gen-1").symlink_to(data)
    told = site.on(name, "copied")["copied"]
    copy = survivor_copy.Copy.of(told)
    (before,) = etcd.client(etcd.members[0]).status()
    assert (copy.status.member_id, copy.status.revision) == (before.member_id, before.revision)
    assert copy.hash == etcd.client(etcd.members[0]).hash_at(before.revision)
    verification.check(copy.path, "here")
    assert not host.path(host_snapshot.FOLDER).exists()
    assert [each.name for each in copy.path.parent.iterdir() if each.name == "survivor.tar"] == []
    copy.remove()
    assert list(workplace.folder().iterdir()) == []


def test_of_a_host_without_data_nothing_comes_and_nothing_stays(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = site.on(HOSTS[1], "copied")
    assert found["failed"]
    assert "has no data of a member of etcd" in found["msg"]
    assert not site.hosts[HOSTS[1]].path(host_snapshot.FOLDER).exists()
    assert list(workplace.folder().iterdir()) == []


def test_of_another_size_than_it_told_it_is_refused(
    site: Site, etcd: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    site.hosts[HOSTS[0]].path("/var/lib/karmada/prod/etcd/gen-1").symlink_to(etcd.members[0].directory / "data")
    monkeypatch.setattr(shutil, "copyfile", lambda _source, sink: Path(sink).write_bytes(b"x"))
    with pytest.raises(ProblemsError, match="the file came with 1 of"):
        site.on(HOSTS[0], "copied")
    assert list(workplace.folder().iterdir()) == []


# -- old data ----------------------------------------------------------------------------------------------------------


def test_old_data_goes_unless_an_etcd_runs_on_it_whatever_the_state_says(site: Site, etcd: Cluster) -> None:
    after = replace(JOURNAL, step=RELEASED, aside=("gen-1",))
    state = replace(remembered(etcd=replace(FORMER, generation=2)), restore=after)
    site.runs.see_all(seen(Stored().after(state, on_hosts=False)))
    name, member = HOSTS[0], etcd.members[0]
    old = site.hosts[name].path("/var/lib/karmada/prod/etcd/gen-1")
    (old / "member/snap").mkdir(parents=True)
    database = member.directory / "data/member/snap/db"
    # The file that this member has open and locked.
    (old / "member/snap/db").hardlink_to(database)
    assert "gen-1 is used: a process has locked its database" in site.on(name, "removed")["msg"]
    assert (old / "member/snap/db").exists()
    etcd.stop(member)
    try:
        found = site.on(name, "removed")
        assert (found["changed"], found["changes"]) == (
            True,
            ["remove directory /var/lib/karmada/prod/etcd/gen-1"],
        )
    finally:
        etcd.start(member, known=tuple(etcd.members), state="existing")
        etcd.wait_for_health()
    assert not old.exists()
    assert database.exists()
    assert not site.on(name, "removed")["changed"]
