# SPDX-License-Identifier: Apache-2.0
"""Choice of the nodes that keep the data of etcd's members in local directories. No I/O.

The choice is made once for each member, before it starts, because data does not move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api_object import Object, is_true
from ..components.spec import Settings, Spec
from ..components.table import ETCD
from ..components.types import settings_of

#: Label by which a volume is bound to its node.
HOSTNAME_LABEL = "kubernetes.io/hostname"
_ZONE_LABEL = "topology.kubernetes.io/zone"


def is_wanted(spec: Spec) -> bool:
    """Return whether the document puts the data of etcd into directories of nodes."""
    return "hostPath" in settings_of(ETCD, spec).volume_data


def reason_unfit(node: Object, settings: Settings) -> str:
    """Reason why no member can run on this node, empty if one can. ``settings`` are those of etcd in the document."""
    labels = node["metadata"].get("labels") or {}
    if not is_true(node, "Ready"):
        return "it is not ready"
    if (node.get("spec") or {}).get("unschedulable"):
        return "it takes no pods (cordoned)"
    if HOSTNAME_LABEL not in labels:
        return f"it has no label {HOSTNAME_LABEL}"
    lacking = [f"{key}={value}" for key, value in settings.node_selector.items() if labels.get(key) != value]
    if lacking:
        return f"it does not have {', '.join(lacking)}"
    tolerations = settings.tolerations
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in tolerations):
            return f"its taint {taint['key']} is not tolerated"
    return ""


def choose(nodes: Sequence[Object], settings: Settings) -> tuple[str, ...]:
    """Host names for the members in their order, one node each, spread over as many zones as possible."""
    return fit(nodes, settings)[: settings.replicas]


def fit(nodes: Sequence[Object], settings: Settings) -> tuple[str, ...]:
    """Host names of all nodes that can have a member, in turn from each zone."""
    zones: dict[str, list[str]] = {}
    for node in sorted(nodes, key=lambda each: str(each["metadata"]["name"])):
        if not reason_unfit(node, settings):
            labels = node["metadata"]["labels"]
            zones.setdefault(labels.get(_ZONE_LABEL, ""), []).append(labels[HOSTNAME_LABEL])
    turns = max(map(len, zones.values()), default=0)
    in_turn = [zones[zone][turn] for turn in range(turns) for zone in sorted(zones) if turn < len(zones[zone])]
    return tuple(in_turn)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")
