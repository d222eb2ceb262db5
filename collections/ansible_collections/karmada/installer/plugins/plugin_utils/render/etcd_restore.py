# SPDX-License-Identifier: Apache-2.0
"""Pod beside a member of etcd that makes its new data out of a snapshot, which ``restore.delivery`` sends there.

Both of its containers have etcd's image, which has no shell. A sidecar receives the file, with an empty folder that
goes with the pod; its startup probe passes once the file is there, and only then does the kubelet start the other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import ETCD, ETCD_PEER_COMMON_NAME
from ..components.types import EtcdMember
from . import beside_member
from .cluster_layout import BASE, ETCD_DATA

#: Name of its pods as a component, in labels.
NAME = "etcd-restore"
#: Generation of the data that it makes, in an annotation.
GENERATION_ANNOTATION = "installer.karmada.io/generation"
RECEIVER, RESTORER = "receive", "restore"
ETCDUTL = "/usr/local/bin/etcdutl"
SCRATCH = "/var/lib/etcd-restore"
_LOOPBACK = "https://127.0.0.1"
#: A probe reads all of the snapshot.
_PROBE_SECONDS = 60
#: How often the kubelet looks for the file before it gives up: once a second.
_PROBES = 3600


@dataclass(frozen=True)
class NewData:
    """New data of all members: their token, the generation of their folders, and what is added to the revision."""

    token: str
    generation: int
    bump: int
    members: Sequence[EtcdMember]

    @property
    def folder(self) -> str:
        """Path of it in a member's pod."""
        return f"{ETCD_DATA}/gen-{self.generation}"


def pod_name(member: str, generation: int) -> str:
    """Name of the pod beside a member."""
    return f"{member}-gen-{generation}"


def pod(instance: Instance, member: EtcdMember, new: NewData, file: str, node: str) -> Object:
    """Pod beside a member, on its node, as a claim that one node at a time may mount asks for.

    ``file`` is where the receiver keeps the snapshot, below its data folder. ``node`` is empty where it is not known:
    then the volume itself decides.
    """
    parts = beside_member.of_etcd(instance)
    scratch = {"name": beside_member.SCRATCH, "mountPath": SCRATCH}
    received = f"{SCRATCH}/etcd/{file}"
    receiver = {
        "name": RECEIVER,
        **parts.common,
        "restartPolicy": "Always",
        "command": [ETCD.binary, *(f"--{key}={value}" for key, value in receiver_flags(BASE).items())],
        "volumeMounts": [*parts.certificates, scratch],
        "startupProbe": {
            "exec": {"command": [ETCDUTL, "snapshot", "status", received]},
            "periodSeconds": 1,
            "timeoutSeconds": _PROBE_SECONDS,
            "failureThreshold": _PROBES,
        },
    }
    restorer = {
        "name": RESTORER,
        **parts.common,
        "command": command(ETCDUTL, received, member, new, new.folder),
        "volumeMounts": [{"name": beside_member.DATA, "mountPath": ETCD_DATA}, {**scratch, "readOnly": True}],
    }
    metadata = {
        **instance.metadata(NAME, pod_name(member.name, new.generation)),
        "annotations": {GENERATION_ANNOTATION: str(new.generation)},
    }
    return beside_member.pod(
        parts, metadata, member.name, node, initContainers=[receiver], containers=[restorer], volumes=parts.volumes
    )


def receiver_flags(base: str) -> Mapping[str, str]:
    """Flags of the etcd that receives the file: it listens on loopback only, and knows nobody."""
    client, peer = (f"{_LOOPBACK}:{ETCD.ports[port]}" for port in ("client", "peer"))
    tls = {
        f"{prefix}{name}": f"{base}/pki/{folder}/{file}"
        for prefix, folder in (("", "server"), ("peer-", "peer"))
        for name, file in (("cert-file", "tls.crt"), ("key-file", "tls.key"), ("trusted-ca-file", "ca.crt"))
    }
    return {
        "name": RECEIVER,
        "data-dir": f"{SCRATCH}/etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"{RECEIVER}={peer}",
        "client-cert-auth": "true",
        "peer-client-cert-auth": "true",
        "peer-cert-allowed-cn": ETCD_PEER_COMMON_NAME,
        "log-level": "warn",
        **tls,
    }


def command(etcdutl: str, snapshot: str, member: EtcdMember, new: NewData, folder: str) -> list[str]:
    """Command that makes the data of one member; the checksum of the snapshot is compared by it."""
    return [etcdutl, "snapshot", "restore", snapshot, f"--data-dir={folder}", *flags(member, new)]


def flags(member: EtcdMember, new: NewData) -> list[str]:
    """Flags of etcdutl by which the data is that of one member, wherever it runs."""
    return [
        f"--name={member.name}",
        f"--initial-cluster={','.join(f'{each.name}={each.peer_url}' for each in new.members)}",
        *(f"--initial-advertise-peer-urls={member.peer_url}", f"--initial-cluster-token={new.token}"),
        # Watchers of what was there are told that it is gone, and list anew.
        *(f"--bump-revision={new.bump}", "--mark-compacted"),
    ]
