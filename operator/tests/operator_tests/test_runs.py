# SPDX-License-Identifier: Apache-2.0
"""Runs of the operator's loop: what is told of them, what one leaves for the next, who goes on with those of others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import controller, reconcile, runs, wishes
from karmada_operator.executor import Left, Outcome, RunSpec, UnderWay
from karmada_operator.kinds import Key
from karmada_operator.orders import Operation, Order
from karmada_operator.recorder import Recorder
from karmada_operator.runs import several_of, unready_of

from operator_tests.stand_ins import (
    FINALIZER,
    KIND,
    PREFIX,
    READY,
    FakeExecutor,
    FakeRun,
    Operator,
    condition,
    edited,
    live,
    operating,
    phase,
    reasons,
    widget,
)

pytestmark = pytest.mark.usefixtures("soon")


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (None, ""),
        ({}, ""),
        ({"conditions": [{"type": "ComponentsReady", "status": "True", "message": "all"}]}, ""),
        ({"conditions": [{"type": "ComponentsReady", "status": "False", "message": "0 of 1"}]}, "0 of 1"),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "a member is away"}]}, ""),
        (
            {
                "conditions": [{"type": "ComponentsReady", "status": "False", "message": "0 of 1"}],
                "problems": [{"reason": "HostUnreachable"}],
            },
            "",
        ),
    ],
)
def test_what_can_be_started_again_is_what_hosts_that_answer_have_stopped(report: Any, told: str) -> None:
    assert unready_of(report) == told


def test_what_is_stopped_on_plain_hosts_is_found_by_a_look_and_brought_back(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(PREFIX, {**widget("x"), "spec": {"mode": "Binary"}})
    told = {"type": "ComponentsReady", "status": "False", "reason": "NotReady", "message": "webhook has 0 of 1 ready"}
    monkeypatch.setattr(reconcile, "LOOK_AT_HOSTS", 0.05)
    with operating(cluster, kinds={"Widget": replace(KIND, report_playbook="report.yml")}) as operator:
        operator.executor.next().end(report=READY)
        look = operator.executor.next()
        assert look.spec.playbook == "report.yml"
        monkeypatch.setattr(reconcile, "LOOK_AT_HOSTS", 3600.0)
        look.end(report={**READY, "conditions": [told]})
        again = operator.executor.next()
        assert again.spec.playbook == "install.yml"
        again.end(report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")
    assert operator.executor.started.empty(), "once"


def test_from_an_object_to_its_status(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER], "before anything is done"
        assert (run.spec.namespace, run.spec.name, run.spec.playbook, run.spec.check) == (
            "a",
            "x",
            "install.yml",
            False,
        )
        until(lambda: condition(api, "Progressing") == "True Running")
        assert live(api, "x")["status"]["phase"] == "Preflight"
        assert condition(api, "Ready") == "False NotInstalled"
        run.task("karmada.installer.members")
        until(lambda: phase(api) == "InstallCRD")
        run.end(changed=3, report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        until(lambda: condition(api, "Progressing") == "False Idle")
        assert live(api, "x")["status"]["phase"] == "Completed"
        assert live(api, "x")["status"]["lastRun"]["changed"] == 3
        until(lambda: reasons(api) == ["Running", "InstallCRD", "RunSucceeded"])
        sample = operator.metrics.registry.get_sample_value
        where = {"kind": "Widget", "namespace": "a", "name": "x"}
        until(lambda: sample("karmada_instance_ready", where) == 1)
        assert sample("karmada_instance_members", {**where, "ready": "true"}) == 1
        runs = {"kind": "Widget", "operation": "install", "outcome": "succeeded"}
        until(lambda: sample("karmada_operator_runs_total", runs) == 1)
        assert operator.executor.started.empty(), "its own writes start nothing"


def test_the_run_after_one_that_died_may_take_its_lock(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        lost = operator.executor.next()
        assert "karmada_confirm_dead" not in lost.spec.variables
        lost.end(Outcome.LOST)
        second = operator.executor.next()
        assert second.spec.variables == {"karmada_confirm_dead": lost.spec.run_id}
        second.end()
        until(lambda: condition(api, "Progressing") == "False Idle")
        edited(api, "x", generation=2)
        third = operator.executor.next()
        assert third.spec.variables == {"karmada_confirm_dead": lost.spec.run_id}, "the second may have taken no lock"
        third.end()


def test_a_run_that_only_looks_leaves_the_locks_of_dead_ones_to_the_next_writer(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        lost = operator.executor.next()
        edited(api, "x", annotations={wishes.DRY_RUN: "true"})
        until(lambda: lost.cancelled == "it was set to dry-run")
        check = operator.executor.next()
        assert (check.spec.check, check.spec.variables) == (True, {"karmada_confirm_dead": lost.spec.run_id})
        check.end(Outcome.FAILED)
        again = operator.executor.next()
        assert again.spec.check
        again.end()
        until(lambda: condition(api, "Drifted") == "False DryRun")
        edited(api, "x", annotations={})
        writer = operator.executor.next()
        assert (writer.spec.check, writer.spec.variables) == (False, {"karmada_confirm_dead": lost.spec.run_id})
        writer.end()


def test_of_many_dead_runs_the_newest_are_handed_on(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_DEAD", 2)
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        lost: list[str] = []
        for _ in range(4):
            run = operator.executor.next()
            assert run.spec.variables.get("karmada_confirm_dead", "") == ",".join(lost[-2:])
            lost.append(run.spec.run_id)
            run.end(Outcome.LOST)
        # Whoever was not seen gone may be at work still.
        unseen = operator.executor.next()
        unseen.end(Outcome.LOST, seen_gone=False)
        last = operator.executor.next()
        assert last.spec.variables == {"karmada_confirm_dead": ",".join(lost[-2:])}
        last.end()


def test_failures_are_told_and_tried_again(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    problem = {"severity": "error", "reason": "ImageNotAvailable", "what": "no image", "where": "w", "remedy": "mend"}
    with operating(cluster) as operator:
        failure = {"failed_task": "Check", "phase": "Waiting", "reason": "ImageNotAvailable", "component": "etcd"}
        operator.executor.next().end(Outcome.FAILED, message="no image", problems=(problem,), **failure)
        until(lambda: condition(api, "Degraded") == "True ImageNotAvailable")
        last = live(api, "x")["status"]["lastRun"]
        assert (last["failedTask"], last["failedPhase"]) == ("Check", "Waiting")
        assert (last["reason"], last["component"]) == ("ImageNotAvailable", "etcd")
        degraded = next(each for each in live(api, "x")["status"]["conditions"] if each["type"] == "Degraded")
        assert degraded["message"] == "Check: etcd: no image"
        assert condition(api, "Ready") == "False ImageNotAvailable"
        assert live(api, "x")["status"]["problems"] == [problem]
        again = operator.executor.next()
        until(lambda: "RunFailed" in reasons(api))
        again.end(report=READY)
        until(lambda: condition(api, "Degraded") == "False LastRunSucceeded")
        assert condition(api, "Ready") == "True AllReady"
        assert operator.metrics.registry.get_sample_value("karmada_operator_retries_total", {"kind": "Widget"}) == 1


def test_a_dry_run_tells_what_would_change(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", annotations={wishes.DRY_RUN: "true"}))
    with operating(cluster) as operator:
        run = operator.executor.next()
        assert run.spec.check
        run.end(changed=2)
        until(lambda: condition(api, "Drifted") == "True DryRun")
        edited(api, "x", annotations={})
        run = operator.executor.next()
        assert not run.spec.check
        run.end(report=READY)
        until(lambda: condition(api, "Drifted") == "False AsTheDocumentSays")


def test_who_does_not_lead_any_more_ends_its_runs_and_starts_none(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        operator.leading.set()
        until(lambda: run.cancelled == "the operator ends")
        api.put(PREFIX, widget("y"))
    assert operator.executor.order == ["x"]


def test_a_run_that_cannot_be_started_is_a_failure(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with operating(cluster) as operator:
        original, calls = operator.executor.start, []

        def start(spec: object) -> FakeRun:
            calls.append(spec)
            if len(calls) == 1:
                raise OSError("no room")
            return original(spec)  # type: ignore[arg-type]

        monkeypatch.setattr(operator.executor, "start", start)
        api.put(PREFIX, widget("x"))
        api.put(PREFIX, widget("y"))
        until(lambda: "RunFailed" in reasons(api))
        for each in [operator.executor.next(), operator.executor.next()]:
            each.end()


def test_a_removal_that_fails_says_what_holds_it(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z"))
    with operating(cluster) as operator:
        operator.executor.next().end(Outcome.FAILED, message="member m1 does not answer", failed_task="Leave")
        until(lambda: condition(api, "Degraded") == "True RunFailed")
        assert live(api, "x")["status"]["phase"] == "Deleting"
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]
        operator.executor.next().end()
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])


@contextmanager
def held_back(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **of_other: Any
) -> Iterator[tuple[Operator, str, str]]:
    """An operator whose first look at one of two has failed, with the names of that one and of the one that waits."""
    monkeypatch.setattr(controller, "HELD", 0.05)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 1e6)
    done = {**READY, "installed": True}
    for name in ("x", "y"):
        api.put(PREFIX, {**widget(name, finalizers=[FINALIZER], **of_other), "status": done})
    with operating(cluster) as operator:
        broken = operator.executor.next()
        broken.end(Outcome.FAILED, message="registry out of reach")
        other = "y" if broken.spec.name == "x" else "x"
        until(lambda: condition(api, "Progressing", other) == "False HeldBack")
        assert other not in operator.executor.order
        yield operator, broken.spec.name, other


def test_one_that_fails_holds_nobody_back_while_it_is_paused(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back(api, cluster, monkeypatch) as (operator, broken, other):
        edited(api, broken, annotations={wishes.PAUSED: "true"})
        run = operator.executor.next()
        assert run.spec.name == other
        run.end(report=READY)
        until(lambda: condition(api, "Progressing", other) == "False Idle")


def test_one_that_fails_holds_nobody_back_once_it_was_edited(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it fails again: that is between it and who has edited it."""
    with held_back(api, cluster, monkeypatch) as (operator, broken, other):
        edited(api, broken, generation=2)
        runs_of = {run.spec.name: run for run in (operator.executor.next(), operator.executor.next())}
        assert set(runs_of) == {broken, other}
        runs_of[broken].end(Outcome.FAILED, message="registry out of reach")
        runs_of[other].end(report=READY)
        until(lambda: condition(api, "Progressing", other) == "False Idle")


def test_one_that_fails_holds_nobody_back_for_longer_than_a_period(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_back(api, cluster, monkeypatch) as (operator, _, other):
        # Of runs alone: the one that failed is not tried again meanwhile.
        monkeypatch.setattr(runs, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + KIND.period))
        run = operator.executor.next()
        assert run.spec.name == other
        run.end(report=READY)


def test_one_that_is_held_back_runs_when_it_is_asked_to(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = {wishes.RUN_NOW: "of-last-week"}
    with held_back(api, cluster, monkeypatch, annotations=earlier) as (operator, _, other):
        edited(api, other, annotations={**earlier, "another.example/annotation": "x"})
        version = live(api, other)["metadata"]["resourceVersion"]
        until(lambda: operator.controller._seen(Key("Widget", "a", other)).version == version)  # type: ignore[union-attr]
        until(lambda: operator.controller._queue.depth().total() == operator.controller._queue.active().total() == 0)
        assert operator.executor.started.empty(), "a word that was there before asks for nothing"
        edited(api, other, annotations={wishes.RUN_NOW: "after-upgrade"})
        run = operator.executor.next()
        assert run.spec.name == other
        run.end(report=READY)
        until(lambda: condition(api, "Progressing", other) == "False Idle")


# -- runs that outlive the operator that started them ------------------------------------------------------------------


def left_over(uid: str, generation: int = 1, **more: object) -> tuple[Left, FakeRun]:
    order = Order(Operation.INSTALL, uid, generation, **more)  # type: ignore[arg-type]  # fields of an order
    spec = RunSpec("run-of-before", "a", "x", "install.yml", kind="Widget", order=order.plain())
    run = FakeRun(spec)
    return Left(spec, run, datetime(2026, 1, 1, tzinfo=UTC)), run


def test_a_run_that_an_earlier_operator_started_is_followed_and_not_repeated(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, {**widget("x", finalizers=[FINALIZER]), "status": {"phase": "Installing"}})
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor = FakeExecutor()
    executor.left_over = [left]
    with operating(cluster, executor) as operator:
        until(lambda: condition(api, "Progressing") == "True Running")
        assert phase(api) == "Installing", "it does not begin anew"
        # Its log is heard from the beginning.
        for role in ("preflight", "etcd", "control_plane", "etcd", "members"):
            run.task(f"karmada.installer.{role}")
        until(lambda: phase(api) == "InstallCRD")
        run.end(changed=3, report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")
        status_now = live(api, "x")["status"]
        assert (status_now["phase"], status_now["lastRun"]["id"]) == ("Completed", "run-of-before")
        assert status_now["lastRun"]["startTime"] == "2026-01-01T00:00:00Z"
        assert operator.executor.started.empty()
        until(lambda: reasons(api) == ["Waiting", "InstallCRD", "RunSucceeded"])


@pytest.mark.parametrize("known", ["", "Failed", "Preflight"])
def test_all_phases_of_a_run_are_told_whose_beginning_nobody_has(api: StubApi, cluster: Cluster, known: str) -> None:
    api.put(PREFIX, {**widget("x", finalizers=[FINALIZER]), "status": {"phase": known} if known else {}})
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor = FakeExecutor()
    executor.left_over = [left]
    with operating(cluster, executor):
        for role in ("etcd", "members"):
            run.task(f"karmada.installer.{role}")
        run.end(changed=3, report=READY)
        until(lambda: reasons(api) == ["Installing", "InstallCRD", "RunSucceeded"])


def test_an_edit_since_is_carried_out_after_it(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", generation=2, finalizers=[FINALIZER]))
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor = FakeExecutor()
    executor.left_over = [left]
    with operating(cluster, executor) as operator:
        until(lambda: condition(api, "Progressing") == "True Running")
        assert operator.executor.started.empty()
        run.end(Outcome.LOST, seen_gone=False)
        following = operator.executor.next()
        assert following.spec.generation == 2
        assert following.spec.variables == {}, "nobody saw that it ended: the lock has to fall silent"


def test_a_run_of_an_object_that_was_made_anew_is_ended(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", finalizers=[FINALIZER]))
    left, run = left_over("another")
    executor = FakeExecutor()
    executor.left_over = [left]
    with operating(cluster, executor) as operator:
        following = operator.executor.next()
        assert run.cancelled
        assert following.spec.uid == live(api, "x")["metadata"]["uid"]


@pytest.mark.parametrize("operation", [Operation.INSTALL, Operation.REMOVE])
def test_a_run_whose_object_is_gone_is_ended(api: StubApi, cluster: Cluster, operation: Operation) -> None:
    """Nobody sees such an object any more, and its run would write on."""
    left, run = left_over("u-gone")
    executor = FakeExecutor()
    executor.left_over = [replace(left, spec=replace(left.spec, order=Order(operation, "u-gone", 0).plain()))]
    with operating(cluster, executor) as operator:
        until(lambda: run.cancelled == "the object is gone")
        runs = {"kind": "Widget", "operation": operation.value, "outcome": "cancelled"}
        until(lambda: operator.metrics.registry.get_sample_value("karmada_operator_runs_total", runs) == 1)
        # What is made under its name later is another one, and begins anew.
        api.put(PREFIX, widget("x", finalizers=[FINALIZER]))
        assert operator.executor.next().spec.uid == live(api, "x")["metadata"]["uid"]


def test_a_run_of_an_object_that_goes_before_it_is_followed_is_ended(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put(PREFIX, widget("x", finalizers=[FINALIZER]))
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor, original, asked = FakeExecutor(), Recorder.phase, list[Key]()
    executor.left_over = [left]

    def phase_of(recorder: Recorder, key: Key) -> str:
        asked.append(key)
        if len(asked) > 1:
            return original(recorder, key)
        api.remove(PREFIX, "a", "x")
        until(lambda: recorder._seen(key) is None)
        raise ApiError("stub", "GET", "widgets", 503, "ServiceUnavailable", "try again")

    monkeypatch.setattr(Recorder, "phase", phase_of)
    with operating(cluster, executor):
        until(lambda: run.cancelled == "the object is gone")


def test_a_run_of_an_object_that_this_operator_does_not_serve_is_left_alone(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REFUSED", 0.05)
    monkeypatch.setattr(controller.Controller, "_seen", lambda _self, _key: None)
    api.put(PREFIX, widget("x", finalizers=[FINALIZER]))
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor = FakeExecutor()
    executor.left_over = [left]
    with operating(cluster, executor):
        asked = len(api.requests)
        until(lambda: sum("widgets/x" in str(each) for each in api.requests[asked:]) >= 3)
        assert not run.cancelled
        api.remove(PREFIX, "a", "x")
        until(lambda: run.cancelled == "the object is gone")


def test_a_run_of_a_kind_that_is_not_in_the_table_is_left_alone(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    left, run = left_over("u1")
    executor = FakeExecutor()
    executor.left_over = [replace(left, spec=replace(left.spec, kind="Gadget"))]
    with operating(cluster, executor) as operator:
        assert operator.executor.next().spec.run_id != "run-of-before"
        assert not run.cancelled


def test_a_run_with_an_order_that_nobody_can_read_is_left_alone(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    left, run = left_over("u1")
    executor = FakeExecutor()
    executor.left_over = [replace(left, spec=replace(left.spec, order={"operation": "dance"}))]
    with operating(cluster, executor) as operator:
        assert operator.executor.next().spec.run_id != "run-of-before"
        assert not run.cancelled


def test_a_run_that_was_in_the_way_is_followed(api: StubApi, cluster: Cluster) -> None:
    """It was started by one that led until a moment ago."""
    api.put(PREFIX, widget("x", finalizers=[FINALIZER]))
    left, run = left_over(live(api, "x")["metadata"]["uid"])
    executor = FakeExecutor()

    def in_the_way(_run: FakeRun) -> None:
        executor.left_over = [left]
        raise UnderWay("Job x is under way")

    executor.at_once = in_the_way
    with operating(cluster, executor):
        until(lambda: condition(api, "Progressing") == "True Running" and executor.left_over)
        run.end(changed=3, report=READY)
        until(lambda: phase(api) == "Completed")
        assert live(api, "x")["status"]["lastRun"]["id"] == "run-of-before"


def test_what_is_left_behind_is_told_to_nobody(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        until(lambda: condition(api, "Progressing") == "True Running")
        operator.leading.set()
        run.leave()
    assert "lastRun" not in live(api, "x")["status"]
    assert condition(api, "Progressing") == "True Running"


def test_another_process_can_take_over_where_a_report_asks_for_several() -> None:
    rows = [{"name": "karmada-scheduler", "desired": 3, "ready": 1}, {"name": "etcd", "desired": 1}, {"name": "x"}]
    assert several_of({"components": rows}) == {"karmada-scheduler"}
    assert several_of({}) == frozenset()
