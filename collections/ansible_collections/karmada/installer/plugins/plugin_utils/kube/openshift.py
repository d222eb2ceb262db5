# SPDX-License-Identifier: Apache-2.0
"""Objects of OpenShift by the dynamic client of the openshift package, which finds out how they are served.

Its requests go where ours go: how the server is reached, who we are and what is tried again is not decided twice, and
no key is written to a file. It keeps what it discovered in a private directory for as long as it discovers, and not, as
by default, in a file of the system's temporary directory whose name others can guess.
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

#: How long the list of all types may lag behind one of them.
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
        """What all of the client's methods end in: ours want the answer as it is, discovery wants it read."""
        if parameters.pop("serialize", True):
            return self._discover(method, path, body, **parameters)
        return self._answer(method, path, body, **parameters)

    @meta_request  # type: ignore[untyped-decorator]
    def _discover(self, method: str, path: str, body: Object | None = None, **parameters: Any) -> Any:
        """Discovery asks for more than every server has, and every account may see; it knows the package's errors."""
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
        """The object. Raises NotFound."""
        return _content(self.get(self._resource(api_version, kind), name=name, namespace=namespace, serialize=False))

    def list_objects(
        self, api_version: str, kind: str, namespace: str | None, labels: str | None, fields: str | None
    ) -> Object:
        """The list as the API gives it, in one piece."""
        where = {"namespace": namespace, "label_selector": labels, "field_selector": fields}
        return _content(self.get(self._resource(api_version, kind), **where, serialize=False))

    def apply_object(self, obj: Object, *, dry_run: bool, force: bool, field_manager: str) -> Applied:
        """Server-side apply, with fields that the server does not know refused."""
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
        """Ask for deletion with these DeleteOptions. Raises NotFound; Conflict when a precondition does not hold."""
        resource = self._resource(api_version, kind)
        self.delete(resource, name=name, namespace=namespace, body=options, serialize=False)

    def _resource(self, api_version: str, kind: str) -> Any:
        """What is known of a type that is served. It is served a moment before the list of all types names it."""
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
    """A client whose requests are sent by ``send``."""
    with tempfile.TemporaryDirectory(prefix="karmada-installer-") as private:
        return OpenShiftClient(server, send, f"{private}/discovered.json")
