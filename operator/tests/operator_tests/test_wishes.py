# SPDX-License-Identifier: Apache-2.0
"""Annotations of users: nothing passes but names, and nonsense stops runs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from karmada_operator import wishes
from karmada_operator.wishes import CONFIRMATIONS, Wishes

LEAVE = "installer.karmada.io/confirm-leave"


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
