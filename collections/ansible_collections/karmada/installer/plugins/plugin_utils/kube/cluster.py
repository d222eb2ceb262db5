# SPDX-License-Identifier: Apache-2.0
"""Client of one API server, with plain dicts as objects."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from ..api_object import Object
from ..labels import FIELD_MANAGER
from . import kubeconfig as kubeconfig_module
from .errors import ApiError, Conflict, Expired, NotFound, TooMuch, too_much
from .kubeconfig import Access
from .limits import AT_ONCE
from .pages import Pages
from .resources import ApiResources
from .stream import Lines
from .transport import CONFLICTS, JSON, METADATA, METADATA_LIST, METADATA_ONLY, RETRY_SECONDS, TABLE, pause
from .watch import Watch

PAGE = 500


class Applied(NamedTuple):
    """Result of a server-side apply: the object as stored, and whether the apply created it."""

    object: Object
    created: bool


class Permission(NamedTuple):
    """One action to be authorized; ``namespace`` None means all namespaces, or a cluster-scoped resource."""

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


#: Permission that only an administrator of the whole cluster has.
EVERYTHING = Permission("*", "*", "*")
# inside Cluster, ``list`` is a method
Permissions = list[Permission]
Rows = list[dict[str, Any]]


class Items(list[Object]):
    """Objects of a list, with the resource version from which a watch continues."""

    resource_version: str = ""


class Cluster(ApiResources):
    """Client of one API server, for the whole collection. Thread-safe."""

    def __init__(
        self, access: Access, name: str = "cluster", *, retry_seconds: float = RETRY_SECONDS, pool: Any = None
    ) -> None:
        super().__init__(access, name, retry_seconds=retry_seconds, pool=pool)
        self._streams: weakref.WeakSet[Watch | Lines] = weakref.WeakSet()

    def close(self) -> None:
        """End watches and logs that are followed, and close all connections."""
        with self._lock:
            streams = list(self._streams)
        for each in streams:
            each.close()
        super().close()

    # -- ways to get one -------------------------------------------------------------------------------------------

    @classmethod
    def from_kubeconfig(cls, path: str | None = None, context: str | None = None, name: str = "cluster") -> Cluster:
        """Client from a kubeconfig file; None means what the environment names (``kubeconfig.from_environment``).

        Raises ProblemsError when the file does not describe an access.
        """
        return cls(kubeconfig_module.from_file(path, context), name)

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

    def metadata(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Metadata of an object, without its content; None when it or its resource type does not exist."""
        path = self._path(api_version, kind, namespace, name)
        if path is None:
            return None
        try:
            found = self._request("get", "GET", path, accept=METADATA)
        except NotFound:
            return None
        metadata: Object = self._content(found.data, "GET", path)["metadata"]
        return metadata

    def list(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        *,
        metadata_only: bool = False,
        kept: Callable[[Object], Object] | None = None,
    ) -> Items:
        """All objects of a kind, in one namespace or in all; empty when the resource type does not exist.

        ``labels`` and ``fields`` are selectors. Pages are fetched until the end. Each object has apiVersion and kind.
        With ``metadata_only`` the server sends no spec, data or status. ``kept`` makes of each object what is listed in
        its stead, page by page, so that a long list never is in memory as a whole.
        """
        if self.resource(api_version, kind) is None:
            return Items()
        form = METADATA_LIST if metadata_only else JSON
        return self._list(api_version, kind, namespace, labels, fields, form=form, kept=kept)

    def table(self, api_version: str, kind: str) -> Rows:
        """Rows of what kubectl would show of a kind, by the names of its columns; empty if there is no such kind.

        Objects are not sent: a Cluster lists all kinds that it serves, and has some 50 KiB.
        """
        path = self._path(api_version, kind, None)
        if path is None:
            return []
        answer = self._request("list", "GET", path, {"includeObject": "None"}, accept=TABLE)
        found = self._content(answer.data, "GET", path)
        names = [str(each["name"]) for each in found["columnDefinitions"]]
        return [dict(zip(names, each["cells"], strict=True)) for each in found.get("rows") or ()]

    def count(self, api_version: str, kind: str) -> int:
        """Number of objects of a kind in all namespaces, by one request that fetches one of them."""
        page = self._first(api_version, kind, 1)
        return len(page.get("items") or []) + int((page.get("metadata") or {}).get("remainingItemCount") or 0)

    def count_read(self, api_version: str, kind: str) -> int:
        """Number of objects of a kind in all namespaces, each of which the server has read. Raises ApiError if not."""
        path = self._path(api_version, kind, None) if self.resource(api_version, kind) else None
        if path is None:
            return 0
        query, found, pages = {"limit": str(PAGE), "continue": ""}, 0, Pages(self.limits)
        while True:
            answer = self._request("list", "GET", path, query, accept=METADATA_LIST)
            page = self._content(answer.data, "GET", path)
            found += len(page.get("items") or [])
            query["continue"] = str((page.get("metadata") or {}).get("continue") or "")
            if not query["continue"]:
                return found
            if wrong := pages.wrong(query["continue"], found, len(answer.data)):
                raise too_much(self.name, self.server, "GET", path, wrong)

    def some(self, api_version: str, kind: str, most: int) -> Items:
        """Objects of a kind in all namespaces, the first ``most`` of them, by one request."""
        return Items(
            {**each, "apiVersion": api_version, "kind": kind}
            for each in self._first(api_version, kind, most).get("items") or []
        )

    def _first(self, api_version: str, kind: str, most: int) -> Object:
        """Answer with the first page of a list; empty when the resource type does not exist."""
        path = self._path(api_version, kind, None) if self.resource(api_version, kind) else None
        if path is None:
            return {}
        return self._content(self._request("list", "GET", path, {"limit": str(most)}).data, "GET", path)

    def _list(
        self,
        api_version: str,
        kind: str,
        *scope: str | None,
        form: str = JSON,
        kept: Callable[[Object], Object] | None = None,
    ) -> Items:
        """List a resource type that exists. ``scope``: namespace, labels, fields; ``form``: media type to ask for."""
        namespace, labels, fields = scope
        path = self._path(api_version, kind, namespace)
        if path is None:
            return Items()
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": None}
        items, pages = Items(), Pages(self.limits)
        while True:
            try:
                answer = self._request("list", "GET", path, query, accept=form)
                page = self._content(answer.data, "GET", path)
            except NotFound:
                return Items()
            except TooMuch:
                # A page of many large objects may exceed the limit; smaller pages may fit.
                fewer = int(query["limit"] or 0) // 10
                if not fewer:
                    raise
                query["limit"] = str(fewer)
                continue
            except Expired:
                if query["limit"] is None:
                    raise
                # The continue token has expired (a slow reader of a busy cluster): list everything in one piece.
                items, pages = Items(), Pages(self.limits)
                query = {**query, "limit": None, "continue": None}
                continue
            for item in page.get("items") or []:
                found = {**item, "apiVersion": api_version, "kind": kind}
                items.append(kept(found) if kept else found)
            meta = page.get("metadata") or {}
            items.resource_version = meta.get("resourceVersion", "")
            query["continue"] = meta.get("continue")
            if not query["continue"]:
                return items
            if wrong := pages.wrong(query["continue"], len(items), len(answer.data)):
                raise too_much(self.name, self.server, "GET", path, wrong)

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        labels: str | None = None,
        resource_version: str = "",
        timeout_seconds: int = 60,
        fields: str | None = None,
        *,
        metadata_only: bool = False,
    ) -> Watch:
        """Watch from ``resource_version`` for at most ``timeout_seconds``, including bookmarks.

        With ``metadata_only``, objects of events come without spec, data and status, and with another kind.

        The connection is closed 10 s after that, silent or not, so a half-open one never hangs. Raises Expired (here or
        while iterating) when the version is too old, NotFound when the resource type is unknown.
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
        form = METADATA_ONLY if metadata_only else JSON
        response = self._stream("watch", path, query, timeout_seconds + 10.0, accept=form)

        def error(status: Object) -> ApiError:
            return self._status_error("WATCH", path, status.get("code", 500), status)

        watch = Watch(response, error, self.limits.answer_bytes)
        with self._lock:
            self._streams.add(watch)
        return watch

    def get_raw(self, path: str, *, retry_seconds: float | None = None) -> str:
        """The body of any path, such as ``/readyz``; ``retry_seconds=0`` asks exactly once."""
        return self._request("raw", "GET", path, retry_seconds=retry_seconds).data.decode("utf-8", "replace")

    def version(self, *, retry_seconds: float | None = None) -> Object:
        """The server's version document (``gitVersion`` and others)."""
        return self._content(self.get_raw("/version", retry_seconds=retry_seconds), "GET", "/version")

    def clock_ahead(self, *, retry_seconds: float | None = None) -> timedelta:
        """Offset of the server's clock from ours (negative: behind), by the Date of an answer; zero if unknown.

        An offset that the duration of the request can explain counts as zero.
        """
        before = datetime.now(UTC)
        answer = self._request("version", "GET", "/version", retry_seconds=retry_seconds)
        after = datetime.now(UTC)
        try:
            theirs = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return timedelta(0)
        # The header is truncated to whole seconds.
        if theirs > after:
            return theirs - after
        return min(theirs + timedelta(seconds=1) - before, timedelta(0))

    def logs(
        self,
        pod: str,
        namespace: str,
        container: str | None = None,
        tail: int = 10,
        *,
        previous: bool = False,
        since_seconds: int | None = None,
    ) -> str:
        """Last ``tail`` lines of a container's log; ``previous`` means the run before the last restart."""
        query = {
            "container": container,
            "tailLines": str(tail),
            "previous": "true" if previous else None,
            "sinceSeconds": str(since_seconds) if since_seconds else None,
        }
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        return self._request("logs", "GET", path, query).data.decode("utf-8", "replace")

    def follow_log(
        self, pod: str, namespace: str, container: str | None = None, tail: int | None = None, seconds: float = 600.0
    ) -> Lines:
        """Lines of a container's log as they come, the last ``tail`` of those there first, for at most ``seconds``.

        Ends when the container has ended; callers look whether it has.
        """
        query = {
            "container": container,
            "follow": "true",
            "tailLines": None if tail is None else str(tail),
        }
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/log"
        found = Lines(self._stream("logs", path, query, seconds), self.limits.answer_bytes)
        with self._lock:
            self._streams.add(found)
        return found

    def can_i(self, wanted: Iterable[tuple[Any, ...]], *, workers: int = AT_ONCE) -> Permissions:
        """Permissions that we lack, of these (verb, group, resource, namespace, subresource, name).

        ``workers`` is the number of concurrent requests, each over a connection of its own.
        """

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
        # Most users are administrators: one review then answers for all permissions.
        if len(permissions) > 1 and allowed(EVERYTHING):
            return []
        with ThreadPoolExecutor(workers) as pool:
            return [one for one, yes in zip(permissions, pool.map(allowed, permissions), strict=True) if not yes]

    # -- writing ---------------------------------------------------------------------------------------------------

    def apply(
        self, obj: Object, *, dry_run: bool = False, force: bool = True, field_manager: str = FIELD_MANAGER
    ) -> Applied:
        """Server-side apply. ``force`` takes fields from other managers; without it that is a Conflict.

        A forced apply without a resourceVersion is right whatever others write at that moment, so it is retried after a
        conflict. It never contains fields of others, so none are lost. Fields that the server does not know are
        Invalid. Raises NotFound when the namespace or the resource type does not exist.
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
        return Applied(self._content(response.data, "PATCH", path), response.status == 201)

    def apply_status(self, obj: Object, *, field_manager: str) -> Object:
        """Server-side apply of the status of an object that is there; fields of other managers are taken.

        With a ``uid`` in its metadata, raises Conflict or Invalid when another object has the name by now. Raises
        NotFound when there is none, Invalid for fields that the server does not know.
        """
        path = self._path_of(obj, "status")
        query = {"fieldManager": field_manager, "force": "true", "fieldValidation": "Strict"}
        content_type = "application/apply-patch+yaml"
        response = self._request("apply", "PATCH", path, query, obj, content_type=content_type)
        return self._content(response.data, "PATCH", path)

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create the object.

        Retried like every request, so a Conflict may mean that an earlier attempt of this call succeeded.
        """
        path = self._path_of(obj, named=False)
        return self._json("create", "POST", path, {"dryRun": "All" if dry_run else None}, obj)

    def replace(self, obj: Object, subresource: str | None = None) -> Object:
        """Write the whole object. Raises Conflict when its resourceVersion is not the current one."""
        return self._json("replace", "PUT", self._path_of(obj, subresource), body=obj)

    def patch_merge(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None,
        patch: Object,
        subresource: str | None = None,
    ) -> Object:
        """Apply a JSON merge patch (null removes a field). Raises NotFound when the object does not exist."""
        path = self._path(api_version, kind, namespace, name, subresource)
        if path is None:
            raise self._no_such_type("PATCH", api_version, kind)
        response = self._request(
            "patch",
            "PATCH",
            path,
            {"fieldManager": FIELD_MANAGER},
            patch,
            content_type="application/merge-patch+json",
            outlive_conflicts="resourceVersion" not in patch.get("metadata", {}),
        )
        return self._content(response.data, "PATCH", path)

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        uid: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
    ) -> bool:
        """Request deletion; returns False when the object does not exist. Does not wait for finalizers.

        With ``uid``, raises Conflict when another object has the name by now. Other conflicts (a concurrent write) are
        retried, unless the object is being deleted already.
        """
        path = self._path(api_version, kind, namespace, name)
        if path is None:
            return False
        options = delete_options(uid, propagation, grace_seconds)
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
                time.sleep(pause(attempt + 1, None))
            else:
                break
        return True

    def _send_delete(self, api_version: str, kind: str, path: str, options: Object) -> None:  # noqa: ARG002 - for others
        """Send one deletion. Raises NotFound and Conflict."""
        self._request("delete", "DELETE", path, body=options)


def delete_options(uid: str | None, propagation: str, grace_seconds: int | None) -> Object:
    """DeleteOptions of a deletion; with ``uid`` it fails when another object has the name."""
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options
