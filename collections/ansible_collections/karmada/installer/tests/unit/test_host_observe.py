# SPDX-License-Identifier: Apache-2.0
"""Whose lock a look at a host takes over: that of a process of this machine that is gone, and of one called dead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.host_observe import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.lease import holder_identity
from ansible_collections.karmada.installer.tests.unit.test_host_run import HOSTS, Runs

HOLDER = "elsewhere/1f0e.4026531836/4711/815"
GONE = holder_identity().rpartition("/")[0] + "/1"


def looked(tmp_path: Path, holder: str, confirmed: str) -> tuple[dict[str, Any], list[str]]:
    """The result of the action, and whose locks it took over, while ``holder`` has the lock."""
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"karmada_host": HOSTS[0]}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    taken: list[str] = []

    def on_host(_module: str, **question: Any) -> dict[str, Any]:
        assert question["state"] == "locked"
        if question.get("dead_holder") != holder:
            return {"failed": True, "msg": f"{holder} is working on prod", "holder": holder}
        taken.append(holder)
        return {"facts": {}}

    action.on_host = on_host
    return action.perform({"lock": True, "confirm_dead": confirmed}), taken


@pytest.mark.parametrize(
    ("holder", "confirmed", "expected"),
    [
        (HOLDER, HOLDER, [HOLDER]),
        (HOLDER, "", []),
        (HOLDER, f"{HOLDER}0", []),
        (GONE, "", [GONE]),
        (GONE, HOLDER, [GONE]),
        (holder_identity(), "", []),
    ],
    ids=["named", "elsewhere", "named otherwise", "gone here", "gone here and another one named", "alive here"],
)
def test_the_lock_is_taken_from_the_dead_alone(
    tmp_path: Path, holder: str, confirmed: str, expected: list[str]
) -> None:
    found, taken = looked(tmp_path, holder, confirmed)
    assert taken == expected
    assert found["reached"] is bool(expected)
