# SPDX-License-Identifier: Apache-2.0
"""Cordon, uncordon and drain: taints for each, what is still placed on a drained member, evictions undone. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..api_object import Object, condition
from ..components.spec import Settings, Spec
from ..kube.objects import Ref
from ..problems import Problem, Reason
from .counts import counted
from .taints import Taint, name_of

#: Taint that ``karmadactl cordon`` sets and ``uncordon`` removes.
CORDON: Taint = {"key": "cluster.karmada.io/unschedulable", "effect": "NoSchedule"}
#: Added on a drained member: Karmada moves its workloads elsewhere.
DRAIN: Taint = {"key": "installer.karmada.io/drain", "effect": "NoExecute"}
#: State → taints that it sets, and names of those that it removes.
TAINTS: dict[str, tuple[tuple[Taint, ...], tuple[str, ...]]] = {
    "cordoned": ((CORDON,), ()),
    "drained": ((CORDON, DRAIN), ()),
    "uncordoned": ((), (name_of(CORDON), name_of(DRAIN))),
}
BINDING_API = "work.karmada.io/v1alpha2"
BINDING_KINDS = ("ResourceBinding", "ClusterResourceBinding")
_CONTROLLER_MANAGER = "karmadaControllerManager"
_EVICTION_FLAG = "enable-no-execute-taint-eviction"
#: Producer of evictions because of a taint, as their tasks in a binding name it.
_TAINT_MANAGER = "TaintManager"


@dataclass(frozen=True)
class Placed:
    """An object that is still placed on a member; ``stays`` if waiting will not change that. ``kind`` is that of the
    object itself, not of its binding.
    """

    what: str
    why: str
    stays: bool = False
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


def refusals(names: Iterable[str], registered: Iterable[str]) -> list[Problem]:
    """Problems of the named members: no name at all, or names under which nothing is registered."""
    wanted, known = list(names), sorted(registered)
    if not wanted:
        return [
            Problem(
                what="no member is named",
                where="members",
                remedy="name some: --limit member1 or -e karmada_members=member1,member2",
                reason=Reason.INVALID_ARGUMENT,
            )
        ]
    return [
        Problem(
            what=f"no cluster is registered under the name {name}",
            where="members",
            remedy=f"name one of: {', '.join(known) or 'none is registered'}",
            reason=Reason.INVALID_ARGUMENT,
        )
        for name in wanted
        if name not in known
    ]


def drain_refusal(spec: Spec) -> Problem | None:
    """Problem if draining would move nothing: by default Karmada does not evict because of a taint."""
    settings = spec.component(_CONTROLLER_MANAGER) or Settings({})
    gates, flags = settings.feature_gates, settings.extra_args
    wrong = []
    if not gates.get("Failover", gates.get("AllBeta", False)):
        wrong.append("featureGates: {Failover: true}")
    if flags.get(_EVICTION_FLAG, "false").lower() not in ("true", "1", "t"):
        wrong.append(f'extraArgs: {{{_EVICTION_FLAG}: "true"}}')
    if not wrong:
        return None
    return Problem(
        what="karmada-controller-manager moves nothing because of taints, so that nothing would leave the member",
        where=f"spec.components.{_CONTROLLER_MANAGER}",
        remedy=f"write {' and '.join(wrong)} there and run karmada.installer.install; or cordon the member, and move "
        "what runs there by its policies",
        reason=Reason.INVALID_FLAG,
    )


def placed_on(member: str, bindings: Iterable[Mapping[str, Any]]) -> list[Placed]:
    """Objects that these bindings place on the member, or have not evicted from it yet."""
    return [each for binding in bindings if (each := _placed(member, binding)) is not None]


def _placed(member: str, binding: Mapping[str, Any]) -> Placed | None:
    spec = binding["spec"]
    kind = str((spec.get("resource") or {}).get("kind", ""))
    what = f"{Ref.of(dict(binding))} of {resource_of(binding)}"
    if member in targets_of(binding):
        if tolerates((spec.get("placement") or {}).get("clusterTolerations") or ()):
            return Placed(what, "its policy tolerates the taint", stays=True, kind=kind)
        return Placed(what, "not moved yet", kind=kind)
    if any(each.get("fromCluster") == member for each in spec.get("gracefulEvictionTasks") or ()):
        return Placed(what, "stays until it is healthy elsewhere, for 10 minutes at most", kind=kind)
    users = [each for each in spec.get("requiredBy") or () if member in _names(each.get("clusters"))]
    if users:
        return Placed(what, f"needed by {', '.join(sorted(each.get('name', '') for each in users))}", kind=kind)
    return None


def evicted_by_others(cluster: Mapping[str, Any]) -> bool:
    """Return whether a taint that is not that of a drain has Karmada evict what runs on this member, too."""
    taints = cluster["spec"].get("taints") or ()
    return any(each.get("effect") == "NoExecute" and name_of(each) != name_of(DRAIN) for each in taints)


def eviction_undone(binding: Mapping[str, Any], members: Collection[str]) -> Object | None:
    """Merge patch of a binding that places again on these members what was evicted and has no other place; None if
    there is nothing of that.

    That the taint is gone does not do it: the scheduler passes over a member from which something is being evicted, and
    after 10 minutes that is removed there, with or without another place (Karmada 1.18,
    pkg/scheduler/framework/plugins/clustereviction and pkg/controllers/gracefuleviction). What the scheduler has placed
    elsewhere goes on moving.
    """
    spec = binding["spec"]
    targets, tasks = list(spec.get("clusters") or ()), list(spec.get("gracefulEvictionTasks") or ())
    failed = condition(binding, "Scheduled").get("status") == "False"
    placement = (spec.get("placement") or {}).get("replicaScheduling") or {}
    divided = placement.get("replicaSchedulingType") == "Divided" and bool(spec.get("replicas"))
    lacking = int(spec.get("replicas") or 0) - sum(int(each.get("replicas") or 0) for each in targets)
    left: list[Mapping[str, Any]] = []
    for task in tasks:
        name, replicas = task.get("fromCluster"), int(task.get("replicas") or 0)
        ours = name in members and task.get("producer") == _TAINT_MANAGER and name not in _names(targets)
        back = min(replicas, lacking) if divided else replicas
        if not ours or not (back > 0 if divided else failed or not targets):
            left.append(task)
            continue
        targets.append({"name": name, "replicas": back} if back else {"name": name})
        lacking -= back
    return None if left == tasks else {"spec": {"clusters": targets, "gracefulEvictionTasks": left or None}}


def resource_of(binding: Mapping[str, Any]) -> str:
    """Propagated object of a binding, for people."""
    resource = binding["spec"].get("resource") or {}
    name = "/".join(filter(None, (resource.get("namespace"), resource.get("name", ""))))
    return f"{resource.get('kind', '')} {name}"


def targets_of(binding: Mapping[str, Any]) -> set[str]:
    """Members that the scheduler has chosen for a binding."""
    return _names(binding["spec"].get("clusters"))


def now(member: str, state: str, placed: Iterable[Placed], *, check: bool) -> str:
    """One line: how a member is after a step that has set this state, or would be."""
    kinds = [each.kind for each in placed]
    there = counted(kinds, "still runs there", "still run there") if kinds else "nothing runs there"
    states = {"cordoned": "cordoned", "drained": "drained", "uncordoned": "used again"}
    return f"{member} {'would be' if check else 'is'} {states[state]}; {there}"


def _names(clusters: Iterable[Mapping[str, Any]] | None) -> set[str]:
    return {str(each.get("name")) for each in clusters or ()}


def tolerates(tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether these tolerations of a placement tolerate the taint of a drained member for ever."""
    matching = _matching(tolerations, DRAIN)
    return bool(matching) and all(each.get("tolerationSeconds") is None for each in matching)


def tolerates_taint(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> bool:
    """Return whether these tolerations of a placement let something be placed in spite of this taint."""
    return bool(_matching(tolerations, taint))


def _matching(tolerations: Iterable[Mapping[str, Any]], taint: Taint) -> list[Mapping[str, Any]]:
    return [
        each
        for each in tolerations
        if each.get("effect") in (None, "", taint["effect"])
        and (
            (each.get("operator") == "Exists" and each.get("key") in (None, "", taint["key"]))
            or (
                each.get("operator") in (None, "", "Equal")
                and each.get("key") == taint["key"]
                and (each.get("value") or "") == (taint.get("value") or "")
            )
        )
    ]
