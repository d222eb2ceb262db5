# SPDX-License-Identifier: Apache-2.0
"""The API server of the host cluster, which may be an OpenShift.

OpenShift's own kinds (Routes) go through the openshift package's dynamic client, over the same connections, identity
and retries as everything else.
"""

from __future__ import annotations

import threading
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..api_object import Object
from ..labels import FIELD_MANAGER
from ..problems import Problem, ProblemsError, Reason
from .cluster import Applied, Cluster, Items
from .errors import NotFound
from .kubeconfig import Access

if TYPE_CHECKING:
    from .openshift import OpenShiftClient

OPENSHIFT_GROUP = ".openshift.io/"
#: Field that allows a server whose certificate is not verified; members have a field of the same name.
INSECURE = "insecureSkipTLSVerification"


def refuse_unverified(access: Access, where: str, *, allowed: bool) -> None:
    """Raise ProblemsError unless the server's identity is certain: the host cluster gets all keys of the control plane.

    ``where`` is the source of its kubeconfig, ``allowed`` whether the document lets it be unverified. The environment
    of a run may do so, too (``k8s_auth.unverified`` has the warning). Sends nothing.
    """
    where = access.given_by or where
    field = f"spec.hostCluster.{INSECURE}"
    problems = []
    if access.insecure and not access.insecure_by and not allowed:
        problems.append(
            Problem(
                "it switches off the verification of the server's certificate (insecure-skip-tls-verify)",
                where,
                "Put the CA there instead (certificate-authority-data). "
                f"If nobody else can answer at that address, allow it: {field}: true.",
                reason=Reason.INSECURE_CONNECTION,
            )
        )
    if access.server.startswith("http://"):
        here = _is_loopback(urlsplit(access.server).hostname or "")
        if not (here and allowed):
            way = f" If it is a proxy of your own on this machine, allow it: {field}: true." if here else ""
            problems.append(
                Problem(
                    "it leads to an address without TLS, where all keys of the control plane could be read",
                    where,
                    f"Use the https:// address.{way}",
                    reason=Reason.INSECURE_CONNECTION,
                )
            )
    if problems:
        raise ProblemsError(problems)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class HostCluster(Cluster):
    """Cluster whose OpenShift kinds go through the openshift package, which is imported on first use."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._openshift_lock = threading.Lock()
        self._openshift_client: OpenShiftClient | None = None

    @property
    def _openshift(self) -> OpenShiftClient:
        from . import openshift  # noqa: PLC0415 - needed by few runs, and slow to load

        with self._openshift_lock:
            if self._openshift_client is None:
                self._openshift_client = openshift.over(self.server, self._request)
            return self._openshift_client

    def _has(self, api_version: str, kind: str) -> bool:
        return self.resource(api_version, kind) is not None

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """See ``Cluster.get``."""
        if OPENSHIFT_GROUP not in api_version:
            return super().get(api_version, kind, name, namespace)
        if not self._has(api_version, kind):
            return None
        try:
            return self._openshift.get_object(api_version, kind, name, namespace)
        except NotFound:
            return None

    def _list(self, api_version: str, kind: str, *scope: str | None, **form: Any) -> Items:
        if OPENSHIFT_GROUP not in api_version:
            return super()._list(api_version, kind, *scope, **form)
        found = self._openshift.list_objects(api_version, kind, *scope)
        items = Items({**each, "apiVersion": api_version, "kind": kind} for each in found["items"])
        items.resource_version = found["metadata"].get("resourceVersion", "")
        return items

    def apply(
        self, obj: Object, *, dry_run: bool = False, force: bool = True, field_manager: str = FIELD_MANAGER
    ) -> Applied:
        """See ``Cluster.apply``."""
        if OPENSHIFT_GROUP not in obj["apiVersion"]:
            return super().apply(obj, dry_run=dry_run, force=force, field_manager=field_manager)
        if not self._has(obj["apiVersion"], obj["kind"]):
            raise self._no_such_type("APPLY", obj["apiVersion"], obj["kind"])
        return self._openshift.apply_object(obj, dry_run=dry_run, force=force, field_manager=field_manager)

    def _send_delete(self, api_version: str, kind: str, path: str, options: Object) -> None:
        if OPENSHIFT_GROUP not in api_version:
            super()._send_delete(api_version, kind, path, options)
        else:
            *_, namespace, _resource, name = path.split("/")
            self._openshift.delete_object(api_version, kind, name, namespace, options)
