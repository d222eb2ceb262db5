# SPDX-License-Identifier: Apache-2.0
"""Marks of our writes on workloads, as a real API server keeps them: by these the operator knows edits of others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import FIELD_MANAGER, MANAGED_BY_LABEL
from karmada_operator.course import Piece, workload_of

MERGE = "application/merge-patch+json"
LABELS = {MANAGED_BY_LABEL: FIELD_MANAGER, "app": "a"}


def desired(kind: str, namespace: str, image: str) -> dict[str, Any]:
    pod = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "one", "image": image}]}}
    spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": pod}
    if kind == "StatefulSet":
        spec["serviceName"] = "one"
    meta = {"name": "one", "namespace": namespace, "labels": LABELS}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_our_writes_move_the_mark_and_those_of_others_do_not(
    kind: str, api_server: Any, cluster: Cluster, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s/one"

    def now() -> Piece:
        live = cluster.get("apps/v1", kind, "one", namespace)
        assert live is not None
        return workload_of(live)

    def theirs(where: str, body: dict[str, Any], manager: str) -> Piece:
        code, answer = api_server.request("PATCH", f"{path}{where}?fieldManager={manager}", body, MERGE)
        assert code == 200, answer
        return now()

    def ours(image: str) -> Piece:
        # Times of writes have whole seconds.
        time.sleep(1.1)
        apply_all(cluster, [desired(kind, namespace, image)])
        return now()

    apply_all(cluster, [desired(kind, namespace, "a:1")])
    made = now()
    assert made.generation == 1
    assert made.mark.count(" ") == 1
    assert all(made.mark.split(" "))

    # Controllers write the status, and with it the revision of a Deployment.
    revision = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}
    told = theirs(
        "/status", {**revision, "status": {"observedGeneration": 1, "replicas": 1}}, "kube-controller-manager"
    )
    assert (told.mark, told.generation) == (made.mark, 1)

    # An upgrade, and the same again.
    newer = ours("a:2")
    assert newer.mark != made.mark
    assert newer.generation == 2
    assert ours("a:2") == newer

    edited = theirs(
        "", {"spec": {"template": {"spec": {"containers": [{"name": "one", "image": "b"}]}}}}, "kubectl-edit"
    )
    assert (edited.mark, edited.generation) == (newer.mark, 3)
    scaled = theirs("/scale", {"spec": {"replicas": 3}}, "autoscaler")
    assert (scaled.mark, scaled.generation) == (newer.mark, 4)

    # What puts that right leaves the hash that was there before.
    repaired = ours("a:2")
    assert repaired.mark != newer.mark
    assert repaired.mark.split(" ")[0] == newer.mark.split(" ")[0]
    assert repaired.generation == 5

    # What we do not set is not ours to put right, and a run does not write.
    theirs("", {"spec": {"minReadySeconds": 7}}, "kubectl-edit")
    left = ours("a:2")
    assert (left.mark, left.generation) == (repaired.mark, 6)
