# SPDX-License-Identifier: Apache-2.0
"""An etcd without processes: its membership rules, members with data that can be lost, and what is on record of them.

Each method that changes something is one moment of a run, so that a test can end the run between any two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import plan_types as steps
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.plan_types import Known, Member, Seen


class EtcdRefusalError(Exception):
    """etcd would refuse this request, or accept it and lose its majority."""


def url(name: str) -> str:
    return f"https://{name}:2380"


@dataclass
class Process:
    """A member's process. It is up where its place is; ``data`` is the ID whose log is on its disk, empty if none."""

    data: str
    up: bool = True
    cut: bool = False


@dataclass
class EtcdInMemory:
    """Members by ID, processes by name, and the record that survives a killed run.

    ``wanted`` are the names of the members that the document asks for.
    """

    members: dict[str, Member] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    clients: frozenset[str] = frozenset()
    wanted: tuple[str, ...] = ()
    index: int = 5000
    serial: int = 0xA0
    #: ID of the cluster
    cluster: str = "c"
    #: Whether a database is full: every member tells that, and keys are not written. Members change as before.
    full: bool = False

    @classmethod
    def of(cls, names: Sequence[str]) -> EtcdInMemory:
        etcd = cls(clients=frozenset(names), wanted=tuple(names))
        for name in names:
            identity = etcd._new_id()
            etcd.members[identity] = Member(identity, name, url(name), index=etcd.index)
            etcd.processes[name] = Process(identity)
            etcd.known[name] = Known(name, identity)
        return etcd

    # -- what is seen ----------------------------------------------------------------------------------------------

    def seen(self) -> Seen:
        names = {*self.known, *self.processes}
        answering = frozenset(self.name_of(each.id) for each in self.members.values() if self.answers(each.id))
        known = tuple(
            dataclasses.replace(each, lost=each.lost or ("its disk is another one" if self._lost(each) else ""))
            for each in sorted(self.known.values(), key=lambda each: int(each.name.rpartition("-")[2]))
        )
        members = tuple(self._as_seen(each) for each in self.members.values()) if self.has_majority() else None
        return Seen(members, known, {name: url(name) for name in names}, self.clients, answering)

    def _as_seen(self, member: Member) -> Member:
        answers, leads = self.answers(member.id), member.id == self.leader()
        message = self.alarm if answers else ""
        healthy = answers and not message
        return dataclasses.replace(member, healthy=healthy, leader=leads, full=bool(message), message=message)

    @property
    def alarm(self) -> str:
        """What a member says that answers while a database is full; empty if none is."""
        return "memberID:161 alarm:NOSPACE " if self.full else ""

    def _lost(self, known: Known) -> bool:
        process = self.processes.get(known.name)
        return bool(known.id and process and process.data != known.id and self._ever_started(known.id))

    def _ever_started(self, identity: str) -> bool:
        return bool(identity in self.members and self.members[identity].name)

    def name_of(self, identity: str) -> str:
        found = self.members[identity]
        return found.name or found.peer_url.removeprefix("https://").removesuffix(":2380")

    def answers(self, identity: str) -> bool:
        process = self.processes.get(self.name_of(identity))
        return bool(process and process.up and not process.cut and process.data == identity)

    def voters(self) -> list[Member]:
        return [each for each in self.members.values() if not each.learner]

    def healthy_voters(self) -> int:
        return sum(self.answers(each.id) for each in self.voters())

    def has_majority(self) -> bool:
        return self.healthy_voters() >= len(self.voters()) // 2 + 1

    def serving_clients(self) -> set[str]:
        """Names of voters that answer and that clients connect to."""
        return {each.name for each in self.voters() if self.answers(each.id) and each.name in self.clients}

    def leader(self) -> str:
        able = [each.id for each in self.voters() if self.answers(each.id)]
        if self._leader not in able:
            self._leader = able[0] if able else ""
        return self._leader

    _leader: str = ""

    # -- what a run does -------------------------------------------------------------------------------------------

    def do(self, step: steps.Step) -> None:
        """One step, as a run does it. Raises EtcdRefusalError where a real one would refuse, or come to harm."""
        if not self._on_record(step):
            self._in_etcd(step)

    def _on_record(self, step: steps.Step) -> bool:
        """Steps that concern what is on record, processes and clients; returns whether this is one."""
        match step:
            case steps.Decide(name):
                self.known[name] = Known(name)
            case steps.Adopt(name, identity):
                self.known[name] = Known(name, identity)
            case steps.Leave(name, lost):
                self.known[name] = dataclasses.replace(self.known[name], leaving=True, lost=lost)
            case steps.Stay(name):
                self.known[name] = dataclasses.replace(self.known[name], leaving=False, lost="")
            case steps.Stop(name):
                del self.known[name]
                self.processes.pop(name, None)
            case steps.ClientsFollow():
                self.clients = frozenset(self._staying())
            case steps.Wait():
                self._time_passes()
            case _:
                return False
        return True

    def _staying(self) -> set[str]:
        """Names of the members that the layout of a control plane has for clients (``EtcdMember.leaving``)."""
        return {each.name for each in self.known.values() if each.name in self.wanted and not each.leaving}

    def _in_etcd(self, step: steps.Step) -> None:
        match step:
            case steps.Add(name):
                self._require_all_healthy()
                if any(each.learner for each in self.members.values()):
                    raise EtcdRefusalError("too many learner members in cluster")
                identity = self._new_id()
                self.members[identity] = Member(identity, "", url(name), learner=True)
            case steps.Start(name, identity):
                self.processes[name] = Process(identity)
                self.members[identity] = dataclasses.replace(self.members[identity], name=name)
            case steps.Promote(_name, identity):
                if self.index - self.members[identity].index > self.index // 10:
                    raise EtcdRefusalError("can only promote a learner member which is in sync with leader")
                self.members[identity] = dataclasses.replace(self.members[identity], learner=False)
            case steps.MoveLeader(_leader, _to, identity):
                if self.members[identity].learner or not self.answers(identity):
                    raise EtcdRefusalError("bad leader transferee")
                self._leader = identity
            case steps.Remove(_name, identity):
                del self.members[identity]
            case _:
                raise AssertionError(step)

    def _time_passes(self) -> None:
        for identity, member in self.members.items():
            if self.answers(identity) and self.has_majority():
                self.members[identity] = dataclasses.replace(member, index=min(self.index, member.index + 4000))

    def _require_all_healthy(self) -> None:
        """As with strict-reconfig-check, which is etcd's default."""
        if self.healthy_voters() < len(self.voters()):
            raise EtcdRefusalError("unhealthy cluster")

    def _new_id(self) -> str:
        self.serial += 1
        return f"{self.serial:x}"

    # -- what happens to it ----------------------------------------------------------------------------------------

    def write(self, entries: int) -> None:
        """Entries that clients write; voters and learners that answer have them soon."""
        if self.has_majority() and not self.full:
            self.index += entries
            self._time_passes()
            for identity, member in self.members.items():
                if self.answers(identity) and not member.learner:
                    self.members[identity] = dataclasses.replace(member, index=self.index)

    def lose_disk(self, name: str) -> None:
        if name in self.processes:
            self.processes[name].data = ""

    def restore_by_hand(self) -> None:
        """Have somebody restore all members under another token: other IDs, of another cluster."""
        self.cluster = "dd"
        for process in self.processes.values():
            old = self.members.pop(process.data)
            process.data = self._new_id()
            self.members[process.data] = dataclasses.replace(old, id=process.data)

    def add_stranger(self, name: str) -> None:
        """Have somebody else add a learner, which may have started."""
        if not any(each.learner for each in self.members.values()):
            self.members["bad"] = Member("bad", name, url("somewhere"), learner=True)

    def remove_by_others(self, name: str) -> None:
        """Have somebody else remove a member, if the others can do without."""
        if self.healthy_voters() > len(self.voters()) // 2 + 1:
            for identity in [each.id for each in self.voters() if each.name == name]:
                del self.members[identity]

    def choose_leader(self, name: str) -> None:
        """Have this member lead, as an election may, if it can."""
        able = [each.id for each in self.voters() if each.name == name and self.answers(each.id)]
        self._leader = able[0] if able else self._leader

    def cut(self, name: str, *, off: bool = True) -> None:
        if name in self.processes:
            self.processes[name].cut = off
