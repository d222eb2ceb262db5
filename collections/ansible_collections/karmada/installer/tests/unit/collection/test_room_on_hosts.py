# SPDX-License-Identifier: Apache-2.0
"""The order in which members of etcd on plain hosts get room, played with stand-ins for its steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.tests.unit.collection.test_backup_on_hosts import HOSTS, STAND_IN, order
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

COLLECTION = ansible_commands.CHECKOUT / "collections/ansible_collections/karmada/installer"
PLAY = """\
- hosts: all
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.import_role:
        name: karmada.installer.etcd_maintenance
        tasks_from: on_hosts
        rolespec_validate: false
"""
DUE = {"due": True, "order": ["h1", "h2"], "by": "h3", "revision": 70}
#: While the first was defragmented, the second has come to lead.
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "etcd_maintenance decided": [DUE],
    "etcd_maintenance well": [{"again": False}],
    "etcd_maintenance next": [{"member": "h2", "left": ["h1"]}, {"member": "h1", "left": []}],
    "etcd_maintenance concluded": [{"by": "", "identities": []}],
}


def played(folder: Path, **answers: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Steps in their order, each with its host and what it was given."""
    collection = folder / "ansible_collections/karmada/installer"
    (collection / "plugins/action").mkdir(parents=True)
    for name in ("etcd_member", "etcd_maintenance", "etcd_room_on_host", "journal"):
        (collection / f"plugins/action/{name}.py").write_text(STAND_IN)
    (collection / "roles").symlink_to(COLLECTION / "roles")
    (folder / "play.yml").write_text(PLAY)
    (folder / "answers").write_text(json.dumps({**ANSWERS, **answers}))
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
    hosts = {"karmada_control": {}} | {name: {"karmada_host": {"name": name}} for name in HOSTS}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": here}}))
    done = ansible_commands.run(
        *("ansible-playbook", "-i", "hosts.json", "play.yml"),
        directory=folder,
        collection=False,
        KARMADA_TEST=str(folder),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [tuple(json.loads(line)) for line in (folder / "log").read_text().splitlines()]


def test_every_host_is_kept_before_one_works_and_who_leads_is_asked_anew(tmp_path: Path) -> None:
    steps = played(tmp_path)
    well = ["journal kept", "etcd_member", "etcd_maintenance well"]
    one = [*well, "etcd_maintenance next", "etcd_room_on_host defragmented"]
    assert order(steps) == [
        *("etcd_member", "etcd_maintenance decided", "journal kept", "etcd_room_on_host compacted", *one, *one),
        *(*well, "etcd_maintenance concluded"),
    ]
    kept = [(host, given["silence"]) for name, host, given in steps if name == "journal kept"]
    # For as long as a defragmentation takes, the member to be healthy again, and a run to be taken for dead.
    assert sorted(kept) == sorted((host, 1500) for host in HOSTS * 4)
    done = [(name.split()[1], host) for name, host, _given in steps if name.startswith("etcd_room_on_host")]
    assert done == [("compacted", "h3"), ("defragmented", "h2"), ("defragmented", "h1")]
    left = [given["left"] for name, _host, given in steps if name == "etcd_maintenance next"]
    assert left == [["h1", "h2"], ["h1"]]


def test_all_are_asked_again_until_they_are_well(tmp_path: Path) -> None:
    late = [{"again": False}, {"again": True}, {"again": True}, {"again": False}]
    steps = order(played(tmp_path, **{"etcd_maintenance well": late}))
    again = ["etcd_member", "etcd_maintenance well"]
    second = steps.index("etcd_room_on_host defragmented") + 1
    assert steps[second:][:8] == ["journal kept", *again, *again, *again, "etcd_maintenance next"]
    # The last one, too, before there is said to be no room.
    assert steps[-3:] == [*again, "etcd_maintenance concluded"]


def test_without_need_nobody_is_kept(tmp_path: Path) -> None:
    steps = played(tmp_path, **{"etcd_maintenance decided": [{"due": False, "order": [], "by": "", "revision": 0}]})
    assert order(steps) == ["etcd_member", "etcd_maintenance decided"]
