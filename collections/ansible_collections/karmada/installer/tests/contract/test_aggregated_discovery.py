# SPDX-License-Identifier: Apache-2.0
"""A real API server that has not read the resources of an aggregated API reads them when its APIService changes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.aggregated_discovery import READ_AGAIN
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.unit.support import web_server
from ansible_collections.karmada.installer.tests.unit.support.web_server import Request, Response, WebServer

API, API_SERVICE = "toys.example/v1", ("apiregistration.k8s.io/v1", "APIService", "v1.toys.example")
TOYS = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": API,
    "resources": [{"name": "toys", "kind": "Toy", "namespaced": True, "singularName": "toy", "verbs": ["list"]}],
}
#: Seconds in which an API server does what it does at once; it reads anew by itself after a minute.
AT_ONCE, SOME_SECONDS = 15.0, 3.0


def until(reached: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + AT_ONCE
    while not reached():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.1)


def test_an_api_server_reads_resources_again_when_the_api_service_changes(cluster: Cluster, namespace: str) -> None:
    fails = True

    def answer(request: Request) -> Response:
        # To be available it need only answer; discovery is who says in which form the answer is to be.
        if "Accept" in request.headers and (fails or request.path == "/apis"):
            return Response(503 if fails else 404)
        return Response(content=json.dumps(TOYS).encode(), headers={"Content-Type": "application/json"})

    with WebServer(answer) as server:
        about = x509.Certificate("toys", "web", "toys", dns_names=(f"toys.{namespace}.svc",), server=True)
        signed = x509.issue(about, web_server._authority(), "ECDSA-P256", datetime.now(UTC), timedelta(days=1))
        server.present(signed)
        metadata = {"name": "toys", "namespace": namespace}
        spec = {"type": "ExternalName", "externalName": "localhost"}
        cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        api_service = {
            "group": "toys.example",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "caBundle": base64.b64encode(web_server.authority().encode()).decode(),
            "service": {"name": "toys", "namespace": namespace, "port": int(server.host.rpartition(":")[2])},
        }
        metadata = {"name": API_SERVICE[2]}
        cluster.apply({"apiVersion": API_SERVICE[0], "kind": "APIService", "metadata": metadata, "spec": api_service})
        try:
            until(lambda: API in cluster.unread_versions(), "an API whose resources are not known")
            until(lambda: _is_available(cluster), "the API to answer")
            # That it answers is a change of the APIService, too.
            time.sleep(SOME_SECONDS)
            assert API in cluster.unread_versions()
            fails = False
            cluster.patch_merge(*API_SERVICE, None, {"metadata": {"annotations": {READ_AGAIN: "now"}}})
            until(lambda: API not in cluster.unread_versions(), "the resources of the API")
        finally:
            cluster.delete(*API_SERVICE)


def _is_available(cluster: Cluster) -> bool:
    found = cluster.get(*API_SERVICE) or {}
    conditions = (found.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Available", "True") for each in conditions)
