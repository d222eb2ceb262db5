# SPDX-License-Identifier: Apache-2.0
"""Health between runs: what is not ready, what somebody else has changed, and what is only our own writes."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import controller, course, health, reconcile, status_writer, wishes
from karmada_operator.executor import Outcome
from karmada_operator.health import Health, Instance, Verdict, host_clusters
from karmada_operator.kinds import Key
from karmada_operator.orders import BESIDE_THE_OBJECT, HostCluster
from karmada_operator.watch import seen_of

from operator_tests.stand_ins import FINALIZER, KIND, PREFIX, condition, edited, live, operating, widget

DEPLOYMENTS = "apis/apps/v1/deployments"
X = Instance("a", "x")
READY = {"conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}], "phase": "Completed"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "BETWEEN", 0.02)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)


def workload(name: str, generation: int = 1, ready: int = 1, instance: str = "x", **meta: Any) -> dict[str, Any]:
    """A Deployment as we write it, or after an edit of somebody else if ``meta`` has the mark of an earlier one."""
    labels = {"app.kubernetes.io/managed-by": "karmada-installer", "app.kubernetes.io/instance": instance}
    meta = {**written(generation), **meta}
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), ready)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "generation": generation, "labels": labels, "namespace": "a", **meta},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": generation, **counts},
    }


def written(moment: int, content: str = "c") -> dict[str, Any]:
    """Metadata that our write leaves at this second."""
    entry = {"operation": "Apply", "time": f"2026-01-01T00:00:{moment:02}Z"}
    status = {**entry, "manager": "kube-controller-manager", "subresource": "status", "time": "2026-01-01T00:01:00Z"}
    return {
        "annotations": {"installer.karmada.io/applied-hash": content},
        "managedFields": [{**entry, "manager": "karmada-installer"}, status],
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
    assert course.workload_of(idle).trouble == "it is scaled to no pods"


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


def test_a_component_that_is_not_ready_is_told_with_what_a_look_finds_in_its_pods(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SETTLE", 0.0)
    monkeypatch.setattr(reconcile, "BY_ITSELF", 0.05)
    names = {"app.kubernetes.io/name": "estimator", "installer.karmada.io/member": "m1"}

    def put(ready: int) -> None:
        obj = workload("x-estimator", ready=ready)
        obj["metadata"]["labels"] |= names
        api.put(DEPLOYMENTS, obj)

    def row() -> object:
        return (live(api, "x").get("status", {}).get("components") or [None])[0]

    good = {"name": "estimator-m1", "desired": 1, "ready": 1}
    pulled = {**good, "ready": 0, "message": "pod x: ErrImagePull"}
    api.put(PREFIX, widget("x"))
    put(1)
    with operating(cluster, kinds={"Widget": replace(KIND, report_playbook="report.yml")}) as operator:
        until(lambda: X in operator.controller._health._there)
        operator.executor.next().end(report={**READY, "components": [good]})
        until(lambda: row() == good)
        put(0)
        look = operator.executor.next()
        assert look.spec.playbook == "report.yml"
        until(lambda: row() == {**pulled, "message": "0 of 1 replicas are updated"})
        look.end(report={**READY, "components": [pulled]})
        until(lambda: row() == pulled)
        until(lambda: condition(api, "Ready") == "False ComponentsNotReady")
        put(1)
        until(lambda: row() == good)
        assert operator.executor.started.empty(), "no other look for a minute, and no repair"
        api.remove(DEPLOYMENTS, "a", "x-estimator")
        operator.executor.next()
        until(lambda: row() == {**pulled, "message": "Deployment x-estimator is gone"})


def test_what_somebody_changes_is_told_while_nobody_puts_it_right(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SETTLE", 0.0)
    api.put(PREFIX, widget("x"))
    api.put(DEPLOYMENTS, workload("x-webhook"))
    with operating(cluster) as operator:
        until(lambda: X in operator.controller._health._there)
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Drifted") == "False AsTheDocumentSays")
        edited(api, "x", annotations={wishes.PAUSED: "true"})
        until(lambda: condition(api, "Paused") == "True PausedByUser")
        api.put(DEPLOYMENTS, workload("x-webhook", 2, **written(1)))
        until(lambda: condition(api, "Drifted") == "True ChangedByOthers")
        assert operator.executor.started.empty()
        edited(api, "x", annotations={})
        run = operator.executor.next()
        api.put(DEPLOYMENTS, workload("x-webhook", 3))
        there = operator.controller._health._there
        until(lambda: [each.generation for each in there[X].values()] == [3])
        run.end(report=READY)
        until(lambda: condition(api, "Drifted") == "False AsTheDocumentSays")


REMOTE = HostCluster(secret="remote", namespace="far", insecure=True)
DELETED = Verdict(("Deployment x-webhook is gone",), ("Deployment x-webhook was deleted",))


@pytest.fixture
def remote(api: StubApi) -> Iterator[StubApi]:
    """Another cluster, to which a Secret beside the objects leads."""
    with StubApi() as found:
        leads_to(api, found)
        yield found


def leads_to(api: StubApi, remote: StubApi) -> None:
    data = {"kubeconfig": b64encode(json.dumps(remote.kubeconfig()).encode()).decode()}
    api.put("api/v1/secrets", {"metadata": {"name": "remote", "namespace": "a"}, "data": data})


def far(name: str, generation: int = 1, **more: Any) -> dict[str, Any]:
    return workload(name, generation, namespace="far", **more)


def host_of(spec: dict[str, Any]) -> HostCluster:
    obj = {**widget("x", uid="u"), "spec": spec}
    return seen_of(obj, "").host


def test_where_workloads_are() -> None:
    remote = {"secretRef": {"name": "remote"}, "context": "one", "namespace": "far"}
    assert host_of({"hostCluster": remote}) == HostCluster("remote", "one", "far")
    assert host_of({"hostCluster": {**remote, "insecureSkipTLSVerification": True}}).insecure
    assert host_of({"hostCluster": {"namespace": "b"}}) == HostCluster(namespace="b")
    for beside in ({}, {"hostCluster": {}}, {"hostCluster": {"namespace": "a", "context": "one"}}):
        assert host_of(beside) == BESIDE_THE_OBJECT
    assert host_of({"mode": "Binary", "hostCluster": remote}) == BESIDE_THE_OBJECT


def test_what_is_in_another_cluster_is_watched_there(api: StubApi, cluster: Cluster, remote: StubApi) -> None:
    remote.put(DEPLOYMENTS, far("x-webhook"))
    remote.put(DEPLOYMENTS, far("y-webhook", instance="y"))
    api.put(DEPLOYMENTS, workload("x-webhook", 7))
    clock, told = [0.0], list[Instance]()
    found = Health(cluster, [None], lambda: clock[0], opened=host_clusters(cluster))
    found.listen(told.append)
    found.settle(X, REMOTE)
    assert found.verdict(X) == Verdict(), "probes are told meanwhile"
    until(lambda: found._baselines[X].keys() == {Key("Deployment", "far", "x-webhook")})
    until(lambda: found._elsewhere[X].complete)
    # The last events of the run, however late the list was.
    remote.put(DEPLOYMENTS, far("x-webhook", 2))
    until(lambda: found._baselines[X][Key("Deployment", "far", "x-webhook")].generation == 2)
    clock[0] = 10.0
    remote.put(DEPLOYMENTS, far("x-webhook", 3))
    until(lambda: found.verdict(X) == Verdict(drifted=("Deployment x-webhook was changed",)))
    remote.remove(DEPLOYMENTS, "far", "x-webhook")
    until(lambda: found.verdict(X) == DELETED)
    assert set(told) == {X}
    # A restore does not know where it is.
    found.settle(X, None)
    assert found.verdict(X) == Verdict()
    assert X in found._elsewhere
    found.forget(X)
    assert found._elsewhere == {}
    found.stop()


def test_the_kubeconfig_that_is_there_now_leads_to_them(api: StubApi, cluster: Cluster, remote: StubApi) -> None:
    remote.put(DEPLOYMENTS, far("x-webhook"))
    clock = [0.0]
    found = Health(cluster, [None], lambda: clock[0], opened=host_clusters(cluster))
    found.settle(X, REMOTE)
    until(lambda: found._elsewhere[X].complete)
    first = found._elsewhere[X]
    with StubApi() as other:
        other.put(DEPLOYMENTS, far("x-scheduler"))
        leads_to(api, other)
        found.settle(X, REMOTE)
        until(lambda: found._elsewhere[X].complete)
        clock[0] = 10.0
        remote.remove(DEPLOYMENTS, "far", "x-webhook")
        until(lambda: not any(each.is_alive() for each in first._watchers), "the end of the first watches")
        assert found.verdict(X) == Verdict()
        other.remove(DEPLOYMENTS, "far", "x-scheduler")
        until(lambda: found.verdict(X) not in (None, Verdict()))
        found.stop()


@pytest.mark.parametrize("host", [REMOTE, HostCluster(secret="remote", namespace="far"), HostCluster(secret="gone")])
def test_a_cluster_that_cannot_be_used_is_left_to_probes(
    host: HostCluster, api: StubApi, cluster: Cluster, remote: StubApi
) -> None:
    """Its kubeconfig starts a program, its address has no TLS, there is none."""
    if host == REMOTE:
        config = remote.kubeconfig()
        config["users"][0]["user"] = {"exec": {"command": "touch", "args": ["/nowhere"]}}
        data = {"kubeconfig": b64encode(json.dumps(config).encode()).decode()}
        api.put("api/v1/secrets", {"metadata": {"name": "remote", "namespace": "a"}, "data": data})
    found = Health(cluster, [None], opened=host_clusters(cluster))
    found.settle(X, host)
    assert found._elsewhere == {}
    assert found.verdict(X) == Verdict()
    assert remote.requests == []


@pytest.mark.parametrize("elsewhere", ["another cluster", "another namespace"])
def test_what_was_deleted_elsewhere_starts_a_run(
    elsewhere: str, api: StubApi, cluster: Cluster, remote: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "SETTLE", 0.0)
    if elsewhere == "another cluster":
        there, namespace = remote, "far"
        host: dict[str, Any] = {"secretRef": {"name": "remote"}, "insecureSkipTLSVerification": True}
    else:
        there, namespace, host = api, "b", {}
        allowed = {"name": "b", "annotations": {wishes.ALLOWED_FROM: "a"}}
        api.put("api/v1/namespaces", {"kind": "Namespace", "metadata": allowed})
    there.put(DEPLOYMENTS, workload("x-webhook", namespace=namespace))
    api.put(PREFIX, {**widget("x"), "spec": {"hostCluster": {**host, "namespace": namespace}}})
    with operating(cluster) as operator:
        watched = operator.controller._health
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        until(lambda: X in watched._elsewhere and watched._elsewhere[X].complete)
        there.put(DEPLOYMENTS, workload("x-webhook", ready=0, namespace=namespace))
        until(lambda: condition(api, "Ready") == "False ComponentsNotReady")
        there.put(DEPLOYMENTS, workload("x-webhook", namespace=namespace))
        until(lambda: condition(api, "Ready") == "True AllReady")
        there.remove(DEPLOYMENTS, namespace, "x-webhook")
        again = operator.executor.next()
        there.put(DEPLOYMENTS, workload("x-webhook", namespace=namespace))
        again.end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
    assert watched._elsewhere == {}


def test_those_that_wait_for_their_first_look_are_watched_meanwhile(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fails its first look after the start of the operator, so the other has none."""
    monkeypatch.setattr(controller, "HELD", 0.05)
    monkeypatch.setattr(health, "SETTLE", 0.0)
    ready = {**READY, "installed": True, "observedGeneration": 1}
    for name in ("x", "y"):
        api.put(PREFIX, {**widget(name, finalizers=[FINALIZER]), "status": ready})
        for part in ("webhook", "scheduler"):
            api.put(DEPLOYMENTS, workload(f"{name}-{part}", instance=name))
    with operating(cluster) as operator:
        broken = operator.executor.next()
        broken.end(Outcome.FAILED, message="registry out of reach")
        operator.executor.at_once = lambda run: run.end(Outcome.FAILED) if run.spec.name == broken.spec.name else None
        other = "y" if broken.spec.name == "x" else "x"
        until(lambda: condition(api, "Progressing", other) == "False HeldBack")
        watched = operator.controller._health
        until(lambda: len(watched._baselines.get(Instance("a", other), {})) == 2)
        for ready_pods, told in ((0, "False ComponentsNotReady"), (1, "True AllReady")):
            api.put(DEPLOYMENTS, workload(f"{other}-webhook", ready=ready_pods, instance=other))
            until(lambda told=told: condition(api, "Ready", other) == told)  # type: ignore[misc]
        assert other not in operator.executor.order
        api.remove(DEPLOYMENTS, "a", f"{other}-webhook")
        until(lambda: other in operator.executor.order)
