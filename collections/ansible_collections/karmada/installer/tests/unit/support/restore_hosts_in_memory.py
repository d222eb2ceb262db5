# SPDX-License-Identifier: Apache-2.0
"""A control plane on hosts in memory that is restored, and runs that are killed at any change.

What is held there comes out of the trees that hosts get, and every run reads what the one before has left on them. The
order of the tasks is that of the role; what they do on a host is played here.
"""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState, State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    agents,
    on_hosts,
    under_way,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done, concerned, turned
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import (
    BACKUP,
    BACKUP_BEFORE,
    GOALS,
    Killed,
    with_a_backup,
)
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    remembered,
    seen,
)

#: Hosts with a member, in the order of the state.
MEMBERS = ("cp1", "etcd1", "etcd2")
FORMER = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="directory",
    nodes=MEMBERS,
    members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(MEMBERS)),
    cluster="a",
)
REVISION = 10**15
ISSUED: dict[Any, Any] = {}
_NUMBERS = itertools.count(1)


class Machine:
    """A host: what runs, what starts with it, and the folders of etcd's data."""

    def __init__(self, *, has_data: bool) -> None:
        self.running: set[str] = set()
        self.enabled: set[str] = set()
        self.folders = {"gen-1": "before"} if has_data else {}
        #: folder that etcd has read at its start, and authorities that the API server knows
        self.serving, self.authorities = "", 0


class World:
    """Hosts with a control plane. ``until`` changes happen, then the run is killed."""

    #: names of the hosts
    names: Sequence[str] = tuple(host["name"] for host in HOSTS)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = {name: Machine(has_data=name in MEMBERS) for name in self.names}
        #: its API server, in which there is nothing; what a release holds there has tests of its own
        self.inside = FakeCluster("control plane")
        self.stored = Stored().after(remembered(etcd=FORMER), on_hosts=False)
        self.told: set[str] = set()
        self.until: int | None = None
        self.changes = 0
        #: how often karmada-controller-manager was restarted
        self.begun_anew = 0
        #: A run changes several objects at once.
        self.one_at_a_time = threading.RLock()

    def moment(self) -> None:
        """A change is about to happen."""
        self.changes += 1
        if self.until is not None and self.changes > self.until:
            raise Killed

    # -- what differs by where the rest of the control plane runs ------------------------------------------------------

    def state(self) -> State:
        """State as the next run finds it."""
        found = self.stored.state()
        assert found
        return found

    def keep(self, known: State) -> None:
        """Have this state kept."""
        self.stored = Stored().after(known, on_hosts=False)

    def run(self, runs: Runs, operation: str, *, check: bool = False) -> Run:
        """A step of these runs."""
        found = runs.step(check=check, holder=f"me@{runs.handover._folder.name}", operation=operation)
        found.control_plane = self.inside  # type: ignore[assignment]
        return found

    def bring_up(self, runs: Runs, operation: str) -> None:
        """As the stages do it: everything but what is held."""
        run = self.run(runs, operation)
        for name in self.machines:
            self.converge(run, name, list(BY_NAME))

    def units(self) -> set[str]:
        """Rows of all components on hosts."""
        return everything()

    def components(self) -> set[str]:
        """Rows of all components."""
        return self.units()

    def knows_agents(self) -> bool:
        """Whether every API server knows those who have signed certificates of agents."""
        return {each.authorities for each in self.api_servers()} == {2}

    # -- runs ----------------------------------------------------------------------------------------------------------

    def runs(self) -> Runs:
        """A run that has looked at all hosts."""
        found = Runs(self.folder / str(next(_NUMBERS)))
        found.see_all(seen(self.stored))
        return found

    def written(self, runs: Runs) -> None:
        """What the run has handed on is written to every host, if it is another state than they have."""
        handed_on = runs.handover.stored
        if handed_on and Stored.of(handed_on).digest != self.stored.digest:
            self.moment()
            self.stored = Stored.of(handed_on)
            runs.see_all({"stored": self.stored.plain})

    def converge(self, run: Run, name: str, rows: Sequence[str]) -> None:
        """Bring units of a host to what they should be, by the tree that it gets."""
        machine, instance = self.machines[name], run.instance
        tree = run.on_host(name).tree(rows)
        by_unit = {units.unit_name(instance, each): each for each in run.on_host(name).components(rows)}
        for unit in tree["units"]:
            row = by_unit[unit["name"]].row
            if unit.get("stopped"):
                if row in machine.running | machine.enabled:
                    self.moment()
                    machine.running.discard(row)
                    machine.enabled.discard(row)
                    machine.serving = "" if row == ETCD.name else machine.serving
            elif row not in machine.running:
                self.moment()
                self._start(machine, row, tree)
        if KARMADA_APISERVER.name in machine.running and KARMADA_APISERVER.name in rows:
            machine.authorities = _authorities(tree)
        self._controllers()

    def _start(self, machine: Machine, row: str, tree: Any) -> None:
        machine.running.add(row)
        machine.enabled.add(row)
        if row == ETCD.name:
            (found,) = (each["content"] for each in tree["files"] if each["path"].endswith("/etcd.yaml"))
            folder = yaml.safe_load(base64.b64decode(found))["data-dir"].rpartition("/")[2]
            assert folder in machine.folders, f"it starts with {folder}, which is empty"
            machine.serving = folder

    def _controllers(self) -> None:
        if WRITERS & self.running() or any(each.authorities > 1 for each in self.api_servers()):
            self.told |= self.content()

    def api_servers(self) -> list[Machine]:
        return [each for each in self.machines.values() if KARMADA_APISERVER.name in each.running]

    def admission(self, requests: Any) -> dict[str, Any]:
        """Answers of an API server to objects that are tried."""
        return {name: self._tried(each["path"], each["body"]) for name, each in requests.items()}

    def _tried(self, path: str, body: Any) -> dict[str, Any]:
        assert path.endswith(f"/namespaces/{body['metadata']['namespace']}/works?dryRun=All")
        try:
            self.inside.create(body, dry_run=True)
        except ApiError as error:
            return {"status": error.status, "message": error.message}
        return {"status": 201, "message": ""}

    def running(self) -> set[str]:
        return {row for each in self.machines.values() for row in each.running}

    def content(self) -> set[str]:
        """What etcd serves."""
        return {each.folders[each.serving] for each in self.machines.values() if each.serving}

    def answer(self, name: str) -> dict[str, Any]:
        """Answer of the member of a host."""
        serving = self.machines[name].folders.get(self.machines[name].serving)
        if serving is None:
            return {"message": "it does not answer"}
        of_backup = serving == "backup"
        header = {
            "cluster_id": str(0xB if of_backup else 0xA),
            "member_id": str((0xB0 if of_backup else 0xA0) + MEMBERS.index(name)),
            "revision": str(REVISION if of_backup else 5),
        }
        numbers = dict.fromkeys(("raftIndex", "raftTerm", "dbSize", "dbSizeInUse", "dbSizeQuota"), "9")
        urls: dict[str, list[str]] = {"peer_urls": [], "client_urls": []}
        known = {
            "cluster_id": "b" if of_backup else "a",
            "members": [
                {"id": f"{'b' if of_backup else 'a'}{number}", "name": each, "learner": False, **urls}
                for number, each in enumerate(MEMBERS)
            ],
        }
        status = {"header": header, "version": "3.6.5", "leader": "1", "isLearner": False, "errors": [], **numbers}
        return {"message": "", "status": status, "known": known}


def _authorities(tree: Any) -> int:
    (found,) = (
        each["content"] for each in tree["files"] if each["path"].endswith("karmada-apiserver/pki/client-ca/ca.crt")
    )
    return base64.b64decode(found).count(b"BEGIN CERTIFICATE")


def issued_once(issue: Callable[..., Any], instance: Any, state: Any, where: Any, present: Any, *more: Any) -> Any:
    """Certificates of all these tests, for a control plane that is closed to agents and for one that is not."""
    key = (where.base, bool(state.restore and state.restore.closed))
    if key not in ISSUED:
        ISSUED[key] = issue(instance, state, where, present, *more)
    return ISSUED[key]


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each certificate of a host issued once."""
    if not isinstance(certificates.issue_missing, partial):
        monkeypatch.setattr(certificates, "issue_missing", partial(issued_once, certificates.issue_missing))


def made(monkeypatch: pytest.MonkeyPatch, folder: Path) -> World:
    """Hosts with a control plane that nobody has restored."""
    found = World(folder)
    stand_in(monkeypatch)
    with_a_backup(monkeypatch)
    monkeypatch.setattr(agents, "wake", lambda *_: None)
    found.bring_up(found.runs(), GOALS[Goal.QUARANTINE])
    assert (found.content(), found.running()) == ({"before"}, everything())
    found.changes, found.told = 0, {"before"}
    return found


class Noting(Restoring):
    """Steps of a restore, which it writes down as they are taken."""

    taken: list[Step]

    def take(self, step: Step) -> str:
        self.taken.append(step)
        return super().take(step)


class Role:
    """Tasks of one run of a playbook, in the order of the role."""

    def __init__(self, world: World, goal: Goal, confirm: str = BACKUP, **asked: Any) -> None:
        self.world, self.goal, self.runs = world, goal, world.runs()
        self.asked = Asked(confirm=confirm, keys=("a key",), **asked)
        self.taken: list[Step] = []
        self.rests: list[str] = []
        self.troubles: list[str] = []

    def action(self) -> Restoring:
        """The action, in a process of its own."""
        found = Noting(self.run(), self.goal, self.asked, timeout=0)
        found.taken = self.taken
        return found

    def run(self) -> Run:
        """One more step of this run."""
        return self.world.run(self.runs, GOALS[self.goal])

    def look(self) -> None:
        run = self.run()
        restore = run.state.restore
        for name, machine in self.world.machines.items():
            folder = f"gen-{restore.generation}" if restore else ""
            noted = self.runs.handover.observed(name).restore
            here = {"running": sorted(machine.running), "there": folder in machine.folders, "status": 0}
            restore_seen: dict[str, Any] = {**noted, **here}
            if restore and restore.closed and KARMADA_APISERVER.name in machine.running:
                restore_seen["status"] = 401 if machine.authorities == 1 else 403
            restore_seen["admission"] = self.world.admission(on_hosts.admission(run, name).get("requests", {}))
            etcd = self.world.answer(name) if name in MEMBERS else {}
            self.runs.see(**{name: {"restore": restore_seen, "etcd": etcd}})

    def written(self) -> None:
        self.world.written(self.runs)

    def on_hosts(self, rows: Sequence[str]) -> None:
        for name in self.world.machines:
            self.world.converge(self.run(), name, rows)

    def prepared(self) -> None:
        run = self.run()
        restore = under_way.restore_of(run)
        for name in restore.members:
            folders, folder = self.world.machines[name].folders, on_hosts.folder(run, name).rpartition("/")[2]
            assert folder not in folders, f"{folder} is there, and the host refuses it"
            folders[folder] = "half"
            self.world.moment()
            folders[folder] = "backup"
            noted = self.runs.handover.observed(name).restore
            self.runs.see(**{name: {"restore": {**noted, "made": restore.generation}}})

    def etcd_started(self) -> None:
        self.on_hosts([ETCD.name])

    def etcd_restored(self) -> None:
        self.etcd_started()
        self.counted()

    def stopped(self, components: frozenset[str]) -> None:
        """Etcd when nothing on any host needs it any more."""
        for part in (components - {ETCD.name}, components & {ETCD.name}):
            if part:
                self.on_hosts(on_hosts.on_a_host(part))

    def counted(self, works: int = 3, revision: int = REVISION) -> None:
        for name in MEMBERS:
            noted = self.runs.handover.observed(name).restore
            told = {"hash": {"revision": revision, "value": 7, "compacted": 1}, "counts": {"works": works}}
            self.runs.see(**{name: {"restore": {**noted, **told}}})

    def rest(self, step: Step, tasks: str) -> Done:
        """What tasks of the role do of a step."""
        self.rests.append(tasks)
        if tasks == on_hosts.STOPPED:
            self.stopped(concerned(step, self.action().means.stops))
        elif tasks == "stages":
            self.world.bring_up(self.runs, GOALS[self.goal])
        elif tasks == on_hosts.HELD:
            if self.action().release.begin():
                self.world.moment()
                self.world.begun_anew += 1
        elif tasks == on_hosts.WOKEN:
            self.world.moment()
        elif tasks == on_hosts.BACKED_UP:
            return Done("" if self.troubles else BACKUP_BEFORE, self.troubles)
        else:
            {
                on_hosts.PREPARED: self.prepared,
                on_hosts.ETCD_RESTORED: self.etcd_restored,
                on_hosts.ETCD_STARTED: self.etcd_started,
                on_hosts.COUNTS: self.counted,
            }[tasks]()
        return Done()

    def play(self) -> None:
        if self.goal is Goal.QUARANTINE:
            self.look()
            self.action().begin()
        taken, done = None, Done()
        while True:
            self.look()
            restoring = self.action()
            turn = turned(restoring, taken, done)
            assert not turn.again, f"{taken} is done again for ever"
            if turn.step is None and taken is None:
                restoring.look_again()
            self.written()
            if turn.step is None:
                return
            taken, done = None, Done()
            if turn.tasks:
                taken, done = turn.step, self.rest(turn.step, turn.tasks)
            if not turn.goes_on:
                return


def take_steps(world: World, goal: Goal, killed_after: int | None = None, confirm: str = BACKUP, **asked: Any) -> Role:
    """One run of a playbook, killed after so many changes of it. ``asked``: what else it was given."""
    world.until = None if killed_after is None else world.changes + killed_after
    role = Role(world, goal, confirm, **asked)
    try:
        role.play()
        # As the playbook does at its end.
        role.written()
    except Killed:
        pass
    finally:
        world.until = None
    return role


def stored(world: World) -> RestoreState:
    found = world.state().restore
    assert found
    return found


def everything() -> set[str]:
    run = Runs(Path("/nowhere")).step()
    return {row for each in run.hosts for row in {one.row for one in run.on_host(each).components(BY_NAME)}}


def assert_quarantined(world: World) -> None:
    assert stored(world).step == Step.COMPARE
    assert world.content() == {"backup"}
    assert [name for name, each in world.machines.items() if each.serving] == list(MEMBERS)
    assert world.running() == world.components() - WRITERS
    assert not WRITERS & {row for each in world.machines.values() for row in each.enabled}, "a boot would start it"
    assert world.told <= {"before"}
    state = world.state()
    assert (state.journal.operation, state.journal.interrupted) == ("restore", False)
    assert [each.id for each in state.etcd.members] == ["b0", "b1", "b2"]
    assert state.etcd.cluster == "b"


def assert_undisturbed(world: World) -> None:
    state = world.state()
    assert world.content() == {"before"}
    assert world.running() == world.components()
    assert {row for each in world.machines.values() for row in each.enabled} == world.units()
    assert world.knows_agents()
    assert state.etcd == FORMER
    assert state.restore is None or state.restore.is_over
    assert world.told <= {"before"}
