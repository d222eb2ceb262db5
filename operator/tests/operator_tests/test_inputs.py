# SPDX-License-Identifier: Apache-2.0
"""Secrets and ConfigMaps that documents name."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import inputs

from operator_tests.stand_ins import (
    PREFIX,
    condition,
    operating,
    widget,
)

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
