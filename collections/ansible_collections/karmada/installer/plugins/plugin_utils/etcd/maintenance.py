# SPDX-License-Identifier: Apache-2.0
"""Steps by which the databases of etcd's members get room. No I/O.

One step at a time, each by a new look: compact, defragment a member, the leader last, clear the alarm. A member answers
nobody while it is defragmented, so it is done to one only while all are well.

**Compaction** goes to the current revision, and only where a member is due. An API server compacts by itself every five
minutes, to the revision of five minutes before (``k8s.io/apiserver/pkg/storage/etcd3/compact.go``): who reads older
revisions, such as the next page of a list, is told that they have expired and begins anew, which every client of
Kubernetes must be able to. Ours does the same for the last five minutes. The next one of the API server is refused with
"required revision has been compacted", which it logs and goes on from. Its mark is a key that it writes; a full etcd
takes no such write, so there nobody but us compacts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..components.etcd_configuration import DEFAULT_QUOTA
from ..problems import Problem, Reason
from .health import Seen, assess

COMPACT, DEFRAGMENT, DISARM = "compact", "defragment", "disarm"
NOSPACE = "NOSPACE"
#: Share of the quota below which a database has room again.
_ROOM = 0.95
#: What etcd's health may lack, because this makes it whole again.
_MENDED = frozenset({"Alarm"})


@dataclass(frozen=True)
class Limits:
    """Size of a database, in bytes, and share of free space in it, in percent, from which on it is defragmented.

    ``quota`` is how many bytes it may have where a member does not tell (before etcd 3.6).
    """

    size: int
    free_percent: int
    quota: int = DEFAULT_QUOTA

    def quota_of(self, seen: Seen) -> int:
        """Bytes that the database of a member may have."""
        return seen.status.db_quota or self.quota


@dataclass(frozen=True)
class Step:
    """Next step. ``member`` is its name; a compaction is asked of it for all, up to ``revision``."""

    kind: str
    member: str
    revision: int = 0
    #: IDs of members whose alarm is to be cleared; one of them may be a member no more
    identities: tuple[str, ...] = ()


def is_due(seen: Seen, limits: Limits) -> bool:
    """Return whether the member's database is large enough and has enough free space to be worth it."""
    size = seen.status.db_size
    free = size - seen.status.db_size_in_use
    return size >= limits.size and size > 0 and free * 100 >= limits.free_percent * size


def next_step(
    seen: Sequence[Seen],
    limits: Limits,
    *,
    compacted: bool = False,
    defragmented: Collection[str] = (),
    disarmed: bool = False,
) -> Step | None:
    """Next step, or None if there is nothing to do.

    ``compacted``, ``defragmented`` (names) and ``disarmed`` are what this run has done: a member is not defragmented
    twice, and an alarm that is back is not cleared again. Raises nothing; whether the members may be touched at all is
    for ``refusal`` to say.
    """
    full = _is_full(seen)
    due = [each for each in seen if each.name not in defragmented and (full or is_due(each, limits))]
    if due and not compacted:
        return Step(COMPACT, _leader_last(seen)[-1].name, max(each.status.revision for each in seen))
    if due:
        return Step(DEFRAGMENT, _leader_last(due)[0].name)
    has_room = all(each.status.db_size < _ROOM * limits.quota_of(each) for each in seen)
    return disarm(seen) if has_room and not disarmed else None


def disarm(seen: Sequence[Seen]) -> Step | None:
    """Step that clears the alarm of a full etcd, once there is room; None if there is no alarm."""
    if not _is_full(seen):
        return None
    # An alarm outlives its member, so that of one that was replaced meanwhile is cleared, too.
    raised = {identity for each in seen for identity in each.status.full_members}
    tell = {each.status.member_id for each in seen if NOSPACE in each.status.alarms}
    return Step(DISARM, _leader_last(seen)[0].name, identities=tuple(sorted(raised | tell)))


def order(seen: Sequence[Seen], limits: Limits) -> list[str]:
    """Names of the members that are to be defragmented, in this order, as far as is known before."""
    full = _is_full(seen)
    return [each.name for each in _leader_last(seen) if full or is_due(each, limits)]


def first(seen: Sequence[Seen], names: Collection[str]) -> str:
    """Name of the member among these that is to be defragmented first; empty if there is none."""
    return next((each.name for each in _leader_last(seen) if each.name in names), "")


def refusal(seen: Sequence[Seen], name: str) -> Problem | None:
    """Reason why no member may be touched now; None if all are well, a lack of space apart."""
    found = assess(seen)
    alarms = {alarm for each in seen for alarm in each.status.alarms}
    if found.good or (found.reason in _MENDED and alarms == {NOSPACE} and _only_alarms(seen)):
        return None
    return Problem(
        f"etcd is not well: {found.message}",
        f"etcd of {name}",
        "mend that first: a member answers nobody while its database is defragmented" + _replaced_while_full(seen),
        reason=Reason.ETCD_UNHEALTHY,
    )


def _replaced_while_full(seen: Sequence[Seen]) -> str:
    """Way on where a member of a full etcd is away, in words: without it nobody could write again."""
    if not _is_full(seen) or all(each.answers for each in seen):
        return ""
    return "; one whose data is lost is replaced by karmada.installer.install, also while etcd is full"


def no_room(seen: Sequence[Seen], limits: Limits, name: str) -> Problem | None:
    """Problem of an etcd that is still full when everything was done."""
    if not _is_full(seen):
        return None
    full = [f"{each.name} {each.status.db_size // 1024**2} of {limits.quota_of(each) // 1024**2} MiB" for each in seen]
    return Problem(
        f"it is full of what is in use, and takes no writes: {', '.join(full)}",
        f"etcd of {name}",
        "raise spec.components.etcd.local.extraArgs quota-backend-bytes, install (which may end with components that "
        "cannot write yet), and run this again",
        reason=Reason.ETCD_NEARLY_FULL,
    )


def _only_alarms(seen: Sequence[Seen]) -> bool:
    """Return whether nothing is wrong beside the alarm: all but that is assessed as if it were not raised."""
    calm = [
        replace(each, status=replace(each.status, alarms=(), healthy=each.status.healthy or bool(each.status.alarms)))
        for each in seen
    ]
    return bool(assess(calm).good)


def _is_full(seen: Sequence[Seen]) -> bool:
    return any(NOSPACE in each.status.alarms for each in seen)


def _leader_last(seen: Sequence[Seen]) -> list[Seen]:
    return sorted(seen, key=lambda each: each.status.leader)
