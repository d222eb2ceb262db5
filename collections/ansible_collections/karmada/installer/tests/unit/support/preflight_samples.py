# SPDX-License-Identifier: Apache-2.0
"""Host clusters for tests of preflight, and what it finds there."""

from __future__ import annotations

from typing import Any
from unittest import mock

from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
    node,
    storage_class,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import Rendered, document, state

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}}
SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}


def host(*objects: Any) -> FakeCluster:
    """A host cluster that can take a control plane, with these objects beside."""
    return FakeCluster("host cluster", NAMESPACE, storage_class("standard"), node("192.0.2.1"), *objects)


def problems(run: Run) -> list[Problem]:
    """Findings of preflight; each with a place and a remedy, and without changing anything."""
    before = dict(run.host_cluster.objects)
    with mock.patch.object(crd_files, "crds", return_value=[]):
        found = findings.findings(run).all
    assert run.host_cluster.objects == before, "preflight changes nothing"
    assert run.host_cluster.log == []
    assert all(problem.where and problem.remedy for problem in found)
    return found


def installed(spec: dict[str, Any] | None = None, later: dict[str, Any] | None = None) -> Run:
    """A run with the document ``later`` over an instance that was installed with ``spec``."""
    was = document(spec)
    found = Rendered(was, state=state(document=was))
    cluster = host(*found.objects)
    return fake_run(document(later), cluster, stored=found.remembered)
