# SPDX-License-Identifier: Apache-2.0
"""A control plane for joining: one API server that is host cluster and control plane, and a loop in Karmada's place.

The real one serves Clusters by an API server of its own, behind the first; here a CRD does it.
"""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.bootstrap import (
    MEMBER_NAMESPACE,
    owner_labels,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.watch import Watch
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, service_types, state

Object = dict[str, Any]
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "ClusterReady",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def clusters_crd() -> Object:
    """The type of Clusters, with whatever fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusters.cluster.karmada.io"},
        "spec": {
            "group": "cluster.karmada.io",
            "scope": "Cluster",
            "names": {"kind": "Cluster", "plural": "clusters", "singular": "cluster"},
            "versions": [version],
        },
    }


class ControlPlane:
    """``with ControlPlane(...)``: joins what is asked for, and sees to it that Clusters become Ready."""

    def __init__(self, kubeconfig: Path, secrets: Path, namespace: str) -> None:
        self.kubeconfig, self.secrets, self.namespace = kubeconfig, secrets, namespace
        self.cluster = Cluster.from_kubeconfig(str(kubeconfig), name="control plane")
        self.said: list[str] = []
        #: requests of the last run to the control plane, by verb
        self.requests: dict[str, int] = {}
        self._over = threading.Event()
        self._watch: Watch | None = None
        self._controllers = threading.Thread(target=self._make_ready, daemon=True)

    def __enter__(self) -> Self:
        self.secrets.mkdir(parents=True, exist_ok=True)
        self.cluster.apply(clusters_crd())
        for name in (self.namespace, MEMBER_NAMESPACE):
            self.cluster.apply(_named("Namespace", name))
        files = {key: base64.b64encode(each).decode() for key, each in to_files(state()).items()}
        metadata = {"name": "prod-installer-state", "namespace": self.namespace, "labels": owner_labels(OWNER)}
        self.cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": files})
        self._controllers.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._watch:
            self._watch.close()
        self._controllers.join()
        self.cluster.close()

    def join(self, names: Iterable[str]) -> Object:
        """What the step answers, carried out in this process."""
        entries = [{"name": name, "secretRef": {"name": name}} for name in names]
        run = Run(
            document({"members": entries}, namespace=self.namespace),
            Connection(kubeconfig=str(self.kubeconfig), secrets=str(self.secrets)),
            operation="members",
            holder=uuid.uuid4().hex,
            check=False,
            say=self.said.append,
        )
        inside = Cluster.from_kubeconfig(str(self.kubeconfig), name="control plane")
        run.__dict__["control_plane"] = inside
        run.__dict__["_crds"] = service_types()
        action: Any = ActionModule
        options = {name: each.get("default") for name, each in ActionModule.OPTIONS.items()}
        try:
            found: Object = action.perform(
                None, run, {**options, "stage": "all", "noted": False, "on_record": False, "timeout": 60}
            )
        finally:
            self.requests = dict(inside.counts)
            if not run.check:
                run.store.release_lock()
            run.close()
            inside.close()
        return found

    def registered(self) -> set[str]:
        """Names of Clusters."""
        return {each["metadata"]["name"] for each in self.cluster.list(registration.CLUSTER_API, "Cluster")}

    def _make_ready(self) -> None:
        """Lists and watches, as controllers do: what it costs while nothing happens is no part of what is measured."""
        while not self._over.wait(0.1):
            with suppress(ApiError):
                there = self.cluster.list(registration.CLUSTER_API, "Cluster")
                for each in there:
                    self._make_one_ready(each)
                version = there.resource_version
                self._watch = self.cluster.watch(registration.CLUSTER_API, "Cluster", resource_version=version)
                if self._over.is_set():
                    self._watch.close()
                for event in self._watch:
                    if event["type"] in ("ADDED", "MODIFIED"):
                        self._make_one_ready(event["object"])

    def _make_one_ready(self, cluster: Object) -> None:
        if not cluster.get("status"):
            status = {"conditions": [READY], "kubernetesVersion": "v1.35.4"}
            name = cluster["metadata"]["name"]
            self.cluster.patch_merge(registration.CLUSTER_API, "Cluster", name, None, {"status": status}, "status")


def _named(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
