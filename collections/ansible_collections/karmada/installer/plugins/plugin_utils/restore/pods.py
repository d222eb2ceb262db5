# SPDX-License-Identifier: Apache-2.0
"""Pods that a restore makes beside those of etcd: etcd's own programs work in them on the volumes of its members."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from ..api_object import Object
from ..components.table import ETCD
from ..etcd import access
from ..etcd.client import EtcdClient
from ..kube.errors import ApiError
from ..kube.port_forward import ForwardedSocket, Forwarder
from ..kube.readiness import reason_not_ready
from ..pki.files import certificate_files
from ..redaction import shown
from ..run.run import Run

#: Seconds between two looks whether they are gone.
LOOK_SECONDS = 0.5
#: Last lines of what a container said that are told.
LOG_LINES = 5


def nodes(run: Run) -> dict[str, str]:
    """Node of each pod of etcd, by the name of the pod, which is that of the member; empty if it has none."""
    pods = run.host_cluster.list("v1", "Pod", run.namespace, labels=run.instance.pod_selector(ETCD.name))
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}


def make(run: Run, pods: Iterable[Object]) -> None:
    """Make these pods. They go with what has the pods of etcd, should nobody come to delete them. Raises ApiError."""
    workload = run.workload(ETCD.name)
    owner = run.host_cluster.get(*workload)
    for pod in pods:
        if owner:
            reference = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
            pod["metadata"]["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"]}]
        run.host_cluster.apply(pod)


def named(run: Run, name: str) -> list[Object]:
    """Pods with this name of a component."""
    found: list[Object] = run.host_cluster.list("v1", "Pod", run.namespace, labels=run.instance.pod_selector(name))
    return found


def delete(run: Run, pods: Iterable[Object]) -> None:
    """Have these pods deleted; what they have made stays. Raises LockLost."""
    for pod in pods:
        run.require_lock()
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        run.host_cluster.delete("v1", "Pod", name, run.namespace, uid=uid, grace_seconds=0)


def forget(run: Run, name: str) -> None:
    """Delete all with this name of a component, and wait until they are gone: only then another one can be made."""
    while pods := named(run, name):
        delete(run, pods)
        time.sleep(LOOK_SECONDS)


def client(
    run: Run, pod: str, url: str, port: str = "client", certificate: str = access.CLIENT_CERTIFICATE
) -> EtcdClient:
    """Client of the etcd in a pod, by a port-forward: it listens on loopback there, and is called by ``url``."""

    def dial(_url: str, timeout: float) -> ForwardedSocket:
        return Forwarder(run.host_cluster, run.namespace, pod, ETCD.ports[port]).open(timeout)

    return EtcdClient([url], certificate_files(certificate, run.material), f"certificate {certificate}", dial)


def why(run: Run, pod: str, containers: Iterable[str]) -> str:
    """Reason why a pod has not come to its end: its condition, and the last lines of what its containers said."""
    live: Object | None = run.host_cluster.get("v1", "Pod", pod, run.namespace)
    told = [(reason_not_ready(live) or "") if live else "somebody has deleted it"]
    for container in containers if live else ():
        # Of one that has not started yet there are none.
        with suppress(ApiError):
            told.append(run.host_cluster.logs(pod, run.namespace, container, LOG_LINES).strip())
    return shown("; ".join(filter(None, told)))
