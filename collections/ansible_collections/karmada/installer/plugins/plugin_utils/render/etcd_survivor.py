# SPDX-License-Identifier: Apache-2.0
"""Pod beside a member of etcd that copies its database out of its volume, and serves the copy on loopback.

A member that was started again without a majority answers no client, though its data is all there. Etcd's image has no
shell, but ``etcdutl snapshot restore`` copies a database as it lies in a volume that is mounted to be read only, and
makes an etcd of one member of the copy, in a folder that goes with the pod. Nobody opens the database itself.

The log of the member is not read. A member that runs has taken from it all that it knows to be committed, and has
written that into its database within a tenth of a second.
"""

from __future__ import annotations

from ..api_object import Object
from ..components.etcd_configuration import folder_of
from ..components.etcd_state import EtcdState
from ..components.instance import Instance
from ..components.table import ETCD
from . import beside_member
from .cluster_layout import BASE, ETCD_DATA
from .etcd_restore import ETCDUTL, RECEIVER, SCRATCH, receiver_flags

#: Name of its pods as a component, in labels.
NAME = "etcd-survivor"
COPIER, SERVER = "copy", "serve"
#: Seconds after which the kubelet ends what a killed run has left.
LIFE_SECONDS = 3600
_DATABASE = "member/snap/db"


def pod_name(member: str) -> str:
    """Name of the pod beside a member."""
    return f"{member}-survivor"


def database(etcd: EtcdState, member: str) -> str:
    """Path of the database of a member in its pod."""
    return f"{ETCD_DATA}/{folder_of(etcd.generation, etcd.member(member))}/{_DATABASE}"


def pod(instance: Instance, etcd: EtcdState, member: str, node: str) -> Object:
    """Pod beside a member, on its node (by the volume itself, where that is empty)."""
    parts = beside_member.of_etcd(instance)
    scratch = {"name": beside_member.SCRATCH, "mountPath": SCRATCH}
    flags = receiver_flags(BASE)
    copier = {
        "name": COPIER,
        **parts.common,
        "command": command(ETCDUTL, database(etcd, member), flags["data-dir"], flags["initial-advertise-peer-urls"]),
        "volumeMounts": [{"name": beside_member.DATA, "mountPath": ETCD_DATA, "readOnly": True}, scratch],
    }
    server = {
        "name": SERVER,
        **parts.common,
        "command": [ETCD.binary, *(f"--{key}={value}" for key, value in flags.items())],
        "volumeMounts": [*parts.certificates, scratch],
    }
    return beside_member.pod(
        parts, instance.metadata(NAME, pod_name(member)), member, node, activeDeadlineSeconds=LIFE_SECONDS,
        initContainers=[copier], containers=[server], volumes=parts.volumes,
    )  # fmt: skip


def command(etcdutl: str, database_path: str, folder: str, peer_url: str) -> list[str]:
    """Command that copies a database and makes the data of an etcd of one member of it. It has no checksum at its end,
    as a snapshot has.
    """
    return [
        *(etcdutl, "snapshot", "restore", database_path, "--skip-hash-check=true", f"--data-dir={folder}"),
        *(f"--name={RECEIVER}", f"--initial-cluster={RECEIVER}={peer_url}"),
        f"--initial-advertise-peer-urls={peer_url}",
    ]
