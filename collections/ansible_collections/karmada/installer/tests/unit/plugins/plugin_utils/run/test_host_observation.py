# SPDX-License-Identifier: Apache-2.0
"""Each field of an observation is written by the steps that it names, and comes back from JSON as it was."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_answer, host_observation
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import (
    Brought,
    HostFacts,
    HostObservation,
    Interface,
    Listener,
    Lost,
    Notes,
    Trouble,
    UnitFile,
    UnitStatus,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Fault, Target
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Kept, Stored

PLUGINS = Path(__file__).parents[5] / "plugins"
FACTS = HostFacts(
    architecture="x86_64",
    python="3.11.2",
    systemd=252,
    machine_id="m",
    boot_id="b",
    boot_time=1_764_000_000,
    memory=2**33,
    selinux_enforcing=True,
    apparmor_profiles=("/usr/bin/man",),
    has_address=True,
    interface="eth0",
    interfaces=(Interface("eth0", "02:00:00:00:00:01", ("192.0.2.1/24",)),),
    virtual_ip_at="02:00:00:00:00:02",
    listening=(Listener("192.0.2.1", 22, "/system.slice/ssh.service"),),
    free={"/var/lib": 2**40},
    devices={"/var/lib": 1},
    units={"karmada-prod-etcd.service": UnitFile("owner", "etcd")},
    users={"karmada-prod-etcd": "Karmada"},
    missing_programs=("useradd",),
    time=1_765_000_000.5,
)
EVERY: dict[str, Any] = {
    "refusal": "sudo: a password is required",
    "asked": 1.0,
    "answered": 2.5,
    "facts": FACTS,
    "files": {"/etc/karmada/prod/x": "YQ=="},
    "programs": {"/usr/local/lib/karmada/v1/etcd": "1" * 64},
    "stored": Kept(Stored(2, {"a": "YQ=="}, ("d" * 64,)), Stored(1, {"a": "Yg=="}), "told", has_lineage=True),
    "differs": True,
    "balances": True,
    "lacking": {"/usr/local/lib/karmada/v1/etcd": Brought("2" * 64, "/cache/etcd")},
    "targets": (Target("m1", "https://192.0.2.9:6443", "192.0.2.9", 6443, tls=True),),
    "unreached": {"m1": Fault("refused", "by it")},
    "units": {"karmada-prod-etcd.service": UnitStatus("/usr/local/lib/karmada/v1/etcd", "failed")},
    "member_log": {'cluster="m1"': "E1203"},
    "etcd": {"message": "", "data": True, "known": {"cluster_id": "a", "members": []}},
    "told": ("the keys of all authorities were taken away",),
    "trouble": Trouble("Start etcd", "no", lost=True),
    "lost": Lost("Start etcd", "silent"),
    "done": "Send the programs",
    "stopped": "Start etcd",
    "renewed": 3.5,
    "restore": {"running": ["etcd"], "there": False, "hash": {"revision": 7, "value": 5, "compacted": 1}},
}
NAMES = [each.name for each in fields(HostObservation)]


def noted() -> dict[str, set[str]]:
    """Field → the files, by their stem, that note it. What a host answered is noted as a whole."""
    found: dict[str, set[str]] = {}
    for path in [*PLUGINS.glob("action/*.py"), *PLUGINS.glob("plugin_utils/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note":
                for keyword in node.keywords:
                    for name in [keyword.arg] if keyword.arg else ("stored", "files", "facts", "programs"):
                        found.setdefault(name, set()).add(path.stem)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note_units":
                found.setdefault("units", set()).add(path.stem)
    return found


def documented() -> dict[str, set[str]]:
    """Field → the writers in the comment above it; the comment is of all the fields until the next one."""
    body = (
        Path(host_observation.__file__).read_text().partition("class HostObservation")[2].partition("@classmethod")[0]
    )
    found, writers = {}, set[str]()
    for line in body.splitlines():
        if line.startswith("    #:"):
            named = set(re.findall(r"``(\w+)``", line.partition(";")[2]))
            writers = named | ({"host_action"} if "any action on hosts" in line else set())
        elif name := re.match(r"    (\w+): ", line):
            found[name[1]] = writers
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_field_comes_back_from_the_handover(name: str, tmp_path: Path) -> None:
    value = EVERY[name]
    assert value != getattr(HostObservation(), name), "else nothing would be shown"
    Handover(tmp_path / "run").note("cp1", **{name: value})
    assert Handover(tmp_path / "run").observed("cp1") == HostObservation(**{name: value})


def test_all_of_them_together_come_back_from_json() -> None:
    whole = HostObservation(**EVERY)
    assert HostObservation.of(json.loads(json.dumps(whole.plain))) == whole


@pytest.mark.parametrize("name", NAMES)
def test_a_field_is_written_by_those_that_it_names(name: str) -> None:
    writers = noted()[name] - {"handover"}
    assert writers
    missing = documented()[name] - writers
    assert not missing, f"{name} is not written by {missing}"


def test_what_may_be_noted_is_what_an_observation_has() -> None:
    assert get_type_hints(Notes) == get_type_hints(HostObservation)


def test_a_field_that_there_is_none_of_cannot_be_noted(tmp_path: Path) -> None:
    unknown: dict[str, Any] = {"refused": "x"}
    with pytest.raises(TypeError, match="refused"):
        Handover(tmp_path / "run").note("cp1", **unknown)


def test_facts_have_the_form_that_an_answer_is_held_against() -> None:
    properties = host_answer._FACTS["properties"]
    assert {each.name for each in fields(HostFacts)} == set(properties)
    for name, kind in (("interfaces", Interface), ("listening", Listener)):
        assert {each.name for each in fields(kind)} == set(properties[name]["items"]["properties"])
    assert {each.name for each in fields(UnitFile)} == set(properties["units"]["additionalProperties"]["properties"])
