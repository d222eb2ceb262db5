# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""The one client of API servers: plain dicts in and out over one pool of connections.

``kubernetes.client`` is not used: its models cost half a second to build, its dynamic client a discovery of the whole
API, and we need neither. Who we are comes from ``kubeconfig``; a server that cannot be reached from here is reached
through ``portforward``.
"""

from __future__ import annotations

import copy
import json
import random
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from ansible_collections.karmada.installer.plugins.plugin_utils import kubeconfig as kubeconfig_module
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import (
    ApiError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
    Unreachable,
    explain,
    from_status,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kubeconfig import Access
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError

__all__ = [
    "ApiError",
    "Applied",
    "Cluster",
    "Conflict",
    "Expired",
    "Forbidden",
    "Invalid",
    "Items",
    "NotFound",
    "Object",
    "Permission",
    "Unauthorized",
    "Unreachable",
    "Watch",
]

if not hasattr(urllib3, "BaseHTTPResponse"):
    # It checks the names in certificates in its own way, and not at all inside a port-forward.
    raise ImportError("urllib3 2 or newer is needed")

Object = dict[str, Any]

FIELD_MANAGER = "karmada-installer"
PAGE = 500
POOL = 32
CONNECT_SECONDS = 10.0
# Longer than the longest admission webhook (30 s), so that a slow answer is not taken for a dead connection.
READ_SECONDS = 35.0
RETRY_SECONDS = 90.0
RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
# How often a write is sent again that others keep getting in the way of; with pauses, some 15 s.
CONFLICTS = 10
WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})

# Kinds whose resource name never changes; saves one discovery request per group version. value: (resource, namespaced)
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


class Applied(NamedTuple):
    """Result of a server-side apply: the object as the server has it now, and whether it was not there before."""

    object: Object
    created: bool


class Permission(NamedTuple):
    """One thing we want to be allowed to do; ``namespace`` None means in all namespaces, or cluster-scoped."""

    verb: str
    group: str
    resource: str
    namespace: str | None = None
    subresource: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        resource = f"{resource}.{self.group}" if self.group else resource
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}{where}"


#: What only an administrator of the whole cluster may do.
EVERYTHING = Permission("*", "*", "*")
Kinds = list[tuple[str, str]]
Permissions = list[Permission]  # inside Cluster, ``list`` is a method


class Items(list[Object]):
    """The objects of a list, with the resource version from which a watch can go on."""

    resource_version: str = ""


class Watch(Iterator[Object]):
    """Events (``{"type": "ADDED"|"MODIFIED"|"DELETED"|"BOOKMARK", "object": …}``) until the server ends the watch.

    A connection that breaks ends it as well: callers go on from the last resource version they saw. Raises Expired when
    that is too old. ``close`` may be called from another thread and ends a blocked iteration.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, error: Callable[[Object], ApiError]) -> None:
        self._response, self._error = response, error
        self._socket = getattr(getattr(response, "connection", None), "sock", None)
        self._closed = False
        self._events = self._read()

    def __next__(self) -> Object:
        return next(self._events)

    def _read(self) -> Iterator[Object]:
        rest = b""
        try:
            for chunk in self._response.stream(65536, decode_content=True):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event: Object = json.loads(line)
                    if event["type"] == "ERROR":
                        raise self._error(event["object"])
                    yield event
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            # Broken, silent for too long, or closed by us (urllib3 then trips over its own closed file).
            return
        finally:
            self._response.close()
            self._response.release_conn()

    def close(self) -> None:
        """End the watch; safe from any thread, and more than once."""
        if self._closed:
            return
        self._closed = True
        if self._socket is not None:
            # The raw shutdown wakes a reader blocked in another thread; closing the file descriptor would not.
            inner = getattr(self._socket, "socket", self._socket)
            try:
                if isinstance(inner, socket.socket):
                    socket.socket.shutdown(inner, socket.SHUT_RDWR)
                else:
                    inner.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Cluster:
    """One API server. Safe to use from many threads.

    ``name`` is what people call it ("host cluster"); it starts every error message. ``retry_seconds`` is how long one
    request may be tried again while the server is away or overloaded. ``counts`` counts requests by verb.
    ``on_trouble`` hears, in a sentence, that a request is being tried again. ``before_write`` is called before each
    attempt of a write, however late, and stops it by raising.
    """

    def __init__(self, access: Access, name: str = "cluster", *, retry_seconds: float = RETRY_SECONDS) -> None:
        self.name = name
        self.access = access
        self.server = access.server
        self.retry_seconds = retry_seconds
        self._read_seconds = READ_SECONDS
        self.counts: Counter[str] = Counter()
        self.on_trouble: Callable[[str], None] | None = None
        self.before_write: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._types: dict[str, dict[str, tuple[str, bool]]] = {}
        self._watches: weakref.WeakSet[Watch] = weakref.WeakSet()
        self._base_path = urlsplit(self.server).path.rstrip("/")
        self._pool = self._make_pool()

    # -- ways to get one -------------------------------------------------------------------------------------------

    @classmethod
    def from_kubeconfig(cls, path: str | None = None, context: str | None = None, name: str = "cluster") -> Cluster:
        """From a kubeconfig file; None means KUBECONFIG, ~/.kube/config, or the pod's service account.

        Raises ProblemsError when the file does not describe an access.
        """
        return cls(kubeconfig_module.from_file(path, context), name)

    @classmethod
    def from_kubeconfig_dict(cls, config: Object, context: str | None = None, name: str = "cluster") -> Cluster:
        """From a kubeconfig held in memory. Raises ProblemsError when it does not describe an access."""
        return cls(kubeconfig_module.from_dict(config, context, f"kubeconfig of {name}"), name)

    @classmethod
    def from_parts(
        cls,
        server: str,
        ca_pem: str | None,
        cert_pem: str | None = None,
        key_pem: str | None = None,
        token: str | None = None,
        tls_server_name: str | None = None,
        name: str = "cluster",
    ) -> Cluster:
        """From address and PEM texts; ``ca_pem`` None means this machine's trust store."""
        access = kubeconfig_module.from_parts(
            server, ca_pem=ca_pem, cert_pem=cert_pem, key_pem=key_pem, token=token, tls_server_name=tls_server_name
        )
        access.prepare()
        return cls(access, name)

    @classmethod
    def through_port_forward(  # noqa: PLR0913 - an address and an identity, in parts
        cls,
        host: Cluster,
        namespace: str,
        pods: str,
        port: int,
        *,
        kubeconfig: Object | None = None,
        context: str | None = None,
        ca_pem: str | None = None,
        cert_pem: str | None = None,
        key_pem: str | None = None,
        token: str | None = None,
        tls_server_name: str | None = None,
        name: str = "cluster",
    ) -> Cluster:
        """An API server that runs in pods of ``host`` and is reached through the API of ``host``.

        ``pods`` is a label selector (each connection picks a Ready pod) or the name of one pod. Identity and trust come
        from ``kubeconfig`` or from the PEM texts. The server's certificate must be valid for ``tls_server_name``
        (default: the host of the kubeconfig's server).
        """
        from ansible_collections.karmada.installer.plugins.plugin_utils import portforward  # noqa: PLC0415 - needed by few runs

        if kubeconfig is not None:
            access = kubeconfig_module.from_dict(kubeconfig, context, f"kubeconfig of {name}")
        else:
            access = kubeconfig_module.from_parts(
                f"https://{tls_server_name or 'localhost'}:{port}",
                ca_pem=ca_pem,
                cert_pem=cert_pem,
                key_pem=key_pem,
                token=token,
            )
            access.prepare()
        access.tls_server_name = tls_server_name or access.tls_server_name
        cluster = cls(access, name)
        forwarder = portforward.Forwarder(host, namespace, pods, port)
        cluster._pool = portforward.pool(forwarder, access, POOL)
        cluster.server = f"{forwarder} through {host.name}"
        return cluster

    def with_patience(self, *, retry_seconds: float, read_seconds: float = READ_SECONDS) -> Cluster:
        """The same server over the same connections, giving up sooner or later. Only one of the two is to be closed."""
        other = copy.copy(self)
        other.retry_seconds, other._read_seconds = retry_seconds, read_seconds
        return other

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """The object, or None when it, its namespace or its resource type does not exist."""
        path = self._path(api_version, kind, namespace, name)
        if path is None:
            return None
        try:
            return self._json("get", "GET", path)
        except NotFound:
            return None

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> Items:
        """All objects of a kind, in one namespace or in all; empty when the resource type does not exist.

        ``labels`` and ``fields`` are selectors. Pages are fetched until the end. Each object has apiVersion and kind.
        """
        path = self._path(api_version, kind, namespace)
        if path is None:
            return Items()
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": None}
        items = Items()
        while True:
            try:
                page = self._json("list", "GET", path, query)
            except NotFound:
                return Items()
            except Expired:
                if query["limit"] is None:
                    raise
                # The continuation is too old, which a slow reader of a busy cluster sees: all in one piece, then.
                items, query = Items(), {**query, "limit": None, "continue": None}
                continue
            for item in page.get("items") or []:
                items.append({**item, "apiVersion": api_version, "kind": kind})
            meta = page.get("metadata") or {}
            items.resource_version = meta.get("resourceVersion", "")
            query["continue"] = meta.get("continue")
            if not query["continue"]:
                return items

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: str | None = None,
        resource_version: str = "",
        timeout_seconds: int = 60,
        fields: str | None = None,
    ) -> Watch:
        """Watch from ``resource_version`` for at most ``timeout_seconds``, including bookmarks.

        The connection is given up when it is silent for 10 s longer than that: a half-open one never hangs. Raises
        Expired (here or while iterating) when the version is too old, NotFound when the resource type is unknown.
        """
        path = self._path(api_version, kind, namespace)
        if path is None:
            raise self._no_such_type("WATCH", api_version, kind)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_seconds),
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
        }
        response = self._request("watch", "GET", path, query, stream=True, read_seconds=timeout_seconds + 10.0)
        watch = Watch(response, lambda status: self._status_error("WATCH", path, status.get("code", 500), status))
        with self._lock:
            self._watches.add(watch)
        return watch

    def get_raw(self, path: str, *, retry_seconds: float | None = None) -> str:
        """The body of any path, such as ``/readyz``; ``retry_seconds=0`` asks exactly once."""
        return self._request("raw", "GET", path, retry_seconds=retry_seconds).data.decode("utf-8", "replace")

    def version(self, *, retry_seconds: float | None = None) -> Object:
        """The server's version document (``gitVersion`` and others)."""
        found: Object = json.loads(self.get_raw("/version", retry_seconds=retry_seconds))
        return found

    def clock_ahead(self, *, retry_seconds: float | None = None) -> timedelta:
        """How far the server's clock is ahead of ours (behind: negative), by the Date of an answer; zero if unknown.

        What can be explained by the time that the answer took counts as no difference.
        """
        before = datetime.now(UTC)
        answer = self._request("version", "GET", "/version", retry_seconds=retry_seconds)
        after = datetime.now(UTC)
        try:
            theirs = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return timedelta(0)
        # It is cut off at the second.
        if theirs > after:
            return theirs - after
        return min(theirs + timedelta(seconds=1) - before, timedelta(0))

    def logs(
        self, pod: str, namespace: str, container: str | None = None, tail: int = 10, *, previous: bool = False
    ) -> str:
        """The last ``tail`` lines a container wrote; ``previous`` means the run before the last restart."""
        query = {"container": container, "tailLines": str(tail), "previous": "true" if previous else None}
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        return self._request("logs", "GET", path, query).data.decode("utf-8", "replace")

    def can_i(self, wanted: Iterable[tuple[Any, ...]]) -> Permissions:
        """Of these (verb, group, resource, namespace, subresource, name) the ones we are not allowed to do."""

        def allowed(permission: Permission) -> bool:
            attributes = {key: value for key, value in permission._asdict().items() if value}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            answer = self._json("review", "POST", path, body=review)
            return bool((answer.get("status") or {}).get("allowed"))

        permissions = [Permission(*one) for one in wanted]
        # Most people come as administrators, of whom one question tells what would be one for each permission.
        if len(permissions) > 1 and allowed(EVERYTHING):
            return []
        with ThreadPoolExecutor(16) as pool:
            return [one for one, yes in zip(permissions, pool.map(allowed, permissions), strict=True) if not yes]

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(
        self, obj: Object, *, dry_run: bool = False, force: bool = True, field_manager: str = FIELD_MANAGER
    ) -> Applied:
        """Server-side apply. ``force`` takes fields from other managers; without it that is a Conflict.

        With ``force``, and without a resourceVersion in it, the same apply is right whatever others write at that
        moment: it is sent again when they got in between. Fields of others are never part of it, so none is lost.
        Fields the server does not know are Invalid. NotFound when the namespace or the resource type does not exist.
        """
        path = self._path_of(obj, wait=not dry_run)
        query = {
            "fieldManager": field_manager,
            "force": "true" if force else None,
            "fieldValidation": "Strict",
            "dryRun": "All" if dry_run else None,
        }
        verb = "dry-run" if dry_run else "apply"
        response = self._request(
            verb,
            "PATCH",
            path,
            query,
            obj,
            content_type="application/apply-patch+yaml",
            outlive_conflicts=force and not {"resourceVersion", "uid"} & obj["metadata"].keys(),
        )
        return Applied(json.loads(response.data), response.status == 201)

    def create(self, obj: Object, subresource: str | None = None, *, dry_run: bool = False) -> Object:
        """Create the object, or POST it to a subresource of the object of that name.

        Tried again like everything else, so a Conflict may mean that an earlier attempt of this very call succeeded.
        """
        path = self._path_of(obj, subresource, named=subresource is not None)
        return self._json("create", "POST", path, {"dryRun": "All" if dry_run else None}, obj)

    def replace(self, obj: Object, subresource: str | None = None, *, dry_run: bool = False) -> Object:
        """Write the whole object; Conflict when it has a resourceVersion that is not the current one."""
        path = self._path_of(obj, subresource)
        return self._json("replace", "PUT", path, {"dryRun": "All" if dry_run else None}, obj)

    def patch_merge(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None,
        patch: Object,
        subresource: str | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """JSON merge patch (null removes a field). NotFound when the object does not exist."""
        path = self._path(api_version, kind, namespace, name, subresource)
        if path is None:
            raise self._no_such_type("PATCH", api_version, kind)
        query = {"dryRun": "All" if dry_run else None, "fieldManager": FIELD_MANAGER}
        response = self._request(
            "patch",
            "PATCH",
            path,
            query,
            patch,
            content_type="application/merge-patch+json",
            outlive_conflicts="resourceVersion" not in patch.get("metadata", {}),
        )
        found: Object = json.loads(response.data)
        return found

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Ask for deletion; False when there was nothing to delete. Does not wait for finalizers.

        With ``uid`` a Conflict is raised when another object has the name by now. Other conflicts (somebody wrote at
        that moment, a namespace that is going already) are not ours to lose against.
        """
        path = self._path(api_version, kind, namespace, name)
        if path is None:
            return False
        options = delete_options(uid, propagation, grace_seconds, dry_run=dry_run)
        for attempt in range(CONFLICTS):
            try:
                self._send_delete(api_version, kind, path, options)
            except NotFound:
                return False
            except Conflict:
                live = self.get(api_version, kind, name, namespace)
                if live is None or live["metadata"].get("deletionTimestamp"):
                    return True
                if (uid and live["metadata"]["uid"] != uid) or attempt == CONFLICTS - 1:
                    raise
                time.sleep(_pause(attempt + 1, None))
            else:
                break
        return True

    def _send_delete(self, api_version: str, kind: str, path: str, options: Object) -> None:  # noqa: ARG002 - for others
        """One deletion, sent. Raises NotFound and Conflict."""
        self._request("dry-run" if "dryRun" in options else "delete", "DELETE", path, body=options)

    # -- life ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End watches and close all connections."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.close()
        self._pool.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self.name} at {self.server}>"

    def dial(self, timeout: float) -> Any:
        """A new connection to the API server itself, with TLS done; the caller owns and closes the socket."""
        connection: Any = self._pool._new_conn()
        connection.timeout = timeout
        try:
            if getattr(self._pool, "proxy", None):
                self._pool._prepare_proxy(connection)
            else:
                connection.connect()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            connection.close()
            raise ConnectionError(f"{self.name}: {explain(error, self.server)[0]}") from None
        return connection.sock

    # -- requests --------------------------------------------------------------------------------------------------

    def _make_pool(self) -> Any:
        parts = urlsplit(self.server)
        options: dict[str, Any] = {
            "maxsize": POOL,
            "block": False,
            "socket_options": [
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            ],
        }
        if parts.scheme == "https":
            options |= {"ssl_context": self.access.context, "server_hostname": self.access.tls_server_name}
            if self.access.context.verify_mode is ssl.CERT_NONE:
                options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
        proxy = self.access.proxy or _proxy_of_environment(parts.scheme, parts.hostname or "")
        if not proxy:
            kind = urllib3.HTTPSConnectionPool if parts.scheme == "https" else urllib3.HTTPConnectionPool
            return kind(parts.hostname or "", parts.port, **options)
        if proxy.startswith("socks"):
            try:
                from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415
            except ImportError:
                raise ProblemsError(
                    Problem(f"{self.name} is behind a SOCKS proxy", proxy, "Install the Python package PySocks.")
                ) from None
            return SOCKSProxyManager(proxy, **options).connection_from_url(self.server)
        return urllib3.ProxyManager(proxy, **options).connection_from_url(self.server)

    def _json(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        found: Object = json.loads(self._request(verb, method, path, query, body, content_type=content_type).data)
        return found

    def _request(  # noqa: PLR0913
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        outlive_conflicts: bool = False,
        stream: bool = False,
        read_seconds: float | None = None,
        retry_seconds: float | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send until there is an answer that trying again would not change, or the time for trying is over."""
        chosen = {key: value for key, value in (query or {}).items() if value}
        url = self._base_path + path + (f"?{urlencode(chosen)}" if chosen else "")
        data = None if body is None else json.dumps(body).encode()
        patience = self.retry_seconds if retry_seconds is None else retry_seconds
        started = time.monotonic()
        limits = urllib3.Timeout(
            connect=min(CONNECT_SECONDS, self._read_seconds), read=read_seconds or self._read_seconds
        )
        attempt, renewed = 0, False
        while True:
            attempt += 1
            if self.before_write and verb in WRITES:
                self.before_write()
            self._count(verb if attempt == 1 else "retry")
            headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER, **self.access.headers()}
            if data is not None:
                headers["Content-Type"] = content_type
            after: float | None = None
            trouble: ApiError
            try:
                response: urllib3.BaseHTTPResponse = self._pool.urlopen(
                    method,
                    url,
                    body=data,
                    headers=headers,
                    retries=False,
                    redirect=False,
                    timeout=limits,
                    preload_content=not stream,
                )
            except (urllib3.exceptions.HTTPError, OSError) as error:
                message, passing = explain(error, self.server)
                trouble = Unreachable(self.name, method, path, 0, "Unreachable", message)
                if not passing:
                    raise trouble from None
            else:
                if response.status < 300:
                    return response
                trouble = self._error_of(response, method, path)
                if response.status == 401 and not renewed and self.access.refresh():
                    renewed = True
                    continue
                crossed = outlive_conflicts and response.status == 409 and attempt < CONFLICTS
                if not crossed and (response.status not in RETRIED_STATUS or isinstance(trouble, Invalid)):
                    raise trouble
                after = _retry_after(response)
            self._wait_after(trouble, attempt, after, started, patience)

    def _wait_after(
        self, trouble: ApiError, attempt: int, after: float | None, started: float, patience: float
    ) -> None:
        """Pause before the next attempt. Raises the trouble when ``patience`` seconds since ``started`` do not last."""
        pause = _pause(attempt, after)
        tried = time.monotonic() - started
        if tried + pause > patience:
            if attempt > 1:
                trouble.message += f"; tried {attempt} times in {tried:.0f} s"
            raise trouble from None
        if self.on_trouble and attempt > 3:
            self.on_trouble(f"{self.name}: {trouble.message}; trying for another {patience - tried:.0f} s")
        time.sleep(pause)

    def _count(self, verb: str) -> None:
        with self._lock:
            self.counts[verb] += 1

    def _error_of(self, response: urllib3.BaseHTTPResponse, method: str, path: str) -> ApiError:
        try:
            text = response.data.decode("utf-8", "replace")
        except (urllib3.exceptions.HTTPError, OSError):
            text = ""
        try:
            status = json.loads(text)
        except ValueError:
            status = None
        finally:
            response.release_conn()
        if not isinstance(status, dict):
            status = {"message": " ".join(text.split())[:300]}
        return self._status_error(method, path, response.status, status)

    def _status_error(self, method: str, path: str, code: int, status: Object) -> ApiError:
        return from_status(self.name, self.server, method, path, code, status)

    # -- resource types --------------------------------------------------------------------------------------------

    def _path_of(self, obj: Object, subresource: str | None = None, *, named: bool = True, wait: bool = False) -> str:
        api_version, kind, meta = obj["apiVersion"], obj["kind"], obj["metadata"]
        name = meta["name"] if named else None
        path = self._path(api_version, kind, meta.get("namespace"), name, subresource)
        # A CRD is established a moment before its resource is served.
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

    def resource(self, api_version: str, kind: str) -> str | None:
        """The resource name of a kind ("deployments"), or None when the server does not have it."""
        found = self._resource(api_version, kind)
        return found[0] if found else None

    def listable_kinds(self) -> Kinds:
        """(apiVersion, kind) of all that lives in namespaces and can be listed, each group in its preferred version."""
        groups = self._json("discovery", "GET", "/apis").get("groups") or []
        roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda root: self._json("discovery", "GET", root), roots))
        return [
            (str(each["groupVersion"]), str(one["kind"]))
            for each in found
            for one in each.get("resources") or []
            if one.get("namespaced") and "/" not in one["name"] and "list" in (one.get("verbs") or [])
        ]

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        known = KNOWN.get((api_version, kind)) or self._types.get(api_version, {}).get(kind)
        if known:
            return known
        # Asked again each time it is missing: its CRD may have been created since.
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


def delete_options(uid: str | None, propagation: str, grace_seconds: int | None, *, dry_run: bool) -> Object:
    """The body of a deletion; with ``uid`` it fails when another object has the name."""
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def _proxy_of_environment(scheme: str, host: str) -> str | None:
    if urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(scheme)


def _pause(attempt: int, after: float | None) -> float:
    """Seconds until the next attempt: longer each time up to 5, not before the server asks for it, not all at once."""
    own = min(5.0, 0.1 * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing
    return max(own, (after or 0.0) * random.uniform(1, 1.2))  # noqa: S311


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    try:
        return min(30.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None
