# SPDX-License-Identifier: Apache-2.0
"""Hosts that have left the document are reached as they were: same keys, same checks of host keys, same exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.hosts_leaving import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh, ssh_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import FORMER, HOSTS, Runs, remembered, seen

FINGERPRINT = "SHA256:" + "A" * 43
ENTRY = {**FORMER, "port": 2222, "hostKeyFingerprint": FINGERPRINT}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    runs = Runs(tmp_path / "run")
    known = {host["name"]: host for host in (*HOSTS, ENTRY)}
    runs.see_all(seen(Stored(4).after(remembered(hosts=known))))
    return runs


def leaving(runs: Runs, hostvars: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    action: Any = ActionModule.__new__(ActionModule)
    action.variables = {"hostvars": hostvars or {}}
    found: list[dict[str, Any]] = action.perform(runs.step(), {})["hosts"]
    return found


def test_it_is_reached_as_the_last_document_that_had_it_says(runs: Runs) -> None:
    (host,) = leaving(runs)
    assert (host["name"], host["entry"]) == ("cp3", ENTRY)
    assert host["variables"] == ssh.variables(ENTRY, runs.step().spec.ssh, None, str(ssh_folder.of_this_run()))
    assert (host["variables"]["ansible_host"], host["variables"]["ansible_port"]) == ("192.0.2.13", 2222)
    assert "StrictHostKeyChecking=yes" in host["variables"]["ansible_ssh_common_args"]
    assert FINGERPRINT in host["variables"]["ansible_ssh_common_args"]


def test_what_an_inventory_of_the_user_says_of_it_wins(runs: Runs) -> None:
    given = {"cp3": {"ansible_host": "bastion.example.com", "something": "else"}, "cp1": {"ansible_port": 1}}
    (host,) = leaving(runs, given)
    assert host["variables"]["ansible_host"] == "bastion.example.com"
    assert host["variables"]["ansible_port"] == 2222
    assert "something" not in host["variables"]


def test_states_that_contradict_each_other_are_left_to_preflight(runs: Runs) -> None:
    runs.see(cp1={"stored": {"serial": 9, "files": {"a": "MQ=="}}}, cp2={"stored": {"serial": 9, "files": {}}})
    assert leaving(runs) == []
