# SPDX-License-Identifier: Apache-2.0
"""Writes of a status: few, of the newest, and none that keeps another one waiting."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import status_writer
from karmada_operator.executor import Task
from karmada_operator.kinds import Key, Lane
from karmada_operator.status import Told, at_rest, at_task, begun, composed
from karmada_operator.status_writer import StatusWriter

from operator_tests.stand_ins import GROUP, KIND, PREFIX, live, widget
from operator_tests.statuses import NOW, ORDER, REPORT, conditions


def test_the_newest_is_written_once_in_a_while(api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 3600.0)
    clock = [0.0]
    api.put(PREFIX, widget("x", uid="u"))
    writer, key = StatusWriter(cluster, {"Widget": KIND}, clock=lambda: clock[0]), Key("Widget", "a", "x")

    def tell(phase: str) -> None:
        writer.tell(key, "u", lambda told: replace(told, phase=phase))

    def writes() -> int:
        return sum(method == "PATCH" for method, _ in api.requests)

    def phase() -> Any:
        return live(api, "x").get("status", {}).get("phase")

    writer.start()
    tell("Preflight")
    until(lambda: phase() == "Preflight")
    for each in ("Installing", "Waiting", "InstallCRD"):
        tell(each)
    time.sleep(0.1)
    assert phase() == "Preflight"
    clock[0] = 3601.0
    tell("Completed")
    until(lambda: phase() == "Completed")
    assert writes() == 2
    clock[0] = 7300.0
    tell("Completed")
    writer.stop()
    writer.join(300)
    assert writes() == 2, "nothing new, no write"
    assert sum(path.startswith(f"/apis/{GROUP}/namespaces/a/widgets/x/status?") for _, path in api.requests) == 2


def writer_of_one(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> tuple[StatusWriter, Key]:
    """A writer for one object, which is there, with 100 s between two writes by this clock."""
    monkeypatch.setattr(status_writer, "BETWEEN", 100.0)
    api.put(PREFIX, widget("x", uid="u"))
    return StatusWriter(cluster, {"Widget": KIND}, clock=lambda: clock[0]), Key("Widget", "a", "x")


def test_steps_within_a_phase_leave_the_next_write_to_what_matters(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a run is not told seconds late because a task had begun just before it."""
    clock = [0.0]
    writer, key = writer_of_one(api, cluster, monkeypatch, clock)

    def step(name: str, phase: str = "") -> None:
        writer.tell(key, "u", lambda told: at_task(told, Task("P", "r", name, phase)), passing=True)

    def shown() -> tuple[Any, Any]:
        found = live(api, "x").get("status", {})
        message = conditions(found)["Progressing"]["message"] if "conditions" in found else ""
        return found.get("phase"), message

    def at(moment: float) -> None:
        clock[0] = moment
        with writer._changed:
            writer._changed.notify_all()

    writer.tell(key, "u", lambda told: begun(told, ORDER, Lane.CHANGES, "why"))
    writer.start()
    until(lambda: shown() == ("Preflight", "why"))
    at(110.0)
    step("One")
    time.sleep(0.1)
    assert shown() == ("Preflight", "why"), "a step within a phase can wait"
    step("Two", "Installing")
    until(lambda: shown() == ("Installing", "Two"))
    at(220.0)
    step("Three")
    time.sleep(0.1)
    assert shown() == ("Installing", "Two")
    # Nothing else comes: then it is told, too.
    at(110.0 + 100.0 * status_writer.PASSING)
    until(lambda: shown() == ("Installing", "Three"))
    at(500.0)
    step("Four")
    writer.tell(key, "u", lambda told: at_rest(told, 3, paused=False))
    until(lambda: shown()[1] == "no run is under way")
    writer.stop()
    writer.join(300)
    assert sum(method == "PATCH" for method, _ in api.requests) == 4


def test_the_end_of_a_run_is_told_at_once_and_what_follows_it_is_later_for_that(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last phases begin a second before it, and each is a write."""
    clock = [0.0]
    writer, key = writer_of_one(api, cluster, monkeypatch, clock)

    def at(moment: float, shown: str, phase: str = "", *, awaited: bool = False) -> None:
        clock[0] = moment
        if phase:
            writer.tell(key, "u", lambda told: replace(told, phase=phase), awaited=awaited)
        with writer._changed:
            writer._changed.notify_all()
        until(lambda: live(api, "x").get("status", {}).get("phase") == shown)
        time.sleep(0.1)
        assert live(api, "x")["status"]["phase"] == shown

    writer.start()
    at(0.0, "InstallCRD", "InstallCRD")
    at(50.0, "InstallCRD", "Completed")
    at(51.0, "Quarantined", "Quarantined", awaited=True)
    at(52.0, "Quarantined", "Upgrading")
    at(199.0, "Quarantined")
    at(200.0, "Upgrading")
    at(250.0, "Upgrading", "Failed")
    at(299.0, "Upgrading")
    at(300.0, "Failed")
    writer.stop()
    writer.join(300)


def test_a_write_that_fails_has_its_time_whatever_is_awaited(api: StubApi, cluster: Cluster) -> None:
    clock = [0.0]
    api.put(PREFIX, widget("x", uid="u"))
    away = Fault("status", method="PATCH", path="widgets/x", status=503, times=1_000_000)
    api.faults.append(away)
    writer, key = StatusWriter(cluster, {"Widget": KIND}, clock=lambda: clock[0]), Key("Widget", "a", "x")
    writer.start()
    for phase in ("Waiting", "Completed"):
        writer.tell(key, "u", lambda told, phase=phase: replace(told, phase=phase), awaited=True)  # type: ignore[misc]
        until(lambda: away.times < 1_000_000 and writer._pages[key].failures)
    time.sleep(0.1)
    assert away.times == 999_999
    api.faults.clear()
    writer.stop()
    writer.join(300)


def test_a_write_that_fails_is_repeated_and_one_for_another_object_is_not(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.01)
    cluster.retry_seconds = 0.0
    api.put(PREFIX, widget("x", uid="u"))
    api.put(PREFIX, widget("y", uid="new"))
    api.faults.append(Fault("status", method="PATCH", path="widgets/x", status=500, times=3))
    writer = StatusWriter(cluster, {"Widget": KIND})
    writer.start()
    writer.tell(Key("Widget", "a", "x"), "u", lambda told: replace(told, phase="Waiting"))
    writer.tell(Key("Widget", "a", "y"), "old", lambda told: replace(told, phase="Waiting"))
    until(lambda: live(api, "x").get("status", {}).get("phase") == "Waiting")
    writer.stop()
    writer.join(300)
    assert "status" not in live(api, "y")


def test_a_status_that_cannot_be_written_delays_no_other(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.05)
    # As long as the client of the operator tries again: the other one would wait for that.
    cluster.retry_seconds = 1e6
    for name in "xy":
        api.put(PREFIX, widget(name, uid=name))
    away = Fault("status", method="PATCH", path="widgets/x", status=503, times=1_000_000)
    api.faults.append(away)
    writer = StatusWriter(cluster, {"Widget": KIND})
    writer.start()
    writer.tell(Key("Widget", "a", "x"), "x", lambda told: replace(told, phase="Waiting"))
    until(lambda: away.times < 1_000_000)
    for phase in ("Waiting", "Completed"):
        writer.tell(Key("Widget", "a", "y"), "y", lambda told, phase=phase: replace(told, phase=phase))  # type: ignore[misc]
        until(lambda phase=phase: live(api, "y").get("status", {}).get("phase") == phase)  # type: ignore[misc]
    api.faults.clear()
    until(lambda: live(api, "x").get("status", {}).get("phase") == "Waiting")
    writer.stop()
    writer.join(300)


NO_CREDENTIAL = ProblemsError(Problem("the exec plugin failed", "users[0]", reason=Reason.CREDENTIALS_UNAVAILABLE))


@pytest.mark.parametrize("error", [NO_CREDENTIAL, KeyError("notAfter")], ids=["credential", "defect"])
def test_what_goes_wrong_with_one_status_keeps_no_other_from_being_written(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.01)
    failures = [2]

    def heard(key: Key, _status: object) -> None:
        if key.name == "x" and failures[0]:
            failures[0] -= 1
            raise error

    for name in "xy":
        api.put(PREFIX, widget(name, uid=name))
    writer = StatusWriter(cluster, {"Widget": KIND}, heard)
    writer.start()
    for name in "xy":
        writer.tell(Key("Widget", "a", name), name, lambda told: replace(told, phase="Waiting"))
    until(lambda: live(api, "y").get("status", {}).get("phase") == "Waiting")
    until(lambda: not failures[0], "another attempt")
    assert writer.is_alive()
    writer.stop()
    writer.join(300)


def test_a_status_that_is_refused_is_written_when_it_is_another_one(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.01)
    api.put(PREFIX, widget("x", uid="u"))
    api.faults.append(Fault("status", method="PATCH", status=422))
    writer, key = StatusWriter(cluster, {"Widget": KIND}), Key("Widget", "a", "x")
    writer.start()
    writer.tell(key, "u", lambda told: replace(told, phase="Waiting"))
    until(lambda: api.faults[0].times == 0)
    writer.tell(key, "u", lambda told: replace(told, phase="Completed"))
    until(lambda: live(api, "x").get("status", {}).get("phase") == "Completed")
    writer.stop()
    writer.join(300)
    assert sum(method == "PATCH" for method, _ in api.requests) == 2


def test_an_operator_that_starts_writes_nothing_that_is_there(api: StubApi, cluster: Cluster) -> None:
    told = at_rest(Told(report=REPORT), 3, paused=False)
    api.put(PREFIX, {**widget("x", uid="u"), "status": composed({}, told, NOW)})
    heard: list[Key] = []
    writer = StatusWriter(cluster, {"Widget": KIND}, lambda key, _status: heard.append(key))
    writer.start()
    writer.tell(Key("Widget", "a", "x"), "u", lambda _told: at_rest(Told(), 3, paused=False))
    until(lambda: heard)
    writer.stop()
    writer.join(300)
    assert [method for method, _ in api.requests if method != "GET"] == []


def test_who_may_not_lead_any_more_tells_nothing(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run was cancelled because it lost the Lease, while that of the next leader is under way."""
    monkeypatch.setattr(status_writer, "BETWEEN", 0.01)
    api.put(PREFIX, widget("x", uid="u"))
    lost = threading.Event()

    def leads() -> None:
        if lost.is_set():
            raise LockLost("somebody else took it")

    writer, key = StatusWriter(cluster, {"Widget": KIND}), Key("Widget", "a", "x")
    writer.only_while(leads)
    writer.start()
    writer.tell(key, "u", lambda told: replace(told, phase="Waiting"))
    until(lambda: live(api, "x").get("status", {}).get("phase") == "Waiting")
    lost.set()
    writer.tell(key, "u", lambda told: replace(told, phase="Failed"))
    writer.stop()
    writer.join(300)
    assert not writer.is_alive()
    assert live(api, "x")["status"]["phase"] == "Waiting"
    assert cluster.before_write is None, "whoever else uses the client is not asked"
