# SPDX-License-Identifier: Apache-2.0
"""Steps leave to the place what differs by it. Those that ask where they run are listed, with why they do."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "plugins"
#: file → source of those that could ask
SOURCES = {
    path.relative_to(PLUGINS).as_posix(): text
    for path in PLUGINS.rglob("*.py")
    if "place" in (text := path.read_text(encoding="utf-8"))
}
#: the place itself
PLACE = {"plugin_utils/run/place.py", "plugin_utils/run/in_pods.py", "plugin_utils/run/on_hosts.py"}
#: answers of a place by which a step can choose one of its forms
ANSWERS = {"in_pods", "etcd_apart"}
#: names under which code has a place
NAMES = {"place", "_place"}
#: file → questions in it, and why neither the place nor a row of the component table answers something narrower
ASKS = {
    "action/hosts_outcome.py": (1, "what failed above the hosts has been told by the step that failed"),
    "action/member_join.py": (1, "on hosts, tasks of the role start again what holds a former connection"),
    "action/member_scheduling.py": (
        2,
        "of hosts a kubeconfig leads to the control plane; their state only without one",
    ),
    "action/uninstall.py": (1, "most of an uninstall of hosts happens on the hosts"),
    "plugin_utils/control_plane/differences.py": (
        2,
        "of a control plane on hosts only what is inside is compared here",
    ),
    "plugin_utils/preflight/findings.py": (
        5,
        "NoCluster has no version and no rights to ask for, and an uninstall of hosts knows them by the state",
    ),
    "plugin_utils/report/observe_hosts.py": (1, "etcd below pods may be asked from here, if no step on hosts has"),
    "plugin_utils/restore/check.py": (1, "nothing can move what has its etcd on hosts below pods yet"),
    "plugin_utils/restore/means_of_place.py": (2, "the choice of means for all steps of a restore"),
    "plugin_utils/run/run.py": (2, "where there is no host cluster, no object is applied to it"),
}


def questions(source: str) -> list[int]:
    """Lines in which a place is asked, as ``run.place.in_pods`` or ``place.in_pods``."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr in ANSWERS
        and {getattr(node.value, "attr", ""), getattr(node.value, "id", "")} & NAMES
    ]


def test_only_steps_with_two_whole_forms_ask_for_the_place() -> None:
    found = {name: questions(text) for name, text in SOURCES.items()}
    asked = {name: len(lines) for name, lines in found.items() if lines and name not in PLACE}
    assert asked == {name: number for name, (number, _) in ASKS.items()}


@pytest.mark.parametrize(
    "text", ["run.place.in_pods", "self.run.place.etcd_apart", "place.in_pods", "self._place.in_pods", "f(run.place).x"]
)
def test_a_question_is_found(text: str) -> None:
    assert bool(questions(f"if {text}:\n    pass\n")) is not text.startswith("f(")


def test_no_step_asks_for_the_class_of_a_place() -> None:
    """``isinstance`` would be the same question, and one that no list has."""
    for name, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                asked = getattr(node.args[0], "attr", getattr(node.args[0], "id", ""))
                assert asked not in NAMES, (name, node.lineno)
