# SPDX-License-Identifier: Apache-2.0
"""Scenarios that look for secrets know what they look for: the keys that runs make, not only files of the user."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SCENARIOS = Path(__file__).parents[2]
#: Those whose runs are disturbed, where what is shown or left is no matter of course.
DISTURBED = {"hosts_faults", "hosts_hostile", "hosts_restore", "run_check_mode", "run_faulty_api", "run_interrupted"}
_OF_ANOTHER = re.compile(r"\{\{ project \}\}/molecule/((?!shared/)\w+/tasks/\w+\.yml)")


class _Loader(yaml.SafeLoader):
    """YAML as Ansible reads it."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def files_of(scenario: str) -> list[Path]:
    """Files with tasks of a scenario, its main file first, and those of other scenarios that it includes."""
    files = sorted((SCENARIOS / scenario / "tasks").glob("*.yml"), key=lambda file: file.name != "main.yml")
    for file in files:
        others = (SCENARIOS / each for each in _OF_ANOTHER.findall(file.read_text()))
        files += dict.fromkeys(each for each in others if each not in files)
    return files


def tasks_in(file: Path) -> Iterator[dict[str, Any]]:
    """Tasks of a file in their order, with those of blocks."""
    waiting = list(yaml.load(file.read_text(), _Loader))  # noqa: S506 - a safe loader
    while waiting:
        task = waiting.pop(0)
        waiting[:0] = [*task.get("block", []), *task.get("rescue", []), *task.get("always", [])]
        yield task


def tasks(scenario: str) -> Iterator[dict[str, Any]]:
    """Tasks of all files of a scenario."""
    for file in files_of(scenario):
        yield from tasks_in(file)


def includes(task: dict[str, Any], name: str) -> bool:
    return str(task.get("ansible.builtin.include_tasks")).endswith(f"/{name}.yml")


def including(scenario: str, name: str) -> list[dict[str, Any]]:
    """The tasks of a scenario that include this file of shared tasks."""
    return [task for task in tasks(scenario) if includes(task, name)]


def looks(task: dict[str, Any]) -> bool:
    """Whether a task looks for secrets in what runs have shown or left."""
    words = json.dumps([task.get("ansible.builtin.command"), task.get("ansible.builtin.shell")])
    return includes(task, "no_secret") or bool(re.search(r"leaks\.py\b\W+look\b", words))


LOOKING = sorted(
    folder.parent.name
    for folder in SCENARIOS.glob("*/tasks")
    if folder.parent.name != "shared" and any(map(looks, tasks(folder.parent.name)))
)


def test_every_scenario_with_disturbed_runs_looks() -> None:
    assert set(LOOKING) >= DISTURBED
    assert len(LOOKING) > len(DISTURBED), "those whose runs are not disturbed are not found"


#: Verbs that bring keys with them that were not there before.
MAKE_KEYS = ("certificates", "install", "members", "release", "restore", "restore_undo")


def course(scenario: str, name: str = "main") -> Iterator[dict[str, Any]]:
    """Tasks as they come, with those of the scenario's own files in the place where they are included."""
    for task in tasks_in(SCENARIOS / scenario / f"tasks/{name}.yml"):
        own = re.fullmatch(r"(\w+)\.yml", str(task.get("ansible.builtin.include_tasks")))
        if own and own[1] != name:
            yield from course(scenario, own[1])
        else:
            yield task


@pytest.mark.parametrize("scenario", LOOKING)
def test_what_is_made_anew_is_known_before_it_goes(scenario: str) -> None:
    """Keys go with an uninstall, and its output counts as well."""
    known, gone = False, ""
    for task in course(scenario):
        of = task.get("vars") or {}
        if looks(task):
            gone = ""
        elif includes(task, "remember_secrets"):
            known = True
        elif includes(task, "verb") and of.get("verb_expect") == "some" and "--check" not in of.get("verb_options", []):
            if of["verb"] == "uninstall":
                assert known, f"{of['step']}: nobody has remembered the keys"
                gone = of["step"]
            elif of["verb"] in MAKE_KEYS:
                known = False
    assert not gone, f"{gone}: nobody looks at its output"


@pytest.mark.parametrize("scenario", LOOKING)
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
