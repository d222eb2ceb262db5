# SPDX-License-Identifier: Apache-2.0
"""Forks of a run find made what all of them need; by Ansible."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support.ansible_commands import CHECKOUT

#: A step that tells what it finds when its fork begins with it.
ACTION = """
import gc, json, os, pathlib, sys
from ansible.plugins.action import ActionBase
{imports}

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        filters = [name for name in sys.modules if name.startswith("ansible.plugins.filter.core")]
        found = {{"frozen": gc.get_freeze_count(), "filters": len(filters), "threshold": gc.get_threshold()[0]}}
        pathlib.Path(os.environ["FOUND"]).write_text(json.dumps(found))
        return {{"changed": False}}
"""
OF_OURS = "import ansible_collections.karmada.installer.plugins.plugin_utils.run.action"


def found(folder: Path, imports: str) -> dict[str, int]:
    """What the fork of a task finds whose action imports this."""
    (folder / "action_plugins").mkdir()
    (folder / "action_plugins" / "look.py").write_text(ACTION.format(imports=imports))
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"look": {}}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections"),
        "ANSIBLE_HOME": str(folder / "home"),
        "FOUND": str(folder / "found.json"),
    }
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "-c", "local", str(folder / "play.yml")],
        capture_output=True,
        text=True,
        check=False,
        env=kept | settings,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, int] = json.loads((folder / "found.json").read_text())
    return told


@pytest.mark.parametrize(("imports", "prepared"), [(OF_OURS, True), ("", False)])
def test_forks_of_our_steps_find_filters_loaded_and_objects_frozen(
    imports: str, prepared: bool, tmp_path: Path
) -> None:
    told = found(tmp_path, imports)
    assert (told["filters"] > 0) is prepared
    assert (told["frozen"] > 10_000) is prepared
    assert (told["threshold"] > 10_000) is prepared
