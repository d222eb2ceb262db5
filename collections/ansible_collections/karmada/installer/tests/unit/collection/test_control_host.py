# SPDX-License-Identifier: Apache-2.0
"""Control host of a run: where several control planes are in the inventory, the first play gives its name to one.

Before that nothing may work on a host of this name, and what needs it has it from one place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_names

COLLECTION = Path(__file__).resolve().parents[3]
PLAYBOOKS = COLLECTION / "playbooks"
VERBS = sorted(PLAYBOOKS.glob("[!_]*.yml"))
#: Playbooks that work on no control plane.
OF_NONE = {"awx_objects.yml"}
#: Files with tasks that ask for something of the control host although they may run on another one.
ASK_IT = {"roles/host_units/vars/main.yml"}


def plays(path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Plays of a playbook in their order, each with the file that it stands in."""
    for each in yaml.safe_load(path.read_text(encoding="utf-8")):
        imported = each.get("ansible.builtin.import_playbook")
        if imported:
            yield from plays(path.parent / imported)
        else:
            yield path.resolve(), each


@pytest.mark.parametrize("path", [each for each in VERBS if each.name not in OF_NONE], ids=lambda each: each.stem)
def test_a_verb_works_on_no_host_before_the_control_plane_is_chosen(path: Path) -> None:
    (first, begin), *others = plays(path)
    assert first == PLAYBOOKS / "_begin.yml"
    chosen = [each for each in begin["tasks"] if "karmada.installer.instance" in each]
    assert len(chosen) == 1
    assert others
    assert not [file.name for file, _ in others if file == first]


def test_its_name_is_in_one_place_of_the_engine() -> None:
    found = {
        path.relative_to(COLLECTION).as_posix()
        for path in (COLLECTION / "plugins").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value == inventory_names.CONTROL
    }
    assert found == {"plugins/plugin_utils/run/inventory_names.py"}


def test_tasks_run_on_it_by_their_play_and_ask_it_by_no_name() -> None:
    folders = [each for kind in ("tasks", "vars", "defaults") for each in (COLLECTION / "roles").glob(f"*/{kind}")]
    found = {
        path.relative_to(COLLECTION).as_posix()
        for folder in (PLAYBOOKS, *folders)
        for path in folder.rglob("*.yml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(rf"\b{inventory_names.CONTROL}\b", line.split("#")[0]) and not line.startswith("  hosts: ")
    }
    assert found == ASK_IT
