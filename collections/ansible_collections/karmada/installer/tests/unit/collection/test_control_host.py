# SPDX-License-Identifier: Apache-2.0
"""Whoever names the host of a control plane himself names the wrong one where an inventory has several."""

from __future__ import annotations

import ast
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.run.inventory_names import CONTROL

COLLECTION = Path(__file__).parents[3]
#: Plays on that host, which the first play makes of the control plane that was chosen.
PLAYS = {"playbooks/preflight.yml", "playbooks/on_members/scheduling.yml"}


def test_programs_take_its_name_from_one_place() -> None:
    named = [
        str(file.relative_to(COLLECTION))
        for file in sorted(COLLECTION.glob("plugins/**/*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == CONTROL
    ]
    assert named == ["plugins/plugin_utils/run/inventory_names.py"]


def test_tasks_do_not_name_it_and_plays_only_as_where_they_run() -> None:
    files = [*COLLECTION.glob("playbooks/**/*.yml"), *COLLECTION.glob("roles/*/tasks/**/*.yml")]
    named = [
        (str(file.relative_to(COLLECTION)), line.partition(":")[0].strip())
        for file in sorted(files)
        for line in file.read_text(encoding="utf-8").splitlines()
        if CONTROL in line.partition("#")[0]
    ]
    assert named == [(play, "hosts") for play in sorted(PLAYS)]
