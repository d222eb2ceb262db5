# SPDX-License-Identifier: Apache-2.0
"""Members are restarted one at a time while all are healthy, and nobody waits for an election."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.plan_types import MoveLeader, Refusal
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.restart import Restart, next_restart
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support.etcd_in_memory import EtcdInMemory
from hypothesis import given
from hypothesis import strategies as st


def members(count: int, leader: int = 0) -> EtcdInMemory:
    etcd = EtcdInMemory.of([f"prod-etcd-{ordinal}" for ordinal in range(count)])
    etcd._leader = list(etcd.members)[leader]
    return etcd


@given(st.sampled_from([1, 3, 5, 7]).flatmap(lambda count: st.tuples(st.just(count), st.integers(0, count - 1))))
def test_each_is_restarted_once_and_the_leader_last_after_it_has_handed_over(drawn: tuple[int, int]) -> None:
    count, leads = drawn
    etcd = members(count, leads)
    outdated, restarted, moves = set(etcd.known), [], 0
    first_leader = etcd.name_of(etcd.leader())
    while step := next_restart(etcd.seen(), outdated):
        if isinstance(step, MoveLeader):
            etcd.do(step)
            moves += 1
            continue
        assert isinstance(step, Restart)
        assert count == 1 or etcd.name_of(etcd.leader()) != step.name
        restarted.append(step.name)
        outdated.remove(step.name)
    assert sorted(restarted) == sorted(etcd.known)
    assert restarted[-1] == first_leader
    assert moves == (1 if count > 1 else 0)


def test_the_one_with_most_of_the_log_takes_over() -> None:
    etcd = members(3)
    identities = list(etcd.members)
    etcd.members[identities[2]] = dataclasses.replace(etcd.members[identities[2]], index=5001)
    assert next_restart(etcd.seen(), {"prod-etcd-0"}) == MoveLeader("prod-etcd-0", "prod-etcd-2", identities[2])


def test_nobody_is_restarted_while_members_list_others() -> None:
    etcd = members(3)
    lists = {name: frozenset(etcd.members) for name in etcd.known}
    lists["prod-etcd-1"] = frozenset([etcd.known["prod-etcd-1"].id])
    refused = next_restart(dataclasses.replace(etcd.seen(), lists=lists), {"prod-etcd-0"})
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.ETCD_MEMBERS_DIFFER
    assert "prod-etcd-1 lists prod-etcd-1" in refused.what


@pytest.mark.parametrize("ill", ["prod-etcd-0", "prod-etcd-1", "prod-etcd-2"])
def test_none_is_restarted_while_one_of_them_is_not_healthy(ill: str) -> None:
    etcd = members(3)
    etcd.processes[ill].cut = True
    step = next_restart(etcd.seen(), set(etcd.known))
    assert isinstance(step, Refusal)
    assert (step.reason, step.where) == (Reason.ETCD_MAJORITY_AT_RISK, f"etcd member {ill}")


@pytest.mark.parametrize("count", [1, 3, 5])
def test_a_full_etcd_is_restarted_as_it_gets_a_larger_quota_so(count: int) -> None:
    etcd = members(count)
    etcd.full = True
    assert not any(each.healthy for each in etcd.seen().members or ())
    step = next_restart(etcd.seen(), set(etcd.known))
    assert step == Restart("prod-etcd-1" if count > 1 else "prod-etcd-0")


def test_what_else_is_wrong_with_one_of_a_full_etcd_is_refused() -> None:
    etcd = members(3)
    etcd.full = True
    etcd.cut("prod-etcd-2")
    step = next_restart(etcd.seen(), set(etcd.known))
    assert isinstance(step, Refusal)
    assert step.where == "etcd member prod-etcd-2"


def test_none_is_restarted_without_a_majority() -> None:
    etcd = members(3)
    for name in ("prod-etcd-0", "prod-etcd-1"):
        etcd.processes[name].cut = True
    step = next_restart(dataclasses.replace(etcd.seen(), answering=frozenset(["prod-etcd-2"])), set(etcd.known))
    assert isinstance(step, Refusal)
    assert (step.reason, step.passes) == (Reason.ETCD_MAJORITY_LOST, True)
    step = next_restart(dataclasses.replace(etcd.seen(), answering=frozenset()), set(etcd.known))
    assert isinstance(step, Refusal)
    assert (step.reason, step.passes) == (Reason.ETCD_MAJORITY_LOST, False)


def test_what_is_no_member_is_not_chosen() -> None:
    assert next_restart(members(3).seen(), {"prod-etcd-7"}) is None
