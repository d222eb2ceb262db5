# SPDX-License-Identifier: Apache-2.0
"""What a host is asked of its member of etcd, and what it gets of the state in the same round trip."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import etcd_member
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import Asked
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    deployment,
    remembered,
    seen,
)

Object = dict[str, Any]
GATEWAY = {"name": "gw1", "address": "198.51.100.1", "roles": ["agent"]}
DOCUMENT = deployment(hosts=[*HOSTS, GATEWAY])
SILENT = {"message": "it does not answer", "data": True}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    runs = Runs(tmp_path / "run")
    runs.see_all(seen(Stored(4).after(remembered()), renewed=host_lock.clock()))
    runs.see(gw1={"answered": 1.0, "renewed": host_lock.clock()})
    return runs


def asked(runs: Runs, host: str, answer: Object, **arguments: Any) -> list[Object]:
    step = Asked(etcd_member.ActionModule, runs.step(DOCUMENT), host, answer)
    step.perform(**{"state": "seen", "changing": False, "keep": True, "replace": [], "revision": 0, **arguments})
    return step.asked


def decide(runs: Runs) -> None:
    """Have the run note something that no host has."""
    run = runs.step(DOCUMENT)
    etcd = run.state.etcd.with_member(EtcdMemberState("etcd9", coming=True))
    run.save(replace(run.state, etcd=etcd))


def test_a_host_that_has_the_state_is_only_asked(runs: Runs) -> None:
    (question,) = asked(runs, "etcd1", {"answer": SILENT})
    assert (question["module"], question["url"]) == ("_etcd_member", "https://192.0.2.3:2379")
    assert runs.step(DOCUMENT).handover.observed("etcd1").etcd == SILENT
    assert asked(runs, "cp2", {"answer": SILENT}) == [], "it has no member"


def test_a_host_gets_what_it_lacks_and_is_asked_at_once(runs: Runs) -> None:
    decide(runs)
    assert [each["module"] for each in asked(runs, "etcd1", {"answer": SILENT}, keep=False)] == ["_etcd_member"]
    (both,) = asked(runs, "etcd1", {"changed": True, "answer": SILENT})
    assert (both["module"], both["state"]) == ("_host_state", "written")
    assert (both["name"], both["holder"]) == ("prod", "me@here")
    assert both["member"]["url"] == "https://192.0.2.3:2379"
    written = json.loads(both["content"])
    assert (written["serial"], written["files"]) == (6, {}), "it has no API server"
    assert runs.step(DOCUMENT).handover.observed("etcd1").etcd == SILENT
    # It has it now.
    (question,) = asked(runs, "etcd1", {"answer": SILENT})
    assert question["module"] == "_etcd_member"


def test_a_host_without_a_member_only_gets_the_state_and_one_of_members_nothing(runs: Runs) -> None:
    decide(runs)
    (written,) = asked(runs, "cp2", {"changed": True})
    assert "member" not in written
    assert json.loads(written["content"])["files"] != {}
    assert asked(runs, "gw1", {"changed": True}) == []


def test_a_host_that_does_not_take_the_state_fails_the_step(runs: Runs) -> None:
    decide(runs)
    refused = {"failed": True, "msg": "another run has been there"}
    step = Asked(etcd_member.ActionModule, runs.step(DOCUMENT), "etcd1", refused)
    assert step.perform(state="seen", changing=False, keep=True, replace=[], revision=0) == refused
    assert len(asked(runs, "etcd1", {"changed": True, "answer": SILENT})) == 1, "it is written again"
