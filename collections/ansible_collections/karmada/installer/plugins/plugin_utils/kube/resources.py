# SPDX-License-Identifier: Apache-2.0
"""The resource types of an API server, and the paths of objects that follow from them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from ..api_object import Object
from .errors import NotFound
from .kubeconfig import Access
from .limits import AT_ONCE
from .transport import DISCOVERY, RETRY_SECONDS, Transport

# Kinds whose resource name never changes; saves a discovery request for each group version. (resource, namespaced)
KNOWN: dict[tuple[str, str], tuple[str, bool]] = {
    ("v1", "ConfigMap"): ("configmaps", True),
    ("v1", "Endpoints"): ("endpoints", True),
    ("v1", "Event"): ("events", True),
    ("v1", "Namespace"): ("namespaces", False),
    ("v1", "LimitRange"): ("limitranges", True),
    ("v1", "Node"): ("nodes", False),
    ("v1", "PersistentVolume"): ("persistentvolumes", False),
    ("v1", "PersistentVolumeClaim"): ("persistentvolumeclaims", True),
    ("v1", "Pod"): ("pods", True),
    ("v1", "ResourceQuota"): ("resourcequotas", True),
    ("v1", "Secret"): ("secrets", True),
    ("v1", "Service"): ("services", True),
    ("v1", "ServiceAccount"): ("serviceaccounts", True),
    ("apps/v1", "DaemonSet"): ("daemonsets", True),
    ("apps/v1", "Deployment"): ("deployments", True),
    ("apps/v1", "ReplicaSet"): ("replicasets", True),
    ("apps/v1", "StatefulSet"): ("statefulsets", True),
    ("batch/v1", "CronJob"): ("cronjobs", True),
    ("batch/v1", "Job"): ("jobs", True),
    ("coordination.k8s.io/v1", "Lease"): ("leases", True),
    ("policy/v1", "PodDisruptionBudget"): ("poddisruptionbudgets", True),
    ("networking.k8s.io/v1", "Ingress"): ("ingresses", True),
    ("networking.k8s.io/v1", "IngressClass"): ("ingressclasses", False),
    ("networking.k8s.io/v1", "NetworkPolicy"): ("networkpolicies", True),
    ("storage.k8s.io/v1", "StorageClass"): ("storageclasses", False),
    ("rbac.authorization.k8s.io/v1", "Role"): ("roles", True),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): ("rolebindings", True),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): ("clusterroles", False),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): ("clusterrolebindings", False),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): ("customresourcedefinitions", False),
    ("apiregistration.k8s.io/v1", "APIService"): ("apiservices", False),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): ("mutatingwebhookconfigurations", False),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): ("validatingwebhookconfigurations", False),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): ("selfsubjectaccessreviews", False),
}


class ApiResources(Transport):
    """API server with discovery of its resource types."""

    def __init__(
        self, access: Access, name: str = "cluster", *, retry_seconds: float = RETRY_SECONDS, pool: Any = None
    ) -> None:
        super().__init__(access, name, retry_seconds=retry_seconds, pool=pool)
        self._types: dict[str, dict[str, tuple[str, bool]]] = {}

    def resource(self, api_version: str, kind: str) -> str | None:
        """Resource name of a kind ("deployments"), or None when the server does not serve it."""
        found = self._resource(api_version, kind)
        return found[0] if found else None

    def api_versions(self) -> Object:
        """APIVersions document of the core group: ``versions``, and the server's own addresses."""
        return self._json("discovery", "GET", "/api")

    def listable_kinds(self, *, everywhere: bool = False) -> list[tuple[str, str]]:
        """(apiVersion, kind) of all namespaced kinds that can be listed, in each group's preferred version.

        ``everywhere``: also of those that are in no namespace.
        """
        groups = self._json("discovery", "GET", "/apis").get("groups") or []
        roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]

        def types(root: str) -> Object:
            try:
                return self._json("discovery", "GET", root)
            except NotFound:
                return {}  # the last CRD of this group has been deleted since the groups were listed

        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(types, roots))
        return [
            (str(each["groupVersion"]), str(one["kind"]))
            for each in found
            for one in each.get("resources") or []
            if (everywhere or one.get("namespaced")) and "/" not in one["name"] and "list" in (one.get("verbs") or [])
        ]

    def unread_versions(self) -> set[str]:
        """Versions of API groups ("cluster.karmada.io/v1alpha1") whose resources the server has not read.

        It reads those of an aggregated API when it starts, when the APIService changes, and once a minute, whether they
        are served or not. Until it has, clients that look for the resource of a kind find none.
        Source: discoveryManager in pkg/apiserver/handler_discovery.go of kube-aggregator.
        """
        answer = self._request("discovery", "GET", "/apis", accept=DISCOVERY)
        return {
            f"{group['metadata']['name']}/{version['version']}"
            for group in self._content(answer.data, "GET", "/apis").get("items") or []
            for version in group.get("versions") or []
            if version.get("freshness") == "Stale"
        }

    def resources_of(self, group: str) -> dict[str, set[str]]:
        """Resources of an API group in all of its versions: resource name → its kind, singular and short names."""
        try:
            versions = self._json("discovery", "GET", f"/apis/{group}")["versions"] if group else []
        except NotFound:
            return {}
        found: dict[str, set[str]] = {}
        for root in [f"/apis/{each['groupVersion']}" for each in versions] or ["/api/v1"]:
            for one in self._json("discovery", "GET", root).get("resources") or []:
                if "/" not in one["name"]:
                    others = {one["kind"].lower(), one.get("singularName"), *(one.get("shortNames") or ())}
                    found.setdefault(one["name"], set()).update(others - {"", None, one["name"]})
        return found

    def _path_of(self, obj: Object, subresource: str | None = None, *, named: bool = True, wait: bool = False) -> str:
        api_version, kind, meta = obj["apiVersion"], obj["kind"], obj["metadata"]
        name = meta["name"] if named else None
        path = self._path(api_version, kind, meta.get("namespace"), name, subresource)
        # A CRD is Established a moment before its resource is served.
        for _ in range(6 if wait else 0):
            if path is not None:
                break
            time.sleep(0.5)
            path = self._path(api_version, kind, meta.get("namespace"), name, subresource)
        if path is None:
            raise self._no_such_type("APPLY", api_version, kind)
        return path

    def _path(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str | None:
        found = self._resource(api_version, kind)
        if found is None:
            return None
        resource, namespaced = found
        path = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        if namespaced and namespace:
            path += f"/namespaces/{quote(namespace)}"
        elif namespaced and name:
            raise ValueError(f"{kind} {name} needs a namespace")
        path += f"/{resource}"
        if name:
            path += f"/{quote(name)}"
        return f"{path}/{subresource}" if subresource else path

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        known = KNOWN.get((api_version, kind)) or self._types.get(api_version, {}).get(kind)
        if known:
            return known
        # Discovered again while it is missing: its CRD may have been created since.
        root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        try:
            found = self._json("discovery", "GET", root)
        except NotFound:
            return None
        types = {
            one["kind"]: (one["name"], bool(one["namespaced"]))
            for one in found.get("resources") or []
            if "/" not in one["name"]
        }
        with self._lock:
            self._types[api_version] = types
        return types.get(kind)

    def _no_such_type(self, method: str, api_version: str, kind: str) -> NotFound:
        message = f"the server does not have the resource type {kind} in {api_version}"
        return NotFound(self.name, method, api_version, 404, "NotFound", message)
