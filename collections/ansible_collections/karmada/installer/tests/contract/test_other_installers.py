# SPDX-License-Identifier: Apache-2.0
"""Control planes of karmadactl, the operator and the chart, as a real API server gives them back, are refused by name.

What stands for each tool is what it writes of the karmada-webhook: labels and annotations are what it is known by.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import namespace_checks, other_installers
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "karmadas.operator.karmada.io"},
    "spec": {
        "group": "operator.karmada.io",
        "names": {"kind": "Karmada", "listKind": "KarmadaList", "plural": "karmadas", "singular": "karmada"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def webhook(namespace: str, name: str, pod_labels: dict[str, str], **metadata: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": pod_labels},
            "template": {
                "metadata": {"labels": pod_labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": name,
                            "image": "docker.io/karmada/karmada-webhook:v1.18.2",
                            "ports": [{"containerPort": 8443}],
                        }
                    ],
                },
            },
        },
    }


def found(cluster: Cluster, namespace: str) -> list[Problem]:
    run = Run(
        document(namespace=namespace),
        Connection(),
        operation="preflight",
        holder="test",
        check=True,
        say=lambda _: None,
    )
    run.place.__dict__["host_cluster"] = cluster
    return list(namespace_checks.problems(run))


MADE = {
    "karmadactl init": (
        "karmada-webhook",
        {"app": "karmada-webhook"},
        {"labels": {"karmada.io/bootstrapping": "app-defaults"}},
        "karmadactl deinit",
    ),
    "Karmada's operator": (
        "demo-karmada-webhook",
        {"karmada-app": "karmada-webhook"},
        {"labels": {"karmada-app": "karmada-webhook", "app.kubernetes.io/managed-by": "karmada-operator"}},
        "its Karmada object",
    ),
    "Helm": (
        "karmada-webhook",
        {"app": "karmada-webhook"},
        {
            "labels": {"app": "karmada-webhook", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": "karmada", "meta.helm.sh/release-namespace": "karmada"},
        },
        "helm uninstall",
    ),
}


@pytest.mark.parametrize("maker", MADE)
def test_a_control_plane_of_another_tool_is_refused_with_the_way_to_remove_it(
    cluster: Cluster, namespace: str, maker: str
) -> None:
    name, pod_labels, metadata, remedy = MADE[maker]
    cluster.create(webhook(namespace, name, pod_labels, **metadata))
    (problem,) = found(cluster, namespace)
    assert f"a control plane that {maker} made (Deployment {name}); it is not touched" in problem.what
    assert problem.where == f"namespace {namespace} of the host cluster"
    assert remedy in problem.remedy


def test_a_karmada_object_of_the_operator_is_enough(cluster: Cluster, namespace: str) -> None:
    assert found(cluster, namespace) == []
    cluster.create(CRD)
    until(lambda: cluster.resource(*other_installers.KARMADA), "serving the CRD")
    try:
        version, kind = other_installers.KARMADA
        cluster.apply({"apiVersion": version, "kind": kind, "metadata": {"name": "demo", "namespace": namespace}})
        (problem,) = found(cluster, namespace)
        assert "Karmada's operator made (Karmada demo)" in problem.what
    finally:
        cluster.delete(CRD["apiVersion"], CRD["kind"], CRD["metadata"]["name"])
