# SPDX-License-Identifier: Apache-2.0
"""A command of a scenario that fails and prints nothing is no proof that there is nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

SCENARIOS = Path(__file__).parents[2]
COMMANDS = ("ansible.builtin.command", "ansible.builtin.shell")
#: A program that could not begin, or gave up: none of those that scenarios call ends with this code when all is well.
GAVE_UP = {"rc": 99, "stdout": "", "stderr": "it gave up", "stdout_lines": [], "stderr_lines": ["it gave up"]}
#: Who wants a program to fail looks at what it says in the task after it.
LOOKED_AT_LATER = {("members_of_others/tasks/main.yml", "Try to register member1 with it")}


class _Loader(yaml.SafeLoader):
    """Loader that passes over tags of Ansible."""


_Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_yaml_str(node))


def commands(node: Any) -> Iterator[dict[str, Any]]:
    """Tasks with a command whose result is judged by a ``failed_when`` of its own."""
    if isinstance(node, list):
        for each in node:
            yield from commands(each)
    elif isinstance(node, dict):
        condition = node.get("failed_when")
        if any(name in node for name in COMMANDS) and condition is not None and not isinstance(condition, bool):
            yield node
        for each in node.values():
            yield from commands(each)


def fails(task: dict[str, Any]) -> bool | None:
    """Return whether the task fails if its program gave up; None if that depends on what other tasks have found."""
    condition = task["failed_when"]
    templar = Templar(loader=DataLoader(), variables={task["register"]: GAVE_UP, **task.get("vars", {})})
    try:
        return all(
            templar.evaluate_conditional(trust_as_template(str(each)))
            for each in (condition if isinstance(condition, list) else [condition])
        )
    except AnsibleError:
        return None


def test_a_task_whose_program_gave_up_fails_also_where_it_wants_to_see_nothing() -> None:
    verdicts = {
        (str(file.relative_to(SCENARIOS)), task["name"]): fails(task)
        for file in sorted(SCENARIOS.glob("*/tasks/**/*.yml"))
        for document in yaml.load_all(file.read_text(), _Loader)
        for task in commands(document)
    }
    assert sum(verdict is True for verdict in verdicts.values()) > 100
    assert {task for task, verdict in verdicts.items() if verdict is False} == LOOKED_AT_LATER


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        ("found.stdout | length > 0", False),
        ("found.rc != 0 or found.stdout | length > 0", True),
        (["found.rc != 0", "found.stdout != ''"], False),
        ("found.stdout != before.stdout", None),
    ],
)
def test_conditions_are_judged(condition: Any, verdict: bool | None) -> None:
    assert fails({"failed_when": condition, "register": "found"}) is verdict
