# SPDX-License-Identifier: Apache-2.0
"""Observations of etcd's members, and the steps that change them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..problems import Problem, Reason
from .lists import REMEDY, difference

#: Field of the document that says how many members there are.
MEMBERS_FIELD = "spec.components.etcd.local.replicas"


@dataclass(frozen=True)
class Member:
    """A member as etcd lists it, and as it answers for itself. ``id`` is hexadecimal, as etcd prints it."""

    id: str
    #: Name; empty until it has started for the first time.
    name: str
    peer_url: str
    learner: bool = False
    #: Whether it answers, knows a leader and reports no error of its own.
    healthy: bool = False
    leader: bool = False
    #: Last entry of the log that it has.
    index: int = 0
    #: Why it is not healthy; empty if nothing is known.
    message: str = ""
    #: Whether the alarm NOSPACE is all that keeps it from being healthy.
    full: bool = False

    @property
    def works(self) -> bool:
        """True if it counts for majorities and in changes of members, which a full etcd carries out as any other."""
        return self.healthy or self.full


@dataclass(frozen=True)
class Known:
    """A member on record: from before it is added until after it is gone."""

    name: str
    #: Its ID; empty from the decision to add it until etcd has given it one.
    id: str = ""
    #: It is to be removed, and that is decided.
    leaving: bool = False
    #: Proof that its data is lost, in words; empty if there is none.
    lost: str = ""


@dataclass(frozen=True)
class Seen:
    """Members of one etcd as they were seen at one time."""

    #: Members as a majority lists them; None if no majority answers.
    members: tuple[Member, ...] | None
    known: tuple[Known, ...]
    #: Name → peer URL, of all places that members have or are to have.
    peer_urls: Mapping[str, str]
    #: Names of members that etcd's clients connect to.
    clients: frozenset[str] = frozenset()
    #: Names of those that answer, whoever lists them; of use without a majority.
    answering: frozenset[str] = field(default_factory=frozenset)
    #: Name of each healthy member that gave a list → IDs that it lists.
    lists: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: ID of the cluster that the members say they are, and of the one on record; empty if it is unknown.
    cluster: str = ""
    known_cluster: str = ""


class Step:
    """One change, after which everything is looked at again."""


@dataclass(frozen=True)
class Decide(Step):
    """Put on record that a member of this name is to be added, and make a place ready for it."""

    name: str


@dataclass(frozen=True)
class Add(Step):
    """Add a member of this name, without a vote."""

    name: str


@dataclass(frozen=True)
class Adopt(Step):
    """Put the ID of an added member on record."""

    name: str
    id: str


@dataclass(frozen=True)
class Start(Step):
    """Start a member that was added."""

    name: str
    id: str


@dataclass(frozen=True)
class Promote(Step):
    """Give a learner its vote."""

    name: str
    id: str


@dataclass(frozen=True)
class ClientsFollow(Step):
    """Have clients connect to the members that stay only: those on record that the document asks for."""


@dataclass(frozen=True)
class MoveLeader(Step):
    """Have another member lead; ``leader`` and ``to`` are names."""

    leader: str
    to: str
    id: str


@dataclass(frozen=True)
class Leave(Step):
    """Put on record that a member is to go; ``lost`` says why, if its data is lost."""

    name: str
    lost: str = ""


@dataclass(frozen=True)
class Stay(Step):
    """Take back what is on record: a member that was to go stays for now."""

    name: str


@dataclass(frozen=True)
class Remove(Step):
    """Remove a member from the cluster."""

    name: str
    id: str


@dataclass(frozen=True)
class Stop(Step):
    """Stop what runs for a member that is none any more, and forget it."""

    name: str


@dataclass(frozen=True)
class Wait(Step):
    """Do nothing but look again; ``reason`` says what for."""

    reason: str


@dataclass(frozen=True)
class Refusal:
    """Reason why nothing safe can be done: what is wrong, at which member (or field), how to mend it."""

    reason: Reason
    what: str
    where: str
    remedy: str
    #: Whether a change between two answers looks like it, so that it counts once the next look shows the same.
    twice: bool = False
    #: Whether it may pass by itself, as while members choose a leader.
    passes: bool = False

    @property
    def problem(self) -> Problem:
        """The refusal for people."""
        return Problem(self.what, self.where, self.remedy, reason=self.reason)


def lists_differ(seen: Seen) -> Refusal | None:
    """Refusal of every change where healthy members list different members."""
    ids = {each.id: each.name for each in seen.known if each.id}
    told = difference(seen.lists, {**{each.id: each.name for each in seen.members or ()}, **ids})
    return Refusal(Reason.ETCD_MEMBERS_DIFFER, told, "etcd", REMEDY, twice=True) if told else None
