# SPDX-License-Identifier: Apache-2.0
"""How far a run on hosts has come that opened no journal there, as one that brings members does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import hosts_outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.changes import StepChange
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

ESTIMATORS = "Run an estimator for each member"
LOST = {"lost": {"step": ESTIMATORS, "reason": "Connection timed out"}}
STOPPED = {"stopped": ESTIMATORS}
DONE = {"done": ESTIMATORS}
JOINED = [StepChange("created", "Cluster", "m1", member="m1")]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    found.see_all(seen(Stored(4).after(remembered())))
    return found


def told(runs: Runs, *, check: bool = False) -> str:
    outcome = hosts_outcome.ActionModule.__new__(hosts_outcome.ActionModule)
    run = runs.step(operation="members", check=check)
    try:
        assert outcome.perform(run, {}) == {"changed": False}
    except ProblemsError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("changes", "hosts"),
    [
        (JOINED, {"cp2": LOST}),
        (JOINED, {"cp2": STOPPED}),
        ([], {"cp1": DONE, "cp2": LOST}),
        ([], {"cp2": {**DONE, **LOST}}),
    ],
    ids=["member and lost", "member and failed", "other host", "same host"],
)
def test_where_something_was_changed_before_a_host_was_lost_that_is_said(
    changes: list[StepChange], hosts: dict[str, Any], runs: Runs
) -> None:
    runs.handover.add_changes(changes)
    runs.see(**hosts)
    text = told(runs)
    assert "a part was changed; run again when every host answers" in text
    assert text.count("host cp") == 2, "each is told of"
    assert f'"{ESTIMATORS}"' in text


def test_a_host_that_is_lost_before_the_first_change_is_named_and_nothing_was_changed(runs: Runs) -> None:
    runs.see(cp2=LOST)
    text = told(runs)
    assert text.startswith("1 problem; nothing was changed")
    assert "a part was changed" not in text


@pytest.mark.parametrize("hosts", [{}, {"cp1": DONE, "cp2": DONE}], ids=["no host", "hosts"])
def test_a_run_without_trouble_on_hosts_says_nothing_of_them(hosts: dict[str, Any], runs: Runs) -> None:
    """Also if it has failed elsewhere: the step that has failed said so."""
    runs.handover.add_changes(JOINED)
    runs.see(**hosts)
    assert told(runs) == ""


def test_what_a_check_would_change_was_not_changed(runs: Runs) -> None:
    runs.handover.add_changes(JOINED)
    runs.see(cp2=LOST)
    assert "a part was changed" not in told(runs, check=True)
