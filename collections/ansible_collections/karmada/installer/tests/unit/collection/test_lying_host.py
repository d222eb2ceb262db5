# SPDX-License-Identifier: Apache-2.0
"""A host that answers what Ansible would make variables and hosts of changes nothing for itself or for anybody else.

Ansible runs for real, and a program in the place of the host's Python answers every module with the same lies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, VIRTUAL, deployment

OTHER = {"metadata": {"name": "other"}, "spec": {"mode": "Binary", "hosts": []}}
FACTS = {
    "karmada_host": HOSTS[0],
    "karmada_deployment": OTHER,
    "karmada_connection": {"secrets": "/tmp"},
    "lied": True,
}
#: What the modules below would say, and what none of them says.
ANSWER: dict[str, Any] = {
    "changed": False,
    "stat": {"exists": False},
    "removed": [],
    "ansible_facts": FACTS,
    "add_host": {"host_name": "karmada_control", "groups": ["karmada_control_plane"], "host_vars": FACTS},
    "warnings": ["lied \x1b]0;title\x07"],
    "deprecations": [{"msg": "lied \x1b[2J", "version": "9"}],
    "in_turn": ["cp9"],
}
#: The forms of steps that there are: a task of the host's own, and one that another host has it do.
STEPS: list[dict[str, Any]] = [
    {
        "name": "Look for the packages",
        "karmada.installer.host_load_balancer": {"state": "looked_for"},
        "register": "found",
        "when": "inventory_hostname == 'lb1'",
    },
    {
        "name": "Remove the programs",
        "karmada.installer.host_programs": {"state": "absent"},
        "delegate_to": "{{ item }}",
        "loop": ["lb1"],
        "run_once": True,
        "register": "removed",
    },
    {
        "name": "What is now",
        "ansible.builtin.debug": {
            "msg": "SEEN {{ inventory_hostname }} {{ (karmada_host | default({})).name | default('-') }} "
            "{{ (karmada_deployment | default({'metadata': {'name': '-'}})).metadata.name }} "
            "{{ (karmada_connection | default({})).secrets | default('-', true) }} {{ lied | default('honest') }}"
        },
    },
    {"name": "The groups", "ansible.builtin.debug": {"msg": "GROUP {{ groups.karmada_control_plane | join(',') }}"}},
    {"name": "The result", "ansible.builtin.debug": {"msg": "RESULT {{ removed.results[0] | to_json }}"}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    hosts = [*HOSTS, {"name": "lb1", "address": "192.0.2.9", "roles": ["loadBalancer"]}]
    (tmp_path / "prod.yaml").write_text(yaml.safe_dump(deployment(endpoint=VIRTUAL, hosts=hosts)))
    (tmp_path / "site.karmada.yml").write_text("plugin: karmada.installer.karmada\nmanifest: prod.yaml\n")
    (tmp_path / "answer.json").write_text(json.dumps(ANSWER))
    liar = tmp_path / "liar"
    liar.write_text(f"#!/bin/sh\ncat >/dev/null\ncat {tmp_path / 'answer.json'}\n")
    liar.chmod(0o755)
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    mine = dict.fromkeys((host["name"] for host in HOSTS), local)
    mine["lb1"] = {**local, "ansible_python_interpreter": str(liar)}
    (tmp_path / "mine.yml").write_text(yaml.safe_dump({"karmada_hosts": {"hosts": mine}}))
    return tmp_path


def said(folder: Path, steps: list[dict[str, Any]], word: str) -> tuple[str, list[str]]:
    """Output of a play with these steps, and the messages in it that begin with a word."""
    play = {"hosts": "karmada_on_hosts", "strategy": "linear", "gather_facts": False, "tasks": steps}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    inventories = ("-i", "site.karmada.yml", "-i", "mine.yml")
    done = ansible_commands.run("ansible-playbook", *inventories, "play.yml", directory=folder)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    lines = (line.strip().removeprefix('"msg": "').rstrip('"') for line in output.splitlines())
    return output, [line for line in lines if line.startswith(word)]


def test_nobody_is_somebody_else_after_it(folder: Path) -> None:
    output, seen = said(folder, STEPS, "SEEN")
    names = [*(host["name"] for host in HOSTS), "lb1"]
    assert sorted(seen) == sorted(
        ["SEEN karmada_control - prod - honest", *(f"SEEN {name} {name} - - honest" for name in names)]
    )
    assert "\x1b" not in output
    # Ansible itself tells of the host that it did not add; nobody tells what the host warns of.
    assert "title" not in output
    assert {line.strip().strip('",') for line in output.splitlines() if "GROUP" in line} == {'msg": "GROUP cp1,cp2'}


def test_a_lie_that_became_a_variable_is_not_what_steps_work_with(folder: Path) -> None:
    """As another collection's task in the same play could make it one."""
    stolen = [
        {"name": "A lie", "ansible.builtin.set_fact": FACTS},
        # With the other document there is nobody of this name.
        {
            "name": "Look for the packages",
            "karmada.installer.host_load_balancer": {"state": "looked_for"},
            "register": "found",
            "when": "inventory_hostname == 'lb1'",
        },
        {"name": "Who left", "karmada.installer.hosts_leaving": {}, "run_once": True},
        {"name": "End", "ansible.builtin.debug": {"msg": "FOUND {{ found.missing | default([]) | join(',') }}"}},
    ]
    _output, found = said(folder, stolen, "FOUND haproxy")
    assert found == ["FOUND haproxy,keepalived"]
