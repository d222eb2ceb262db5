# SPDX-License-Identifier: Apache-2.0
"""Health between runs: what is not ready, what somebody else has changed, and what is only our own writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import health, reconcile, status_writer
from karmada_operator.health import Health, Instance, Verdict

from operator_tests.stand_ins import PREFIX, condition, live, operating, widget

DEPLOYMENTS = "apis/apps/v1/deployments"
X = Instance("a", "x")
READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}], "phase": "Completed"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.02)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)


def workload(name: str, generation: int = 1, ready: int = 1, instance: str = "x", **meta: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/managed-by": "karmada-installer", "app.kubernetes.io/instance": instance}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "a", "generation": generation, "labels": labels, **meta},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": generation, **counts},
    }


@contextmanager
def watched(api: StubApi, cluster: Cluster, clock: list[float]) -> Iterator[Health]:
    found = Health(cluster, [None], lambda: clock[0])
    for each in found.watchers:
        each.start()
    until(lambda: all(each.synced.is_set() for each in found.watchers))
    try:
        yield found
    finally:
        for each in found.watchers:
            each.stop()
            each.join(300)


def test_what_a_run_has_left_is_what_should_be_there(api: StubApi, cluster: Cluster) -> None:
    api.put(DEPLOYMENTS, workload("x-webhook"))
    api.put(DEPLOYMENTS, workload("x-scheduler"))
    api.put(DEPLOYMENTS, workload("y-webhook", instance="y"))
    clock = [0.0]
    with watched(api, cluster, clock) as found:
        assert found.verdict(X) is None, "nobody knows yet"
        found.settle(X)
        assert found.verdict(X) == Verdict()
        # The last events of the run.
        api.put(DEPLOYMENTS, workload("x-webhook", 2))
        api.put(DEPLOYMENTS, workload("x-late"))
        until(lambda: len(found._baselines[X]) == 3)
        until(lambda: found._baselines[X] == found._there[X] and found.verdict(X) == Verdict())
        clock[0] = 10.0
        # Not ready, and ready again, is no drift.
        api.put(DEPLOYMENTS, workload("x-webhook", 2, ready=0))
        until(lambda: found.verdict(X) != Verdict())
        verdict = found.verdict(X)
        assert verdict
        assert verdict.drifted == ()
        assert verdict.unready[0].startswith("Deployment x-webhook: ")
        api.put(DEPLOYMENTS, workload("x-webhook", 2))
        until(lambda: found.verdict(X) == Verdict())
        api.put(DEPLOYMENTS, workload("x-webhook", 3))
        until(lambda: found.verdict(X) == Verdict(drifted=("Deployment x-webhook was changed",)))
        api.put(DEPLOYMENTS, workload("x-webhook", 1, uid="another"))
        until(lambda: found.verdict(X) == Verdict(drifted=("Deployment x-webhook was made anew",)))
        api.remove(DEPLOYMENTS, "a", "x-webhook")
        gone = Verdict(("Deployment x-webhook is gone",), ("Deployment x-webhook was deleted",))
        until(lambda: found.verdict(X) == gone)
        api.put(DEPLOYMENTS, workload("x-of-somebody-else"))
        api.put(DEPLOYMENTS, workload("y-webhook", 7, instance="y"))
        until(lambda: len(found._there[X]) == 3)
        assert found.verdict(X) == gone
        found.suspend(X)
        assert found.verdict(X) is None
        found.resume(X)
        assert found.verdict(X) == gone
        found.forget(X)
        assert found.verdict(X) is None


def test_a_workload_without_pods_is_not_ready() -> None:
    idle = workload("x-webhook", ready=0)
    idle["spec"]["replicas"] = 0
    idle["metadata"]["uid"] = "u"
    assert health.workload_of(idle).trouble == "it is scaled to no pods"


def test_what_was_deleted_starts_a_run_and_what_is_not_ready_is_told(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SETTLE", 0.0)
    api.put(PREFIX, widget("x"))
    api.put(DEPLOYMENTS, workload("x-webhook"))
    with operating(cluster) as operator:
        until(lambda: X in operator.controller._health._there)
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        api.put(DEPLOYMENTS, workload("x-webhook", ready=0))
        until(lambda: condition(api, "Ready") == "False ComponentsNotReady")
        assert operator.executor.started.empty(), "a run would not help"
        api.put(DEPLOYMENTS, workload("x-webhook"))
        until(lambda: condition(api, "Ready") == "True AllReady")
        api.remove(DEPLOYMENTS, "a", "x-webhook")
        run = operator.executor.next()
        assert live(api, "x")["status"]["phase"] in ("Completed", "Preflight")
        # The run makes it anew, which is no drift.
        api.put(DEPLOYMENTS, workload("x-webhook"))
        until(lambda: X in operator.controller._health._there)
        run.end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        until(lambda: condition(api, "Progressing") == "False Idle")
        assert operator.executor.started.empty()
