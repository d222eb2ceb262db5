# SPDX-License-Identifier: Apache-2.0
"""Pod that mounts a volume claim with backups, and serves them on its loopback, where a port-forward leads.

It runs the text of ``module_utils.backup_folder``, which needs nothing but a Python of the image that the document
names. It is scheduled as members of etcd are, has none of their files, and no token of a service account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import backup_folder

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import ETCD
from .beside_member import on_node
from .pods import once, pod_template

#: Name of its pods as a component, in labels, and of their container.
NAME, CONTAINER = "backup-claim", "serve"
#: Place of the volume in the pod.
MOUNTED = "/backups"
#: Port on the loopback of the pod.
PORT = 8474
#: Seconds after which the kubelet ends it whatever happens: longer than any run.
LIFE_SECONDS = 86400
#: Of a pod of etcd; not its constraints, which speak of members.
_KEPT = (
    *("automountServiceAccountToken", "enableServiceLinks", "securityContext", "imagePullSecrets"),
    *("nodeSelector", "tolerations", "priorityClassName"),
)
#: Pages of files that are written count, too, and can be given back at any time.
_RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}


@dataclass(frozen=True)
class Served:
    """Path below the root of the volume of a claim, which a pod serves to who has the token.

    ``digest`` is the SHA-256 of that, in hex. ``record`` is the file by which a backup exists.
    """

    claim: str
    below: str
    record: str
    digest: str


def pod(instance: Instance, name: str, image: str, served: Served, node: str) -> Object:
    """Pod of this name. ``node`` is the one that has mounted the claim; empty where any will do."""
    of_etcd: Mapping[str, Any] = pod_template(instance, ETCD, "", [])["spec"]
    (of_member,) = of_etcd["containers"]
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": instance.spec.images.pull_policy,
        "command": ["python3", "-I", "-c", script(), MOUNTED, served.below, served.record, str(PORT), served.digest],
        "securityContext": of_member["securityContext"],
        "resources": _RESOURCES,
        "volumeMounts": [{"name": "backups", "mountPath": MOUNTED}],
    }
    kept = {key: value for key, value in of_etcd.items() if key in _KEPT}
    if node:
        # Where the volume is counts, wherever members of etcd are to be.
        kept.pop("nodeSelector", None)
        kept["affinity"] = {"nodeAffinity": on_node(node)}
    return once(
        instance.metadata(NAME, name),
        kept,
        terminationGracePeriodSeconds=5,
        activeDeadlineSeconds=LIFE_SECONDS,
        containers=[container],
        volumes=[{"name": "backups", "persistentVolumeClaim": {"claimName": served.claim}}],
    )


def script() -> str:
    """Text of the server. It has no dollar, by which a kubelet knows names that it replaces."""
    return Path(backup_folder.__file__).read_text(encoding="utf-8")
