# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash, Member, Members
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import health
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.health import Health, Seen, assess
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason, Severity
from hypothesis import given
from hypothesis import strategies as st

MIB = 1024 * 1024


def listed(count: int, cluster: str = "c1") -> Members:
    members = tuple(
        Member(f"a{n}", f"m{n}", (f"https://h{n}:2380",), (f"https://h{n}:2379",), False) for n in range(count)
    )
    return Members(cluster, members)


def member(number: int, of: int = 3, **changes: object) -> Seen:
    status = EndpointStatus(
        url=f"https://h{number}:2379",
        healthy=True,
        version="3.6.16",
        db_size=40 * MIB,
        db_size_in_use=30 * MIB,
        db_quota=2048 * MIB,
        cluster_id="c1",
        leader=number == 0,
        member_id=f"a{number}",
        index=5000,
        revision=100,
    )
    names = {each for each in Seen.__dataclass_fields__ if each in changes}
    own = {name: changes.pop(name) for name in names}
    return replace(Seen(f"m{number}", replace(status, **changes), listed(of), Hash(100, 7)), **own)


def trio(**changes: object) -> list[Seen]:
    """Three members, the last of which differs."""
    return [member(0), member(1), member(2, **changes)]


def silent(number: int, disk: bool | None = None, *, answers: bool = False) -> Seen:
    url = f"https://h{number}:2379"
    if answers:
        lost = EndpointStatus(url, message="it knows no leader", cluster_id="c1", member_id=f"a{number}", index=9)
        return Seen(f"m{number}", lost, disk=disk)
    return Seen(f"m{number}", EndpointStatus(url, message="connection refused", cause=Cause.WRONG), disk=disk)


def test_members_that_agree_are_healthy() -> None:
    found = assess(trio())
    assert (found.good, found.reason, found.findings) == (True, "AllHealthy", ())
    assert found.message == "3 members of one cluster, with a leader and no alarm, equal at revision 100"
    assert set(found.behind.values()) == {0}


def test_members_of_another_cluster_than_on_record_are_told_first() -> None:
    assert assess(trio(), cluster="c1").good
    assert assess(trio(), cluster="").good, "none is on record yet"
    found = assess([member(0), member(1), silent(2)], cluster="c0")
    assert (found.good, found.reason) == (False, "OtherCluster")
    assert found.message.startswith("the members of etcd are the cluster c1, and the one of this control plane is c0")
    assert found.findings[0].reason is Reason.ETCD_MEMBERS_DIFFER
    assert "remove none of its members" in found.findings[0].remedy
    # Where one of two is on record, that there are two says more.
    assert assess(trio(cluster_id="c0"), cluster="c0").reason == "SplitClusters"


def test_hashes_are_not_called_equal_that_were_not_asked() -> None:
    assert "revision" not in assess(trio(hash=None)).message


def test_hashes_over_what_different_compactions_have_left_say_nothing() -> None:
    """Each member discards old revisions when it comes to it; meanwhile the hashes of equal contents differ."""
    members = trio()
    later = replace(members[2], hash=Hash(100, 8, compacted=90))
    found = assess([*members[:2], later])
    assert (found.good, found.findings) == (True, ())
    assert "revision" not in found.message


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"cluster_id": "c2"}, "SplitClusters", "2 clusters: m0, m1 of cluster c1; m2 of cluster c2"),
        ({"member_id": "ff"}, "UnknownMember", "m2 (ID ff) answers, and others do not know it: m0, m1"),
        ({"hash": Hash(100, 8)}, "ContentsDiffer", "revision 100: m0, m1 has 00000007; m2 has 00000008"),
        ({"alarms": ("NOSPACE",), "healthy": False}, "Alarm", "the alarm NOSPACE is raised"),
        ({"alarms": ("CORRUPT",), "healthy": False}, "Alarm", "the alarm CORRUPT is raised"),
        ({"learner": True, "index": 4990}, "LearnerLeftBehind", "m2 (ID a2) is a learner, without a vote, 10 entries"),
        ({"index": 3000}, "MemberBehind", "m2 is 2000 entries behind the leader"),
        ({"healthy": False, "message": "it knows no leader"}, "MemberUnhealthy", "m2: it knows no leader"),
        ({"cause": Cause.WRONG, "message": "connection refused"}, "MemberDown", "m2 does not answer: connection"),
    ],
)
def test_what_does_not_fit_is_said(changes: dict[str, object], reason: str, words: str) -> None:
    found = assess(trio(**changes))
    assert (found.good, found.reason) == (False, reason)
    assert words in found.message
    assert words in found.findings[0].what


def test_members_that_list_others_go_on_without_each_other() -> None:
    alone = replace(listed(3), members=listed(3).members[:1])
    found = assess([member(0, known=alone), member(1, leader=True), member(2)])
    assert (found.good, found.reason) == (False, "MembersDiffer")
    assert "m0 lists m0; m1, m2 list m0, m1, m2" in found.message
    first = found.findings[0]
    assert first.reason is Reason.ETCD_MEMBERS_DIFFER
    assert not any(name in first.remedy for name in ("m0", "m1", "m2", "etcd_replace"))
    # Lists of two clusters differ in any case.
    assert assess([member(0, known=alone, cluster_id="c2"), member(1), member(2)]).reason == "SplitClusters"
    # One that knows no leader has nothing to go by.
    leaderless = member(0, known=alone, healthy=False, message="it knows no leader")
    assert assess([leaderless, member(1), member(2)]).reason == "MemberUnhealthy"


def test_hashes_of_different_revisions_are_not_compared() -> None:
    assert assess(trio(hash=Hash(99, 8))).good


def test_a_member_that_only_the_list_has_is_told() -> None:
    stranger = Member("ee", "", ("https://elsewhere:2380",), (), True)
    known = replace(listed(3), members=(*listed(3).members, stranger))
    found = assess([member(0, known=known), member(1, known=known), member(2, known=known)])
    assert found.reason == "UnknownMember"
    assert "not started yet (ID ee, https://elsewhere:2380, a learner)" in found.message
    assert "a member (ID ee) is a learner" in found.message


def test_a_member_that_is_listed_and_does_not_answer_is_no_stranger() -> None:
    assert assess([member(0), member(1), silent(2)]).reason == "MemberDown"


@pytest.mark.parametrize(
    ("members", "words", "remedy"),
    [
        (
            [silent(0, answers=True), silent(1, True), silent(2, False)],
            "2 of 3 have their data (m0, m1), 2 are a majority; lost: m2",
            "it starts the members as they are, and nothing is lost",
        ),
        (
            [silent(0, answers=True), silent(1, False), silent(2, False)],
            "1 of 3 have their data (m0), 2 are a majority; lost: m1, m2",
            "a majority of the data is lost: restore a backup",
        ),
        (
            [silent(0, answers=True), silent(1), silent(2, False)],
            "1 of 3 have their data (m0), 2 are a majority; lost: m2; unknown of m1",
            "bring back m1",
        ),
        ([silent(0, False), silent(1, False), silent(2, False)], "0 of 3 have their data (none)", "restore a backup"),
    ],
)
def test_a_lost_majority_names_what_is_to_be_done(members: list[Seen], words: str, remedy: str) -> None:
    found = assess(members)
    assert (found.good, found.reason) == (False, "MajorityLost")
    assert words in found.findings[0].what
    assert remedy in found.findings[0].remedy
    assert found.findings[0].severity is Severity.ERROR


def test_without_an_answer_from_here_nothing_is_known() -> None:
    found = assess([silent(0), silent(1)], asked_in_place=False)
    assert (found.good, found.reason) == (None, "NotAsked")
    assert assess([silent(0), silent(1)]).good is False


@pytest.mark.parametrize(
    ("size", "words"), [(1023, ""), (1024, "takes 50% of its quota (1024 of 2048"), (1639, "at 100 % it takes no more")]
)
def test_room_is_warned_of_from_half_of_the_quota_on(size: int, words: str) -> None:
    found = assess(trio(db_size=size * MIB), works=1200)
    assert found.good
    told = "".join(each.what for each in found.findings)
    assert words in told
    assert bool(told) is bool(words)
    assert ("with 1200 Works in the control plane" in told) is bool(words)


def test_an_etcd_that_tells_no_quota_is_not_warned_of() -> None:
    assert not assess([replace(each, status=replace(each.status, db_quota=0)) for each in trio()]).findings


SEEN = st.builds(
    lambda number, changes, disk: member(number, disk=disk, **changes),
    st.integers(0, 6),
    st.fixed_dictionaries(
        {},
        optional={
            "cluster_id": st.sampled_from(["c1", "c2"]),
            "member_id": st.sampled_from(["a0", "a1", "ff"]),
            "cause": st.sampled_from([None, Cause.WRONG, Cause.UNREACHED]),
            "healthy": st.booleans(),
            "leader": st.booleans(),
            "learner": st.booleans(),
            "index": st.integers(0, 2**63),
            "db_size": st.integers(0, 2**40),
            "db_quota": st.integers(0, 2**40),
            "alarms": st.sampled_from([(), ("NOSPACE",)]),
            "hash": st.one_of(st.none(), st.builds(Hash, *[st.integers(0, 2)] * 3)),
            "known": st.one_of(st.none(), st.integers(0, 7).map(listed)),
        },
    ),
    st.sampled_from([None, True, False]),
)


@given(st.lists(SEEN, max_size=7, unique_by=lambda each: each.name))
def test_no_etcd_is_called_healthy_that_has_one_member_that_is_not(seen: list[Seen]) -> None:
    found = assess(seen)
    assert isinstance(found, Health)
    assert found.message
    assert all(behind >= 0 for behind in found.behind.values())
    if found.good:
        statuses = [each.status for each in seen]
        assert all(each.cause is None and each.healthy and not each.alarms and not each.learner for each in statuses)
        assert len({each.cluster_id for each in statuses}) == 1
        assert all(each <= health.FAR_BEHIND for each in found.behind.values())
        assert all(each.severity is Severity.WARNING for each in found.findings)


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=7))
def test_a_restart_is_advised_only_where_a_majority_has_its_data(disks: list[bool | None]) -> None:
    found = assess([silent(number, disk) for number, disk in enumerate(disks)])
    if all(each is None for each in disks):
        assert found.reason == "NoMemberAnswers"
        return
    assert found.reason == "MajorityLost"
    majority = disks.count(True) > len(disks) // 2
    assert ("run karmada.installer.install: it starts" in found.findings[0].remedy) is majority
    if disks.count(False) >= len(disks) - len(disks) // 2:
        assert "restore a backup" in found.findings[0].remedy
