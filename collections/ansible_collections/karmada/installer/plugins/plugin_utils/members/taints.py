# SPDX-License-Identifier: Apache-2.0
"""Taints of members. Each has its owner: Karmada's controllers and policies, people, the document, ``cordon``.

API servers treat the taints of a Cluster as one atomic list, so applying ours would remove those of others. So the list
is read, changed where it is ours, and written back if nobody has written meanwhile. An annotation, written together
with the list, says which taints come from the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..api_object import Object
from ..components.spec import MemberEntry
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.objects import Ref
from ..kube.step import Edit, edit_live
from .registration import CLUSTER_API

Taint = Mapping[str, Any]

#: Annotation of a Cluster: its taints from the document, as ``key:effect``, comma-separated.
TAINTS_ANNOTATION = "installer.karmada.io/taints"


def edited(taints: Sequence[Taint], add: Iterable[Taint], remove: Iterable[str]) -> list[Object]:
    """List with these taints, and without those named ``key:effect`` in ``remove``; all others stay in their order.

    A taint that already has the right value stays as it is, with the time at which it was added.
    """
    wanted = {name_of(each): dict(each) for each in add}
    gone = {*remove} - wanted.keys()
    kept: list[Object] = []
    for each in taints:
        name = name_of(each)
        new = wanted.pop(name, None)
        if new is not None and new.get("value", "") != each.get("value", ""):
            kept.append(new)
        elif name not in gone:
            kept.append(dict(each))
    return [*kept, *wanted.values()]


def name_of(taint: Taint) -> str:
    """Identity of a taint within a Cluster: ``key:effect``."""
    return f"{taint['key']}:{taint['effect']}"


def listed(entry: MemberEntry) -> list[Object]:
    """Taints of a member's entry in the document, in the form of the API."""
    return [{key: each[key] for key in ("key", "value", "effect") if each.get(key)} for each in entry.taints]


def patch_for(cluster: Mapping[str, Any], entry: MemberEntry) -> Object | None:
    """Merge patch that brings the taints of a Cluster to those of its entry; None if nothing differs."""
    wanted, annotation = listed(entry), (cluster["metadata"].get("annotations") or {}).get(TAINTS_ANNOTATION, "")
    noted = ",".join(sorted(map(name_of, wanted)))
    patch = patch_of(cluster, wanted, [each for each in annotation.split(",") if each])
    if noted == annotation:
        return patch
    return {**(patch or {}), "metadata": {"annotations": {TAINTS_ANNOTATION: noted or None}}}


def patch_of(cluster: Mapping[str, Any], add: Iterable[Taint], remove: Iterable[str]) -> Object | None:
    """Merge patch that adds and removes taints; None if nothing differs."""
    there = cluster["spec"].get("taints") or []
    after = edited(there, add, remove)
    return None if after == there else {"spec": {"taints": after or None}}


def change(control_plane: Cluster, name: str, patch: Edit, *, check: bool = False) -> list[Change]:
    """Change the taints of a Cluster by a merge patch computed from its live state. See ``step.edit_live``."""
    return edit_live(control_plane, Ref(CLUSTER_API, "Cluster", name), patch, check=check)
