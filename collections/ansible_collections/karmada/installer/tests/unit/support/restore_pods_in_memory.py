# SPDX-License-Identifier: Apache-2.0
"""A control plane in pods of a host cluster in memory that is restored, and runs that are killed at any write.

The host cluster here has controllers: workloads have the pods that they ask for, and a member of etcd that starts reads
the folder that its configuration names. Files, programs and members are not in play.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    KARMADA_APISERVER,
    pod_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import NAME_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_restore, workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    closed,
    delivery,
    in_pods,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.in_pods import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import (
    BACKUP,
    BACKUP_BEFORE,
    GOALS,
    Killed,
    with_a_backup,
)
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
DOCUMENT = samples.document(samples.etcd(replicas=3))
FORMER = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="volumeClaim",
    members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(NAMES)),
)
ISSUED: dict[Any, Any] = {}
INSTALLED: dict[Any, Any] = {}
_UIDS = itertools.count(1)


class World(FakeCluster):
    """A host cluster. ``until`` writes happen, then the run is killed."""

    def __init__(self) -> None:
        super().__init__("host cluster")
        #: its API server, in which there is nothing; what a release holds there has tests of its own
        self.inside = FakeCluster("control plane")
        self.folders: dict[str, dict[str, str]] = {name: {"gen-1": "before"} for name in NAMES}
        #: member of etcd that runs → folder that it has read
        self.serving: dict[str, str] = {}
        #: what those who write to members have worked by
        self.told: set[str] = set()
        self.until: int | None = None
        self.writes = 0
        #: A run applies several objects at once.
        self.one_at_a_time = threading.RLock()

    def list(self, *arguments: Any, **more: Any) -> list[Any]:
        with self.one_at_a_time:
            return super().list(*arguments, **more)

    def apply(self, obj: Any, *, dry_run: bool = False, **more: Any) -> Applied:
        if dry_run:
            return super().apply(obj, dry_run=True, **more)
        with self.one_at_a_time:
            self.moment()
            applied = super().apply(obj, **more)
            self._controllers()
            return applied

    def delete(self, *arguments: Any, **more: Any) -> bool:
        self.moment()
        return super().delete(*arguments, **more)

    def moment(self) -> None:
        """A write is about to happen."""
        self.writes += 1
        if self.until is not None and self.writes > self.until:
            raise Killed

    def _controllers(self) -> None:
        for kind in ("StatefulSet", "Deployment"):
            for each in self.list("apps/v1", kind, "karmada"):
                self._pods_of(each)
        if WRITERS & self.running() or self.accepting_agents():
            self.told |= self.content()

    def accepting_agents(self) -> list[str]:
        """API servers that run and accept what kube-controller-manager has signed: agents write to members, too."""
        if KARMADA_APISERVER.name not in self.running():
            return []
        accepted = self.get("v1", "Secret", "prod-client-ca", "karmada")
        assert accepted, "an API server starts without the authorities that it accepts"
        both = base64.b64decode(accepted["data"]["ca.crt"]).count(b"BEGIN CERTIFICATE") == 2
        return ["prod-apiserver-0"] if both else []

    def _pods_of(self, workload: Any) -> None:
        name, labels = workload["metadata"]["name"], workload["spec"]["template"]["metadata"]["labels"]
        wanted = [f"{name}-{number}" for number in range(workload["spec"]["replicas"])]
        for number in itertools.count():
            pod = f"{name}-{number}"
            there = ("v1", "Pod", "karmada", pod) in self.objects
            if pod not in wanted and not there:
                return
            if pod not in wanted:
                del self.objects["v1", "Pod", "karmada", pod]
                self.serving.pop(pod, None)
            elif not there:
                self._started(pod, labels)

    def _started(self, pod: str, labels: Any) -> None:
        uid = f"00000000-0000-{next(_UIDS):012d}"
        metadata = {"name": pod, "namespace": "karmada", "labels": labels, "uid": uid}
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": "Running"}})
        if pod in NAMES:
            found = self.get("v1", "ConfigMap", "prod-etcd-config", "karmada")
            assert found, "a member starts without its configuration"
            folder = yaml.safe_load(found["data"][f"{pod}.yaml"])["data-dir"].rpartition("/")[2]
            assert folder in self.folders[pod], f"{pod} starts with {folder}, which is empty"
            self.serving[pod] = folder

    def running(self) -> set[str]:
        pods = self.list("v1", "Pod", "karmada")
        return {each["metadata"]["labels"][NAME_LABEL] for each in pods if each.get("status")}

    def content(self) -> set[str]:
        """What etcd serves."""
        return {self.folders[name][folder] for name, folder in self.serving.items()}


class Client:
    """Client of the etcd in this world."""

    def __init__(self, world: World, run: Run) -> None:
        self.world, self.generation = world, run.state.etcd.generation
        self.cluster = "b" if "backup" in world.content() else "a"

    def status(self) -> list[EndpointStatus]:
        revision = 10**15 if self.cluster == "b" else 5
        return [
            EndpointStatus(name, healthy=True, cluster_id=self.cluster, revision=revision)
            for name in self.world.serving
        ]

    def at(self, _url: str) -> Client:
        return self

    def hash_at(self, revision: int) -> Hash:
        return Hash(revision, 7)

    def count_below(self, _prefix: bytes) -> int:
        return 3


def issued_once(issue: Callable[..., Any], place: InPods, seen: Any) -> Any:
    """Certificates of all these tests, for a control plane that is closed to agents and for one that is not."""
    key = (type(place), bool(seen.state.restore and seen.state.restore.closed))
    if key not in ISSUED:
        ISSUED[key] = issue(place, seen)
    return ISSUED[key]


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no Lease, and each certificate issued once."""
    issue = InPods.issued
    monkeypatch.setattr(InPods, "issued", lambda place, seen: issued_once(issue, place, seen))
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())


def made(monkeypatch: pytest.MonkeyPatch) -> World:
    """A host cluster with a control plane that nobody has restored."""
    found = World()
    stand_in(monkeypatch)
    record = with_a_backup(monkeypatch)
    taken = SimpleNamespace(**{**vars(record), "name": BACKUP_BEFORE})
    monkeypatch.setattr(take, "backup", lambda *_: take.Taken(taken))
    monkeypatch.setattr(delivery, "decrypted", lambda *_: SimpleNamespace(path=None))
    monkeypatch.setattr(delivery, "_of_member", new_data(found))
    monkeypatch.setattr(closed, "accepting_agents", lambda _run: found.accepting_agents())
    monkeypatch.setattr(in_pods, "wait_until", lambda *_, **__: None)
    monkeypatch.setattr(in_pods.access, "connect", lambda run: Client(found, run))
    monkeypatch.setattr(in_pods.etcd_members, "note", noted)
    install(found)
    assert found.content() == {"before"}
    return found


def install(world: World) -> None:
    """Have a control plane there, made once for all tests."""
    if not INSTALLED:
        run = fake_run(DOCUMENT, world, stored=samples.state(etcd=FORMER))
        secrets = workloads.file_set_secrets(run.instance, run.layout, run.material)
        for each in [*secrets, *run.workloads([each.name for each in pod_components(run.spec)])]:
            world.apply(each)
        INSTALLED.update(copied(world.objects))
    world.objects = copied(INSTALLED)
    world.serving, world.told, world.writes = dict.fromkeys(NAMES, "gen-1"), {"before"}, 0


def noted(run: Run) -> None:
    """Put the IDs on record that members of etcd have got."""
    members = tuple(replace(each, id=each.id or f"b{number}") for number, each in enumerate(run.state.etcd.members))
    if members != run.state.etcd.members:
        with run.writing("note the members of etcd"):
            run.save(replace(run.state, etcd=replace(run.state.etcd, members=members)))


def assert_members_are_configured(world: World) -> None:
    """An installation would find nothing to do at members of etcd."""
    run = fake_run(DOCUMENT, world)
    wanted = {each["metadata"]["name"]: each for each in run.workloads(["etcd"])}["prod-etcd-config"]
    found = world.get("v1", "ConfigMap", "prod-etcd-config", "karmada")
    assert found
    assert found["data"] == wanted["data"]


def new_data(world: World) -> Callable[..., None]:
    """What a pod of a restore does, once it has got its file."""

    def make(_run: Run, member: Any, new: etcd_restore.NewData, *_: Any) -> None:
        folder = f"gen-{new.generation}"
        assert folder not in world.folders[member.name], f"{folder} is there, and etcdutl refuses it"
        world.folders[member.name][folder] = "half"
        world.moment()
        world.folders[member.name][folder] = "backup"

    return make


def take_steps(world: World, goal: Goal, killed_after: int | None = None, confirm: str = BACKUP, **asked: Any) -> None:
    """One run of a playbook, killed after so many writes of it. ``asked``: what else it was given."""
    run = fake_run(DOCUMENT, world, operation=GOALS[goal])
    run.control_plane = world.inside
    world.until = None if killed_after is None else world.writes + killed_after
    restoring = Restoring(run, goal, Asked(confirm=confirm, keys=("a key",), **asked), timeout=0)
    try:
        if goal is Goal.QUARANTINE:
            restoring.begin()
        while step := restoring.next():
            if restoring.take(step):
                bring_up(run)
                restoring.end(step)
    except Killed:
        pass
    finally:
        world.until = None
        run.close()


def bring_up(run: Run) -> None:
    """As the stages do it: everything but etcd, and but what is held."""
    others = [each.name for each in pod_components(run.spec) if each.name != "etcd"]
    run.apply_to_host_cluster("stages", lambda: run.workloads(others))


def stored(world: World) -> RestoreState:
    found = fake_run(DOCUMENT, world).stored_state
    assert found
    assert found.restore
    return found.restore


def everything() -> set[str]:
    return {each.name for each in pod_components(fake_run(DOCUMENT, FakeCluster("x")).spec)}


def assert_quarantined(world: World) -> None:
    assert stored(world).step == Step.COMPARE
    assert world.content() == {"backup"}
    assert len(world.serving) == 3
    assert_members_are_configured(world)
    assert world.running() == everything() - WRITERS
    assert world.told <= {"before"}
    journal = fake_run(DOCUMENT, world).state.journal
    assert (journal.operation, journal.interrupted) == ("restore", False)


def assert_undisturbed(world: World) -> None:
    state = fake_run(DOCUMENT, world).state
    assert world.content() == {"before"}
    assert_members_are_configured(world)
    assert world.running() == everything()
    assert state.etcd == FORMER
    assert state.restore is None or state.restore.is_over
    assert world.told <= {"before"}
