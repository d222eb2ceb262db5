# SPDX-License-Identifier: Apache-2.0
"""The next safe step from the members that etcd has to those that it should have. No I/O.

A caller looks, asks for the next step, does it, and looks again, until there is none. So a run that was killed goes on
by looking. The rules:

* One change is in flight at a time. What was begun is finished, or taken back, before anything else begins. It is taken
  back if another member has lost its data, and cannot be replaced as long as this one is to come or to go.
* What is meant goes on record before etcd is asked: so a member that somebody else added or removed is told from ours.
* Healthy members list the same members, and are the cluster on record, or nothing is changed.
* A member comes as a learner and gets its vote once it has nearly all of the log.
* No step leaves less than a majority of voters healthy. A member whose data is lost is removed before another is added;
  while any other member is not healthy, nothing is changed. One that is only full (NOSPACE) counts as healthy here: it
  votes, and etcd refuses writes of keys then, but no change of members.
* A member that leads gives that up before it goes, and clients forget a member before it goes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..problems import Reason
from .lists import BY_OTHERS, OTHER_CLUSTER_REMEDY, REMEDY, other_cluster
from .plan_types import (
    Add,
    Adopt,
    ClientsFollow,
    Decide,
    Known,
    Leave,
    Member,
    MoveLeader,
    Promote,
    Refusal,
    Remove,
    Seen,
    Start,
    Stay,
    Step,
    Stop,
    Wait,
    lists_differ,
)

#: Entries of the log that a learner may be short of when it gets its vote. etcd itself allows a tenth of the log, which
#: is less while the log is short (``isLearnerReady`` in server/etcdserver/server.go).
NEARLY_ALL = 1000


def next_step(seen: Seen, wanted: Sequence[str], replace: Collection[str] = ()) -> Step | Refusal | None:
    """Next step towards the members ``wanted`` (names, in their order); None if there is nothing to do.

    ``replace`` are the IDs of members that the user wants replaced although nothing proves that their data is lost.
    """
    if seen.members is None:
        return _majority_lost(seen)
    if refused := lists_differ(seen):
        return refused
    return _Plan(seen, seen.members, tuple(wanted), frozenset(replace)).step()


def ids_of(seen: Seen, names: Collection[str]) -> frozenset[str]:
    """IDs of the members of these names. One that comes is left out, unless it has started and answers no more.

    etcd cannot start one again that has lost its log ("tocommit is out of range"), and nothing proves that it has.
    """
    coming = {each.id for each in seen.members or () if each.learner and (each.works or not each.name)}
    return frozenset(each.id for each in seen.known if each.name in names and each.id and each.id not in coming)


class _Plan:
    def __init__(
        self, seen: Seen, members: tuple[Member, ...], wanted: tuple[str, ...], replace: frozenset[str]
    ) -> None:
        self.seen, self.members, self.wanted, self.replace = seen, members, wanted, replace
        self.known = {each.name: each for each in seen.known}
        self.by_id = {each.id: each for each in members}
        self.voters = [each for each in members if not each.learner]
        self.names = {known.id: known.name for known in seen.known if known.id}

    def step(self) -> Step | Refusal | None:
        """Step, in the order in which things may be done."""
        return (
            self._other_cluster()
            or self._stranger()
            or self._removed_by_others()
            or self._in_flight()
            or self._give_up_removed()
            or self._lost()
            or self._not_healthy()
            or self._missing()
            or self._unwanted()
        )

    # -- what is not ours ------------------------------------------------------------------------------------------

    def _other_cluster(self) -> Refusal | None:
        """Refusal of any change where the members are another cluster than on record, so that none of them is known."""
        told = other_cluster({self.seen.cluster}, self.seen.known_cluster)
        if self.names and not self.names.keys() & self.by_id.keys():
            # Earlier versions have put members on record without their cluster.
            told = told or f"etcd lists none of the members on record ({', '.join(self.names.values())}): {BY_OTHERS}"
        return Refusal(Reason.ETCD_MEMBERS_DIFFER, told, "etcd", OTHER_CLUSTER_REMEDY) if told else None

    def _stranger(self) -> Refusal | None:
        """Member that is listed, but neither on record nor decided on."""
        deciding = {self.seen.peer_urls.get(each.name) for each in self.seen.known if not each.id}
        for member in self.members:
            if member.id not in self.names and not (member.learner and member.peer_url in deciding):
                kind = "learner" if member.learner else "member"
                return Refusal(
                    Reason.ETCD_MEMBERS_DIFFER,
                    f"etcd has a {kind} that this installer has not added: {member.name or member.peer_url} "
                    f"(ID {member.id})",
                    f"etcd member {member.id}",
                    f"remove it (etcdctl member remove {member.id}) if nobody needs it; then run the playbook again",
                )
        return None

    def _removed_by_others(self) -> Refusal | None:
        """Member on record that etcd does not list any more, and that nobody has asked to replace."""
        for known in self._gone():
            if known.name in self.seen.answering:
                # One that was removed ends. This one waits for others, one of which goes on without it.
                listing = ", ".join(self.seen.lists) or "another one"
                return Refusal(
                    Reason.ETCD_MEMBERS_DIFFER,
                    f"{listing} does not list the member {known.name} (ID {known.id}), which answers all the same",
                    "etcd",
                    REMEDY,
                )
            if known.id not in self.replace and known.name in self.wanted:
                return Refusal(
                    Reason.ETCD_MEMBERS_DIFFER,
                    f"somebody has removed the member {known.name} (ID {known.id}) from etcd",
                    f"etcd member {known.name}",
                    f"""ask for a new one in its place: -e '{{"etcd_replace": ["{known.name}"]}}'""",
                )
        return None

    def _give_up_removed(self) -> Step | None:
        gone = self._gone()
        return Leave(gone[0].name, gone[0].lost) if gone else None

    def _gone(self) -> list[Known]:
        return [each for each in self.seen.known if each.id and each.id not in self.by_id and not each.leaving]

    # -- what was begun --------------------------------------------------------------------------------------------

    def _in_flight(self) -> Step | Refusal | None:
        leaving = [each for each in self.seen.known if each.leaving]
        if leaving:
            return self._go(leaving[0])
        for known in self.seen.known:
            if not known.id:
                return self._come(known)
        for known in self.seen.known:
            member = self.by_id.get(known.id)
            if member and member.learner:
                return self._learn(known, member)
        return None

    def _come(self, known: Known) -> Step | Refusal:
        """Step for a member that is decided on and has no ID on record."""
        url = self.seen.peer_urls.get(known.name)
        added = [each for each in self.members if each.learner and each.peer_url == url and each.id not in self.names]
        if added:
            return Adopt(known.name, added[0].id)
        if known.name not in self.wanted:
            return Stop(known.name)
        if self._silent_without_data():
            # etcd adds nobody while one of its members is silent, and nothing is lost with a decision.
            return Stop(known.name)
        return self._not_healthy() or Add(known.name)

    def _learn(self, known: Known, learner: Member) -> Step:
        """Step for a member that has no vote yet."""
        asked = "you asked for it to be replaced" if known.id in self.replace else ""
        if known.name not in self.wanted or known.lost or asked:
            return Leave(known.name, known.lost or asked)
        if not learner.name:
            return Start(known.name, known.id)
        reason = self._reason_without_vote(known.name, learner)
        return Wait(reason) if reason else Promote(known.name, known.id)

    def _reason_without_vote(self, name: str, learner: Member) -> str:
        """Reason why a learner that has started gets no vote yet; empty if it may have it."""
        if not learner.works:
            return f"member {name} does not answer yet"
        leader = next((each for each in self.voters if each.leader), None)
        if leader is None:
            return "the members are choosing a leader"
        behind = leader.index - learner.index
        if behind > min(NEARLY_ALL, leader.index // 10):
            return f"member {name} is {behind} entries of the log behind its leader"
        return "" if self._majority_with(learner) else "another member is not healthy"

    def _go(self, known: Known) -> Step | Refusal:
        """Step for a member that is to go."""
        member = self.by_id.get(known.id)
        if member is None:
            return Stop(known.name)
        refused = self._at_risk(known.name, member)
        if refused and member.works and self._silent_without_data():
            return Stay(known.name)
        if member.leader:
            return self._move_leader(known.name) or Wait("no other member can lead")
        clients = self._clients_elsewhere(known.name, member)
        return refused or clients or Remove(known.name, known.id)

    # -- what is to begin ------------------------------------------------------------------------------------------

    def _lost(self) -> Step | Refusal | None:
        """Step for a member that is to be replaced."""
        for known in self._to_replace():
            member = self.by_id[known.id]
            if member.works and self._absent():
                # The one that comes in place of another has its vote before the next one goes.
                return None
            # One that works is not given away while another is ill: the one after it could not come.
            ill = [each for each in self.voters if not each.works and each.id != member.id] if member.works else []
            clients = self._clients_elsewhere(known.name, member)
            left_alone = clients if isinstance(clients, Refusal) else None
            refused = self._ill(ill[0]) if ill else self._at_risk(known.name, member)
            return refused or left_alone or Leave(known.name, self._reason_to_replace(known))
        return None

    def _to_replace(self) -> list[Known]:
        """Members to be replaced: first those that do not work, as no other one may go meanwhile."""
        due = [each for each in self.seen.known if self._reason_to_replace(each)]
        return sorted(due, key=lambda each: self.by_id[each.id].works)

    def _reason_to_replace(self, known: Known) -> str:
        """Reason to have another member in place of this one: a proof that its data is lost, or the user's wish."""
        member = self.by_id.get(known.id)
        if member is None or (member.works and known.id not in self.replace):
            return ""
        return known.lost or ("you asked for it to be replaced" if known.id in self.replace else "")

    def _silent_without_data(self) -> list[Known]:
        """Members to be replaced that do not work: until that is done, no other one comes, and few can go."""
        return [each for each in self._to_replace() if not each.leaving and not self.by_id[each.id].works]

    def _not_healthy(self) -> Refusal | None:
        """Refusal of any change while a voter is not healthy; only if a change is wanted."""
        ill = [each for each in self.voters if not each.works]
        if not ill or {each.name for each in self.seen.known if each.id} == set(self.wanted):
            return None
        name = self.names[ill[0].id]
        goes = name not in self.wanted and not self._absent()
        if goes and self._is_next_to_go(name):
            return None
        return self._ill(ill[0])

    def _ill(self, member: Member) -> Refusal:
        """Refusal of any change because of a voter that is not healthy."""
        name, healthy = self.names[member.id], sum(each.works for each in self.voters)
        return Refusal(
            Reason.ETCD_MAJORITY_AT_RISK,
            f"member {name} is not healthy{f' ({member.message})' if member.message else ''}, and members change only "
            f"while all others are: with {len(self.voters)} of "
            f"them {_majority(len(self.voters))} must be healthy, and {healthy} are",
            f"etcd member {name}",
            _mend(name),
        )

    def _missing(self) -> Step | None:
        absent = self._absent()
        return Decide(absent[0]) if absent else None

    def _absent(self) -> list[str]:
        """Names of members that the document asks for, and that are not on record."""
        return [name for name in self.wanted if name not in self.known]

    def _unwanted(self) -> Step | Refusal | None:
        unwanted = [each.name for each in self.seen.known if each.name not in self.wanted]
        if not unwanted:
            return None
        if not self.seen.clients <= set(self.wanted):
            return ClientsFollow()
        name = unwanted[-1]
        member = self.by_id[self.known[name].id]
        return self._at_risk(name, member) or (self._move_leader(name) if member.leader else None) or Leave(name)

    def _is_next_to_go(self, name: str) -> bool:
        return name == [each.name for each in self.seen.known if each.name not in self.wanted][-1]

    # -- majorities ------------------------------------------------------------------------------------------------

    def _move_leader(self, name: str) -> MoveLeader | None:
        """Move of the leader to the healthy voter that has most of the log, preferably one that stays."""
        stay = [each for each in self.voters if each.works and self.names[each.id] != name]
        best = max(stay, key=lambda each: (self.names[each.id] in self.wanted, each.index), default=None)
        return MoveLeader(name, self.names[best.id], best.id) if best else None

    def _clients_elsewhere(self, name: str, member: Member) -> ClientsFollow | Refusal | None:
        """Step for clients that connect to a member which goes; a refusal if those that stay could not serve them.

        One that still works answers those that it has ("raft: stopped") before its connections end, and such an answer
        is final. Of one that does not, nobody has an answer, and they use another one by themselves if they know it.
        """
        others = {self.names[each.id] for each in self.voters if each.works} - {name}
        asked = member.works and name in self.seen.clients
        knows_others = bool(self.seen.clients & others)
        if not self.seen.clients or (knows_others and not asked):
            return None
        # Clients follow the document: whoever else works is not what they connect to.
        stay = [each for each in self.seen.known if each.id and each.name in self.wanted and not each.leaving]
        staying = [each for each in stay if each.name != name]
        return ClientsFollow() if others & {each.name for each in staying} else self._clients_alone(name, staying)

    def _clients_alone(self, name: str, staying: Sequence[Known]) -> Refusal:
        """Refusal to remove a member, as none of those that stay could serve clients."""
        silent = [f"{each.name}{self._why(each)}" for each in staying]
        verbs = "stays and is" if len(silent) == 1 else "stay and are"
        left = f"{', '.join(silent)}, which {verbs} not healthy" if silent else "no member that is there now"
        return Refusal(
            Reason.ETCD_MAJORITY_AT_RISK,
            f"the member {name} is to go, and clients of etcd would be left with {left}",
            f"etcd member {staying[0].name if staying else name}",
            f"{'mend that first, or ' if silent else ''}have the document ask for the members of before again: clients "
            "then connect to those that work",
        )

    def _why(self, known: Known) -> str:
        message = self.by_id[known.id].message if known.id in self.by_id else ""
        return f" ({message})" if message else ""

    def _majority_with(self, learner: Member) -> bool:
        healthy = sum(each.works for each in self.voters) + learner.works
        return healthy >= _majority(len(self.voters) + 1)

    def _at_risk(self, name: str, member: Member) -> Refusal | None:
        """Refusal to remove a member, if those that are left would have no majority. A learner has no vote to lose."""
        if member.learner:
            return None
        left = [each for each in self.voters if each.id != member.id]
        healthy = sum(each.works for each in left)
        if healthy >= _majority(len(left)) and left:
            return None
        ill = [self.names[each.id] for each in left if not each.works]
        others = f"{', '.join(ill)} {'is' if len(ill) == 1 else 'are'} not healthy" if ill else "there is no other one"
        return Refusal(
            Reason.ETCD_MAJORITY_AT_RISK,
            f"without the member {name}, {healthy} of {len(left)} members would be healthy, and a majority of "
            f"{_majority(len(left))} is needed: {others}",
            f"etcd member {name}",
            _mend(ill[0]) if ill else "a single member whose data is lost comes back by a restore only",
        )


def _mend(name: str) -> str:
    """Remedy for a member that is not healthy."""
    return f"""mend {name}; if its data is lost, ask for a new one in its place: -e '{{"etcd_replace": ["{name}"]}}'"""


def _majority(members: int) -> int:
    return members // 2 + 1


def _majority_lost(seen: Seen) -> Wait | Refusal:
    """Step where no majority answers: its members start by themselves if their data is there."""
    voters = [each for each in seen.known if each.id]
    lost = {each.name: each.lost for each in voters if each.lost}
    told = f"{len(seen.answering)} of {len(voters)} members of etcd answer, and {_majority(len(voters))} are needed"
    # One that leaves may be removed already, which only a majority could tell.
    staying = [each for each in voters if not each.leaving]
    whole = [each for each in staying if not each.lost]
    enough = len(voters) - len(lost) >= _majority(len(voters))
    if enough and len(whole) >= _majority(len(staying)):
        return Wait(f"{told}; by the record the data of a majority is there, so they only have to start")
    return Refusal(
        Reason.ETCD_MAJORITY_LOST,
        told + (": " + "; ".join(f"{name}: {why}" for name, why in sorted(lost.items())) if lost else ""),
        "etcd",
        "too much of the data is lost for the members to go on: restore a backup",
    )
