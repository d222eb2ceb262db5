# SPDX-License-Identifier: Apache-2.0
"""Under Ansible's importer the engine is compiled once, and not in each process that reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTION = Path(__file__).parents[3]
#: Loads an action as a strategy does, and says how many files of the engine were compiled for it.
LOADS = """
import sys
from pathlib import Path

compiled = []
sys.addaudithook(lambda event, given: compiled.append(str(given[1])) if event == "compile" else None)
from ansible.plugins.loader import action_loader, init_plugin_loader

init_plugin_loader([])
assert action_loader.get("karmada.installer.member_join", class_only=True)
engine = ("/plugins/plugin_utils/", "/plugins/module_utils/")
loaded = [name for name in sys.modules if ".installer.plugins." in name]
print(len(loaded), len([path for path in compiled if "/installer/" in path and any(part in path for part in engine)]))
"""


def compiled(**environment: str) -> int:
    """How many files of the engine a new process compiles."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTION.parents[2]), **environment},
    )
    assert done.returncode == 0, done.stderr
    loaded, found = map(int, done.stdout.split())
    assert loaded > 100
    return found


def test_what_one_run_has_compiled_the_next_one_reads(tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    assert compiled(PYTHONPYCACHEPREFIX=kept) > 100
    # That of the package itself, which has this done, is Ansible's.
    assert compiled(PYTHONPYCACHEPREFIX=kept) <= 1


@pytest.mark.parametrize("setting", ["PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"])
def test_a_place_where_nothing_can_be_kept_is_no_obstacle(setting: str, tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    given = {"PYTHONPYCACHEPREFIX": str(nowhere), setting: str(nowhere)}
    assert compiled(**given) > 100
    assert compiled(**given) > 100
    assert nowhere.read_text() == ""
