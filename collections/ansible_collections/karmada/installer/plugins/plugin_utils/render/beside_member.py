# SPDX-License-Identifier: Apache-2.0
"""Pods beside a member of etcd: containers of etcd's image upon the volume of that member."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import ETCD
from .cluster_layout import BASE
from .pods import once, pod_template

#: Fields of a container of etcd that these have as well.
_COMMON = ("image", "imagePullPolicy", "securityContext", "resources", "env")
#: Fields of the pod of a member that these have not: they run where the volume is, and nothing prepares them.
_LEFT_OUT = ("topologySpreadConstraints", "affinity", "initContainers")
#: Names of their volumes: a folder that goes with the pod, and the member's own.
SCRATCH, DATA = "scratch", "data"


@dataclass(frozen=True)
class OfEtcd:
    """Parts of a member's own pod that such a pod has as well.

    common: fields of each container. certificates: where a container of etcd mounts them; volumes: what these mounts
    are of. spec: fields of the pod.
    """

    common: Mapping[str, Any]
    certificates: Sequence[Object]
    volumes: Sequence[Object]
    spec: Mapping[str, Any]


def of_etcd(instance: Instance) -> OfEtcd:
    """Parts of the pod of a member for pods beside it."""
    spec: dict[str, Any] = pod_template(instance, ETCD, "", [])["spec"]
    (container,) = spec["containers"]
    return OfEtcd(
        common={key: container[key] for key in _COMMON if key in container},
        certificates=[each for each in container["volumeMounts"] if each["mountPath"].startswith(f"{BASE}/")],
        volumes=spec["volumes"],
        spec={key: value for key, value in spec.items() if key not in _LEFT_OUT},
    )


def pod(parts: OfEtcd, metadata: Object, member: str, node: str, **fields: Any) -> Object:
    """Pod beside a member, on its node (by the volume itself, where that is empty).

    ``fields`` are those of its spec: its containers, and as ``volumes`` those that it has beside its two own.
    """
    claim = {"claimName": f"data-{member}"}
    own = [{"name": SCRATCH, "emptyDir": {}}, {"name": DATA, "persistentVolumeClaim": claim}]
    fields["volumes"] = [*fields.get("volumes", ()), *own]
    where = {"affinity": {"nodeAffinity": on_node(node)}} if node else {}
    return once(metadata, parts.spec, **fields, **where)


def on_node(node: str) -> Object:
    """Affinity to one node, by its name."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
