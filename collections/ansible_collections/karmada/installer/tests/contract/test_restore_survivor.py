# SPDX-License-Identifier: Apache-2.0
"""What is left of a real etcd of three members when the disks of two are lost: what one has, kept as a backup.

Members are processes on loopback. That is compared with what a copy of the member's data has that is started with
``--force-new-cluster``, which is the way that etcd's documentation names.
"""

from __future__ import annotations

import base64
import io
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyrage
import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_restore, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    encryption,
    series,
    take,
    trial,
    workplace,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import KEYS, SNAPSHOT, Level, Purpose
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import DirectoryTarget
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.verification import COUNTED
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Directory, Retention, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import access
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_survivor
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check_in_pods, survivor, survivor_copy
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Place
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.contract.test_backup_snapshot import programs
from ansible_collections.karmada.installer.tests.contract.test_etcd_members import VERSIONS, Cluster, Member
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

KEY = pyrage.x25519.Identity.generate()
NIGHTLY = Wanted("nightly", (str(KEY.to_public()),), schedule_of("", ""), False, Directory(""), Retention(24, 7, 4))
NAMES = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
WORKS = COUNTED["works"]


class Site:
    """A control plane whose etcd has a backup, and has gone on since. ``member`` is the one that survives."""

    def __init__(self, etcd: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.etcd, self.member = etcd, etcd.members[0]
        # While the lab has its own cache: in that of a test it would build them anew.
        found = programs(etcd.version)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setattr(take, "programs", lambda _run: found)
        monkeypatch.setattr(access, "connect", lambda _run: etcd.client())
        monkeypatch.setattr(
            access, "names", lambda _run: {each.client_url: n for each, n in zip(etcd.members, NAMES, strict=True)}
        )
        # The claims of a host cluster are not in play.
        monkeypatch.setattr(check_in_pods, "problems", lambda *_: [])
        ids = [etcd.id_of(each) for each in etcd.members]
        members = tuple(EtcdMemberState(name, id=each) for name, each in zip(NAMES, ids, strict=True))
        stored = samples.state(
            etcd=EtcdState(token="t", storage="volumeClaim", bootstrapped=True, members=members),
            encryption_key=base64.b64encode(b"k" * 32).decode(),
        )
        self.run = fake_run(samples.document({}), FakeCluster("host cluster"), stored=stored)
        unfit = survivor.unfit
        # This control plane has the etcd of its release; members here are of several minors.
        monkeypatch.setattr(
            survivor,
            "unfit",
            lambda known, name, status, _release, where: unfit(known, name, status, etcd.version, where),
        )
        (folder / "backups").mkdir()
        self.target = DirectoryTarget("prod", folder / "backups", "")
        self.place = Place(WantedRestore("back", "nightly"), NIGHTLY, self.target)
        etcd.client().put_if_absent(WORKS + b"before", b"{}")
        self.backup = take.backup(self.run, NIGHTLY, self.target, Purpose.SCHEDULED).record

    def lose(self, *members: Member) -> None:
        """The disks of these members are gone."""
        self.etcd.stop(*members)
        for each in members:
            shutil.rmtree(each.directory / "data")

    def lose_majority(self) -> None:
        self.etcd.client().put_if_absent(WORKS + b"after", b"{}")
        # A follower may lack what it was not told to be committed.
        newest = max(each.revision for each in self.etcd.client().status())
        until(lambda: self.alone().status()[0].revision == newest, "the survivor to have the last write")
        self.lose(*self.etcd.members[1:])
        until(lambda: "no leader" in self.alone().status()[0].message, "the survivor to miss its leader")

    def alone(self) -> access.EtcdClient:
        return self.etcd.client(self.member)

    def judged(self, **asked: object) -> survivor.Survivor:
        wishes = {"survivor": NAMES[0], "confirm": NAMES[0], "keys": (KEY,), **asked}
        return survivor.judged(self.run, Asked(**wishes), self.place, 60)  # type: ignore[arg-type]

    def refused(self, *, dry: bool = False, **asked: object) -> ProblemsError:
        self.run.__dict__["check"] = dry
        with pytest.raises(ProblemsError) as caught:
            self.judged(**asked)
        assert "nothing was changed" in str(caught.value)
        return caught.value

    def decrypted(self, name: str, into: Path) -> Path:
        sink, path = io.BytesIO(), into / "snapshot.db"
        self.target.get(name, SNAPSHOT, sink)
        with path.open("xb") as plain:
            encryption.decrypt(io.BytesIO(sink.getvalue()), plain, [KEY], name)
        return path


@pytest.fixture(params=VERSIONS)
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with ExitStack() as stack:
        etcd = Cluster(stack, tmp_path / "etcd", request.param).voters(3)
        for prefix in COUNTED.values():
            etcd.client().put_if_absent(prefix + b"one", b"{}")
        found = Site(etcd, tmp_path, monkeypatch)
        yield found
        found.run.close()


def forced(site: Site, folder: Path) -> tuple[int, dict[str, int]]:
    """Revision and numbers of keys that a forced start of a copy of the survivor's data has, made while it is off."""
    data = folder / "copy"
    shutil.copytree(site.member.directory / "data", data)
    keys = folder / "keys"
    keys.mkdir()
    with trial.etcd(data, programs(site.etcd.version), keys, "here", force=site.member.name) as client:
        revision = client.status()[0].revision
        return revision, {kind: client.count_below(prefix) for kind, prefix in COUNTED.items()}


def test_what_a_member_alone_has_becomes_a_backup_and_is_what_a_forced_start_of_a_copy_has(
    site: Site, tmp_path: Path
) -> None:
    site.lose_majority()
    before = site.alone().status()[0]
    found = site.judged()
    assert any("the last writes before most members were lost may be missing" in each for each in found.told)
    assert any(f"revision {before.revision}, and the newest backup ({site.backup.name}" in each for each in found.told)
    assert found.newest == site.backup
    assert found.since == site.backup.start
    made = survivor.backed_up(site.run, found, site.place)
    assert (made.purpose, made.revision, made.cluster_id) == (Purpose.SURVIVOR, before.revision, before.cluster_id)
    assert made.levels == (Level.TRAILER, Level.STATUS, Level.RESTORED, Level.HASH)
    assert made.counts["works"] == 3
    assert site.backup.counts["works"] == 2
    assert "no leader" in made.dirty
    listed = {each.name: each for each in series.found(site.target, series.signer(site.run))}
    assert listed[made.name].ours
    assert site.decrypted(made.name, tmp_path).stat().st_size == made.files[SNAPSHOT].plain_size
    assert set(made.files) == {SNAPSHOT, KEYS}
    # Nothing of the member has changed.
    after = site.alone().status()[0]
    assert [(e.member_id, e.term, e.index, e.revision) for e in (after,)] == [
        (e.member_id, e.term, e.index, e.revision) for e in (before,)
    ]
    site.etcd.stop(site.member)
    assert forced(site, tmp_path) == (made.revision, dict(made.counts))


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_one_that_was_started_again_answers_nobody_and_its_database_is_copied_as_it_lies(
    site: Site, tmp_path: Path, killed: bool
) -> None:
    """Killed, the database lacks what the log has, until the member that starts again has taken it from there."""
    site.lose_majority()
    assert site.member.process
    if not killed:
        site.member.process.terminate()
        site.member.process.wait(60)
    site.etcd.stop(site.member)
    site.etcd.start(site.member, known=tuple(site.etcd.members), state="existing")
    log = site.member.directory / "etcd.log"
    until(lambda: b"is starting a new election" in log.read_bytes(), "the survivor to look for a leader")
    # Until its database is written: a tenth of a second.
    time.sleep(1)
    status = site.alone().status()[0]
    assert status.cause is not None
    assert "does not answer" in str(site.refused(dry=True))
    data, tools = site.member.directory / "data", programs(site.etcd.version)
    before = (data / "member/snap/db").read_bytes()
    command = etcd_survivor.command(
        str(tools.etcdutl), str(data / "member/snap/db"), str(tmp_path / "restored"), "https://127.0.0.1:1"
    )
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert (data / "member/snap/db").read_bytes() == before
    keys = tmp_path / "served"
    keys.mkdir()
    with trial.etcd(tmp_path / "restored", tools, keys, "here") as client:
        copied = client.status()[0].revision, {kind: client.count_below(each) for kind, each in COUNTED.items()}
    site.etcd.stop(site.member)
    assert copied == forced(site, tmp_path)
    assert copied[1]["works"] == 3


@pytest.mark.parametrize("running", [True, False], ids=["it runs", "it was killed"])
def test_from_a_plain_host_all_its_data_comes_here_and_starts_once_without_the_others(
    site: Site, tmp_path: Path, running: bool
) -> None:
    site.lose_majority()
    before = site.alone().status()[0]
    if not running:
        site.etcd.stop(site.member)
    host = Host(tmp_path / "host")
    host.users["root"] = ""
    folder = "/var/lib/karmada/prod/etcd/gen-1"
    host.path(folder).parent.mkdir(parents=True)
    host.path(folder).symlink_to(site.member.directory / "data")
    told = host_restore.copy(host, "prod", folder, "root")
    sent = host.path(host_snapshot.path_of("prod"))
    assert (sent.stat().st_size, sent.stat().st_mode & 0o777) == (told["size"], 0o600)
    here = workplace.made()
    archive = here / "survivor.tar"
    shutil.move(sent, archive)
    copy = survivor_copy.of_archive(site.run, site.member.name, archive, take.Beginning.now(site.run.state))
    assert survivor_copy.Copy.of(copy.plain).plain == copy.plain
    told_by_copy = (copy.status.cluster_id, copy.status.member_id, copy.status.revision)
    assert told_by_copy == (before.cluster_id, before.member_id, before.revision)
    # It is judged, and becomes a backup, as what a member has sent by itself.
    found = survivor._found(site.run, site.place, NAMES[0], {NAMES[0]: before}, copy)
    made = survivor._stored(
        site.run, found, site.place, {"file": str(copy.path), "beginning": copy.beginning.plain}, copy.hash
    )
    assert (made.revision, made.counts["works"], made.levels[-1]) == (before.revision, 3, Level.HASH)
    copy.remove()
    assert not here.exists()


def test_of_a_folder_without_data_no_host_makes_a_copy(tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    host.users["root"] = ""
    host.path("/data/member/snap").mkdir(parents=True)
    for file in ("", "db"):
        if file:
            (host.path("/data/member/snap") / file).write_bytes(b"x")
        with pytest.raises(HostError, match="has no data of a member"):
            host_restore.copy(host, "prod", "/data", "root")
    assert not host.path(host_snapshot.path_of("prod")).exists()


def test_a_folder_without_data_gives_no_copy(site: Site, tmp_path: Path) -> None:
    tools = programs(site.etcd.version)
    (tmp_path / "empty").touch()
    for path in (tmp_path / "nothing", tmp_path / "empty"):
        command = etcd_survivor.command(str(tools.etcdutl), str(path), str(tmp_path / "r"), "https://127.0.0.1:1")
        assert subprocess.run(command, capture_output=True, check=False).returncode != 0, path
        shutil.rmtree(tmp_path / "r", ignore_errors=True)


def test_its_pod_is_admitted_where_pods_may_do_least(api_server: ApiServer) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "survived", "labels": labels}}
    assert api_server.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    for node in ("", "node-a"):
        pod = etcd_survivor.pod(rendered().instance, samples.state().etcd, NAMES[0], node)
        pod["metadata"]["namespace"] = "survived"
        path = "/api/v1/namespaces/survived/pods?dryRun=All&fieldValidation=Strict"
        status, answer = api_server.request("POST", path, pod)
        assert (status, answer.get("message")) == (201, None)


def test_nothing_begins_that_was_not_confirmed_by_the_name_of_the_member(site: Site) -> None:
    site.lose_majority()
    for confirm in ("", NAMES[1], site.backup.name):
        (problem,) = site.refused(confirm=confirm).problems
        assert problem.reason is Reason.RESTORE_NOT_CONFIRMED
        assert f"-e restore_survivor={NAMES[0]} -e restore_confirm={NAMES[0]}" in problem.remedy
        assert "may be missing" in problem.what
    assert len(list(site.target.names())) == 1


def test_where_nothing_is_lost_nothing_is_forced(site: Site) -> None:
    assert "etcd has its majority" in str(site.refused())
    site.lose(site.etcd.members[2])
    assert "etcd has its majority" in str(site.refused())


def test_two_that_only_do_not_reach_a_third_are_no_survivors(site: Site) -> None:
    """Of three that were started again, two answer before they have elected a leader."""
    site.lose_majority()
    statuses = survivor.seen(site.run)
    statuses[NAMES[1]] = replace(statuses[NAMES[0]], url="u")
    found = list(survivor.not_lost(NAMES[0], statuses, "here"))
    assert [each.what for each in found] == [
        f"most members have their data ({NAMES[0]}, {NAMES[1]} answer), and only no leader"
    ]


def test_who_is_gone_or_unknown_or_of_another_etcd_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.lose_majority()
    assert "member prod-etcd-1 does not answer" in str(site.refused(survivor=NAMES[1], confirm=NAMES[1], dry=True))
    assert "prod-etcd-7 is no member of etcd" in str(site.refused(survivor="prod-etcd-7"))
    assert "no private key is here" in str(site.refused(keys=()))
    other = EtcdState("t", bootstrapped=True, members=tuple(EtcdMemberState(name, id="abc") for name in NAMES))
    monkeypatch.setattr(type(site.run), "state", replace(site.run.state, etcd=other))
    assert "is not that of the member on record" in str(site.refused())


def test_a_backup_that_has_all_of_it_is_restored_instead(site: Site) -> None:
    site.lose(*site.etcd.members[1:])
    until(lambda: "no leader" in site.alone().status()[0].message, "the survivor to miss its leader")
    said = str(site.refused())
    assert f"backup {site.backup.name} has revision {site.backup.revision}" in said
    assert "without a survivor" in said


def test_a_target_that_cannot_be_written_is_told_and_nothing_is_stored(site: Site, tmp_path: Path) -> None:
    site.lose_majority()
    found = site.judged()
    shutil.rmtree(tmp_path / "backups")
    with pytest.raises(ProblemsError) as caught:
        survivor.backed_up(site.run, found, site.place)
    assert caught.value.problems[0].reason is Reason.BACKUP_TARGET_UNUSABLE
    assert not (tmp_path / "backups").exists()


def test_without_a_backup_the_bump_allows_for_years(site: Site) -> None:
    site.target.delete(site.backup.name)
    site.lose_majority()
    found = site.judged()
    assert found.newest is None
    assert site.run.now - found.since >= timedelta(days=3650)
    assert any("there is no backup of this etcd" in each for each in found.told)
