# SPDX-License-Identifier: Apache-2.0
"""A backup of a real etcd whose members are on plain hosts, by the modules that run there and the steps in their order.

A host is a directory here, and its module a call; the file comes by a copy in the place of SSH.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.action import backup, etcd_member, etcd_snapshot
from ansible_collections.karmada.installer.plugins.module_utils import host_backup, host_lock, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _etcd_member as member_module
from ansible_collections.karmada.installer.plugins.modules import _etcd_snapshot as snapshot_module
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import record, take, workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Level
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster
from ansible_collections.karmada.installer.tests.unit.support.backups_on_host import HostOfBackups
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

KEY = pyrage.x25519.Identity.generate()
CANARY = b"canary-of-a-secret-5f3a"
FOLDER = "/etc/karmada/prod/etcd/pki/server"
#: Hosts with a member, in the order of the members.
HOSTS = ("cp1", "etcd1", "etcd2")
HOLDER = "me@here"
EtcdBackup = dict[str, Any]


@pytest.fixture(scope="module", params=VERSIONS)
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(stack, tmp_path_factory.mktemp("etcd") / "etcd", request.param).voters(3)
        for prefix in COUNTED.values():
            found.client().put_if_absent(prefix + b"one", b"k8s:enc:" + CANARY)
        # While the lab has its own cache: in that of a test it would build them anew.
        programs(found.version)
        yield found


class Site:
    """Three hosts with a member each, a run on them that has locked them, and a directory for backups."""

    def __init__(self, folder: Path, etcd: Cluster) -> None:
        self.etcd, self.folder = etcd, folder
        self.runs = Runs(folder / "run")
        self.runs.see_all(seen(Stored().after(remembered(), on_hosts=False)))
        self.hosts = {name: Host(folder / name) for name in HOSTS}
        self.said: list[str] = []
        #: the plain host whose directory has the backups, if it is not a directory of this machine
        self.keeper: HostOfBackups | None = None
        (folder / "backups").mkdir()
        for host in self.hosts.values():
            host.path(FOLDER).mkdir(parents=True)
            host.path("/var/lib").mkdir(parents=True)
            for name, content in etcd._files.items():
                (host.path(FOLDER) / name).write_bytes(content)
            host_lock.take(host, "prod", HOLDER)

    def question(self, _run: Any, name: str) -> dict[str, Any]:
        url = self.etcd.members[HOSTS.index(name)].client_url
        return {"url": url, "folder": FOLDER, "data": "/var/lib/karmada/prod/etcd"}

    def on(self, action: Any, name: str, **arguments: Any) -> dict[str, Any]:
        """Result of a step on a host."""
        step: Any = action.ActionModule.__new__(action.ActionModule)
        step.karmada, step.variables = self.runs.step(holder=HOLDER), {"inventory_hostname": name}
        step.karmada.say = self.said.append
        step._task = task("step")
        step._play_context = SimpleNamespace(remote_user="root")
        step._connection = SimpleNamespace(
            get_option=lambda _name: None,
            fetch_file=lambda remote, local: shutil.copyfile(self.hosts[name].path(remote), local),
        )

        def execute(*, module_name: str, module_args: dict[str, Any], task_vars: Any) -> dict[str, Any]:
            del task_vars
            try:
                if module_name.endswith("_etcd_member"):
                    return {
                        "changed": False,
                        "answer": member_module._answer(self.hosts[name], {"state": "seen", **module_args}),
                    }
                return {"changed": False, **snapshot_module._perform(self.hosts[name], module_args, False)}
            except HostError as error:
                return {"failed": True, "msg": str(error)}

        step._execute_module = execute
        found: dict[str, Any] = step.perform(arguments)
        return found

    def ask(self) -> None:
        for name in HOSTS:
            self.on(etcd_member, name, state="seen", changing=False, replace=[], revision=0)

    def step(self, state: str, **arguments: Any) -> dict[str, Any]:
        """Result of a step on the control plane."""
        run = self.runs.step(holder=HOLDER)
        run.connection, run.say = Connection(backups=str(self.folder / "backups")), self.said.append
        run.delegated = self.keeper.delegated() if self.keeper else None
        step: Any = object.__new__(backup.ActionModule)
        common: dict[str, Any] = {"now": "nightly", "name": "", "identity": "", "at_once": True, "last": True}
        common |= {"sender": "", "restores": []}
        try:
            found: dict[str, Any] = step.perform(
                run, {**common, "witness": "", "only": "", "state": state, "backups": [self.document()], **arguments}
            )
        finally:
            run.close()
        if kept := self.runs.handover.stored:
            # The step that writes it to the hosts follows.
            self.runs.see_all({"stored": kept})
        return found

    def take(self, **arguments: Any) -> dict[str, Any]:
        """Result of the last step of all, in the order of the role."""
        self.ask()
        begun = self.step("begun")
        asked = {"sender": begun["sender"], "witness": begun["witness"]}
        found = self.on(etcd_snapshot, begun["sender"])
        assert "file" in found, found
        hashed = {"state": "hashed", "revision": found["revision"], "changing": False, "replace": []}
        self.on(etcd_member, begun["witness"], **hashed)
        stored = self.step("stored", snapshot=found, **asked, **arguments)
        return self.step("recorded", snapshot=found, **arguments) if stored["stored"] else stored

    def document(self) -> EtcdBackup:
        """The EtcdBackup, of which the newest alone is kept on a host."""
        found = nightly()
        if self.keeper:
            found["spec"]["target"] = {
                "hostDirectory": {"host": self.keeper.name, "path": "/srv/backups", "prefix": ""}
            }
            found["spec"]["retention"] = {"hourly": 1, "daily": 0, "weekly": 0}
        return found

    def made(self) -> record.Record:
        (path,) = (self.folder / "backups").rglob("manifest.json")
        return record.opened(path.read_bytes(), "here")

    def plain(self, file: str) -> bytes:
        (path,) = (self.folder / "backups").rglob(file)
        found: bytes = pyrage.decrypt(path.read_bytes(), [KEY])
        return found

    def left(self) -> list[Path]:
        """What lies on hosts or here that is not encrypted."""
        there = [path for host in self.hosts.values() for path in host.path("/var/lib").rglob("*")]
        return [*there, *workplace.folder().iterdir()]


def nightly() -> EtcdBackup:
    return {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "EtcdBackup",
        "metadata": {"name": "nightly"},
        "spec": {
            "deploymentRef": {"name": "prod"},
            "interval": "1h",
            "suspend": False,
            "recipients": [str(KEY.to_public())],
            "retention": {"hourly": 24, "daily": 7, "weekly": 4},
            "target": {"directory": {"prefix": ""}},
        },
    }


@pytest.fixture
def site(etcd: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(take, "programs", lambda _run: programs(etcd.version))
    found = Site(tmp_path, etcd)
    monkeypatch.setattr(on_hosts, "question", found.question)
    return found


def test_a_follower_sends_it_another_proves_it_and_nothing_is_left_in_plain(site: Site, etcd: Cluster) -> None:
    found = site.take()
    assert (found["changed"], found["troubles"]) == (True, [])
    made = site.made()
    assert made.levels == (Level.TRAILER, Level.STATUS, Level.RESTORED, Level.HASH)
    assert made.counts == dict.fromkeys(COUNTED, 1)
    assert made.revision == etcd.client().status()[0].revision
    assert made.versions.etcd == etcd.version
    assert (made.mode, made.dirty) == ("Binary", "")
    leader = HOSTS[etcd.members.index(etcd.leader())]
    assert [each for each in site.said if each.startswith("snapshot of etcd member ")] != [
        f"snapshot of etcd member {leader}"
    ]
    assert CANARY in site.plain("snapshot.age")
    assert site.left() == []
    stored = b"".join(path.read_bytes() for path in (site.folder / "backups").rglob("*") if path.is_file())
    assert CANARY not in stored
    assert not any(CANARY.decode() in each for each in site.said)


def test_a_member_that_is_away_is_no_reason_to_have_no_backup(site: Site, etcd: Cluster) -> None:
    away = etcd.members[2]
    etcd.stop(away)
    try:
        until(lambda: sum(each.healthy for each in etcd.client().status()) == 2, "two members that lead without it")
        found = site.take()
    finally:
        etcd.start(away, known=tuple(etcd.members), state="existing")
        etcd.wait_for_health()
    assert found["changed"]
    assert "was not healthy" in site.made().dirty
    assert site.made().levels[-1] == Level.HASH


def test_a_revision_that_is_discarded_meanwhile_cannot_be_compared(
    site: Site, etcd: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a compaction between the snapshot and the hash."""
    honest = snapshot_module._perform

    def compacting(*given: Any) -> dict[str, Any]:
        found: dict[str, Any] = honest(*given)
        if "size" in found:
            client = etcd.client(etcd.leader())
            client.put_if_absent(f"/later/{found['acknowledged']}".encode(), b"x")
            client.put_if_absent(f"/later/{found['acknowledged']}-2".encode(), b"x")
            client.compact(client.revision())
        return found

    monkeypatch.setattr(snapshot_module, "_perform", compacting)
    found = site.take(last=False)
    assert (found["stored"], found["anew"]) == (False, True)
    assert site.left() == []
    found = site.take(last=True)
    assert found["changed"]
    assert site.made().levels[-1] == Level.RESTORED, "the revision itself is gone, so nothing can be counted"


def test_a_full_disk_is_told_before_a_member_sends_anything(
    site: Site, etcd: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.ask()
    begun = site.step("begun")
    monkeypatch.setattr(host_snapshot.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=1, f_frsize=1 << 20))
    monkeypatch.setattr(workplace, "require_room", lambda *_: None)
    found = site.on(etcd_snapshot, begun["sender"])
    assert found["failed"]
    assert "a snapshot needs 256 MiB in /var/lib/karmada-installer-snapshots, and 1 MiB are free" in found["msg"]
    assert site.left() == []


def test_what_a_killed_run_has_left_is_swept_by_the_next_that_locks_the_host(site: Site) -> None:
    site.ask()
    begun = site.step("begun")
    host, question = site.hosts[begun["sender"]], site.question(None, begun["sender"])
    host_snapshot.take(host, "prod", question["url"], FOLDER, "root")
    assert CANARY in host.path(host_snapshot.path_of("prod")).read_bytes()
    assert site.take()["changed"]
    assert site.left() == []


def test_a_directory_of_a_host_has_them_listed_and_verified_and_the_newest_stays(
    site: Site, etcd: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_backup, "PIECE", 1 << 16)
    monkeypatch.setattr(host_backup, "INLINE", 1024)
    keeper = site.keeper = HostOfBackups(tmp_path / "keeper", "cp2")
    keeper.path("/srv/backups").mkdir(parents=True)
    first, second = site.take(), site.take()
    assert (first["troubles"], second["troubles"]) == ([], [])
    assert second["changes"] == [f"created Backup {second['name']}", f"deleted Backup {first['name']}"]
    (folder,) = keeper.path("/srv/backups/prod").iterdir()
    assert (folder.name, sorted(each.name for each in folder.iterdir())) == (
        second["name"],
        sorted((record.SNAPSHOT, record.KEYS, record.RECORD)),
    )
    # They came in pieces, of which nothing is left, here or there.
    assert len(keeper.moved) > 4
    assert (keeper.left, site.left()) == ([], [])
    (listed,) = site.step("listed")["backups"]
    assert listed["target"] == "host cp2: /srv/backups/prod"
    assert [(each["name"], each["ours"]) for each in listed["backups"]] == [(second["name"], True)]
    identity = tmp_path / "identity"
    identity.write_text(f"{KEY}\n")
    (verified,) = site.step("verified", name=second["name"], identity=str(identity))["verified"]
    assert verified["name"] == second["name"]
    assert verified["proofs"][:2] == ["stored", "decrypted"]
    assert "restored" in verified["proofs"]
    stored = b"".join(each.read_bytes() for each in folder.iterdir())
    assert CANARY not in stored
    assert CANARY in pyrage.decrypt((folder / "snapshot.age").read_bytes(), [KEY])
    # Who has changed it there is found out.
    damaged = bytearray((folder / "snapshot.age").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (folder / "snapshot.age").write_bytes(damaged)
    with pytest.raises(ProblemsError, match=r"snapshot\.age"):
        site.step("verified", name=second["name"], identity=str(identity))


def test_on_a_host_it_streams(site: Site, etcd: Cluster) -> None:
    etcd.fill(120, 500_000)
    name = HOSTS[1]
    host, url = site.hosts[name], site.question(None, name)["url"]
    host_snapshot.take(host, "prod", url, FOLDER, "root")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = host_snapshot.take(host, "prod", url, FOLDER, "root")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert found["size"] == host.path(host_snapshot.path_of("prod")).stat().st_size > 60_000_000
    host_snapshot.remove(host, "prod")
