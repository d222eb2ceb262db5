# SPDX-License-Identifier: Apache-2.0
"""A real API server behind a port-forward. The host cluster is a stub that relays as a kubelet does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import errors as api_errors
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.port_forward import cluster_behind
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi


def pod(name: str, ready: str = "True") -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "labels": {"app": "apiserver"}}
    conditions = [{"type": "Ready", "status": ready}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"conditions": conditions}}


@pytest.fixture
def host_api(api_server: Any) -> Iterator[StubApi]:
    with StubApi() as found:
        address = urlsplit(api_server.url)
        found.forward_to = (str(address.hostname), int(address.port or 0))
        found.put("api/v1/pods", pod("ready-1"))
        found.put("api/v1/pods", pod("broken-1", "False"))
        yield found


@pytest.fixture
def host(host_api: StubApi) -> Iterator[Cluster]:
    with cluster_of(host_api.kubeconfig(), name="host cluster") as found:
        yield found


def forwarded(host: Cluster, api_server: Any, name: str = "localhost") -> Cluster:
    access = kubeconfig.from_file(str(api_server.kubeconfig), None)
    access.tls_server_name = name
    return cluster_behind(host, "ns", "app=apiserver", 5443, access, "control plane")


def test_requests_go_to_a_ready_pod_over_one_connection(host: Cluster, host_api: StubApi, api_server: Any) -> None:
    with forwarded(host, api_server) as cluster:
        for _ in range(20):
            assert cluster.get("v1", "Namespace", "default")
        upgrades = [path for _, path in host_api.requests if "/portforward" in path]
        assert upgrades == ["/api/v1/namespaces/ns/pods/ready-1/portforward?ports=5443"]
        assert len(cluster.get_raw("/openapi/v2")) > 1_000_000


def test_many_at_once_and_nothing_left_behind(host: Cluster, host_api: StubApi, api_server: Any) -> None:
    host.get("v1", "Namespace", "default")
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    cluster = forwarded(host, api_server)
    with ThreadPoolExecutor(16) as workers:
        found = list(workers.map(lambda _: cluster.get("v1", "Namespace", "default"), range(200)))
    assert all(found)
    assert 1 < len([path for _, path in host_api.requests if "/portforward" in path]) <= 16
    cluster.close()
    until(lambda: host_api.forwarded == 0, "the end of what was forwarded")
    # The stub's own threads and sockets end a moment later.
    until(lambda: threading.active_count() <= threads, "the end of its threads")
    until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= files, "closing its files")


def test_watches_work_and_can_be_closed(host: Cluster, api_server: Any) -> None:
    with forwarded(host, api_server) as cluster:
        version = cluster.list("v1", "ConfigMap", "default").resource_version
        watch = cluster.watch("v1", "ConfigMap", "default", resource_version=version, timeout_seconds=600)
        name = f"c{time.monotonic_ns()}"
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
        assert next(watch)["object"]["metadata"]["name"] == name
        reader = threading.Thread(target=lambda: list(watch))
        reader.start()
        time.sleep(0.1)
        watch.close()
        reader.join(300)
        assert not reader.is_alive()


def test_a_connection_that_breaks_is_opened_again(host: Cluster, host_api: StubApi, api_server: Any) -> None:
    with forwarded(host, api_server) as cluster:
        host_api.faults.append(Fault("reset", path="/portforward", times=2))
        assert cluster.version()["gitVersion"]


def test_the_certificate_is_checked_against_the_name(host: Cluster, api_server: Any) -> None:
    with (
        forwarded(host, api_server, "other.example.com") as cluster,
        pytest.raises(
            api_errors.Unreachable, match=r"ns/app=apiserver.*through host cluster.*not valid for this address"
        ),
    ):
        cluster.version()


def test_what_stands_in_the_way_is_told(host: Cluster, host_api: StubApi, api_server: Any) -> None:
    with forwarded(host, api_server) as cluster:
        host_api.faults.append(Fault("status", path="/portforward", status=403))
        with pytest.raises(api_errors.Forbidden, match="pods/portforward"):
            cluster.version()
        host_api.forward_to = ("127.0.0.1", 1)
        with pytest.raises(
            api_errors.Unreachable, match=r"port 5443 of pod ns/ready-1: error forwarding port.*refused"
        ):
            cluster.version(retry_seconds=0)
        host_api.put("api/v1/pods", pod("ready-1", "False"))
        with pytest.raises(
            api_errors.Unreachable, match=r"no pod app=apiserver in namespace ns of host cluster is ready"
        ):
            cluster.version(retry_seconds=0)
