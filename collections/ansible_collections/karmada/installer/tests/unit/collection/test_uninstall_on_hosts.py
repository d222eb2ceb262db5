# SPDX-License-Identifier: Apache-2.0
"""An uninstall from plain hosts that ends while it removes the state, and the one that carries it on."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import jinja2
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.run import inventory_names
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.ansible_commands import CHECKOUT
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, Runs, remembered, seen

TASKS = CHECKOUT / "collections/ansible_collections/karmada/installer/roles/uninstall/tasks/on_hosts.yml"


def removals() -> list[list[str]]:
    """Hosts of each task that removes the state, in the order of the tasks."""
    (block,) = (each["block"] for each in yaml.safe_load(TASKS.read_text()) if "block" in each)
    conditions = [each["when"] for each in block if each.get("karmada.installer.journal") == {"state": "absent"}]
    return [[host["name"] for host in HOSTS if holds(condition, host)] for condition in conditions]


def holds(condition: str, host: dict[str, Any]) -> bool:
    groups = [inventory_names.ROLE_GROUPS[role] for role in host["roles"]]
    variables = {"karmada_host": host, "uninstall_observed": {"reached": True}, "group_names": groups}
    return bool(jinja2.Environment(autoescape=True).compile_expression(condition)(**variables))


def test_the_state_is_removed_from_every_host_once() -> None:
    assert sorted(chain.from_iterable(removals())) == sorted(host["name"] for host in HOSTS)


def test_whatever_hosts_a_killed_uninstall_has_left_the_next_one_finds_its_state(tmp_path: Any) -> None:
    before = Stored(4).after(remembered())
    tasks = removals()
    cut = [
        [*chain.from_iterable(tasks[:number]), *done]
        for number, names in enumerate(tasks)
        for size in range(len(names) + 1)
        for done in combinations(names, size)
    ]
    assert len(cut) > len(HOSTS)
    for number, removed in enumerate(cut):
        runs = Runs(tmp_path / str(number))
        runs.see_all(seen(before))
        for name in removed:
            runs.see(**{name: seen(Stored())})
        found = runs.step(operation="uninstall").stored_state
        assert found == (None if len(removed) == len(HOSTS) else before.state()), removed
