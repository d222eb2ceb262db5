# SPDX-License-Identifier: Apache-2.0
"""Restarts of members of etcd: the next one, and what has to be done before it. No I/O."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..problems import Reason
from .plan_types import MoveLeader, Refusal, Seen, lists_differ


@dataclass(frozen=True)
class Restart:
    """Restart this member, and look again."""

    name: str


def may_be_needed(seen: Seen, name: str) -> bool:
    """Return whether a majority may rest on the vote of this member, although it does not say that it works.

    An answer that is late, or a certificate that cannot be read, is no proof that a member is down. Without a majority
    nobody is served, and where the others are one without it, nobody depends on it.
    """
    identity = next((each.id for each in seen.known if each.name == name), "")
    voters = [each for each in seen.members or () if not each.learner]
    others = sum(each.works for each in voters if each.id != identity)
    return bool(voters) and others <= len(voters) // 2


def next_restart(seen: Seen, names: Collection[str]) -> Restart | MoveLeader | Refusal | None:
    """Next one of these members to restart; None if none of them is a member.

    One at a time, and only while all voters are healthy by etcd's own words: a pod or a unit is ready a little earlier
    than its member has the log of the others. The leader is the last, and another one leads before it goes, so that
    nobody waits for an election. Members that are only full count as healthy: a restart gives them a larger quota.
    """
    if seen.members is None:
        return Refusal(
            Reason.ETCD_MAJORITY_LOST,
            "no majority of its members answers, so none of them may be restarted",
            "etcd",
            "see the logs of its members, and mend them first",
            # Nobody lists the members while they choose a leader, and they answer then.
            passes=bool(seen.answering),
        )
    if refused := lists_differ(seen):
        return refused
    by_id = {each.id: each for each in seen.members}
    known = {each.name: by_id[each.id] for each in seen.known if each.id in by_id}
    name_of = {member.id: name for name, member in known.items()}
    voters = [each for each in seen.members if not each.learner]
    for member in voters:
        if not member.works:
            name = name_of.get(member.id, member.name)
            why = f" ({member.message})" if member.message else ""
            return Refusal(
                Reason.ETCD_MAJORITY_AT_RISK,
                f"member {name} is not healthy{why}, and a member is restarted only while all others are",
                f"etcd member {name}",
                "mend it first",
            )
    outdated = [name for name in known if name in names]
    followers = [name for name in outdated if not known[name].leader]
    if followers or not outdated:
        return Restart(followers[0]) if followers else None
    others = [each for each in voters if not each.leader]
    if not others:
        return Restart(outdated[0])
    best = max(others, key=lambda each: each.index)
    return MoveLeader(outdated[0], name_of.get(best.id, best.name), best.id)
