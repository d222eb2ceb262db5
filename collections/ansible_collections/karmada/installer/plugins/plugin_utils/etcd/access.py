# SPDX-License-Identifier: Apache-2.0
"""Access to the members of an instance's etcd: by their pods, by their addresses, or as somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..components.table import ETCD, pod_components
from ..kube.port_forward import ForwardedSocket, Forwarder
from ..pki.files import ETCD_CLIENT_CERTIFICATE, certificate_files
from ..run.run import Run
from . import external
from .client import EtcdClient

#: Client certificate with which etcd answers requests.
CLIENT_CERTIFICATE = ETCD_CLIENT_CERTIFICATE
_WHERE = "etcd's client certificate"


def connect(run: Run) -> EtcdClient:
    """Client of the members that there should be; those in pods are reached through the host cluster, ready or not."""
    if external.is_named(run):
        return external.connect(run)
    files = certificate_files(CLIENT_CERTIFICATE, run.material)
    pods = names(run)
    if ETCD not in pod_components(run.spec):
        return EtcdClient(list(pods), files, _WHERE)
    return EtcdClient(list(pods), files, _WHERE, dial_pods(run, pods))


def dial_pods(run: Run, pods: Mapping[str, str]) -> Callable[[str, float], ForwardedSocket]:
    """Way to members in pods, through the host cluster, ready or not. ``pods``: client URL → name of the pod."""

    def dial(url: str, timeout: float) -> ForwardedSocket:
        return Forwarder(run.host_cluster, run.namespace, pods[url], ETCD.ports["client"]).open(timeout)

    return dial


def names(run: Run) -> dict[str, str]:
    """Client URL → name of the member; of an external etcd nothing but its URLs is known."""
    if external.is_named(run):
        return {}
    return {member.client_url: member.name for member in run.layout.etcd_members}


def disks(run: Run) -> dict[str, bool]:
    """Client URL of a member in pods → whether its data is there, as far as the host cluster can tell.

    A claim that is bound has a volume, and a pod has what is in it. It is the member's if it has the UID on record;
    where none is on record yet, any.
    """
    kind = "Pod" if run.state.etcd.storage == "emptyDir" else "PersistentVolumeClaim"
    prefix = "" if kind == "Pod" else "data-"
    found = {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in run.host_cluster.list("v1", kind, run.namespace)
        if kind == "Pod" or (each.get("status") or {}).get("phase") == "Bound"
    }
    recorded = {each.name: each.volume for each in run.state.etcd.members}
    return {url: _is_its_own(found.get(f"{prefix}{name}"), recorded.get(name)) for url, name in names(run).items()}


def _is_its_own(found: str | None, recorded: str | None) -> bool:
    return found is not None and (not recorded or found == recorded)
