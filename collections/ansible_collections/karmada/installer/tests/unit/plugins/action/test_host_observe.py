# SPDX-License-Identifier: Apache-2.0
"""When a host is asked again, and whose lock is taken over: that of a process that is gone, and of one called dead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.karmada.installer.plugins.action import host_observe
from ansible_collections.karmada.installer.plugins.action.host_observe import ActionModule
from ansible_collections.karmada.installer.plugins.module_utils import host_lock
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.modules import _host_state
from ansible_collections.karmada.installer.plugins.plugin_utils.run_process import holder_identity
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs

HOLDER = "elsewhere/1f0e.4026531836/4711/815"
GONE = holder_identity().rpartition("/")[0] + "/1"


def looked(tmp_path: Path, holder: str, confirmed: str) -> tuple[dict[str, Any], list[str]]:
    """The result of the action, and whose locks it took over, while ``holder`` has the lock."""
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    taken: list[str] = []

    def on_host(_module: str, **question: Any) -> dict[str, Any]:
        assert question["state"] == "locked"
        if question.get("dead_holder") != holder:
            return {"failed": True, "msg": f"{holder} is working on prod", "holder": holder}
        taken.append(holder)
        return {"programs": {}}

    action.on_host = on_host
    return action.perform({"lock": True, "confirm_dead": confirmed}), taken


@pytest.mark.parametrize(
    ("holder", "confirmed", "expected"),
    [
        (HOLDER, HOLDER, [HOLDER]),
        (f"{HOLDER}/nightly-1", "nightly-1", [f"{HOLDER}/nightly-1"]),
        (f"{HOLDER}/nightly-1", "nightly-2", []),
        (HOLDER, "", []),
        (HOLDER, f"{HOLDER}0", []),
        (GONE, "", [GONE]),
        (GONE, HOLDER, [GONE]),
        (holder_identity(), "", []),
    ],
    ids=[
        "named",
        "named by its run",
        "another run",
        "elsewhere",
        "named otherwise",
        "gone here",
        "gone here and another one named",
        "alive here",
    ],
)
def test_the_lock_is_taken_from_the_dead_alone(
    tmp_path: Path, holder: str, confirmed: str, expected: list[str]
) -> None:
    found, taken = looked(tmp_path, holder, confirmed)
    assert taken == expected
    assert found["reached"] is bool(expected)


HALF_SAID = "Data could not be sent to remote host '192.0.2.1'. Make sure this host can be reached over SSH."
SAID = "No ED25519 host key is known for 192.0.2.1 and you have requested strict checking."


@pytest.mark.parametrize(
    ("answers", "refusal"),
    [
        ([{"programs": {}}], ""),
        ([SAID], SAID),
        ([HALF_SAID, SAID], SAID),
        ([HALF_SAID, {"programs": {}}], ""),
        ([HALF_SAID, HALF_SAID], HALF_SAID),
    ],
)
def test_a_host_is_asked_again_when_ansible_lost_the_reason(tmp_path: Path, answers: list[Any], refusal: str) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)

    left = list(answers)

    def on_host(_module: str, **_question: Any) -> dict[str, Any]:
        answer = left.pop(0)
        if isinstance(answer, str):
            raise AnsibleConnectionFailure(answer)
        return answer

    action.on_host = on_host
    assert action.perform({"lock": True, "confirm_dead": ""})["reached"] is not bool(refusal)
    assert action.seen.refusal == refusal
    assert left == []


@pytest.mark.parametrize(
    ("busy", "wait", "reached", "slept"),
    [(0, 120, True, 0), (2, 120, True, 10), (99, 12, False, 15), (99, 0, False, 0)],
    ids=["nobody has it", "at its end soon", "at work for long", "not to wait"],
)
def test_another_run_is_waited_for_as_long_as_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: int, wait: int, reached: bool, slept: int
) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    now, left = [1000.0], [busy]
    monkeypatch.setattr(host_observe.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(host_observe.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    def on_host(_module: str, **_question: Any) -> dict[str, Any]:
        left[0] -= 1
        if left[0] >= 0:
            return {"failed": True, "msg": f"{HOLDER} is working on prod", "holder": HOLDER}
        return {"programs": {}}

    action.on_host = on_host
    said: list[str] = []
    action.karmada.say = said.append
    assert action.perform({"lock": True, "wait": wait, "confirm_dead": ""})["reached"] is reached
    assert now[0] - 1000 == slept
    told = f"[0/{wait} s] waiting for process 4711 on elsewhere: lock of host cp1"
    assert said == ([told] if slept else [])


def test_a_host_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)

    def on_host(_module: str, **_question: Any) -> dict[str, Any]:
        raise AnsibleConnectionFailure(SAID)

    action.on_host = on_host
    assert not action.perform({"lock": True, "wait": 120, "confirm_dead": ""})["reached"]


@pytest.mark.parametrize(
    ("answer", "lock", "released"),
    [
        ({"failed": True, "msg": "/var/lib/karmada-installer/prod is damaged"}, True, True),
        ({"failed": True, "msg": "cp1: its answer has another form"}, True, True),
        ({"failed": True, "msg": "/var/lib/karmada-installer/prod is damaged"}, False, False),
        ({"failed": True, "msg": f"{HOLDER} is working on prod", "holder": HOLDER}, True, False),
        ({"programs": {}}, True, False),
        (SAID, True, False),
    ],
    ids=["damaged", "not used", "only looked at", "of another run", "well", "not reached"],
)
def test_a_host_that_was_locked_and_cannot_be_read_is_let_go_of(
    tmp_path: Path, answer: Any, lock: bool, released: bool
) -> None:
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)
    asked: list[dict[str, Any]] = []

    def on_host(_module: str, **question: Any) -> dict[str, Any]:
        asked.append(question)
        if isinstance(answer, str):
            raise AnsibleConnectionFailure(answer)
        return {"changed": False} if question["state"] == "released" else answer

    action.on_host = on_host
    action.perform({"lock": lock, "confirm_dead": ""})
    states = [each["state"] for each in asked]
    assert states == ["locked" if lock else "read", *(["released"] if released else [])]
    assert {each["holder"] for each in asked} == {action.karmada.holder}
    assert bool(action.seen.refusal) == (answer != {"programs": {}})


def test_the_next_run_may_work_on_a_host_whose_state_was_damaged(tmp_path: Path) -> None:
    host = System(str(tmp_path / "host"))
    (tmp_path / "host/var/lib/karmada-installer/prod").mkdir(parents=True)
    action: Any = ActionModule.__new__(ActionModule)
    action.karmada = Runs(tmp_path / "run").step()
    action.variables = {"inventory_hostname": "cp1"}
    action._task = SimpleNamespace(check_mode=False, delegate_to=None)

    def on_host(_module: str, **question: Any) -> dict[str, Any]:
        wanted = {"dead_holder": "", "silence": 600, **question}
        try:
            return _host_state._perform(host, wanted, False)
        except HostError as error:
            return {"failed": True, "msg": str(error)}

    action.on_host = on_host
    assert not action.perform({"lock": True, "confirm_dead": ""})["reached"]
    assert "is damaged" in action.seen.refusal
    host_lock.take(host, "prod", HOLDER)
