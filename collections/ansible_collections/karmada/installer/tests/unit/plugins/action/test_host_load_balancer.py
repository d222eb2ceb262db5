# SPDX-License-Identifier: Apache-2.0
"""Who is a load balancer no longer ends before the others do not send to it any more."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import host_components
from ansible_collections.karmada.installer.plugins.action.host_load_balancer import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import Asked
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    VIRTUAL,
    Runs,
    deployment,
    remembered,
    seen,
)

Object = dict[str, Any]
SERVES = {"/etc/karmada/prod/keepalived/keepalived.conf": ""}
#: cp1 and cp2 were load balancers, and cp3, which has left the document; now it is cp1 alone.
DOCUMENT = deployment(
    endpoint=VIRTUAL,
    hosts=[{**host, "roles": [*host["roles"], *(["loadBalancer"] if host["name"] == "cp1" else [])]} for host in HOSTS],
)
LEFT = {"name": "cp3", "address": "192.0.2.5", "roles": ["controlPlane"]}
UNITS = ["karmada-prod-keepalived.service", "karmada-prod-haproxy.service"]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    runs = Runs(tmp_path / "run")
    known = {host["name"]: host for host in (*DOCUMENT["spec"]["hosts"], LEFT)}
    runs.see_all(seen(Stored(4).after(remembered(hosts=known)), facts={"interface": "eth0", "architecture": "x86_64"}))
    runs.see(cp1={"files": SERVES}, cp2={"files": SERVES}, cp3={"files": SERVES})
    return runs


def done(runs: Runs, host: str, state: str = "ended") -> tuple[Object, list[Object]]:
    """The result of the action for a host, and the trees that it had the host brought to."""
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = runs.step(DOCUMENT)
    action.variables = {"inventory_hostname": "karmada_control"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=host)
    trees: list[Object] = []

    def on_host(module: str, **arguments: Any) -> Object:
        if module == "ansible.builtin.stat":
            return {"stat": {"exists": False}}
        trees.append(json.loads(arguments["tree"]))
        return {"changed": True, "changes": ["something"]}

    action.on_host = on_host
    return action.perform({"state": state, "timeout": 600}), trees


@pytest.mark.parametrize("host", ["cp2", "cp3"])
def test_one_that_lost_the_role_and_one_that_has_left_end(runs: Runs, host: str) -> None:
    found, (tree,) = done(runs, host)
    assert found == {"changed": True, "changes": ["something"], "in_turn": ["cp1"]}
    assert [unit["name"] for unit in tree["absent"]["units"]] == UNITS
    assert tree["units"] == tree["files"] == []


def test_load_balancers_go_on(runs: Runs) -> None:
    assert done(runs, "cp1") == ({"changed": False, "changes": [], "in_turn": ["cp1"]}, [])
    _found, (tree,) = done(runs, "cp1", state="present")
    assert {unit["name"] for unit in tree["units"]} == set(UNITS)


def test_the_last_one_that_serves_goes_on_until_others_do(runs: Runs) -> None:
    runs.see(cp1={"files": {}})
    assert done(runs, "cp2")[1] == done(runs, "cp3")[1] == []


def compared(runs: Runs, changes: list[str], **reasons: str) -> bool:
    """Whether cp1 is taken for a load balancer that is as it should be, by what it tells of itself and its units."""
    units = {unit: {"program": "/bin/it", "reason": reasons.get(unit.split("-")[-1][:-8], "")} for unit in UNITS}
    answer = {"changed": bool(changes), "changes": changes, "outdated": [], "units": units}
    step = Asked(host_components.ActionModule, runs.step(DOCUMENT), "cp1", answer)
    step.perform(components=[*BY_NAME], state="compared", restart=True, wait_for="all", timeout=1)
    return runs.step(DOCUMENT).observed["cp1"].balances


@pytest.mark.parametrize(
    ("changes", "reasons", "right"),
    [
        ([], {}, True),
        (["change /etc/karmada/prod/karmada-apiserver/pki/ca.crt", "restart karmada-prod-apiserver.service"], {}, True),
        (["change /etc/karmada/prod/haproxy/haproxy.cfg"], {}, False),
        (["remove /etc/karmada/prod/haproxy/old.cfg"], {}, False),
        (["create user karmada-prod-haproxy"], {}, False),
        (["enable karmada-prod-keepalived.service"], {}, False),
        ([], {"keepalived": "it does not answer"}, False),
    ],
)
def test_one_that_serves_and_is_as_it_should_be_is_not_done_again(
    runs: Runs, changes: list[str], reasons: dict[str, str], right: bool
) -> None:
    assert compared(runs, changes, **reasons) is right
    found, _ = done(runs, "cp1")
    assert found["in_turn"] == ([] if right else ["cp1"])
    # Whether it has the programs need not be asked.
    assert done(runs, "cp1", "looked_for")[0]["missing"] == ([] if right else ["haproxy", "keepalived"])
    # Others end all the same, as it serves.
    assert len(done(runs, "cp2")[1]) == 1


def test_one_that_was_given_up_is_not_asked(runs: Runs) -> None:
    runs.see(cp3={"refusal": "no route to host"})
    assert done(runs, "cp3")[1] == []
