# SPDX-License-Identifier: Apache-2.0
"""Agents of members on plain hosts begin anew when API servers accept them again, and none keeps that from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import restore_on_host
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock_asked import Asking
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import BOTH, after_install, deployment
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, seen

JOINED = {name: {"mode": "Pull", "secretRef": {"name": name}} for name in ("m1", "m2")}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    stored = Stored().after(after_install(members=JOINED), on_hosts=False)
    found.see(**dict.fromkeys(("cp1", "gw1", "gw2"), seen(stored)))
    return found


def waking(runs: Runs, host: str, answer: dict[str, Any]) -> tuple[Asking, dict[str, Any], list[Problem]]:
    step = Asking(restore_on_host.ActionModule, runs)
    step.answer = answer
    step.action.karmada = runs.step(deployment(*BOTH))
    step.action.variables = {**step.action.variables, "inventory_hostname": host}
    told: list[Problem] = []
    step.action.karmada.tell = told.append
    return step, step.action.perform({"state": "woken", "snapshot": {}}), told


def test_a_host_restarts_each_of_its_agents(runs: Runs) -> None:
    names = ["karmada-prod-agent-m1.service", "karmada-prod-agent-m2.service"]
    step, found, told = waking(runs, "gw1", {"changed": True, "restarted": names})
    (asked,) = step.asked
    assert (asked["state"], sorted(asked["units"])) == (
        "restarted",
        sorted(on_hosts.agents(step.action.karmada, "gw1")),
    )
    assert len(asked["units"]) == 2
    assert found == {"changed": True, "changes": [f"restart {name}" for name in names]}
    assert told == []


def test_a_host_without_agents_is_not_asked(runs: Runs) -> None:
    step, found, _ = waking(runs, "cp1", {"changed": False})
    assert (step.asked, found) == ([], {"changed": False})


def test_a_host_that_fails_is_told_and_keeps_no_release_from_its_end(runs: Runs) -> None:
    _, found, told = waking(runs, "gw2", {"failed": True, "msg": "no systemd"})
    assert found == {"changed": False}
    assert [(each.where, each.reason) for each in told] == [("host gw2", Reason.HOST_STEP_FAILED)]
    assert "may take minutes to log in again: no systemd" in told[0].what


def test_a_host_that_does_not_answer_was_told_already(runs: Runs) -> None:
    runs.see(gw2={"refusal": "No route to host"})
    step, found, told = waking(runs, "gw2", {"changed": False})
    assert (step.asked, found, told) == ([], {"changed": False}, [])


def test_an_agent_of_a_member_that_is_not_joined_is_left_alone(runs: Runs) -> None:
    stored = Stored().after(after_install(members={"m1": JOINED["m1"]}), on_hosts=False)
    runs.see(**dict.fromkeys(("cp1", "gw1", "gw2"), seen(stored)))
    run = runs.step(deployment(*BOTH))
    assert len(on_hosts.agents(run, "gw1")) == 1
    assert on_hosts.agents(run, "gw2") == []


def test_the_step_has_these_tasks() -> None:
    assert on_hosts.OnHosts.tasks[Step.WAKE_AGENTS] == "woken"
