# SPDX-License-Identifier: Apache-2.0
"""Plain hosts with members of etcd in memory, and runs that take one step after the other as the role does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts, on_hosts, seen_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import plan_types as steps
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.members_on_hosts import Turn
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import observations
from ansible_collections.karmada.installer.tests.unit.support.etcd_in_memory import EtcdInMemory, EtcdRefusalError
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import Killed
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import EXTERNAL
from ansible_collections.karmada.installer.tests.unit.support.samples import NOW, TOKEN, document, state

if TYPE_CHECKING:
    from ansible_collections.karmada.installer.plugins.plugin_utils.run.facts import Facts
    from ansible_collections.karmada.installer.plugins.plugin_utils.run.place import Place

Object = dict[str, Any]
TIMEOUT = 60.0


def names(*numbers: int) -> list[str]:
    """Names of hosts."""
    return [f"cp{number}" for number in numbers]


def hosts(members: Sequence[str], others: Sequence[str] = (), **addresses: str) -> list[Object]:
    """Entries of hosts; ``others`` have no member of etcd."""
    return [
        {
            "name": name,
            "address": addresses.get(name, f"192.0.2.{name.removeprefix('cp')}"),
            "roles": ["etcd", "controlPlane"] if name in members else ["controlPlane"],
        }
        for name in [*members, *others]
    ]


def peer_url(name: str) -> str:
    """Peer URL of the member on a host."""
    return f"https://192.0.2.{name.removeprefix('cp')}:2380"


class HostsOfEtcd:
    """Hosts with members, and what they keep of the state. ``until`` changes happen, then the run is killed."""

    def __init__(self, folder: Path, members: Sequence[str]) -> None:
        self.folder, self.runs, self.until = folder, 0, -1
        self.etcd = EtcdInMemory.of(members)
        for identity, member in list(self.etcd.members.items()):
            self.etcd.members[identity] = dataclasses.replace(member, peer_url=peer_url(member.name))
        #: host → folder of data → ID of the member whose log it has
        self.disks: dict[str, dict[str, str]] = {
            name: {"/var/lib/karmada/prod/etcd/gen-1": process.data} for name, process in self.etcd.processes.items()
        }
        #: hosts that nobody reaches
        self.gone: set[str] = set()
        #: names of the members that clients connect to
        self.clients = set(members)
        self.taken: list[str] = []
        records = tuple(EtcdMemberState(name, self._id(name)) for name in members)
        etcd = EtcdState(TOKEN, bootstrapped=True, storage="directory", nodes=tuple(members), members=records)
        entries = self.entries(members)
        known = {each["name"]: each for each in entries}
        self.keep(state(etcd=etcd, document=document(self.spec(entries)), hosts=known))

    # -- what differs by where the control plane runs ------------------------------------------------------------------

    entries = staticmethod(hosts)

    @staticmethod
    def spec(entries: Sequence[Object]) -> Object:
        """Specification of a control plane with these hosts."""
        return {"mode": "Binary", "hosts": list(entries), "endpoint": EXTERNAL}

    def keep(self, known: State) -> None:
        """Keep this state as an install leaves it."""
        self.stored = Stored(4).after(known)

    def state(self) -> State:
        """State as the next run finds it."""
        found = self.stored.state()
        assert found is not None
        return found

    def place(self, facts: Facts, handover: Handover) -> Place:
        """Place of the control plane."""
        return OnHosts(facts, handover)

    def observation(self) -> Object:
        """What the look at a host of the document gives."""
        return {"stored": self.stored.plain, "answered": 1.0}

    def _id(self, name: str) -> str:
        return next(each.id for each in self.etcd.members.values() if each.name == name)

    def moment(self) -> None:
        """One change is about to happen. Raises Killed where the run ends before it."""
        if self.until == 0:
            raise Killed
        self.until -= 1

    # -- runs --------------------------------------------------------------------------------------------------------

    def run(self, entries: Sequence[Object], *, check: bool = False) -> Run:
        """Run that has looked at all hosts, those of the document and those that have left it."""
        self.runs += 1
        handover = Handover(self.folder / str(self.runs))
        for entry in entries:
            observations.note(handover, entry["name"], self.observation())
        found = self.step(entries, handover, check=check)
        for name in found.leaving:
            observations.note(handover, name, {"refusal": "no route"} if name in self.gone else {"answered": 1.0})
        if not check:
            known = {**found.state.hosts, **{entry["name"]: entry for entry in entries}}
            with found.writing("hosts"):
                found.save(dataclasses.replace(found.state, hosts=known))
        return found

    def step(self, entries: Sequence[Object], handover: Handover, *, check: bool = False) -> Run:
        """One step of a run, which sees what those before it have handed on."""
        found = Run(
            document(self.spec(entries)),
            Connection(),
            operation="apply",
            holder="me@here",
            check=check,
            say=lambda _message: None,
            place=partial(self.place, handover=handover),
        )
        found.now = NOW
        return found

    def ask(self, run: Run) -> None:
        """As the role asks all members on their hosts."""
        self.etcd._time_passes()
        for name in seen_on_hosts.hosts_of_members(run):
            if name not in self.gone:
                run.handover.note(name, etcd=self._answer(run, name))

    def _answer(self, run: Run, name: str) -> Object:
        etcd, process = self.etcd, self.etcd.processes.get(name)
        data = on_hosts.question(run, name)["data"] in self.disks.get(name, {})
        member = etcd.members.get(process.data) if process and not process.cut else None
        if member is None:
            return {"message": "it does not answer", "data": data}
        leads = int(etcd.leader() or "0", 16)
        status = {
            "header": {"cluster_id": "1", "member_id": str(int(member.id, 16)), "revision": "1"},
            "version": "3.6.14",
            "leader": str(leads),
            "isLearner": member.learner,
            "errors": [etcd.alarm] if etcd.full else [],
            "raftIndex": str(member.index),
            "raftTerm": "2",
            "dbSize": "1",
            "dbSizeInUse": "1",
            "dbSizeQuota": "1",
        }
        listed = [
            {"id": each.id, "name": each.name, "peer_urls": [each.peer_url], "client_urls": [], "learner": each.learner}
            for each in etcd.members.values()
        ]
        known = {"known": {"cluster_id": etcd.cluster, "members": listed}} if etcd.has_majority() else {}
        return {"message": "", "status": status, "data": data, **known}

    def bring_to(self, entries: Sequence[Object], replace: Collection[str] = (), timeout: float = TIMEOUT) -> list[str]:
        """As a run does it; returns the steps that were taken. What it has stored outlives it, wherever it ends.

        What it has only handed on to its own steps is lost with a run that is killed.
        """
        run, self.taken = self.run(entries), []
        wanted = {entry["name"] for entry in entries if "etcd" in entry["roles"]}
        try:
            for _ in range(300):
                # Hosts get what came of the step before with the question.
                self._written(run)
                self.ask(run)
                turn = members_on_hosts.decide(run, timeout, replace)
                if not turn.step:
                    assert turn.done
                    self.clients = wanted
                    with run.writing("document"):
                        run.save(dataclasses.replace(run.state, document=run.deployment))
                    run.hosts_left()
                    self.followed(run)
                    self._written(run)
                    return self.taken
                if turn.step != "look":
                    self._written(run)
                self._take(run, turn, wanted)
        except ProblemsError:
            # The end of a run that has failed.
            self._written(run)
            raise
        raise AssertionError(f"it came to no end: {self.taken[-20:]}")

    def _written(self, run: Run) -> None:
        """What a run hands on reaches the hosts, unless it is killed before."""
        if run.handover.stored is not None:
            self.stored = Stored.of(run.handover.stored)

    def followed(self, run: Run) -> None:
        """Members are complete, and what connects to them is looked at."""

    # -- steps -------------------------------------------------------------------------------------------------------

    def _take(self, run: Run, turn: Turn, wanted: set[str]) -> None:
        if turn.step != "look":
            self.taken.append(f"{turn.step} {turn.member}".strip())
            assert turn.host not in self.gone
        try:
            getattr(self, f"_{turn.step}")(run, turn, wanted)
        except EtcdRefusalError:
            self.taken[-1] += " later"
            return
        if turn.step == "added":
            # Without another look between.
            self._take(run, Turn("started", turn.member, turn.member), wanted)
        elif turn.stops:
            self._take(run, Turn("stopped", turn.member, turn.member), wanted)

    def _look(self, _run: Run, _turn: Turn, _wanted: set[str]) -> None:
        """Nothing to take."""

    def _clients(self, run: Run, _turn: Turn, wanted: set[str]) -> None:
        self.moment()
        records = {each.name: each for each in run.state.etcd.members}
        self.clients = {name for name in wanted if name in records and not records[name].leaving}
        assert self.clients, "clients are left with nobody"
        members_on_hosts.clients_have_followed(run)

    def _added(self, run: Run, turn: Turn, _wanted: set[str]) -> None:
        self._require_votes_of(turn)
        etcd, url = self.etcd, dict(seen_on_hosts.look(run).seen.peer_urls)[turn.member]
        etcd._require_all_healthy()
        assert not any(each.learner or each.peer_url == url for each in etcd.members.values())
        self.moment()
        identity = etcd._new_id()
        etcd.members[identity] = steps.Member(identity, "", url, learner=True)
        self.moment()
        members_on_hosts.added(run, turn.member, identity, {each.id: each.peer_url for each in etcd.members.values()})

    def _started(self, run: Run, turn: Turn, _wanted: set[str]) -> None:
        self.moment()
        folder, disk = on_hosts.question(run, turn.member)["data"], self.disks.setdefault(turn.member, {})
        record = run.state.etcd.member(turn.member)
        assert record is not None
        given = dict(each.split("=", 1) for each in record.initial_cluster.split(","))
        listed = {each.peer_url for each in self.etcd.members.values()}
        if set(given.values()) == listed:
            disk.setdefault(folder, record.id)
        if folder in disk:
            self.etcd.do(steps.Start(turn.member, disk[folder]))

    def _promoted(self, run: Run, turn: Turn, _wanted: set[str]) -> None:
        self._require_votes_of(turn)
        self.moment()
        self.etcd.do(steps.Promote(turn.member, turn.identity))
        self.moment()
        members_on_hosts.voted(run, turn.member)

    def _removed(self, _run: Run, turn: Turn, _wanted: set[str]) -> None:
        self._require_votes_of(turn)
        healthy = turn.identity in {each.id for each in self.etcd.voters() if self.etcd.answers(each.id)}
        assert not (healthy and turn.member in self.clients), f"clients still use {turn.member}"
        self.moment()
        self.etcd.do(steps.Remove(turn.member, turn.identity))
        assert self.etcd.has_majority()

    def _led(self, _run: Run, turn: Turn, _wanted: set[str]) -> None:
        assert self.etcd.members[self.etcd.leader()].name == turn.host, "only the leader can hand over"
        self.moment()
        self.etcd.do(steps.MoveLeader(turn.host, "", turn.identity))

    def _stopped(self, run: Run, turn: Turn, _wanted: set[str]) -> None:
        self.moment()
        self.etcd.processes.pop(turn.member, None)
        self.moment()
        members_on_hosts.forget(run, turn.member)

    def _require_votes_of(self, turn: Turn) -> None:
        assert turn.host != turn.member, "a member does not decide about itself"
        assert self.etcd.answers(self._id(turn.host))
        assert self.etcd.has_majority()

    # -- what happens to them ----------------------------------------------------------------------------------------

    def lose_data(self, name: str) -> None:
        """The data folder of a member is gone, and its process with it."""
        self.disks[name] = {}
        self.etcd.processes[name].data = ""

    def lose(self, name: str) -> None:
        """A host is gone, with all that is on it."""
        self.gone.add(name)
        self.lose_data(name)


#: From a number of members to hosts with as many.
Installed = Callable[[int], HostsOfEtcd]


def installed_in(folder: Path) -> Installed:
    return lambda count: HostsOfEtcd(folder, names(*range(1, count + 1)))


def assert_is_well(world: HostsOfEtcd, wanted: Sequence[str]) -> None:
    """As many members as hosts, all with a vote and healthy; no ghost, no learner, nothing undecided on record."""
    etcd = world.etcd
    assert sorted(each.name for each in etcd.members.values()) == sorted(wanted)
    assert not any(each.learner for each in etcd.members.values())
    assert etcd.healthy_voters() == len(wanted)
    state = world.state()
    assert sorted(each.name for each in state.etcd.members) == sorted(wanted)
    assert {each.id for each in state.etcd.members} == set(etcd.members)
    assert not any(each.coming or each.leaving or each.lost or each.initial_cluster for each in state.etcd.members)
    assert sorted(state.etcd.nodes) == sorted(wanted)
    assert set(etcd.processes) == set(wanted)


def assert_is_well_without(world: HostsOfEtcd, gone: str, wanted: Sequence[str]) -> None:
    """As ``assert_is_well``; what runs on a host that nobody reaches does not count."""
    world.etcd.processes.pop(gone, None)
    assert_is_well(world, wanted)


@dataclasses.dataclass(frozen=True)
class Change:
    """Members before and after a run; hosts in ``left`` lose the role, members in ``replace`` are replaced."""

    name: str
    before: Sequence[str]
    after: list[str]
    left: Sequence[str] = ()
    replace: Sequence[str] = ()


CHANGES = (
    Change("members come", names(1), names(1, 2, 3)),
    Change("members go", names(1, 2, 3), names(1), left=names(2, 3)),
    Change("a host is exchanged", names(1, 2, 3), names(1, 3, 4)),
    Change("a member is replaced", names(1, 2, 3), names(1, 2, 3), replace=["cp2"]),
)


World = TypeVar("World", bound=HostsOfEtcd)


def killed_worlds(
    make: Callable[[Path, Sequence[str]], World], folder: Path, change: Change, apart: int
) -> Iterator[World]:
    """Worlds as killed runs leave them: one killed before each change, at distances of ``apart``; the next may live."""
    for moment in range(0, 300, apart):
        world = make(folder / str(moment), change.before)
        world.until = moment
        try:
            world.bring_to(type(world).entries(change.after, change.left), change.replace)
        except Killed:
            world.until = -1
            yield world
        else:
            assert moment > 2 * apart, "it was killed too seldom to say anything"
            return
    raise AssertionError("the run does not come to its end")
