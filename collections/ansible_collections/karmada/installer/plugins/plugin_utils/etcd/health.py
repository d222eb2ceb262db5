# SPDX-License-Identifier: Apache-2.0
"""Health of etcd as a whole: what its members answered, put side by side, and in words what does not fit. No I/O.

A list of members is not health. etcd is healthy if every member answers, all are of one cluster and list the same
members, none raises an alarm, none lags behind, and all have the same content at one revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Counted, Hash, Members

from ..problems import Problem, Reason, Severity, number_of
from .client import EndpointStatus
from .lists import OTHER_CLUSTER_REMEDY, REMEDY, difference, other_cluster

#: Entries of the log that a member may be behind the leader and still count as up to date.
FAR_BEHIND = 1_000
#: Shares of the quota from which on the report warns.
HALF_FULL, NEARLY_FULL = 0.5, 0.8
_MIB = 1024 * 1024
_TABLE = "as a majority of its members does not answer, etcd takes no writes and serves no reads"


@dataclass(frozen=True)
class Seen:
    """One member by its own answers, each absent if it was not asked or not given.

    ``known`` are the members that it lists, ``hash`` is that over its keys, ``counted`` are numbers of them. ``disk``
    tells whether its data is there, where that can be seen from outside of it.
    """

    name: str
    status: EndpointStatus
    known: Members | None = None
    hash: Hash | None = None
    disk: bool | None = None
    counted: Counted | None = None

    @property
    def answers(self) -> bool:
        """True if it told its status; without a majority it does, too."""
        return self.status.cause is None

    @property
    def has_disk(self) -> bool | None:
        """True if its data is there: who answers has it; None if nobody knows."""
        return True if self.answers else self.disk


@dataclass(frozen=True)
class Health:
    """Health of etcd: the condition, and what is to be said of it, the worst first.

    ``good`` is None if nothing is known because no member could be asked from this machine. ``behind`` has the entries
    that each member's log is behind the leader's, by its URL.
    """

    good: bool | None
    reason: str
    message: str
    members: tuple[Seen, ...] = ()
    findings: tuple[Problem, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict)


def common_revision(statuses: Iterable[EndpointStatus]) -> int:
    """Newest revision that all members have that answered; 0 if none did."""
    return min((each.revision for each in statuses if each.cause is None and each.revision), default=0)


def fill(statuses: Iterable[EndpointStatus]) -> float:
    """Share of its quota that the fullest database takes; 0 if none tells its quota (before etcd 3.6)."""
    return max((each.db_size / each.db_quota for each in statuses if each.db_quota), default=0.0)


def assess(seen: Sequence[Seen], *, asked_in_place: bool = True, works: int | None = None, cluster: str = "") -> Health:
    """Health by these answers, one entry for each member that should be there.

    ``asked_in_place``: silence means that a member is down; otherwise it may be the way from this machine.
    ``works`` is the number of Works of the control plane, None if it was not asked. ``cluster`` is the ID of the
    cluster on record, empty if none is.
    """
    answered = [each for each in seen if each.answers]
    if not seen or (not answered and not asked_in_place):
        return Health(None, "NotAsked", "no member of etcd could be asked from this machine", tuple(seen))
    if not answered and not any(each.disk is not None for each in seen):
        silent = "; ".join(f"{each.name}: {each.status.message}" for each in seen)
        return Health(False, "NoMemberAnswers", f"no member answers: {silent}", tuple(seen))
    behind = _behind(answered)
    wrong = [
        *_of_clusters(answered),
        *_of_other_cluster(answered, cluster),
        *_of_lists(answered),
        *_of_majority(seen),
        *_of_strangers(seen, answered),
        *_of_contents(answered),
        *_of_alarms(answered),
        *_of_learners(seen, answered, behind),
        *_of_lag(answered, behind),
        *_of_single_members(seen),
    ]
    room = list(_of_room(answered, works))
    findings = (*(problem for _, problem in wrong), *room)
    if wrong:
        reason, message = wrong[0][0], "; ".join(dict.fromkeys(_sentence(problem) for _, problem in wrong))
        return Health(False, reason, message, tuple(seen), findings, behind)
    told = f"{number_of(len(seen), 'member')} of one cluster, with a leader and no alarm"
    compared = [each.hash for each in seen if each.hash]
    if len(compared) == len(seen) > 1 and len(set(compared)) == 1:
        told += f", equal at revision {compared[0].revision}"
    return Health(True, "AllHealthy", told, tuple(seen), findings, behind)


_Finding = tuple[str, Problem]


def _finding(reason: str, what: str, remedy: str, severity: Severity = Severity.ERROR) -> _Finding:
    return reason, Problem(what, "etcd", remedy, reason=Reason.ETCD_UNHEALTHY, severity=severity)


def _sentence(problem: Problem) -> str:
    return problem.what


def _behind(answered: Sequence[Seen]) -> dict[str, int]:
    """URL → entries behind the leader, or where none says that it leads, behind the member that has most."""
    leaders = [each for each in answered if each.status.leader] or answered
    most = max((each.status.index for each in leaders), default=0)
    return {each.status.url: max(0, most - each.status.index) for each in answered if each.status.index}


def _of_clusters(answered: Sequence[Seen]) -> Iterable[_Finding]:
    clusters: dict[str, list[str]] = {}
    for each in answered:
        if each.status.cluster_id:
            clusters.setdefault(each.status.cluster_id, []).append(each.name)
    if len(clusters) > 1:
        told = "; ".join(f"{', '.join(names)} of cluster {cluster}" for cluster, names in sorted(clusters.items()))
        yield _finding(
            "SplitClusters",
            f"its members belong to {len(clusters)} clusters: {told}. What is written to one is not in the other",
            "stop the members of the cluster that does not have the data, before clients write to both",
        )


def _of_other_cluster(answered: Sequence[Seen], known: str) -> Iterable[_Finding]:
    """Members of which none is of the cluster on record."""
    if told := other_cluster({each.status.cluster_id for each in answered}, known):
        yield "OtherCluster", Problem(told, "etcd", OTHER_CLUSTER_REMEDY, reason=Reason.ETCD_MEMBERS_DIFFER)


def lists_differ(seen: Iterable[Seen]) -> str:
    """Difference of the lists that healthy members of one cluster give, in words; empty if there is none."""
    able = [each for each in seen if each.known and each.answers and (each.status.healthy or each.status.alarms)]
    names = {member.id: member.name for each in able if each.known for member in each.known.members}
    clusters: dict[str, dict[str, list[str]]] = {}
    for each in able:
        listed = [member.id for member in each.known.members] if each.known else []
        clusters.setdefault(each.status.cluster_id, {})[each.name] = listed
    return next(filter(None, (difference(lists, names) for _, lists in sorted(clusters.items()))), "")


def _of_lists(answered: Sequence[Seen]) -> Iterable[_Finding]:
    """Members of one cluster that go on without each other."""
    if told := lists_differ(answered):
        problem = Problem(told, "etcd", REMEDY, reason=Reason.ETCD_MEMBERS_DIFFER)
        yield "MembersDiffer", problem


def _of_majority(seen: Sequence[Seen]) -> Iterable[_Finding]:
    """The row of the procedure for a lost majority that applies here."""
    voters = _voters(seen)
    needed = voters // 2 + 1
    serving = [each for each in seen if each.answers and each.status.healthy and not each.status.learner]
    leading = any(each.status.leader for each in seen if each.answers)
    if len(serving) >= needed or leading or any(each.status.alarms for each in seen):
        return
    there = [each.name for each in seen if each.has_disk]
    gone = [each.name for each in seen if each.has_disk is False]
    unknown = [each.name for each in seen if each.has_disk is None]
    disks = f"{len(there)} of {voters} have their data ({', '.join(there) or 'none'}), {needed} are a majority"
    if gone:
        disks += f"; lost: {', '.join(gone)}"
    if unknown:
        disks += f"; unknown of {', '.join(unknown)}"
    if len(there) >= needed:
        remedy = "run karmada.installer.install: it starts the members as they are, and nothing is lost"
    elif len(there) + len(unknown) >= needed:
        remedy = (
            f"bring back {', '.join(unknown)}; with their data there is a majority, and karmada.installer.install "
            "starts the members as they are. Without it, restore a backup"
        )
    else:
        remedy = "a majority of the data is lost: restore a backup. Nothing starts an empty cluster meanwhile"
    yield _finding("MajorityLost", f"{_TABLE}: {disks}", remedy)


def _voters(seen: Sequence[Seen]) -> int:
    """Number of members with a vote, by the longest list that one gave, else as many as there should be."""
    lists = [[each for each in one.known.members if not each.learner] for one in seen if one.known]
    return max(map(len, lists), default=0) or len(seen)


def _of_strangers(seen: Sequence[Seen], answered: Sequence[Seen]) -> Iterable[_Finding]:
    """Members that the others do not list, and listed members that nobody knows of here."""
    ours = {each.status.member_id for each in answered}
    hosts = {urlsplit(each.status.url).hostname for each in seen}
    names = {each.name for each in seen}
    for each in answered:
        others = [one for one in answered if one.known and one is not each and _same_cluster(one, each)]
        ignorant = [
            one.name for one in others if one.known and each.status.member_id not in {m.id for m in one.known.members}
        ]
        if ignorant and len(ignorant) == len(others):
            yield _finding(
                "UnknownMember",
                f"{each.name} (ID {each.status.member_id}) answers, and others do not know it: {', '.join(ignorant)}",
                "it was removed, or never added: stop it, and run karmada.installer.install. If instead somebody has "
                "forced another one to go on alone (--force-new-cluster), stop the side whose data does not count",
            )
    told: set[str] = set()
    for one in answered:
        for member in one.known.members if one.known else ():
            places = {urlsplit(url).hostname for url in (*member.client_urls, *member.peer_urls)}
            strange = member.id not in ours and member.name not in names and not places & hosts
            if strange and member.id not in told:
                told.add(member.id)
                place = ", ".join(member.peer_urls)
                yield _finding(
                    "UnknownMember",
                    f"it lists a member that the document does not have: {member.name or 'not started yet'} "
                    f"(ID {member.id}, {place}{', a learner' if member.learner else ''})",
                    "if nobody else added it on purpose, remove it",
                )


def _same_cluster(one: Seen, other: Seen) -> bool:
    return one.status.cluster_id == other.status.cluster_id


def _of_contents(answered: Sequence[Seen]) -> Iterable[_Finding]:
    """Hashes that differ at one revision of one cluster, over what the same compaction has left."""
    groups: dict[tuple[str, int, int], dict[int, list[str]]] = {}
    for each in answered:
        if each.hash:
            at = (each.status.cluster_id, each.hash.revision, each.hash.compacted)
            groups.setdefault(at, {}).setdefault(each.hash.value, []).append(each.name)
    for (_, revision, _), by_hash in sorted(groups.items()):
        if len(by_hash) > 1:
            told = "; ".join(f"{', '.join(names)} has {value:08x}" for value, names in sorted(by_hash.items()))
            yield _finding(
                "ContentsDiffer",
                f"the content of its members differs at revision {revision}: {told}",
                "one of them is corrupt; replace the one that differs from the majority, and write nothing before",
            )


def _of_alarms(answered: Sequence[Seen]) -> Iterable[_Finding]:
    raised: dict[str, list[str]] = {}
    for each in answered:
        for alarm in each.status.alarms:
            raised.setdefault(alarm, []).append(each.name)
    # Each member reports the alarms of all, so that of a single one stands with all of them.
    for alarm, names in sorted(raised.items()):
        if alarm == "NOSPACE":
            remedy = "run karmada.installer.etcd_maintenance, which makes room and clears it; then raise the quota"
        else:
            remedy = "replace the member whose data is corrupt"
        yield _finding("Alarm", f"the alarm {alarm} is raised, as {', '.join(names)} say", remedy)


def _of_learners(seen: Sequence[Seen], answered: Sequence[Seen], behind: Mapping[str, int]) -> Iterable[_Finding]:
    """Learners: a run leaves none behind."""
    by_id = {each.status.member_id: each for each in answered}
    names = {each.status.member_id: each.name for each in seen if each.status.member_id}
    found = {each.status.member_id for each in answered if each.status.learner}
    found |= {member.id for one in answered if one.known for member in one.known.members if member.learner}
    for identity in sorted(found):
        name = names.get(identity, "")
        far = behind.get(by_id[identity].status.url) if identity in by_id else None
        distance = f", {number_of(far, 'entry', 'entries')} behind the leader" if far is not None else ""
        yield _finding(
            "LearnerLeftBehind",
            f"{name or 'a member'} (ID {identity}) is a learner, without a vote{distance}: a change of members did not "
            "come to its end",
            "run karmada.installer.install, which goes on from there",
        )


def _of_lag(answered: Sequence[Seen], behind: Mapping[str, int]) -> Iterable[_Finding]:
    for each in answered:
        far = behind.get(each.status.url, 0)
        if far > FAR_BEHIND and not each.status.learner:
            yield _finding(
                "MemberBehind",
                f"{each.name} is {far} entries behind the leader",
                "see its disk and its network; it catches up by itself, and counts as one that is away until then",
                Severity.WARNING,
            )


def _of_single_members(seen: Sequence[Seen]) -> Iterable[_Finding]:
    for each in seen:
        if not each.answers:
            yield _finding("MemberDown", f"{each.name} does not answer: {each.status.message}", "", Severity.WARNING)
        elif not each.status.healthy and not each.status.alarms:
            yield _finding("MemberUnhealthy", f"{each.name}: {each.status.message}", "", Severity.WARNING)


def _of_room(answered: Sequence[Seen], works: int | None) -> Iterable[Problem]:
    """Warning about a quota that is half or nearly full; the fullest member speaks for all."""
    with_quota = [each for each in answered if each.status.db_quota]
    if not with_quota:
        return
    fullest = max(with_quota, key=lambda each: each.status.db_size / each.status.db_quota)
    share = fullest.status.db_size / fullest.status.db_quota
    if share < HALF_FULL:
        return
    of_which = f"; {fullest.status.db_size_in_use // _MIB} MiB of it in use" if fullest.status.db_size_in_use else ""
    counted = f", with {number_of(works, 'Work')} in the control plane" if works is not None else ""
    urgent = "; at 100 % it takes no more writes" if share >= NEARLY_FULL else ""
    yield Problem(
        f"the database of {fullest.name} takes {share:.0%} of its quota ({fullest.status.db_size // _MIB} of "
        f"{fullest.status.db_quota // _MIB} MiB{of_which}){counted}{urgent}",
        "etcd",
        "karmada.installer.etcd_maintenance gives free space back; what is in use needs a higher quota-backend-bytes",
        reason=Reason.ETCD_NEARLY_FULL,
        severity=Severity.WARNING,
    )
