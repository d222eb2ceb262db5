# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory with the methods of ``kube.Cluster`` that the engine calls; ``log`` is what was written to it."""

from __future__ import annotations

import base64
import itertools
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied, Permission
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict, NotFound, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.transport import RETRY_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.copies import copied
from ansible_collections.karmada.installer.tests.unit.support.stub_api import is_another

Object = dict[str, Any]
Kinds = list[tuple[str, str]]  # inside FakeCluster, ``list`` is a method
_NUMBERS = itertools.count(1)


class FakeCluster:
    """``dead`` makes every call fail as an unreachable server does; ``denied`` are (verb, resource) we may not do."""

    def __init__(self, name: str, *objects: Object, server: str = "https://192.0.2.1:6443") -> None:
        self.name = name
        self.access = SimpleNamespace(
            server=server,
            proxy=None,
            tls_server_name=None,
            insecure=False,
            ca_pem=None,
            expiry=lambda: None,
            given_by="",
            insecure_by="",
        )
        self.objects: dict[tuple[str, str, str | None, str], Object] = {}
        self.log: list[str] = []
        self.dead = False
        self.denied: set[tuple[str, str]] = set()
        self.minor = "35"
        #: how far its clock is ahead of ours
        self.ahead = timedelta(0)
        self.has_routes = False
        #: versions of aggregated APIs that it has not read, until an APIService is written
        self.unread: set[str] = set()
        #: where it says that it is
        self.own_address = "192.0.2.1:6443"
        self.counts: Counter[str] = Counter()
        self.on_trouble: Any = None
        self.before_write: Any = None
        self.closed = 0
        self.retry_seconds = RETRY_SECONDS
        #: for how long each call of version() was to be tried again
        self.patience: list[float | None] = []
        for each in objects:
            self.put(each)

    def put(self, obj: Object) -> Object:
        """Store as somebody else would."""
        meta = {
            "uid": f"uid-{next(_NUMBERS)}",
            "resourceVersion": f"{next(_NUMBERS)}00",
            **copied(obj["metadata"]),
        }
        stored = {**copied(obj), "metadata": meta}
        self.objects[self._key(obj)] = stored
        return stored

    def names(self, kind: str) -> set[str]:
        return {name for _, each, _, name in self.objects if each == kind}

    @staticmethod
    def _key(obj: Object) -> tuple[str, str, str | None, str]:
        meta = obj["metadata"]
        return obj["apiVersion"], obj["kind"], meta.get("namespace"), meta["name"]

    def _alive(self) -> None:
        if self.dead:
            raise Unreachable(self.name, "GET", "/", 0, "Unreachable", "no answer")

    # -- what the engine calls -----------------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        self._alive()
        if kind == "PriorityClass" and name.startswith("system-"):  # every API server makes these for itself
            return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
        return copied(self.objects.get((api_version, kind, namespace, name)))

    def list(
        self, api_version: str, kind: str, namespace: str | None = None, *, labels: str | None = None, **_: Any
    ) -> list[Object]:
        self._alive()
        wanted = dict(pair.split("=", 1) for pair in (labels or "").split(",") if pair)
        return [
            copied(each)
            for (version, found, home, _), each in self.objects.items()
            if (version, found) == (api_version, kind)
            and namespace in (None, home)
            and wanted.items() <= (each["metadata"].get("labels") or {}).items()
        ]

    def count(self, api_version: str, kind: str) -> int:
        return len(self.list(api_version, kind))

    def some(self, api_version: str, kind: str, most: int) -> list[Object]:
        return self.list(api_version, kind)[:most]

    def with_patience(self, **_: float) -> Any:
        """The same: nothing here takes any time."""
        return self

    def listable_kinds(self, *, everywhere: bool = False) -> Kinds:
        self._alive()
        return sorted({(version, kind) for version, kind, namespace, _ in self.objects if namespace or everywhere})

    def unread_versions(self) -> set[str]:
        self._alive()
        return {*self.unread}

    def version(self, retry_seconds: float | None = None) -> Object:
        self.patience.append(retry_seconds)
        self._alive()
        return {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.4"}

    def api_versions(self) -> Object:
        self._alive()
        return {"serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": self.own_address}]}

    def clock_ahead(self, retry_seconds: float | None = None) -> timedelta:  # noqa: ARG002
        self._alive()
        return self.ahead

    def resource(self, api_version: str, kind: str) -> str | None:
        """A kind exists here when there is an object of it."""
        self._alive()
        known = (self.has_routes and kind == "Route") or any(key[:2] == (api_version, kind) for key in self.objects)
        return f"{kind.lower()}s" if known else None

    def create(self, obj: Object, **_: Any) -> Object:
        self._alive()
        assert self._key(obj) not in self.objects
        self.log.append(f"create {obj['kind']} {obj['metadata']['name']}")
        return self.put(obj)

    def replace(self, obj: Object) -> Object:
        self._alive()
        if self.objects[self._key(obj)]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise Conflict(self.name, "PUT", "/", 409, "Conflict", "somebody else has written")
        self.log.append(f"replace {obj['kind']} {obj['metadata']['name']}")
        return self.put({**obj, "metadata": {**obj["metadata"], "resourceVersion": f"{next(_NUMBERS)}00"}})

    def can_i(self, wanted: Iterable[tuple[Any, ...]], **_: Any) -> list[Permission]:
        self._alive()
        return [one for one in (Permission(*each) for each in wanted) if (one.verb, one.resource) in self.denied]

    def apply(self, obj: Object, *, dry_run: bool = False, **_: Any) -> Applied:
        self._alive()
        before = self.objects.get(self._key(obj))
        if is_another(obj, before):
            raise Conflict(self.name, "PATCH", "/", 409, "Conflict", "somebody else has written")
        meta = {
            "uid": f"uid-{next(_NUMBERS)}",
            **copied(obj["metadata"]),
            "resourceVersion": f"{next(_NUMBERS)}00",
        }
        meta["uid"] = before["metadata"]["uid"] if before else meta["uid"]
        after = {**copied(obj), "metadata": meta}
        if before and "status" in before:
            after["status"] = before["status"]
        if not dry_run:
            self.objects[self._key(obj)] = after
            self.log.append(f"apply {obj['kind']} {obj['metadata']['name']}")
        return Applied(copied(after), before is None)

    def delete(
        self, api_version: str, kind: str, name: str, namespace: str | None = None, uid: str | None = None, **_: Any
    ) -> bool:
        self._alive()
        live = self.objects.get((api_version, kind, namespace, name))
        if live is None:
            return False
        if uid not in (None, live["metadata"]["uid"]):
            raise Conflict(self.name, "DELETE", "/", 409, "Conflict", "the UID in the precondition is another one")
        del self.objects[api_version, kind, namespace, name]
        self.log.append(f"delete {kind} {name}")
        if kind == "Namespace":
            for key in [key for key in self.objects if key[2] == name]:
                del self.objects[key]
        return True

    def patch_merge(
        self, api_version: str, kind: str, name: str, namespace: str | None, patch: Object, *_: Any, **__: Any
    ) -> Object:
        self._alive()
        live = self.objects.get((api_version, kind, namespace, name))
        if live is None:
            raise NotFound(self.name, "PATCH", "/", 404, "NotFound", "not there")
        expected = patch.get("metadata", {}).get("resourceVersion")
        if expected is not None and expected != live["metadata"].get("resourceVersion"):
            raise Conflict(self.name, "PATCH", "/", 409, "Conflict", "somebody else has written")
        merge(live, patch)
        live["metadata"]["resourceVersion"] = f"{next(_NUMBERS)}00"
        if kind == "APIService":
            self.unread.clear()
        self.log.append(f"patch {kind} {name}")
        return copied(live)

    def close(self) -> None:
        self.closed += 1


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests to clusters in memory from now on, by the name of the cluster."""
    asked: Counter[str] = Counter()

    def counted(name: str) -> Any:
        request = getattr(FakeCluster, name)

        def ask(self: FakeCluster, *arguments: Any, **more: Any) -> Any:
            asked[self.name] += 1
            return request(self, *arguments, **more)

        return ask

    for name in ("get", "list", "create", "apply", "delete", "patch_merge"):
        monkeypatch.setattr(FakeCluster, name, counted(name))
    return asked


def merge(live: Object, patch: Object) -> None:
    """Do to an object what a JSON merge patch says."""
    for key, value in patch.items():
        if value is None:
            live.pop(key, None)
        elif isinstance(value, dict):
            merge(live.setdefault(key, {}), value)
        else:
            live[key] = value


def fake_run(
    deployment: Object,
    host: FakeCluster,
    *,
    stored: State | None = None,
    check: bool = False,
    operation: str = "test",
) -> Run:
    """A run whose host cluster is in memory, and whose state is stored there as a real run stores it."""
    run = Run(deployment, Connection(), operation=operation, holder="me", check=check, say=lambda _: None)
    run.place.__dict__["host_cluster"] = host
    run.__dict__["_crds"] = []
    if stored:
        owner = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": stored.owner}
        data = {key: base64.b64encode(content).decode() for key, content in to_files(stored).items()}
        metadata = {"name": f"{run.name}-installer-state", "namespace": run.namespace, "labels": owner}
        host.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    return run


def storage_class(name: str, *, default: bool = True) -> Object:
    """A StorageClass of a host cluster."""
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotations},
    }


def ingress_class(name: str, controller: str, *, default: bool = False) -> Object:
    """An IngressClass of a host cluster."""
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"controller": controller},
    }


def node(address: str) -> Object:
    """A node of a host cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": address},
        "status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": address}]},
    }
