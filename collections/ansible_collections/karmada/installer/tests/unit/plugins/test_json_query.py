# SPDX-License-Identifier: Apache-2.0
"""Filter ``karmada.installer.json_query``, in templates of Ansible."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.karmada.installer.plugins.filter.json_query import FilterModule
from ansible_collections.karmada.installer.tests.unit.support import ansible_commands

json_query = FilterModule().filters()["json_query"]
STATUS = {"members": [{"name": "m1", "ready": True, "nodes": 3}, {"name": "m2", "ready": False, "nodes": 5}]}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("members[?!ready].name", ["m2"]),
        ("members[?contains(name, '1')].name | [0]", "m1"),
        ("max_by(members, &nodes).name", "m2"),
        ("nothing", None),
        ("length(members)", 2),
    ],
)
def test_what_is_found(expression: str, found: Any) -> None:
    assert json_query(STATUS, expression) == found


@pytest.mark.parametrize("expression", ["members[?", "nothing()", "length(`1`)", ""])
def test_an_expression_that_cannot_be_used_is_told(expression: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"json_query: .* cannot be evaluated"):
        json_query(STATUS, expression)


def test_without_the_package_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jmespath", None)
    with pytest.raises(AnsibleFilterError, match=r"the Python package jmespath .* pip install jmespath"):
        json_query(STATUS, "members")


def test_strings_of_ansible_are_strings(tmp_path: Path) -> None:
    """Functions of JMESPath look at names of types, and those of Ansible's own strings are others."""
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {a: {tier: prod, zones: [eu-1]}, b: {tier: test}}}\n", encoding="utf-8"
    )
    query = "[?starts_with(tier, 'pro')].join('-', zones)"
    shown = ansible_commands.run(
        *("ansible", "a", "-i", "hosts.yml", "-c", "local", "-m", "ansible.builtin.debug", "-a"),
        'msg={{ groups.all | map("extract", hostvars) | karmada.installer.json_query("' + query + '") }}',
        directory=tmp_path,
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert '"eu-1"' in shown.stdout
