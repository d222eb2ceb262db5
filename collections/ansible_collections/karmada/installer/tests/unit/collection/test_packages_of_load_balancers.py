# SPDX-License-Identifier: Apache-2.0
"""While packages are installed on some hosts, no other run takes any host; stand-ins play what is done there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
#: Two load balancers that lack different packages, one that has them, one host of the control plane, one that leaves.
LACKING = {"lb1": ["haproxy", "keepalived"], "lb2": ["keepalived"], "lb3": []}
HOSTS = (*LACKING, "cp1")
LEAVING = "cp2"
#: Each says what it was asked for, and where, in one file: the order of the run.
STAND_IN = """\
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({
    "state": {"type": "str", "default": "present"},
    "silence": {"type": "int"},
    "packages": {"type": "list", "elements": "str"},
    "timeout": {"type": "int"},
}, supports_check_mode=True)
# The environment of a task is that of the host that delegates it; the temporary folder is of the one that does it.
host, asked = os.path.basename(module._remote_tmp), module.params
with open(os.environ["SAID"], "a") as said:
    said.write(json.dumps([host, asked["state"], asked["silence"]]) + "\\n")
if asked["state"] == "installed" and os.environ["FAILS"] == host:
    module.fail_json(msg="no such package")
module.exit_json(missing=json.loads(os.environ["LACKING"]).get(host, []), in_turn=[])
"""
PLAY = """\
- hosts: karmada_hosts
  gather_facts: false
  any_errors_fatal: true
  environment:
    SAID: "{{ said }}"
    LACKING: "{{ lacking | to_json }}"
    FAILS: "{{ fails }}"
  tasks:
    - ansible.builtin.include_role:
        name: karmada.installer.load_balancer
        rolespec_validate: false
"""


def played(folder: Path, lacking: dict[str, list[str]], fails: str = "") -> tuple[int, list[tuple[str, str, int]]]:
    """Exit code of a run of the role, and its steps: host, state, silence."""
    collection, said = folder / "ansible_collections/karmada/installer", folder / "said"
    (collection / "plugins/modules").mkdir(parents=True)
    for module in ("journal", "host_load_balancer"):
        (collection / f"plugins/modules/{module}.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (folder / "play.yml").write_text(PLAY)
    here: dict[str, Any] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "karmada_host": {},
        "said": str(said),
        "lacking": lacking,
        "fails": fails,
    }
    named = {name: {"ansible_remote_tmp": str(folder / name)} for name in (*HOSTS, LEAVING)}
    inventory = {
        "karmada_hosts": {"hosts": {name: named[name] for name in HOSTS}},
        "karmada_hosts_leaving": {"hosts": {LEAVING: named[LEAVING]}},
        "karmada_load_balancer": {"hosts": dict.fromkeys(LACKING)},
        "all": {"vars": here},
    }
    (folder / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml", "-e", "ansible_become=false"),
        directory=folder,
        collection=False,
    )
    steps = [tuple(json.loads(line)) for line in said.read_text().splitlines()]
    return done.returncode, steps


@pytest.mark.parametrize("fails", ["", "lb2"])
def test_every_host_is_kept_for_as_long_as_packages_may_take(tmp_path: Path, fails: str) -> None:
    code, steps = played(tmp_path, LACKING, fails)
    assert (code != 0) == bool(fails)
    installs = [number for number, step in enumerate(steps) if step[1] == "installed"]
    assert {steps[number][0] for number in installs} == {"lb1", "lb2"}
    for name in (*HOSTS, LEAVING):
        before = [step for step in steps[: installs[0]] if step[:2] == (name, "kept")]
        assert before[-1][2] == host_lock.LONGEST_SILENCE, name
        after = [step for step in steps[installs[-1] :] if step[:2] == (name, "kept")]
        assert after[0][2] == host_lock.LOCK_SILENCE, name


def test_no_host_is_kept_where_no_package_is_missing(tmp_path: Path) -> None:
    code, steps = played(tmp_path, {})
    assert code == 0
    assert {step[1] for step in steps} == {"looked_for", "ended"}
