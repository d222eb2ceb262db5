# SPDX-License-Identifier: Apache-2.0
"""The turns in which programs are brought are taken by one process, host after host, until they are there or one fails.

Ansible runs for real; a stand-in for the action says what it was asked for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
HOSTS = ("cp1", "cp2")
#: Begun in the first turn and looked at by the others, as downloads are.
ACTION = """\
import json, os
from ansible.plugins.action import ActionBase

BEGUN = []

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        args, done = self._task.args, {"changed": False}
        if args["state"] == "looked_for":
            return {**done, "turns": task_vars["turns"]}
        BEGUN.append(self._task.delegate_to)
        if len(BEGUN) == 3:
            return {**done, **task_vars["third"]}
        return {**done, "brought": False}
"""
MODULE = "DOCUMENTATION = 'module: programs'\n"
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.include_role:
        name: karmada.installer.host_units
        tasks_from: programs
        rolespec_validate: false
    - ansible.builtin.debug:
        msg: "TAKEN {{ host_units_brought.results | default([]) | map(attribute='item') | to_json }}"
      run_once: true
"""


@pytest.mark.parametrize(
    ("turns", "third", "taken"),
    [
        ([*HOSTS] * 4, {"brought": True}, [*HOSTS, "cp1"]),
        ([], {}, []),
        ([*HOSTS] * 4, {"failed": True, "msg": "this run has lost the lock"}, None),
        ([*HOSTS] * 4, {"unreachable": True, "msg": "no route"}, None),
    ],
    ids=["until they are there", "nothing to bring", "a lock is lost", "a host is lost"],
)
def test_turns_are_taken_until(
    tmp_path: Path, turns: list[str], third: dict[str, object], taken: list[str] | None
) -> None:
    collection = tmp_path / "ansible_collections/karmada/installer"
    for kind, content in (("action", ACTION), ("modules", MODULE)):
        (collection / "plugins" / kind).mkdir(parents=True)
        (collection / "plugins" / kind / "programs.py").write_text(content)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (tmp_path / "play.yml").write_text(PLAY)
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = {"all": {"hosts": dict.fromkeys(HOSTS), "vars": {**here, "turns": turns, "third": third}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml", "-e", "ansible_become=false"),
        directory=tmp_path,
        collection=False,
    )
    assert (done.returncode == 0) == (taken is not None), done.stdout
    said = [line for line in done.stdout.splitlines() if "TAKEN" in line]
    if taken is None:
        # The third turn was the last one, and nothing comes after it.
        assert said == []
        assert done.stdout.count("(item=") == 3
    else:
        assert json.loads(said[0].partition("TAKEN ")[2].strip().rstrip('"').replace('\\"', '"')) == taken
