# SPDX-License-Identifier: Apache-2.0
"""Restores of a control plane on hosts in memory whose runs are killed at any change, and what members were told.

What is held there comes out of the trees that hosts get, and every run reads what the one before has left on them. The
order of the tasks is that of the role; what they do on a host is played here.
"""

from __future__ import annotations

import base64
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    BY_NAME,
    ETCD,
    KARMADA_APISERVER,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import certificates
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    agents,
    carry_out,
    check,
    check_on_hosts,
    drift,
    on_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Chosen, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.turn import Done, concerned, turned
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import PodsAboveHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    deployment,
    remembered,
    seen,
)

#: Hosts with a member, in the order of the state.
MEMBERS = ("cp1", "etcd1", "etcd2")
BACKUP = "prod-20261125t020000z-1f3a9c"
FORMER = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="directory",
    nodes=MEMBERS,
    members=tuple(EtcdMemberState(name, id=f"a{number}") for number, name in enumerate(MEMBERS)),
)
GOALS = {Goal.QUARANTINE: "restore", Goal.RELEASE: "release", Goal.UNDO: "restore_undo"}
#: Of the changes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("RESTORE_MOMENTS", "7"))
REVISION = 10**15
ISSUED: dict[Any, Any] = {}
_NUMBERS = itertools.count(1)


class Killed(BaseException):
    """The run was killed at this moment."""


class Machine:
    """A host: what runs, what starts with it, and the folders of etcd's data."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.enabled: set[str] = set()
        self.folders = {"gen-1": "before"}
        #: folder that etcd has read at its start, and authorities that the API server knows
        self.serving, self.authorities = "", 0


class World:
    """Hosts with a control plane. ``until`` changes happen, then the run is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = {host["name"]: Machine() for host in HOSTS}
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


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return made(monkeypatch, tmp_path)


def made(monkeypatch: pytest.MonkeyPatch, folder: Path) -> World:
    found = World(folder)
    if not isinstance(certificates.issue_missing, partial):
        monkeypatch.setattr(certificates, "issue_missing", partial(issued_once, certificates.issue_missing))
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
    monkeypatch.setattr(agents, "wake", lambda *_: None)
    monkeypatch.setattr(drift, "look", lambda _run: drift.Report([]))
    run = a_run(found, found.runs(), Goal.QUARANTINE)
    for name in found.machines:
        found.converge(run, name, list(BY_NAME))
    assert (found.content(), found.running()) == ({"before"}, everything())
    found.changes, found.told = 0, {"before"}
    return found


def a_run(world: World, runs: Runs, goal: Goal) -> Run:
    run = Run(
        deployment(),
        Connection(),
        operation=GOALS[goal],
        holder=f"me@{runs.handover._folder.name}",
        check=False,
        say=lambda _message: None,
        place=partial(OnHosts, handover=runs.handover),
    )
    run.now = samples.NOW
    run.control_plane = world.inside  # type: ignore[assignment]
    return run


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
        self.troubles: list[str] = []

    def action(self) -> Restoring:
        """The action, in a process of its own."""
        found = Noting(a_run(self.world, self.runs, self.goal), self.goal, self.asked, timeout=0)
        found.taken = self.taken
        return found

    def look(self) -> None:
        run = a_run(self.world, self.runs, self.goal)
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
            self.world.converge(a_run(self.world, self.runs, self.goal), name, rows)

    def prepared(self) -> None:
        run = a_run(self.world, self.runs, self.goal)
        restore = on_hosts.restore_of(run)
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

    def counted(self, works: int = 3) -> None:
        self.on_hosts([ETCD.name])
        for name in MEMBERS:
            noted = self.runs.handover.observed(name).restore
            told = {"hash": {"revision": REVISION, "value": 7, "compacted": 1}, "counts": {"works": works}}
            self.runs.see(**{name: {"restore": {**noted, **told}}})

    def rest(self, step: Step, tasks: str) -> Done:
        """What tasks of the role do of a step."""
        if tasks == on_hosts.STOPPED:
            self.on_hosts(on_hosts.on_a_host(concerned(step)))
        elif tasks == "stages":
            self.on_hosts(list(BY_NAME))
        elif tasks == on_hosts.HELD:
            if self.action().release.begin():
                self.world.moment()
                self.world.begun_anew += 1
        elif tasks == on_hosts.BACKED_UP:
            return Done("" if self.troubles else "prod-20261126t020000z-000000", self.troubles)
        else:
            {
                on_hosts.PREPARED: self.prepared,
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
    found = world.stored.state()
    assert found
    assert found.restore
    return found.restore


def everything() -> set[str]:
    run = Runs(Path("/nowhere")).step()
    return {row for each in run.hosts for row in {one.row for one in run.on_host(each).components(BY_NAME)}}


def assert_quarantined(world: World) -> None:
    assert stored(world).step == Step.COMPARE
    assert world.content() == {"backup"}
    assert [name for name, each in world.machines.items() if each.serving] == list(MEMBERS)
    assert world.running() == everything() - WRITERS
    assert not WRITERS & {row for each in world.machines.values() for row in each.enabled}, "a boot would start it"
    assert world.told <= {"before"}
    state = world.stored.state()
    assert state
    assert (state.journal.operation, state.journal.interrupted) == ("restore", False)
    assert [each.id for each in state.etcd.members] == ["b0", "b1", "b2"]


def assert_undisturbed(world: World) -> None:
    state = world.stored.state()
    assert state
    assert world.content() == {"before"}
    assert world.running() == everything()
    assert {row for each in world.machines.values() for row in each.enabled} == everything()
    assert {each.authorities for each in world.api_servers()} == {2}
    assert state.etcd == FORMER
    assert state.restore is None or state.restore.is_over
    assert world.told <= {"before"}


def test_a_restore_ends_in_quarantine_and_a_release_lets_it_work(world: World) -> None:
    role = take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert {each.authorities for each in world.api_servers()} == {1}
    assert role.taken.index(Step.PREPARE) < role.taken.index(Step.STOP_WRITERS) < role.taken.index(Step.SWITCH)
    assert (stored(world).before, stored(world).former) == ("prod-20261126t020000z-000000", FORMER)
    take_steps(world, Goal.RELEASE)
    assert world.told == {"before", "backup"}
    assert world.running() == everything()
    assert {each.authorities for each in world.api_servers()} == {2}
    assert (stored(world).step, stored(world).aside) == ("Released", ("gen-1",))
    assert all("gen-1" in each.folders for each in world.machines.values()), "data is never deleted"


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE])
def test_what_is_done_is_done_once(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    if goal is Goal.RELEASE:
        take_steps(world, Goal.RELEASE)
    before = world.changes
    assert take_steps(world, goal, confirm="").taken == []
    assert world.changes == before


def test_a_run_that_is_killed_at_any_change_is_gone_on_with_or_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = made(monkeypatch, tmp_path)
    take_steps(whole, Goal.QUARANTINE)
    assert whole.changes > 30
    for killed_after in range(0, whole.changes, MOMENTS):
        for goal, holds in ((Goal.QUARANTINE, assert_quarantined), (Goal.UNDO, assert_undisturbed)):
            here = made(monkeypatch, tmp_path)
            take_steps(here, Goal.QUARANTINE, killed_after)
            assert here.told <= {"before"}
            known = here.stored.state()
            if goal is Goal.UNDO and (known is None or known.restore is None):
                assert_undisturbed(here)  # nothing had begun
                continue
            take_steps(here, goal)
            holds(here)


def test_the_way_back_that_is_killed_at_any_change_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = made(monkeypatch, tmp_path)
    take_steps(whole, Goal.QUARANTINE)
    begun = whole.changes
    take_steps(whole, Goal.UNDO)
    assert_undisturbed(whole)
    assert stored(whole).aside == ("gen-2",)
    for killed_after in range(0, whole.changes - begun, MOMENTS):
        here = made(monkeypatch, tmp_path)
        take_steps(here, Goal.QUARANTINE)
        take_steps(here, Goal.UNDO, killed_after)
        take_steps(here, Goal.UNDO)
        assert_undisturbed(here)


def test_half_of_the_data_is_not_used_and_not_deleted(world: World) -> None:
    for killed_after in itertools.count():
        take_steps(world, Goal.QUARANTINE, killed_after)
        if "half" in world.machines["etcd1"].folders.values():
            break
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert (stored(world).generation, stored(world).aside) == (3, ("gen-2",))
    assert world.machines["etcd1"].folders["gen-2"] == "half"


def test_a_host_that_has_made_nothing_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Role, "prepared", lambda _self: None)
    with pytest.raises(ProblemsError, match="no new data was made on cp1, etcd1, etcd2"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()


def test_what_runs_nevertheless_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Role, "on_hosts", lambda *_: None)
    with pytest.raises(ProblemsError, match=r"still running: .*karmada-scheduler on cp1"):
        take_steps(world, Goal.QUARANTINE)


def test_a_target_that_takes_no_backup_of_what_is_there_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Role.rest
    with monkeypatch.context() as broken:
        broken.setattr(Role, "rest", lambda self, *given: (self.troubles.append("it is full"), rest(self, *given))[1])
        with pytest.raises(ProblemsError, match="it is full"):
            take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()
    take_steps(world, Goal.QUARANTINE)
    told: list[Problem] = []
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    monkeypatch.setattr(Role, "rest", lambda self, *given: (self.troubles.append("it is full"), rest(self, *given))[1])
    take_steps(world, Goal.RELEASE)
    assert stored(world).step == "Released"
    assert ["it is full" in each.what for each in told] == [True]


def test_etcd_that_does_not_answer_is_no_reason_to_restore_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: Any) -> None:
        raise ProblemsError(Problem("no member can be asked", "etcd", "", reason=Reason.ETCD_UNHEALTHY))

    monkeypatch.setattr(take, "chosen", dead)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).before == ""


def test_content_that_differs_is_looked_at_again_and_then_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Role.counted
    monkeypatch.setattr(Role, "counted", lambda self: counted(self, works=2))
    with pytest.raises(ProblemsError, match="it has 2 works, and the backup has 3"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == {ETCD.name}
    role = Role(world, Goal.QUARANTINE)
    role.look()
    role.counted()
    assert not role.action().end(Step.PROVE, Done(last=False)), "the role asks once more"


def test_there_is_no_quarantine_with_an_api_server_that_accepts_agents(world: World) -> None:
    role = Role(world, Goal.QUARANTINE)
    role.play()
    role.written()
    for status, said in (
        (403, "are accepted by the API server of cp2"),
        (0, "could not be asked"),
        (500, "answers 500"),
    ):
        again = Role(world, Goal.QUARANTINE)
        again.look()
        again.runs.see(cp2={"restore": {"running": [], "status": status}})
        with pytest.raises(ProblemsError, match=said):
            again.action().look_again()


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE, Goal.UNDO])
def test_no_step_is_taken_while_a_host_cannot_be_looked_at(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    role = Role(world, goal)
    role.look()
    role.runs.see(etcd2={"refusal": "No route to host", "restore": {}})
    with pytest.raises(ProblemsError, match="host etcd2"):
        role.action().next()


def test_without_its_name_nothing_begins(world: World) -> None:
    with pytest.raises(ProblemsError, match="loses everything since"):
        take_steps(world, Goal.QUARANTINE, confirm="")
    assert world.changes == 0


# -- what is refused before --------------------------------------------------------------------------------------------


def refusals(runs: Runs, document: Any = None, size: int = 100 << 20) -> list[str]:
    run = runs.step(document)
    return [f"{each.where}: {each.what}" for each in check_on_hosts.problems(run, size, 0)]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    stored_there = Stored().after(remembered(etcd=FORMER), on_hosts=False)
    facts = {"architecture": "x86_64", "free": {units.DATA: 300 << 20}}
    found.see_all(seen(stored_there, facts=facts))
    return found


def test_hosts_that_are_as_they_should_be_are_not_refused(runs: Runs) -> None:
    assert refusals(runs) == []


def test_room_is_asked_for_before_anything_is_sent(runs: Runs) -> None:
    assert refusals(runs, size=200 << 20) == [
        f"host {name}: 300 MiB are free below {units.DATA}, and 500 MiB are needed beside what is there"
        for name in MEMBERS
    ]


def test_a_host_that_is_away_is_named_since_something_may_run_there(runs: Runs) -> None:
    runs.see(etcd2={"refusal": "No route to host"})
    (found,) = refusals(runs)
    assert "etcd2" in found


def test_members_that_are_to_change_wait_for_the_end(runs: Runs) -> None:
    hosts = [{**each, "roles": ["controlPlane"]} if "etcd" in each["name"] else each for each in HOSTS]
    (found,) = refusals(runs, deployment(hosts=hosts))
    assert "its members of etcd are cp1, etcd1, etcd2, and by the document cp1" in found


def test_etcd_on_hosts_beneath_pods_is_refused(runs: Runs) -> None:
    run = runs.step()
    run.place = PodsAboveHosts(run, runs.handover)
    with pytest.raises(ProblemsError, match="its etcd is on plain hosts, and the rest of it in pods"):
        check.refuse_place(run)
    check.refuse_place(runs.step())


def test_the_module_is_told_what_the_data_of_a_host_is(runs: Runs) -> None:
    state = remembered(etcd=FORMER)
    journal = RestoreState("back", "nightly", BACKUP, "", "0d6c", 4, 10**9, FORMER, members=MEMBERS, closed=True)
    runs.handover.stored = Stored().after(replace(state, restore=journal), on_hosts=False).plain
    run = runs.step()
    assert on_hosts.folder(run, "etcd1") == "/var/lib/karmada/prod/etcd/gen-4"
    new = on_hosts.new_data_of(run)
    assert [each.peer_url for each in new.members] == [f"https://192.0.2.{n}:2380" for n in (1, 3, 4)]
    question = on_hosts.question(run, "cp2")
    assert question["url"] == "https://192.0.2.2:5443/version"
    assert "BEGIN CERTIFICATE" in question["certificate"]
    assert on_hosts.question(run, "etcd1") == {}, "it has no API server"
