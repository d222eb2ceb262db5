# SPDX-License-Identifier: Apache-2.0
"""Restores of a control plane in memory whose runs are killed at any write, and what members were told by then.

The host cluster here has controllers: workloads have the pods that they ask for, and a member of etcd that starts reads
the folder that its configuration names. Files, programs and members are not in play.
"""

from __future__ import annotations

import base64
import copy
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_restore, workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    agents,
    carry_out,
    check,
    closed,
    delivery,
    drift,
    in_pods,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Chosen, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
BACKUP = "prod-20261125t020000z-1f3a9c"
DOCUMENT = samples.document(samples.etcd(replicas=3))
FORMER = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="volumeClaim",
    members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(NAMES)),
)
GOALS = {Goal.QUARANTINE: "restore", Goal.RELEASE: "release", Goal.UNDO: "restore_undo"}
ISSUED: dict[bool, Any] = {}
INSTALLED: dict[Any, Any] = {}
#: Of the writes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("RESTORE_MOMENTS", "7"))
_UIDS = itertools.count(1)


class Killed(BaseException):
    """The run was killed at this moment."""


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
            self._moment()
            applied = super().apply(obj, **more)
            self._controllers()
            return applied

    def delete(self, *arguments: Any, **more: Any) -> bool:
        self._moment()
        return super().delete(*arguments, **more)

    def _moment(self) -> None:
        self.writes += 1
        if self.until is not None and self.writes > self.until:
            raise Killed

    def _controllers(self) -> None:
        for kind in ("StatefulSet", "Deployment"):
            for each in self.list("apps/v1", kind, "karmada"):
                self._pods_of(each)
        if (WRITERS & self.running() or self.accepting_agents()) and self.serving:
            self.told |= {self.folders[name][folder] for name, folder in self.serving.items()}

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
    is_closed = bool(seen.state.restore and seen.state.restore.closed)
    if is_closed not in ISSUED:
        ISSUED[is_closed] = issue(place, seen)
    return ISSUED[is_closed]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    issue = InPods.issued
    monkeypatch.setattr(InPods, "issued", lambda place, seen: issued_once(issue, place, seen))
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    record = SimpleNamespace(
        name=BACKUP, cluster_id="c", counts={"works": 3}, start=samples.NOW, files={}, started=samples.NOW.isoformat()
    )
    series: Any = SimpleNamespace(name="nightly")
    there: Any = SimpleNamespace(where="there")
    chosen = Chosen(WantedRestore("back", "nightly"), series, there, record)  # type: ignore[arg-type]
    monkeypatch.setattr(check, "choose", lambda *_: chosen)
    monkeypatch.setattr(check, "look", lambda _run: Live())
    monkeypatch.setattr(carry_out.backup_series, "wanted", lambda *_: [series])
    monkeypatch.setattr(carry_out.backup_series, "opened", lambda *_: there)
    monkeypatch.setattr(check, "refuse", lambda *_: None)
    monkeypatch.setattr(check, "loss", lambda *_: ["everything since"])
    monkeypatch.setattr(take, "backup", lambda *_: take.Taken(replace_name(record)))
    monkeypatch.setattr(delivery, "decrypted", lambda *_: SimpleNamespace(path=None))
    monkeypatch.setattr(delivery, "_of_member", made(found))
    monkeypatch.setattr(closed, "accepting_agents", lambda _run: found.accepting_agents())
    monkeypatch.setattr(in_pods, "wait_until", lambda *_, **__: None)
    monkeypatch.setattr(in_pods.access, "connect", lambda run: Client(found, run))
    monkeypatch.setattr(in_pods.etcd_members, "note", noted)
    monkeypatch.setattr(drift, "look", lambda _run: drift.Report([]))
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
        INSTALLED.update(copy.deepcopy(world.objects))
    world.objects = copy.deepcopy(INSTALLED)
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


def replace_name(record: Any) -> Any:
    return SimpleNamespace(**{**vars(record), "name": "prod-20261126t020000z-000000"})


def made(world: World) -> Callable[..., None]:
    """What a pod of a restore does, once it has got its file."""

    def make(_run: Run, member: Any, new: etcd_restore.NewData, *_: Any) -> None:
        folder = f"gen-{new.generation}"
        assert folder not in world.folders[member.name], f"{folder} is there, and etcdutl refuses it"
        world.folders[member.name][folder] = "half"
        world._moment()
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
                others = [each.name for each in pod_components(run.spec) if each.name != "etcd"]
                run.apply_to_host_cluster("stages", lambda: run.workloads(others))  # noqa: B023 - used at once
                restoring.end(step)
    except Killed:
        pass
    finally:
        world.until = None
        run.close()


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


def test_a_restore_ends_in_quarantine_and_a_release_lets_it_work(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    restore = stored(world)
    assert restore.before == "prod-20261126t020000z-000000"
    assert (restore.generation, restore.former) == (2, FORMER)
    state = fake_run(DOCUMENT, world).state
    assert (state.etcd.token, state.etcd.bootstrapped) == (restore.token, True)
    assert [each.name for each in state.etcd.members] == list(NAMES)
    assert state.etcd.token != FORMER.token
    take_steps(world, Goal.RELEASE)
    assert world.told == {"before", "backup"}
    assert world.running() == everything()
    assert (stored(world).step, stored(world).aside) == ("Released", ("gen-1",))
    assert not fake_run(DOCUMENT, world).state.journal.interrupted
    assert all("gen-1" in folders for folders in world.folders.values()), "data is never deleted"


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE])
def test_what_is_done_is_done_once(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    if goal is Goal.RELEASE:
        take_steps(world, Goal.RELEASE)
    before = world.writes
    if goal is Goal.QUARANTINE:
        take_steps(world, Goal.QUARANTINE, confirm="")
    else:
        take_steps(world, Goal.RELEASE)
    assert world.writes == before


def test_a_run_that_is_killed_at_any_write_is_gone_on_with_or_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a whole restore, one after the other."""
    whole = _another(monkeypatch)
    take_steps(whole, Goal.QUARANTINE)
    assert whole.writes > 20
    for killed_after in range(0, whole.writes, MOMENTS):
        for goal, holds in ((Goal.QUARANTINE, assert_quarantined), (Goal.UNDO, assert_undisturbed)):
            here = _another(monkeypatch)
            take_steps(here, Goal.QUARANTINE, killed_after)
            assert here.told <= {"before"}
            if goal is Goal.UNDO and fake_run(DOCUMENT, here).state.restore is None:
                assert_undisturbed(here)  # nothing had begun
                continue
            take_steps(here, goal)
            holds(here)


def test_the_way_back_that_is_killed_at_any_write_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _another(monkeypatch)
    take_steps(whole, Goal.QUARANTINE)
    begun = whole.writes
    take_steps(whole, Goal.UNDO)
    assert_undisturbed(whole)
    assert stored(whole).aside == ("gen-2",)
    for killed_after in range(0, whole.writes - begun, MOMENTS):
        here = _another(monkeypatch)
        take_steps(here, Goal.QUARANTINE)
        take_steps(here, Goal.UNDO, killed_after)
        take_steps(here, Goal.UNDO)
        assert_undisturbed(here)


def _another(monkeypatch: pytest.MonkeyPatch) -> World:
    found: World = world.__wrapped__(monkeypatch)  # type: ignore[attr-defined]
    return found


def test_after_one_that_was_taken_back_another_uses_no_folder_again(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.UNDO)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).generation == 3
    take_steps(world, Goal.RELEASE)
    assert stored(world).aside == ("gen-1", "gen-2")


def test_one_that_was_released_is_not_restored_by_the_same_command_again(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.RELEASE)
    before = world.writes
    take_steps(world, Goal.QUARANTINE)
    assert world.writes == before
    assert stored(world).step == "Released"


def test_there_is_no_quarantine_with_an_api_server_that_accepts_agents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", lambda _run: ["prod-apiserver-1"])
        with pytest.raises(ProblemsError, match="certificates of agents are accepted by prod-apiserver-1") as caught:
            take_steps(world, Goal.QUARANTINE)
    assert [each.reason for each in caught.value.problems] == [Reason.QUARANTINE_OPEN]
    assert stored(world).step == Step.START_SERVERS
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", lambda _run: ["prod-apiserver-1"])
        run = fake_run(DOCUMENT, world, operation="restore")
        run.holder = "a later one"
        with pytest.raises(ProblemsError, match="are accepted"):
            Restoring(run, Goal.QUARANTINE, Asked(), timeout=0).look_again()
    take_steps(world, Goal.UNDO)
    assert_undisturbed(world)


def test_an_api_server_that_cannot_be_asked_is_not_taken_for_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_run: Run) -> list[str]:
        raise Unreachable("the API server", "GET", "/version", 0, "", "it is silent")

    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", silent)
        with pytest.raises(ProblemsError, match="could not be asked whether it refuses agents"):
            take_steps(world, Goal.QUARANTINE)
    assert stored(world).step == Step.START_SERVERS


def test_in_quarantine_members_are_compared_again_and_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(world, Goal.QUARANTINE)
    before, run = world.writes, fake_run(DOCUMENT, world, operation="restore")
    run.holder = "a later one"
    restoring = Restoring(run, Goal.QUARANTINE, Asked(), timeout=0)
    assert not restoring.begin()
    assert restoring.next() is None
    restoring.look_again()
    assert restoring.report == drift.Report([])
    same_run = fake_run(DOCUMENT, world, operation="restore")
    first = Restoring(same_run, Goal.QUARANTINE, Asked(), timeout=0)
    first.look_again()
    assert first.report is None, "it has just told it"
    assert world.writes == before
    releasing = Restoring(run, Goal.RELEASE, Asked(), timeout=0)
    releasing.look_again()
    assert releasing.report is None


def test_a_former_etcd_that_does_not_start_again_does_not_keep_another_restore_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(world, Goal.QUARANTINE)
    with monkeypatch.context() as broken:
        broken.setattr(in_pods, "wait_until", never)
        with pytest.raises(ProblemsError, match="two of its disks are gone"):
            take_steps(world, Goal.UNDO)
    assert stored(world).undoing
    assert world.running() == {"etcd"}
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert (stored(world).generation, stored(world).former, stored(world).undoing) == (3, FORMER, False)
    take_steps(world, Goal.UNDO)
    assert_undisturbed(world)
    assert stored(world).aside == ("gen-2", "gen-3")


def never(*_: Any, **__: Any) -> None:
    raise ProblemsError(Problem("two of its disks are gone", "etcd", "", reason=Reason.NOT_READY_IN_TIME))


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([("u1", True, "a"), ("u2", True, "a"), ("u3", True, "a")], "which is not a new one"),
        ([("u1", True, "b"), ("u2", True, "d")], "which is not a new one"),
        ([("u1", True, "b"), ("u2", False, ""), ("u3", False, "")], "u2: it does not answer"),
        ([("u1", True, "b"), ("u2", True, "b"), ("u3", False, "")], ""),
    ],
)
def test_nothing_is_released_on_an_etcd_that_is_not_the_one_that_was_compared(
    world: World, monkeypatch: pytest.MonkeyPatch, statuses: list[tuple[str, bool, str]], said: str
) -> None:
    monkeypatch.setattr(check, "look", lambda _run: Live([EndpointStatus("u", cluster_id="a")]))
    take_steps(world, Goal.QUARANTINE)
    answers = [
        EndpointStatus(url, healthy=well, message="" if well else "it does not answer", cluster_id=cluster)
        for url, well, cluster in statuses
    ]
    monkeypatch.setattr(Client, "status", lambda _self: answers)
    if not said:
        take_steps(world, Goal.RELEASE)
        assert stored(world).step == "Released"
        return
    with pytest.raises(ProblemsError) as caught:
        take_steps(world, Goal.RELEASE)
    assert said in str(caught.value)
    assert_quarantined(world)


def test_what_another_run_has_begun_meanwhile_is_not_begun_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_run(*_: Any) -> None:
        monkeypatch.setattr(check, "require_confirmed", lambda *_: None)
        fake = fake_run(DOCUMENT, world, operation="restore")
        Restoring(fake, Goal.QUARANTINE, Asked(confirm=BACKUP, keys=("a key",)), timeout=0).begin()

    monkeypatch.setattr(check, "require_confirmed", other_run)
    with pytest.raises(ProblemsError, match="another run has changed etcd"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()


def test_what_was_released_is_backed_up_and_where_that_fails_it_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def full(_run: Run, series: Any, *_: Any) -> None:
        taken.append(series.name)
        raise ProblemsError(Problem("it is full", "there", "", reason=Reason.BACKUP_TARGET_UNUSABLE))

    take_steps(world, Goal.QUARANTINE)
    told: list[Problem] = []
    monkeypatch.setattr(take, "backup", full)
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    take_steps(world, Goal.RELEASE)
    assert (taken, stored(world).step) == (["nightly"], "Released")
    assert [(each.severity, each.what) for each in told if "no backup" in each.what] == [
        (Severity.WARNING, "there is no backup of it since it was restored: it is full")
    ]


def test_agents_of_ours_begin_anew_and_no_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = [{"name": name, "mode": "Pull", "secretRef": {"name": name}} for name in ("m1", "silent", "to-come")]
    member = FakeCluster("member m1")
    for name, owner in (("ours", samples.OWNER), ("theirs", "somebody"), ("other", samples.OWNER)):
        labels = {NAME_LABEL: "karmada-agent", OWNER_LABEL: owner, MEMBER_LABEL: "m2" if name == "other" else "m1"}
        metadata = {"name": name, "namespace": MEMBER_NAMESPACE, "labels": labels, "uid": name}
        member.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    @contextmanager
    def connected(_run: Run, entry: Any) -> Iterator[FakeCluster]:
        assert entry.name != "to-come", "it has not joined"
        if entry.name == "silent":
            raise Unreachable("member silent", "GET", "/", 0, "", "no answer")
        yield member

    told: list[Problem] = []
    monkeypatch.setattr(agents.join, "connected", connected)
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    journal = RestoreState("back", "nightly", BACKUP, "", "0d6c", 2, 10**9, FORMER, step=Step.START_ALL)
    joined = {name: {"mode": "Pull"} for name in ("m1", "silent")}
    state = samples.state(etcd=FORMER, members=joined, restore=journal)
    run = fake_run(
        samples.document({"members": pulls, "endpoint": {"type": "NodePort"}}), world, stored=state, operation="release"
    )
    restoring = Restoring(run, Goal.RELEASE, Asked(), timeout=0)
    assert restoring.next() is Step.WAKE_AGENTS
    restoring.take(Step.WAKE_AGENTS)
    assert [each.ref.name for each in restoring.changes] == ["ours"]
    left = [each["metadata"]["name"] for each in member.list("v1", "Pod", MEMBER_NAMESPACE)]
    assert sorted(left) == ["other", "theirs"]
    assert [each.where for each in told] == ["member silent"]


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.UNDO])
def test_pods_that_a_killed_run_has_left_go(world: World, monkeypatch: pytest.MonkeyPatch, goal: Goal) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(delivery, "forget", lambda _run: (_ for _ in ()).throw(Killed))
        take_steps(world, Goal.QUARANTINE)
    assert stored(world).prepared
    owners = [each["metadata"].get("ownerReferences") for each in world.list("v1", "Pod", "karmada")]
    assert [each[0]["name"] for each in owners if each] == ["prod-etcd"] * 3, "who uninstalls deletes them, too"
    assert etcd_restore.NAME in {each["metadata"]["labels"][NAME_LABEL] for each in world.list("v1", "Pod", "karmada")}
    take_steps(world, goal)
    left = [
        each["metadata"]["name"] for each in world.list("v1", "Pod", "karmada") if "-gen-" in each["metadata"]["name"]
    ]
    assert left == []


def test_without_its_name_nothing_begins(world: World) -> None:
    for confirm, said in (("", "loses everything since"), ("prod-1", "prod-1 was confirmed")):
        with pytest.raises(ProblemsError) as caught:
            take_steps(world, Goal.QUARANTINE, confirm=confirm)
        (problem,) = caught.value.problems
        assert problem.reason is Reason.RESTORE_NOT_CONFIRMED
        assert said in problem.what
        assert f"restore_confirm={BACKUP}" in problem.remedy
    assert world.writes == 0


@pytest.mark.parametrize("goal", [Goal.RELEASE, Goal.UNDO])
def test_where_none_is_under_way_that_is_told(world: World, goal: Goal) -> None:
    with pytest.raises(ProblemsError, match="no restore is under way"):
        take_steps(world, goal)
    assert world.writes == 0


def test_etcd_that_does_not_answer_is_no_reason_to_restore_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: Any) -> None:
        raise ProblemsError(Problem("no member can be asked", "etcd", "", reason=Reason.ETCD_UNHEALTHY))

    monkeypatch.setattr(take, "backup", dead)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).before == ""


def test_a_target_that_takes_no_backup_of_what_is_there_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise ProblemsError(Problem("it is full", "there", "", reason=Reason.BACKUP_TARGET_UNUSABLE))

    monkeypatch.setattr(take, "backup", full)
    with pytest.raises(ProblemsError, match="it is full"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"count_below": lambda _self, _prefix: 2}, "it has 2 works, and the backup has 3"),
        ({"hash_at": lambda _self, revision: Hash(revision, next(_UIDS))}, "the content of its members differs"),
        (
            {"hash_at": lambda _self, revision: Hash(revision, 7, compacted=next(_UIDS))},
            "its members have not discarded the same revisions yet",
        ),
        (
            {"status": lambda _self: [EndpointStatus("u", healthy=True, cluster_id="c", revision=10**15)]},
            "which is not a new one",
        ),
        (
            {"status": lambda _self: [EndpointStatus("u", healthy=True, cluster_id="d", revision=5)]},
            "1 of 3 members have the data of the backup",
        ),
    ],
)
def test_an_etcd_that_is_not_the_backup_is_not_gone_on_with(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any], said: str
) -> None:
    for name, instead in broken.items():
        monkeypatch.setattr(Client, name, instead)
    with pytest.raises(ProblemsError) as caught:
        take_steps(world, Goal.QUARANTINE)
    assert said in str(caught.value)
    assert "restore_undo" in str(caught.value)
    assert "nothing was changed" not in str(caught.value)
    assert world.running() == {"etcd"}


def test_a_pod_that_does_not_stop_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "_pods_of", lambda *_: None)
    with pytest.raises(ProblemsError, match=r"still there: .*prod-controller-manager-0"):
        take_steps(world, Goal.QUARANTINE)
