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

Object = dict[str, Any]
MODULES = Path(host_state.__file__).parents[1] / "modules"


def answer() -> Object:
    """What this machine answers."""
    system = System()
    facts = host_state.facts(system, "127.0.0.1", ["/var/lib"])
    stored = {"serial": 1, "files": {"sa.key": "YQ=="}, "digest": "a" * 64, "lineage": ["b" * 64]}
    found = {
        "changed": False,
        "stored": {**stored, "previous": {"serial": 0, "files": {}}},
        "files": {"/etc/karmada/prod/x": "YQ=="},
        "facts": facts,
        "programs": {"/usr/local/lib/karmada/v1.18.2/karmada-scheduler": "c" * 64},
    }
    decoded: Object = json.loads(json.dumps(found))
    return decoded


READ = {"state": "read", "folders": ["/var/lib"]}


def refusal(found: Object) -> str:
    return host_answer.of_module("_host_state", READ, found).refusal


def test_what_our_module_answers_is_used() -> None:
    found = answer()
    assert host_answer.of_module("_host_state", READ, found) == (found, "")


def test_a_host_without_a_state_answers_in_the_same_form(tmp_path: Path) -> None:
    assert refusal({**answer(), "stored": host_state.read_state(System(str(tmp_path)), "prod")}) == ""


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
        ("changed", "yes"),
    ],
)
def test_another_form_is_refused_with_its_place(where: str, value: Any) -> None:
    found = copy.deepcopy(answer())
    *path, last = where.split(".")
    place = found
    for step in path:
        place = place[step]
    place[last] = value
    said = refusal(found)
    assert said.startswith("what it answered does not have the form that it should have: ")
    assert last in said
    assert "\x1b" not in said


#: What Ansible would act upon, or show as it is.
LIES: Object = {
    "ansible_facts": {"karmada_host": {"name": "cp1"}, "karmada_deployment": {}},
    "add_host": {"host_name": "karmada_control", "host_vars": {"karmada_deployment": {}}},
    "add_group": "karmada_control_plane",
    "parent_groups": ["all"],
    "ansible_stats": {"data": {"a": 1}},
    "warnings": ["\x1b]0;title\x07"],
    "deprecations": [{"msg": "\x1b[2J", "version": "1"}],
    "exception": "\x1b[2J",
    "invocation": {"module_args": {}},
    "in_turn": ["cp9"],
    "results": [{"ansible_facts": {"a": 1}}],
    "unreachable": False,
    "skipped": True,
    "_ansible_notify": ["a handler"],
    "_ansible_no_log": False,
}
TARGET: Object = {"name": "m1", "host": "192.0.2.9", "port": 6443}
#: Module → what it is asked, and what it answers when it has done that.
ANSWERS: dict[str, tuple[Object, Object]] = {
    "_host_tree": (
        {"state": "present"},
        {
            "changed": True,
            "changes": ["restart karmada-prod-etcd.service"],
            "diff": [{"before": "a\n", "after": "b\n", "before_header": "x", "after_header": "x"}, {"prepared": "y\n"}],
            "outdated": ["karmada-prod-etcd.service"],
            "units": {"karmada-prod-etcd.service": {"program": "/usr/local/lib/karmada/v3/etcd", "reason": "a\nb"}},
        },
    ),
    "_host_program_files": (
        {"state": "present"},
        {"changed": True, "installed": ["/usr/local/lib/karmada/v1/etcd"], "removed": ["/usr/local/lib/karmada/v0"]},
    ),
    "_host_state": ({"state": "written"}, {"changed": True}),
    "_host_log": ({"texts": ["m1"]}, {"changed": False, "lines": {"m1": "m1 is not there"}}),
    "_host_reach": (
        {"targets": [TARGET]},
        {"changed": False, "unreached": {"m1": {"fault": "refused", "detail": ""}}},
    ),
    "_host_restore": (
        {"state": "seen"},
        {
            "changed": False,
            "running": ["karmada-prod-etcd.service"],
            "there": False,
            "status": 401,
            "member": {"message": "it does not answer", "data": False},
            "hash": {"revision": 9, "value": 7, "compacted": 1},
            "counts": {"works": 3},
            "removed": ["/var/lib/karmada/prod/etcd/gen-1"],
            "admission": {"m1": {"status": 403, "message": "it is held"}},
            "restarted": ["karmada-prod-controller-manager.service"],
        },
    ),
    "_etcd_snapshot": ({"state": "taken"}, {"changed": False, "size": 8224, "acknowledged": 70}),
    "_backup_folder": (
        {"state": "listed"},
        {
            "changed": False,
            "unfit": {"path": "/srv/backups", "why": "link"},
            "fault": {"errno": "EIO", "text": "Input/output error"},
            "free": 1 << 40,
            "entries": [["prod-20261125t020000z-1f3a9c", "manifest.json"], ["prod-20261125t020000z-1f3a9c", ""]],
            "records": {"prod-20261125t020000z-1f3a9c": "e30="},
            "size": 7,
            "length": 7,
            "content": {"base64": "Y29udGVudA=="},
        },
    ),
    "_etcd_change": (
        {"state": "added"},
        {
            "changed": True,
            "added": "8",
            "known": {
                "cluster_id": "1f",
                "members": [
                    {
                        "id": "8",
                        "name": "",
                        "learner": True,
                        "client_urls": [],
                        "peer_urls": ["https://192.0.2.2:2380"],
                    }
                ],
            },
        },
    ),
    "_etcd_member": (
        {"state": "seen"},
        {
            "changed": False,
            "answer": {
                "data": True,
                "status": {
                    **dict.fromkeys(("leader", "raftIndex", "raftTerm", "dbSize", "dbSizeInUse", "dbSizeQuota"), "7"),
                    "version": "3.6.16",
                    "isLearner": False,
                    "errors": [],
                    "header": {"cluster_id": "1", "member_id": "7", "revision": "9"},
                },
                "known": {
                    "cluster_id": "1f",
                    "members": [
                        {
                            "id": "7",
                            "name": "etcd1",
                            "learner": False,
                            "peer_urls": ["https://192.0.2.1:2380"],
                            "client_urls": ["https://192.0.2.1:2379"],
                        }
                    ],
                },
            },
        },
    ),
    "_etcd_room": ({"state": "compacted"}, {"changed": True}),
    "ansible.builtin.stat": ({}, {"changed": False, "stat": {"exists": True}}),
    "ansible.builtin.package": ({}, {"changed": True}),
}


@pytest.mark.parametrize("module", ANSWERS)
def test_of_an_answer_go_on_the_keys_of_its_module_alone(module: str) -> None:
    asked, honest = ANSWERS[module]
    assert host_answer.of_module(module, asked, honest) == (honest, "")
    assert host_answer.of_module(module, asked, {**LIES, **honest}) == (honest, "")


@pytest.mark.parametrize("module", ANSWERS)
def test_of_a_failure_goes_on_what_it_says_alone(module: str) -> None:
    said = {"failed": True, "msg": "no", "holder": "a@b", "rc": 1, "module_stderr": "e", "module_stdout": "o"}
    found = host_answer.of_module(module, ANSWERS[module][0], {**LIES, **said})
    assert found == (said, "")
    other = {"failed": ["x"], "msg": {"a": 1}, "holder": "\x1b[2J", "rc": "1", "changes": "all"}
    assert host_answer.of_module(module, ANSWERS[module][0], {**LIES, **other}) == ({"failed": True}, "")
    # Whether a host is reached is not for itself to say: the task may be that of karmada_control.
    gone = host_answer.of_module(module, ANSWERS[module][0], {"unreachable": True, "msg": "x"})
    assert gone == ({"failed": True, "msg": "x"}, "")


@pytest.mark.parametrize(
    ("module", "key"), [(module, key) for module, (_asked, honest) in ANSWERS.items() for key in honest]
)
@pytest.mark.parametrize("value", [None, -7.5, "text", [{"x": 1}], {"x": {"y": [1]}}], ids=repr)
def test_another_type_is_refused(module: str, key: str, value: Any) -> None:
    asked, honest = ANSWERS[module]
    found, why = host_answer.of_module(module, asked, {**honest, key: value})
    assert found == {}
    assert why


@pytest.mark.parametrize("module", ANSWERS)
@pytest.mark.parametrize("found", [None, "text", [], 1])
def test_what_is_no_answer_at_all_is_refused(module: str, found: Any) -> None:
    assert host_answer.of_module(module, ANSWERS[module][0], found).refusal


@pytest.mark.parametrize(
    ("module", "more"),
    [
        ("_host_log", {"lines": {"m2\x1b[2J": "x"}}),
        ("_host_reach", {"unreached": {"m2": {"fault": "other", "detail": ""}}}),
    ],
)
def test_what_was_not_asked_is_not_heard(module: str, more: Object) -> None:
    asked, honest = ANSWERS[module]
    found, why = host_answer.of_module(module, asked, {**honest, **more})
    assert found == {}
    assert "m2" in why
    assert "\x1b" not in why


@pytest.mark.parametrize("what", ["free", "devices"])
def test_what_was_asked_is_answered(what: str) -> None:
    found = answer()
    del found["facts"][what]["/var/lib"]
    assert refusal(found) == "it did not answer about /var/lib"


def test_every_module_that_runs_on_hosts_has_a_form() -> None:
    on_hosts = {path.stem for path in MODULES.glob("_*.py")}
    assert on_hosts == {name for name in ANSWERS if "." not in name}
