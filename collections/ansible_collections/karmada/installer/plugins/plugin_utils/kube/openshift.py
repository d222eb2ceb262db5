# SPDX-License-Identifier: Apache-2.0
"""OpenShift objects through the openshift package's dynamic client, which discovers how they are served.

Its requests use our transport, so address, identity and retries are decided in one place and no key is written to a
file. Its discovery cache lives in a private directory while it discovers, and not, as by default, in a file with a
predictable name in the system's temporary directory.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..api_object import Object
from ..libraries import missing_library
from .cluster import Applied
from .errors import Forbidden, NotFound

try:
    from kubernetes.client.exceptions import ApiException
    from kubernetes.dynamic.exceptions import ResourceNotFoundError
    from openshift.dynamic import DynamicClient
    from openshift.dynamic.client import meta_request
except ImportError as error:
    lacking = "kubernetes" if (error.name or "").startswith("kubernetes") else "openshift"
    raise missing_library(lacking, "endpoints of type Route") from None

#: Seconds by which the list of all types may lag behind a newly served type.
DISCOVERY_SECONDS = 10
#: ``Cluster._request``.
Send = Callable[..., Any]
#: Parameter of the dynamic client → that of the API.
_QUERY = {
    "label_selector": "labelSelector",
    "field_selector": "fieldSelector",
    "field_manager": "fieldManager",
    "field_validation": "fieldValidation",
    "dry_run": "dryRun",
    "force_conflicts": "force",
}


# The package has no types.
class OpenShiftClient(DynamicClient):  # type: ignore[misc]
    """The package's dynamic client with our transport."""

    def __init__(self, server: str, send: Send, cache_file: str) -> None:
        self._send = send
        super().__init__(SimpleNamespace(configuration=SimpleNamespace(host=server)), cache_file=cache_file)

    def request(self, method: str, path: str, body: Object | None = None, **parameters: Any) -> Any:
        """Send a request of the client's methods: ours want the raw response, discovery a parsed one."""
        if parameters.pop("serialize", True):
            return self._discover(method, path, body, **parameters)
        return self._answer(method, path, body, **parameters)

    @meta_request  # type: ignore[untyped-decorator]
    def _discover(self, method: str, path: str, body: Object | None = None, **parameters: Any) -> Any:
        """Discovery asks for APIs that a server may lack or forbid; it handles only the package's own errors."""
        try:
            return self._answer(method, path, body, **parameters)
        except (NotFound, Forbidden) as error:
            raise ApiException(status=error.status, reason=error.message) from error

    def _answer(self, method: str, path: str, body: Object | None = None, **parameters: Any) -> Any:
        query = {name: str(value) for key, name in _QUERY.items() if (value := parameters.get(key)) is not None}
        verb = "dry-run" if "dryRun" in query else {"patch": "apply"}.get(method.lower(), method.lower())
        return self._send(
            verb,
            method.upper(),
            f"/{path.lstrip('/')}",
            query,
            body,
            content_type=parameters.get("content_type") or "application/json",
            outlive_conflicts=verb == "apply" and "force" in query,
        )

    def get_object(self, api_version: str, kind: str, name: str, namespace: str | None) -> Object:
        """Get an object. Raises NotFound."""
        return _content(self.get(self._resource(api_version, kind), name=name, namespace=namespace, serialize=False))

    def list_objects(
        self, api_version: str, kind: str, namespace: str | None, labels: str | None, fields: str | None
    ) -> Object:
        """List of objects as the API returns it, unpaged."""
        where = {"namespace": namespace, "label_selector": labels, "field_selector": fields}
        return _content(self.get(self._resource(api_version, kind), **where, serialize=False))

    def apply_object(self, obj: Object, *, dry_run: bool, force: bool, field_manager: str) -> Applied:
        """Server-side apply that refuses fields that the server does not know."""
        response = self.server_side_apply(
            self._resource(obj["apiVersion"], obj["kind"]),
            body=obj,
            force_conflicts="true" if force else None,
            field_manager=field_manager,
            field_validation="Strict",
            dry_run="All" if dry_run else None,
            serialize=False,
        )
        return Applied(_content(response), response.status == 201)

    def delete_object(self, api_version: str, kind: str, name: str, namespace: str | None, options: Object) -> None:
        """Request deletion with these DeleteOptions. Raises NotFound; Conflict when a precondition does not hold."""
        resource = self._resource(api_version, kind)
        self.delete(resource, name=name, namespace=namespace, body=options, serialize=False)

    def _resource(self, api_version: str, kind: str) -> Any:
        """Resource of a served type. Waits briefly, because a new type is served before the list of types has it."""
        deadline = time.monotonic() + DISCOVERY_SECONDS
        while True:
            try:
                return self.resources.get(api_version=api_version, kind=kind)
            except ResourceNotFoundError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def _content(response: Any) -> Object:
    found: Object = json.loads(response.data)
    return found


def over(server: str, send: Send) -> OpenShiftClient:
    """Client whose requests are sent by ``send``."""
    with tempfile.TemporaryDirectory(prefix="karmada-installer-") as private:
        return OpenShiftClient(server, send, f"{private}/discovered.json")
