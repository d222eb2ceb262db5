# SPDX-License-Identifier: Apache-2.0
"""Agents on hosts of members that a run could not bring to what is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    deployment,
    remembered,
    seen,
)

Object = dict[str, Any]
EDGES = [{"name": f"e{number}", "address": f"192.0.2.2{number}", "roles": ["agent"]} for number in (1, 2)]
PULLED: Object = {"name": "m1", "secretRef": {"name": "m1"}, "mode": "Pull", "agentHosts": ["e1"]}


def wanted(**changed: Any) -> Object:
    """A document with one member, whose agent is on the first host unless that has changed."""
    member = {key: value for key, value in {**PULLED, **changed}.items() if value is not None}
    other = {"name": "m2", "secretRef": {"name": "m2"}, "mode": "Pull", "agentHosts": ["e1", "e2"]}
    return deployment(hosts=[*HOSTS, *EDGES], members=[member, other])


def gone_from(runs: Runs, host: str, document: Object, *, check: bool = False) -> list[str]:
    """Units of agents that the next run would end on this host."""
    absent = runs.step(document, check=check).on_host(host).tree(["karmada-agent"])["absent"]
    return [unit["name"] for unit in absent["units"]]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """The member was joined in mode Pull, with its agent on e1."""
    members = {"m1": registration.record(MemberEntry(PULLED))}
    runs = Runs(tmp_path / "run")
    known = seen(Stored(3).after(remembered(members=members, member_places={"m1": 0, "m2": 1})))
    runs.see_all(known)
    runs.see(e1=seen(Stored()), e2=seen(Stored()))
    return runs


@pytest.mark.parametrize("changed", [{"mode": "Push", "agentHosts": None}, {"agentHosts": ["e2"]}])
def test_an_agent_stays_while_its_member_is_not_as_listed_yet(runs: Runs, changed: Object) -> None:
    unit = "karmada-prod-agent-m1.service"
    assert gone_from(runs, "e1", wanted(**changed)) == []
    assert unit in gone_from(runs, "e2", wanted()), "where it is not on record it goes"
    runs.handover.worked_on = ["m1"]
    assert gone_from(runs, "e1", wanted(**changed), check=True) == [unit]
    run = runs.step(wanted(**changed))
    entry = run.spec.member_by_name["m1"]
    runs.see_all(seen(Stored(4).after(remembered(members={"m1": registration.record(entry)}, member_places={"m1": 0}))))
    assert gone_from(runs, "e1", wanted(**changed)) == [unit], "joining has recorded what is listed"
