# SPDX-License-Identifier: Apache-2.0
"""Pod beside a member of etcd that empties a folder of its volume, which no member uses any more.

Etcd's image has no shell and nothing that removes files, but etcd itself does: it makes the folder of its log as
``<name>.tmp``, and removes what an interrupted start has left there. So the folder is mounted under that name, and
nothing else of the volume is. What is in it goes; the folder itself, to which something is mounted, cannot go, and by
the words in which etcd says that, and nothing before it, all else is known to be gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import ETCD
from . import beside_member

#: Name of its pods as a component, in labels.
NAME = "etcd-cleanup"
CLEANER = "clean"
SCRATCH = "/var/lib/etcd-cleanup"
#: Name of the log's folder; what is to be emptied is mounted as this with ``.tmp``.
_LOG = "log"
_FOLDER = re.compile(r"gen-[0-9]+(-[0-9a-f]+)?")
_LOOPBACK = "http://127.0.0.1"


def pod_name(member: str, folder: str) -> str:
    """Name of the pod beside a member."""
    return f"{member}-clean-{folder}"


def pod(instance: Instance, member: str, folder: str, node: str) -> Object:
    """Pod beside a member, on its node (by the volume itself, where that is empty)."""
    if not _FOLDER.fullmatch(folder):
        raise AssertionError(f"{folder} is no name of a folder with data")
    parts = beside_member.of_etcd(instance)
    cleaner = {
        "name": CLEANER,
        **parts.common,
        "command": command(ETCD.binary, SCRATCH),
        "volumeMounts": [
            {"name": beside_member.SCRATCH, "mountPath": SCRATCH},
            {"name": beside_member.DATA, "mountPath": f"{SCRATCH}/{_LOG}.tmp", "subPath": folder},
        ],
    }
    # It needs no certificate, so it has no volume of the member's but the data.
    return beside_member.pod(
        parts, instance.metadata(NAME, pod_name(member, folder)), member, node, containers=[cleaner]
    )


def command(etcd: str, scratch: str) -> list[str]:
    """Command of an etcd that empties a folder and comes to no start."""
    return [etcd, *(f"--{key}={value}" for key, value in _flags(scratch).items())]


def _flags(scratch: str) -> Mapping[str, str]:
    client, peer = (f"{_LOOPBACK}:{ETCD.ports[port]}" for port in ("client", "peer"))
    return {
        "name": CLEANER,
        "data-dir": f"{scratch}/data",
        "wal-dir": f"{scratch}/{_LOG}",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"{CLEANER}={peer}",
        "log-level": "warn",
    }


def is_empty(said: str, scratch: str = SCRATCH) -> bool:
    """Return whether an etcd with this command has emptied the folder, by what it said."""
    # Of a folder, etcd names the first thing that it could not remove; of an empty one that is the folder.
    return f'"unlinkat {scratch}/{_LOG}.tmp: device or resource busy"' in said
