# SPDX-License-Identifier: Apache-2.0
"""Taints of members. Each has its owner: Karmada's controllers and policies, people, the document, ``cordon``.

A Cluster has one list of them, which API servers know as a whole only, so that applying ours would drop those of
others. So the list is read, changed where it is ours, and written back if nobody has written meanwhile. Which ones the
document has put there is in an annotation that is written with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..api_object import Object
from ..kube.apply import Change
from ..kube.cluster import Cluster
from ..kube.errors import Conflict
from ..kube.objects import Ref, diff
from ..problems import Problem, ProblemsError
from .registration import CLUSTER_API

Taint = Mapping[str, Any]

#: On a Cluster: which of its taints the document has put there, as ``key:effect`` with commas between them.
TAINTS_ANNOTATION = "installer.karmada.io/taints"
#: How often a list is read and written anew because somebody wrote in between.
_TRIES = 20


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


def patched(cluster: Mapping[str, Any], patch: Object | None) -> Object:
    """The Cluster with the patch over it."""
    after = {**cluster, "metadata": {**cluster["metadata"]}, "spec": {**cluster["spec"]}}
    if patch and "metadata" in patch:
        annotations = {**(cluster["metadata"].get("annotations") or {}), **patch["metadata"]["annotations"]}
        after["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
    if patch and "spec" in patch:
        after["spec"]["taints"] = patch["spec"]["taints"] or []
    return after


def change(
    control_plane: Cluster, name: str, patch: Callable[[Object], Object | None], *, check: bool = False
) -> list[Change]:
    """Write what ``patch`` makes of the Cluster as it is, so that nothing is lost that others write meanwhile.

    Nothing is written in check mode. Empty if nothing differs. Raises ProblemsError if the Cluster is not there, or
    never left alone for a moment.
    """
    for _ in range(_TRIES):
        live = control_plane.get(CLUSTER_API, "Cluster", name)
        if live is None:
            raise ProblemsError(Problem("there is no such Cluster", f"Cluster {name} in the control plane"))
        wanted = patch(live)
        if wanted is None:
            return []
        after = patched(live, wanted)
        if not check:
            version = {"resourceVersion": live["metadata"].get("resourceVersion")}
            guarded = {**wanted, "metadata": {**wanted.get("metadata", {}), **version}}
            try:
                after = control_plane.patch_merge(CLUSTER_API, "Cluster", name, None, guarded)
            except Conflict:
                continue
        return [Change(Ref.of(live), "changed", live["metadata"]["uid"], diff(live, after))]
    raise ProblemsError(
        Problem(
            what="somebody changed it each time its taints were to be changed",
            where=f"Cluster {name} in the control plane",
            remedy="look who writes to it, and run again",
        )
    )
