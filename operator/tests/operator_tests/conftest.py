# SPDX-License-Identifier: Apache-2.0
"""A stub API server with the kind of the stand-ins, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.stub_api import KINDS, StubApi
from karmada_operator import reconcile, status_writer

from operator_tests.stand_ins import GROUP


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubApi]:
    monkeypatch.setitem(KINDS, "statefulsets", "StatefulSet")
    with StubApi() as found:
        found.types[GROUP] = [{"name": "widgets", "kind": "Widget", "namespaced": True}]
        found.types["events.k8s.io/v1"] = [{"name": "events", "kind": "Event", "namespaced": True}]
        for name in "ab":
            found.put("api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name}})
        yield found


@pytest.fixture
def cluster(api: StubApi) -> Iterator[Cluster]:
    with cluster_of(api.kubeconfig(), name="stub") as found:
        found.retry_seconds = 0.5
        yield found


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Status is written at once, and what failed or was edited meanwhile is tried again at once."""
    monkeypatch.setattr(status_writer, "BETWEEN", 0.02)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)
    monkeypatch.setattr(reconcile, "STILL", 0.05)
