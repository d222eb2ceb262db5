# SPDX-License-Identifier: Apache-2.0
"""Annotations of users: nothing passes but names, and nonsense stops runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from hypothesis import given, settings
from hypothesis import strategies as st
from karmada_operator import kinds, wishes
from karmada_operator.actions import Refuse, Release, Start
from karmada_operator.executor import RunSpec
from karmada_operator.jobs import job_of
from karmada_operator.kinds import Key
from karmada_operator.orders import Around, Seen
from karmada_operator.reconcile import Memory, decide, order_of
from karmada_operator.runs import MOST_DEAD, spec_of
from karmada_operator.wishes import CONFIRMATIONS, Wishes

from operator_tests.kubelet import TEMPLATE

LEAVE, KINDS = "installer.karmada.io/confirm-leave", kinds.load()


def test_nothing_asked() -> None:
    assert Wishes.of({"kubectl.kubernetes.io/last-applied-configuration": "{{ x }}"}) == Wishes()


def test_names_become_variables() -> None:
    found = Wishes.of({LEAVE: "m2, m1,m2", "installer.karmada.io/abandon-hosts": "web-1"})
    assert found.problems == ()
    assert found.variables == {
        "karmada_confirm_leave": "m1,m2",
        "preflight_abandon_hosts": ["web-1"],
        "uninstall_abandon_hosts": ["web-1"],
    }


@pytest.mark.parametrize("name", [*CONFIRMATIONS, wishes.RUN_NOW])
@pytest.mark.parametrize("text", ["{{ lookup('file', '/etc/passwd') }}", "$(id)", "a\nb", "A_B!", "a,,b", "é", "-a"])
def test_what_is_no_name_is_refused(name: str, text: str) -> None:
    found = Wishes.of({name: text})
    assert [each.where for each in found.problems] == [f"metadata.annotations[{name}]"]
    assert found.variables == {}
    assert found.run_now == ""


def test_what_is_too_long_is_refused_and_not_repeated() -> None:
    (problem,) = Wishes.of({LEAVE: "a" * 256 * 1024}).problems
    assert len(str(problem)) < 300


#: Of each length as many names as one annotation can have; the shortest take the most as JSON.
MANY = [
    ",".join(f"{number:0{length}d}" for number in range(min(10**length, wishes.LONGEST // (length + 1))))
    for length in (4, 8, 63, 253)
]


@pytest.mark.parametrize("names", MANY, ids=["short", "medium", "long", "longest"])
@pytest.mark.parametrize("asked", [[LEAVE], list(CONFIRMATIONS)], ids=["one", "all"])
@pytest.mark.parametrize("share", [1, 4, 16])
def test_what_is_asked_for_fits_into_a_job_or_is_refused(names: str, asked: list[str], share: int) -> None:
    """With all that the order of a run has beside it."""
    given = names.split(",")[::share]
    found = Wishes.of(dict.fromkeys(asked, ",".join(given)))
    if found.problems:
        (problem,) = found.problems
        assert problem.where == f"metadata.annotations[{', '.join(asked)}]"
        assert "KiB" in problem.what
        assert found.variables == {}
        assert share == 1, "a quarter of what each of three may have can be handed on"
    seen = Seen("u" * 36, 1 << 40, found, deleting=True)
    order = replace(order_of(seen), suspicion="s" * 1024)
    dead = ["x" * 63] * MOST_DEAD
    spec = spec_of(Key("KarmadaDeployment", "n" * 63, "x" * 48), KINDS["KarmadaDeployment"], seen, order, dead=dead)
    assert _fits(spec)


@pytest.mark.parametrize(("members", "length", "fits"), [(5000, 15, True), (1500, 48, True), (5000, 48, False)])
def test_members_without_a_secret_fit_into_a_job_or_the_removal_is_refused(
    members: int, length: int, fits: bool
) -> None:
    names = [f"{number:0{length}d}" for number in range(members)]
    seen = Seen("u" * 36, 1 << 40, claimed=True, deleting=True, access=tuple((name, "k") for name in names))
    action = decide(seen, Memory(), 0.0, Around(lost=frozenset({"k"})))
    if not fits:
        assert isinstance(action, Refuse)
        (problem,) = action.problems
        assert problem.reason is Reason.SECRET_NOT_FOUND
        assert f"of {members} members are gone" in problem.what
        assert "192 KiB can be handed on" in problem.what
        assert len(str(problem)) < 1024, "a status has it as a whole"
        return
    assert isinstance(action, Start)
    spec = spec_of(Key("KarmadaDeployment", "n" * 63, "x" * 48), KINDS["KarmadaDeployment"], seen, action.order)
    assert spec.variables["uninstall_abandon_members"] == names
    assert _fits(spec)


def test_names_that_nobody_can_be_told_hold_no_namespace() -> None:
    access = tuple((f"{number:048d}", "k") for number in range(5000))
    seen = Seen("u", 1, claimed=True, deleting=True, access=access, members=frozenset(name for name, _ in access))
    around = Around(lost=frozenset({"k"}), going=True)
    action = decide(seen, Memory(), 0.0, around)
    assert isinstance(action, Release)
    assert not action.kept
    assert action.left.endswith(" and 4990 more")
    assert len(action.left) < 1024
    tried = decide(replace(seen, wishes=Wishes(dry_run=True)), Memory(), 0.0, around)
    assert isinstance(tried, Refuse), "a dry run takes nothing away"


def _fits(spec: RunSpec) -> bool:
    """Return whether Kubernetes takes the annotations of a Job, and of its pod, with this run."""
    job = job_of(TEMPLATE, spec, "a", "o")
    both = [each["metadata"]["annotations"] for each in (job, job["spec"]["template"])]
    return all(sum(len(each) for item in found.items() for each in item) <= 256 * 1024 for found in both)


def test_a_thousand_members_may_leave_at_once() -> None:
    names = ",".join(f"member-of-a-site-with-a-long-name-{number:04}" for number in range(1000))
    assert Wishes.of({LEAVE: names}).problems == ()


@pytest.mark.parametrize("text", ["True", "yes", "1", "", " true"])
def test_a_flag_is_true_or_false(text: str) -> None:
    assert Wishes.of({wishes.PAUSED: text}).problems


def test_flags() -> None:
    found = Wishes.of({wishes.PAUSED: "true", wishes.DRY_RUN: "false", wishes.RUN_NOW: "2026-11-23T10:00:00Z"})
    assert (found.paused, found.dry_run, found.run_now) == (True, False, "2026-11-23T10:00:00Z")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(wishes.KNOWN), st.text(max_size=300)))
def test_no_text_reaches_a_variable_that_ansible_could_evaluate(annotations: dict[str, str]) -> None:
    for value in Wishes.of(annotations).variables.values():
        text = value if isinstance(value, str) else ",".join(value)
        assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.,")
