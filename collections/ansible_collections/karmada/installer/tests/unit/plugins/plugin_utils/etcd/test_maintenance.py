# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import maintenance
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.health import Seen
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.maintenance import (
    COMPACT,
    DEFRAGMENT,
    DISARM,
    NOSPACE,
    Limits,
    Step,
)
from hypothesis import given
from hypothesis import strategies as st

MIB = 1024 * 1024
LIMITS = Limits(100 * MIB, 50)


def member(number: int, size: int = 400, used: int = 100, **changes: object) -> Seen:
    status = EndpointStatus(
        url=f"https://h{number}:2379",
        healthy=True,
        db_size=size * MIB,
        db_size_in_use=used * MIB,
        db_quota=500 * MIB,
        cluster_id="c1",
        leader=number == 0,
        member_id=f"a{number}",
        index=50,
        revision=100 + number,
    )
    return Seen(f"m{number}", replace(status, **changes))


def full(number: int, **changes: object) -> Seen:
    return member(number, size=500, used=200, alarms=(NOSPACE,), healthy=False, message="alarm:NOSPACE", **changes)


@pytest.mark.parametrize(
    ("size", "used", "due"), [(100, 50, True), (99, 1, False), (100, 51, False), (4000, 2000, True), (0, 0, False)]
)
def test_a_member_is_due_from_a_size_and_a_share_on(size: int, used: int, *, due: bool) -> None:
    assert maintenance.is_due(member(0, size, used), LIMITS) is due


def test_without_need_there_is_nothing_to_do() -> None:
    assert maintenance.next_step([member(0, 90, 1), member(1, 400, 300)], LIMITS) is None


def test_the_leader_comes_last() -> None:
    seen = [member(0), member(1), member(2)]
    assert maintenance.order(seen, LIMITS) == ["m1", "m2", "m0"]
    assert maintenance.next_step(seen, LIMITS) == Step(COMPACT, "m0", 102)
    steps = [
        maintenance.next_step(seen, LIMITS, compacted=True, defragmented=done)
        for done in ((), ("m1",), ("m1", "m2"), ("m0", "m1", "m2"))
    ]
    assert steps == [Step(DEFRAGMENT, "m1"), Step(DEFRAGMENT, "m2"), Step(DEFRAGMENT, "m0"), None]


def test_one_that_has_come_to_lead_meanwhile_is_the_last() -> None:
    seen = [member(0, leader=False), member(1), member(2, leader=True)]
    assert maintenance.first(seen, ["m2", "m0"]) == "m0"
    assert maintenance.first(seen, ["m2"]) == "m2"
    assert maintenance.first(seen, []) == ""


def test_only_members_that_are_due_are_defragmented() -> None:
    assert maintenance.order([member(0, 90, 10), member(1), member(2, 400, 390)], LIMITS) == ["m1"]


def test_a_full_etcd_is_defragmented_as_a_whole_before_its_alarm_is_cleared() -> None:
    seen = [full(0), full(1)]
    assert maintenance.order(seen, LIMITS) == ["m1", "m0"]
    done = {"compacted": True, "defragmented": ("m0", "m1")}
    # Whatever is in use still fills it.
    assert maintenance.next_step(seen, LIMITS, **done) is None
    assert maintenance.no_room(seen, LIMITS, "prod") is not None
    freed = [replace(each, status=replace(each.status, db_size=200 * MIB)) for each in seen]
    assert maintenance.next_step(freed, LIMITS, **done) == Step(DISARM, "m1", identities=("a0", "a1"))
    assert maintenance.no_room([member(0)], LIMITS, "prod") is None
    # An alarm that is back at once is not cleared again.
    assert maintenance.next_step(freed, LIMITS, **done, disarmed=True) is None


def test_before_etcd_36_the_quota_is_that_of_the_document() -> None:
    seen = [full(number, db_quota=0) for number in range(2)]
    done = {"compacted": True, "defragmented": ("m0", "m1")}
    limits = replace(LIMITS, quota=500 * MIB)
    assert maintenance.next_step(seen, limits, **done) is None
    problem = maintenance.no_room(seen, limits, "prod")
    assert problem is not None
    assert "m0 500 of 500 MiB, m1 500 of 500 MiB" in problem.what
    roomy = maintenance.next_step(seen, replace(LIMITS, quota=1000 * MIB), **done)
    assert roomy == Step(DISARM, "m1", identities=("a0", "a1"))


def test_the_alarm_of_a_member_that_was_replaced_is_cleared() -> None:
    seen = [member(number, 400, 200, alarms=(NOSPACE,), full_members=("b9",), healthy=False) for number in range(2)]
    step = maintenance.next_step(seen, LIMITS, compacted=True, defragmented=("m0", "m1"))
    assert step == Step(DISARM, "m1", identities=("a0", "a1", "b9"))


@pytest.mark.parametrize(
    "wrong",
    [
        member(2, cause=Cause.WRONG, message="connection refused"),
        member(2, healthy=False, message="it knows no leader"),
        member(2, cluster_id="c2"),
        member(2, learner=True),
        member(2, alarms=("CORRUPT",), healthy=False),
        full(2, learner=True),
        full(2, cluster_id="c2"),
    ],
)
def test_nothing_is_begun_while_a_member_is_not_well(wrong: Seen) -> None:
    problem = maintenance.refusal([member(0), member(1), wrong], "prod")
    assert problem is not None
    assert "etcd is not well" in problem.what


def test_it_is_told_how_a_member_of_a_full_etcd_is_replaced() -> None:
    away = member(2, cause=Cause.WRONG, message="connection refused")
    problem = maintenance.refusal([full(0), full(1), away], "prod")
    assert problem is not None
    assert "replaced by karmada.installer.install, also while etcd is full" in problem.remedy
    seen = [member(0), member(1), away], [full(0), full(1, learner=True)]
    others = [maintenance.refusal(each, "prod") for each in seen]
    assert all(each is not None and "replaced" not in each.remedy for each in others)


def test_a_lack_of_space_alone_is_no_obstacle() -> None:
    assert maintenance.refusal([full(0), full(1), full(2)], "prod") is None
    assert maintenance.refusal([member(0), member(1)], "prod") is None


MEMBERS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=7).map(
    lambda sizes: [member(n, size, size * used // 100) for n, (size, used) in enumerate(sizes)]
)


@given(MEMBERS, st.booleans(), st.integers(0, 6), st.integers(1, 500), st.integers(1, 99))
def test_a_run_ends_with_each_member_touched_once_at_most_and_a_second_one_has_nothing_to_do(
    seen: list[Seen], nospace: bool, leader: int, size: int, free: int
) -> None:
    limits = Limits(size * MIB, free)
    seen = [replace(each, status=replace(each.status, leader=n == leader % len(seen))) for n, each in enumerate(seen)]
    if nospace:
        seen = [replace(each, status=replace(each.status, alarms=(NOSPACE,))) for each in seen]
    due = {each.name for each in seen if nospace or maintenance.is_due(each, limits)}
    compacted, done = False, []
    for _ in range(2 * len(seen) + 3):
        step = maintenance.next_step(seen, limits, compacted=compacted, defragmented=done)
        if step is None:
            break
        if step.kind == COMPACT:
            assert not done
            assert not compacted
            assert step.revision == max(each.status.revision for each in seen)
            compacted = True
        elif step.kind == DEFRAGMENT:
            assert compacted
            assert step.member not in done
            done.append(step.member)
            seen = [
                replace(each, status=replace(each.status, db_size=each.status.db_size_in_use))
                if each.name == step.member
                else each
                for each in seen
            ]
        else:
            assert set(done) == {each.name for each in seen}
            seen = [replace(each, status=replace(each.status, alarms=())) for each in seen]
    else:
        raise AssertionError("it does not end")
    assert set(done) == due
    leaders = [each.name for each in seen if each.status.leader and each.name in due]
    assert done[-1:] == leaders or not leaders
    if not nospace:
        assert maintenance.next_step(seen, limits) is None
