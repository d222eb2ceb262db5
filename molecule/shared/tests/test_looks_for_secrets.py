# SPDX-License-Identifier: Apache-2.0
"""Scenarios that look for secrets know what they look for: the keys that runs make, not only files of the user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SCENARIOS = Path(__file__).parents[2]
#: Those whose runs are disturbed, where what is shown or left is no matter of course.
DISTURBED = ("hosts_faults", "hosts_hostile", "run_check_mode", "run_faulty_api", "run_interrupted")


def tasks(scenario: str) -> Iterator[dict[str, Any]]:
    """Tasks of all files of a scenario, those of its main file first, with those of blocks."""
    files = sorted((SCENARIOS / scenario / "tasks").glob("*.yml"), key=lambda file: file.name != "main.yml")
    for file in files:
        waiting = list(yaml.safe_load(file.read_text()))
        while waiting:
            task = waiting.pop(0)
            waiting[:0] = [*task.get("block", []), *task.get("rescue", []), *task.get("always", [])]
            yield task


def including(scenario: str, name: str) -> list[dict[str, Any]]:
    """The tasks of a scenario that include this file of shared tasks."""
    return [task for task in tasks(scenario) if str(task.get("ansible.builtin.include_tasks")).endswith(f"/{name}.yml")]


@pytest.mark.parametrize("scenario", DISTURBED)
def test_keys_of_the_control_plane_are_known_and_outputs_are_looked_at(scenario: str) -> None:
    remembered = [task.get("vars") or {} for task in including(scenario, "remember_secrets")]
    of_runs = [each for each in remembered if each.get("of_clusters") != [] and each.get("clusters") != []]
    on_hosts = [each for each in remembered if each.get("hosts_with_keys")]
    # A control plane in pods has its keys in the host cluster; without `clusters` that is one of all.
    places = [each for each in of_runs if "host" in each.get("clusters", ["host"])]
    assert places or on_hosts, "it knows no key that a run makes"
    assert including(scenario, "no_secret"), "it looks at no output"


def test_each_killed_run_is_looked_after_with_the_keys_that_it_has_made() -> None:
    """A key that a killed run made is not the one of the run before."""
    names = [str(task["name"]) for task in yaml.safe_load((SCENARIOS / "run_interrupted/tasks/killed.yml").read_text())]
    assert names.index("Remember them, for the look at the disk") < names.index("Look at what it left")
