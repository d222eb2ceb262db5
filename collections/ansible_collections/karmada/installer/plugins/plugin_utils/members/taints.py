# SPDX-License-Identifier: Apache-2.0
"""Taints of members. Each has its owner: Karmada's controllers and policies, people, the document, ``cordon``.

A Cluster has one list of them, which API servers know as a whole only, so that applying ours would drop those of
others. So the list is read, changed where it is ours, and written back if nobody has written meanwhile. Which ones the
document has put there is in an annotation that is written with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..api_object import Object
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.objects import Ref
from ..kube.step import Edit, edit_live
from .registration import CLUSTER_API

Taint = Mapping[str, Any]

#: On a Cluster: which of its taints the document has put there, as ``key:effect`` with commas between them.
TAINTS_ANNOTATION = "installer.karmada.io/taints"


def edited(taints: Sequence[Taint], add: Iterable[Taint], remove: Iterable[str]) -> list[Object]:
    """A list with these taints, and without those named ``key:effect`` in ``remove``; all others stay in their order.

    One that is there with the value that it should have stays as it is, with the time at which it was added.
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
    """What tells taints of a Cluster from each other."""
    return f"{taint['key']}:{taint['effect']}"


def listed(entry: Mapping[str, Any]) -> list[Object]:
    """The taints of a member's entry in the document, in the form of the API."""
    return [
        {key: each[key] for key in ("key", "value", "effect") if each.get(key)} for each in entry.get("taints") or ()
    ]


def patch_for(cluster: Mapping[str, Any], entry: Mapping[str, Any]) -> Object | None:
    """What brings the taints of a Cluster to what its entry says: a merge patch, or None if nothing differs."""
    wanted, annotation = listed(entry), (cluster["metadata"].get("annotations") or {}).get(TAINTS_ANNOTATION, "")
    noted = ",".join(sorted(map(name_of, wanted)))
    patch = patch_of(cluster, wanted, [each for each in annotation.split(",") if each])
    if noted == annotation:
        return patch
    return {**(patch or {}), "metadata": {"annotations": {TAINTS_ANNOTATION: noted or None}}}


def patch_of(cluster: Mapping[str, Any], add: Iterable[Taint], remove: Iterable[str]) -> Object | None:
    """A merge patch that adds and removes taints; None if nothing differs."""
    there = cluster["spec"].get("taints") or []
    after = edited(there, add, remove)
    return None if after == there else {"spec": {"taints": after or None}}


def change(control_plane: Cluster, name: str, patch: Edit, *, check: bool = False) -> list[Change]:
    """Change the taints of a Cluster by a merge patch for it as it is. See ``step.edit_live``."""
    return edit_live(control_plane, Ref(CLUSTER_API, "Cluster", name), patch, check=check)
