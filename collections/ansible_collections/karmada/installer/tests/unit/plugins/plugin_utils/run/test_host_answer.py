# SPDX-License-Identifier: Apache-2.0
"""What a host answers is used only in the form that our module gives it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_system import System
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_answer


def answer() -> dict[str, Any]:
    """What this machine answers."""
    system = System()
    facts = host_state.facts(system, "127.0.0.1", ["/var/lib"])
    stored = {"serial": 1, "files": {"sa.key": "YQ=="}, "digest": "a" * 64, "lineage": ["b" * 64]}
    found = {
        "stored": {**stored, "previous": {"serial": 0, "files": {}}},
        "files": {"/etc/karmada/prod/x": "YQ=="},
        "facts": facts,
        "programs": {"/usr/local/lib/karmada/v1.18.2/karmada-scheduler": "c" * 64},
    }
    decoded: dict[str, Any] = json.loads(json.dumps(found))
    return decoded


def test_what_our_module_answers_is_used() -> None:
    assert host_answer.refusal(answer()) == ""


def test_a_host_without_a_state_answers_in_the_same_form(tmp_path: Path) -> None:
    assert host_answer.refusal({"stored": host_state.read_state(System(str(tmp_path)), "prod")}) == ""


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("facts.architecture", "../../root"),
        ("facts.architecture", ["x86_64"]),
        ("facts.machine_id", "\x1b]0;title\x07"),
        ("facts.interfaces", [{"name": "eth0", "mac": "", "addresses": ["-x"]}]),
        ("facts.interfaces", "eth0"),
        ("facts.units", {"karmada-x.service": {"owner": "a\nb", "description": ""}}),
        ("facts.free", {"/var": -1}),
        ("facts.time", "now"),
        ("facts.listening", [{"address": "::", "port": 70_000, "group": ""}]),
        ("facts.more", {}),
        ("stored.serial", "99"),
        ("stored.serial", -1),
        ("stored.digest", "not one"),
        ("stored.lineage", ["../x"]),
        ("stored.files", {"a": "not base64!"}),
        ("stored.previous", {"serial": 1}),
        ("programs", {"/usr/local/lib/karmada/x": "$(id)"}),
        ("files", {"/etc/karmada/x": 1}),
    ],
)
def test_another_form_is_refused_with_its_place(where: str, value: Any) -> None:
    found = copy.deepcopy(answer())
    *path, last = where.split(".")
    place = found
    for step in path:
        place = place[step]
    place[last] = value
    said = host_answer.refusal(found)
    assert said.startswith("what it answered does not have the form that it should have: ")
    assert last in said
    assert "\x1b" not in said
