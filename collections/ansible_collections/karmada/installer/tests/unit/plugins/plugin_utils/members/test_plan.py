# SPDX-License-Identifier: Apache-2.0
"""Who joins, stays and leaves, for whatever is listed, on record and registered."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.members import plan as member_plan
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sampled_from([f"m{number}" for number in range(8)])
SETS = st.sets(NAMES)
LABELS = st.sampled_from(
    [
        {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER},
        {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "another"},
        {"installer.karmada.io/owner": OWNER},
        {"app.kubernetes.io/managed-by": "Helm"},
        {},
    ]
)


def cluster(labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m", "labels": labels}}


REGISTERED = st.dictionaries(NAMES, LABELS.map(cluster))


def is_ours(registered: dict[str, Any], name: str) -> bool:
    labels = registered[name]["metadata"]["labels"] if name in registered else {}
    return len(labels) == 2 and labels["installer.karmada.io/owner"] == OWNER


@given(SETS, SETS, REGISTERED)
def test_each_member_has_one_fate(listed: set[str], recorded: set[str], registered: dict[str, Any]) -> None:
    plan = member_plan.plan(listed, recorded, registered, OWNER)
    fates = [*plan.join, *plan.keep, *plan.adopt, *plan.leave, *plan.others]
    assert sorted(fates) == sorted({*listed, *recorded, *registered})


@given(SETS, SETS, REGISTERED)
def test_only_what_is_ours_and_not_listed_leaves(
    listed: set[str], recorded: set[str], registered: dict[str, Any]
) -> None:
    plan = member_plan.plan(listed, recorded, registered, OWNER)
    assert not set(plan.leave) & listed
    assert all(name in recorded or is_ours(registered, name) for name in plan.leave)
    assert all(name not in recorded and not is_ours(registered, name) for name in plan.others)


@given(SETS, SETS, REGISTERED)
def test_what_is_listed_joins_stays_or_becomes_ours(
    listed: set[str], recorded: set[str], registered: dict[str, Any]
) -> None:
    plan = member_plan.plan(listed, recorded, registered, OWNER)
    assert {*plan.join, *plan.keep, *plan.adopt} == listed
    assert set(plan.join) == listed - set(registered)
    assert all(is_ours(registered, name) for name in plan.keep)
    assert not any(is_ours(registered, name) for name in plan.adopt)


@given(SETS, SETS, REGISTERED)
def test_a_second_run_finds_nothing_to_do(listed: set[str], recorded: set[str], registered: dict[str, Any]) -> None:
    plan = member_plan.plan(listed, recorded, registered, OWNER)
    ours = cluster({"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER})
    after = {**dict.fromkeys(listed, ours), **{name: registered[name] for name in plan.others}}
    again = member_plan.plan(listed, listed, after, OWNER)
    assert (again.join, again.adopt, again.leave) == ((), (), ())
    assert (set(again.keep), again.others) == (listed, plan.others)


def test_nothing_is_known_before_the_first_install() -> None:
    assert member_plan.plan(["b", "a"], [], {}, "") == member_plan.MemberPlan(join=("a", "b"))


@pytest.mark.parametrize(
    ("leaving", "confirmed", "refused"),
    [
        ([], "", False),
        (["a"], "", False),
        (["a", "b"], "", True),
        (["a", "b"], "a", True),
        (["a", "b"], "prod", True),
        (["a", "b"], "b, a", False),
        (["a", "b"], "a,b,c", False),
    ],
)
def test_more_than_one_is_asked_by_name(leaving: list[str], confirmed: str, refused: bool) -> None:
    problem = member_plan.unconfirmed(leaving, confirmed, "prod")
    assert (problem is not None) is refused
    if problem:
        assert "-e karmada_confirm_leave=a,b" in problem.remedy
        assert "2 members are no longer listed and would leave: a, b" in problem.what
        assert ("not named once more: b" in problem.what) is (confirmed == "a")
