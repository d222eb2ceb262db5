# SPDX-License-Identifier: Apache-2.0
"""Secrets and ConfigMaps that documents name."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import inputs

from operator_tests.stand_ins import PREFIX, READY, condition, edited, live, operating, widget
from operator_tests.test_health import workload

pytestmark = pytest.mark.usefixtures("soon")


def test_a_secret_that_the_document_names_starts_a_run_when_it_changes(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "EVERY", 0.1)

    def put(content: str) -> None:
        api.put("api/v1/secrets", {"metadata": {"name": "m1", "namespace": "a"}, "data": {"kubeconfig": content}})

    put("b25l")
    api.put(PREFIX, {**widget("x"), "spec": {"members": [{"name": "m1", "kubeconfigSecretRef": {"name": "m1"}}]}})
    with operating(cluster) as operator:
        first = operator.executor.next()
        # During the run, too.
        put("dHdv")
        first.end()
        operator.executor.next().end()
        until(lambda: condition(api, "Progressing") == "False Idle")
        api.faults.append(Fault("status", path="secrets/m1", status=403, times=2))
        until(lambda: api.faults[0].times == 0)
        assert operator.executor.started.empty(), "what cannot be looked at has not changed"
        put("dGhyZWU=")
        operator.executor.next().end()
    accepted = {each["Accept"] for each, (_, path) in zip(api.headers, api.requests, strict=True) if "secrets" in path}
    assert all("PartialObjectMetadata" in each for each in accepted)


def test_many_secrets_are_looked_at_once_for_a_run_and_not_for_each_change(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as this test may take.
    monkeypatch.setattr(inputs, "HOLDS", 60.0)
    members = [{"name": f"m{number}", "secretRef": {"name": f"m{number}"}} for number in range(40)]
    for each in members:
        api.put("api/v1/secrets", {"metadata": {"name": each["name"], "namespace": "a"}, "data": {}})

    def looks() -> int:
        return sum("/secrets/" in path for _, path in api.requests)

    api.put(PREFIX, {**widget("x"), "spec": {"members": members}})
    with operating(cluster) as operator:
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")
        for generation in (1, 2, 3):
            api.put("apis/apps/v1/deployments", workload("x-webhook", generation))
        until(lambda: len(operator.controller._health._there) == 1)
        edited(api, "x", generation=2)
        operator.executor.next().end(report=READY)
        assert looks() == 40
        # Another one is looked at, whenever the others were.
        found = live(api, "x")
        meta = {**found["metadata"], "generation": 3}
        api.put(PREFIX, {**found, "metadata": meta, "spec": {"members": members[:2]}})
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")
    assert looks() == 42


def test_how_often_they_are_looked_at() -> None:
    assert inputs.pause(range(600)) == 60
    assert inputs.pause(range(5000)) == 500


def test_what_a_document_names() -> None:
    spec = {
        "hostCluster": {"secretRef": {"name": "host"}},
        "audit": {"configMapRef": {"name": "audit"}},
        "members": [
            {"kubeconfigSecretRef": {"name": "m1"}},
            {"kubeconfigSecretRef": {"name": "m1"}},
            {"secretRef": None},
        ],
    }
    assert inputs.references(spec) == (("ConfigMap", "audit"), ("Secret", "host"), ("Secret", "m1"))
    assert inputs.references(None) == ()
    spec["ssh"] = {"privateKeySecretRef": {"name": "key"}, "user": "root"}
    spec["members"] = [
        {"name": "m2", "kubeconfigFrom": {"ssh": {"privateKeySecretRef": {"name": "k2"}}}},
        {"name": "m1", "secretRef": {"name": "k1"}},
        "nonsense",
    ]
    assert inputs.access(spec) == (frozenset({"host", "key"}), (("m1", "k1"), ("m2", "k2")))
    assert inputs.access(None) == (frozenset(), ())
