# SPDX-License-Identifier: Apache-2.0
"""Part of an instance's state that is about etcd: its bootstrap, its members, and where their data is. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

#: Most folders that members have left which are on record: of more, the oldest are forgotten, and stay.
MOST_LEFT = 256


@dataclass(frozen=True)
class EtcdMemberState:
    """A member of etcd, from the decision to add it until it is gone. ``id`` is hexadecimal; empty if it is unknown.

    ``volume`` is the UID of what holds its data: of its claim, or of its pod. ``added``: it came after the bootstrap.
    ``initial_cluster`` are the members that it starts with, in the form of its configuration, as etcd named them when
    it was added; empty once it has its vote, and of the first ones. ``former`` is the UID of a pod that ran under its
    name before. ``coming``: it is to be added, and etcd may have done so.
    ``leaving``: it is to be removed, and etcd may have done so; ``lost`` says why, if its data is lost. ``unused``: no
    client connects to it any more, on plain hosts, where nobody can be asked for that.
    """

    name: str
    id: str = ""
    volume: str = ""
    added: bool = False
    initial_cluster: str = ""
    former: str = ""
    coming: bool = False
    leaving: bool = False
    lost: str = ""
    unused: bool = False

    @property
    def has_vote(self) -> bool:
        """True if it is one of the first ones, or one whose vote is on record."""
        return not self.coming and not (self.added and self.initial_cluster)

    @property
    def is_settled(self) -> bool:
        """True if its ID is on record, it has its vote, and it stays."""
        return bool(self.id) and self.has_vote and not self.leaving

    @property
    def staying(self) -> EtcdMemberState:
        """Copy of one that was to go, and stays."""
        return replace(self, leaving=False, lost="")

    @property
    def folder(self) -> str:
        """Suffix of its data folder: its ID, so that it never finds another member's data; empty for the first ones."""
        return f"-{self.id}" if self.added else ""


@dataclass(frozen=True)
class LeftFolder:
    """Folder of data that a member in pods has left in its volume. ``volume`` is the UID of that volume's claim."""

    member: str
    folder: str
    volume: str


@dataclass(frozen=True)
class EtcdState:
    """``token`` and ``generation`` belong to one bootstrap or restore; ``bootstrapped`` is set once all were healthy.

    ``prefix`` is the key prefix that is marked as ours in an external etcd. ``nodes`` are the names of the machines
    that keep the members' data, in the members' order, if it is in a directory of the node; for plain hosts they are
    set before the first member starts. In pods the name of one that was given up is empty until another is chosen.
    ``members`` are on record from the end of the bootstrap on, in their order. ``cluster`` is the hexadecimal ID of the
    cluster that they are; it is noted with them, so a restore, after which they are another one, begins without it.
    ``left`` are folders in volumes that members have left which were replaced or removed; on plain hosts they are seen.
    """

    token: str
    generation: int = 1
    bootstrapped: bool = False
    storage: str = ""
    prefix: str = ""
    nodes: Sequence[str] = ()
    members: Sequence[EtcdMemberState] = ()
    cluster: str = ""
    left: Sequence[LeftFolder] = ()

    def cluster_of(self, listed: str, identities: Collection[str]) -> str:
        """ID of the cluster to have on record, where members with these IDs list themselves as the cluster ``listed``.

        It is noted once, and only where no member on record is unknown to it.
        """
        known = {each.id for each in self.members if each.id}
        return self.cluster or (listed if known <= set(identities) else "")

    def node(self, ordinal: int) -> str:
        """Name of the node that keeps the data of the member with this ordinal.

        Empty if it has none: not yet, or not any more since its node was given up.
        """
        return self.nodes[ordinal] if ordinal < len(self.nodes) else ""

    def with_node(self, ordinal: int, name: str) -> EtcdState:
        """Copy with this node for the member with this ordinal."""
        others = [*self.nodes, *([""] * (ordinal + 1 - len(self.nodes)))]
        return replace(self, nodes=(*others[:ordinal], name, *others[ordinal + 1 :]))

    def member(self, name: str) -> EtcdMemberState | None:
        """Record of a member; None if it has none."""
        return next((each for each in self.members if each.name == name), None)

    def with_member(self, member: EtcdMemberState) -> EtcdState:
        """Copy with this record, in place of an older one of the same name; in the order of ordinals."""
        others = [each for each in self.members if each.name != member.name]
        return replace(self, members=tuple(sorted([*others, member], key=_ordinal)))

    def without_member(self, name: str) -> EtcdState:
        """Copy without the record of a member."""
        return replace(self, members=tuple(each for each in self.members if each.name != name))

    def with_left(self, left: LeftFolder) -> EtcdState:
        """Copy with one more folder that a member has left, without those of volumes that this member has no more."""
        others = [each for each in self.left if each.member != left.member or each.volume == left.volume]
        return replace(self, left=(*(each for each in others if each != left), left)[-MOST_LEFT:])

    def left_beside(self) -> list[LeftFolder]:
        """Folders that members have left in volumes which a member uses now, in their order."""
        volumes = {each.name: each.volume for each in self.members if each.volume}
        return [each for each in self.left if volumes.get(each.member) == each.volume]


def _ordinal(member: EtcdMemberState) -> tuple[int, str]:
    """Key of the order: 10 comes after 2. Names of hosts, which have no ordinal, are ordered as text."""
    ordinal = member.name.rpartition("-")[2]
    return (int(ordinal), "") if ordinal.isdecimal() else (0, member.name)
