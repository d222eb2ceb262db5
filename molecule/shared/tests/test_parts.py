# SPDX-License-Identifier: Apache-2.0
"""A scenario runs the parts that are asked for, and none at all where one of them is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = Path(__file__).parents[1] / "tasks/parts.yml"
PLAYBOOK = f"""
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.include_tasks: {PARTS}
    - ansible.builtin.debug: {{msg: "seen: {{{{ parts | join(' then ') }}}}."}}
"""


@pytest.mark.parametrize(
    ("asked", "default", "told"),
    [
        ("drian,reset", "", "WHICH names what is not there: drian. There are: drain, reset, modes."),
        ("reset drain", "", "seen: reset then drain."),
        (None, "", "seen: drain then reset then modes."),
        ("", "parts_by_default: [modes]\n", "seen: modes."),
        ("all", "parts_by_default: [modes]\n", "seen: drain then reset then modes."),
    ],
)
def test_parts_that_are_asked_for_are_there(asked: str | None, default: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "vars").mkdir()
    text = f"parts_by: WHICH\nparts_there_are: {{drain: [a], reset: [], modes: []}}\n{default}"
    (tmp_path / "vars/parts.yml").write_text(text)
    (tmp_path / "playbook.yml").write_text(PLAYBOOK)
    program = Path(sys.executable).with_name("ansible-playbook")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "COLUMNS": "300"}
    done = subprocess.run(
        [program, "-i", "localhost,", "-c", "local", "-e", f"scenario_directory={tmp_path}", tmp_path / "playbook.yml"],
        env={**environment, **({} if asked is None else {"WHICH": asked})},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told in done.stdout, done.stdout + done.stderr
    assert (done.returncode == 0) == told.startswith("seen")
