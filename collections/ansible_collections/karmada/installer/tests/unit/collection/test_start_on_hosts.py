# SPDX-License-Identifier: Apache-2.0
"""How components of plain hosts are started, played with a stand-in for what is done on a host."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

HOSTS = ("h1", "h2", "h3")
COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
#: Of a cluster whose members are healthy as soon as all of them run.
STAND_IN = """\
import os, time
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({
    "components": {"type": "list", "elements": "str"},
    "restart": {"type": "bool"},
    "wait_for": {"type": "str", "default": "all"},
    "timeout": {"type": "int"},
})
folder = os.environ["RUNNING"]
open(os.path.join(folder, os.environ["HOST"]), "a").close()
end = time.monotonic() + 60
while module.params["wait_for"] == "all" and len(os.listdir(folder)) < 3:
    if time.monotonic() > end:
        module.fail_json(msg="the others do not run")
    time.sleep(0.1)
module.exit_json()
"""
PLAY = """\
- hosts: karmada_hosts
  gather_facts: false
  any_errors_fatal: true
  environment: {RUNNING: "{{ running }}", HOST: "{{ inventory_hostname }}"}
  vars:
    host_units_journal: {due: true}
  tasks:
    - ansible.builtin.include_role:
        name: karmada.installer.host_units
        tasks_from: start
        rolespec_validate: false
      vars:
        host_units_components: [etcd]
"""


@pytest.mark.parametrize(("forks", "rounds"), [(1, 2), (2, 2), (3, 1)])
def test_members_do_not_wait_for_one_whose_turn_has_not_come(tmp_path: Path, forks: int, rounds: int) -> None:
    collection, running = tmp_path / "ansible_collections/karmada/installer", tmp_path / "running"
    (collection / "plugins/modules").mkdir(parents=True)
    (collection / "plugins/modules/host_components.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    running.mkdir()
    (tmp_path / "play.yml").write_text(PLAY)
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "karmada_host": {},
        "running": str(running),
    }
    inventory = {"karmada_hosts": {"hosts": dict.fromkeys(HOSTS), "vars": here}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml", f"--forks={forks}"), directory=tmp_path, collection=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # With a fork for each host nobody needs a second round trip.
    assert re.findall(r"ok=(\d+)", done.stdout) == [str(rounds + 1)] * len(HOSTS), done.stdout


def tasks_on_hosts(name: str) -> Iterator[dict[str, Any]]:
    """Tasks of the control plane on hosts in their order, with those of files that they import."""
    folder = COLLECTION / "roles/control_plane/tasks"
    for task in yaml.safe_load((folder / name).read_text()):
        imported = task.get("ansible.builtin.import_tasks")
        if imported:
            yield from tasks_on_hosts(imported.replace("{{ control_plane_place }}", "on_hosts"))
        else:
            yield task


#: Stage of what is inside a control plane → components that have to answer before somebody waits for what they serve.
SERVED: dict[str, set[str]] = {
    "aggregation": {"karmada-aggregated-apiserver"},
    "admission": {"karmada-webhook"},
    "addons": {"karmada-search", "karmada-metrics-adapter"},
}


def test_units_are_waited_for_before_what_they_serve() -> None:
    """They tell why they do not come; whoever waits for their API sees that it does not answer, and no more."""
    answered: set[str] = set()
    waits: list[str] = []
    for task in tasks_on_hosts("stages.yml"):
        components = task.get("karmada.installer.host_components")
        if components and components.get("wait_for", "all") == "all":
            answered |= set(components.get("components", BY_NAME))
        stage = task.get("karmada.installer.control_plane")
        if stage and "in_pods" not in str(stage.get("wait", True)):
            waits.append(stage["stage"])
            assert SERVED.get(stage["stage"], set()) <= answered, stage["stage"]
    assert SERVED.keys() <= set(waits), "each is waited for once"
