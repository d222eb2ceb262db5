# SPDX-License-Identifier: Apache-2.0
"""Search for other members that could take what a drain moves away. No I/O.

Before the drain, policies and taints of the other clusters tell of some objects that none of them could take. Room, and
what else the scheduler goes by, is known only when it has looked: then the binding has the condition ``Scheduled``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api_object import Object, condition
from ..problems import Problem, Reason, Severity
from ..redaction import printable
from .scheduling import resource_of, targets_of, tolerates, tolerates_taint

#: Clusters and objects that a message names.
_SHOWN = 5
#: Characters shown of what the scheduler says.
_LONGEST = 300
#: Fields of a Cluster by which a policy may choose.
_FIELDS = {"provider": "provider", "region": "region", "zone": "zones"}
_BLOCKING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Stranded:
    """An object that has no other place than the members being drained. ``members`` are those of them that run it.

    ``last`` is False for one that other members run, too, and whose remaining replicas have no place.
    """

    what: str
    why: str
    members: tuple[str, ...]
    last: bool = True

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


def foreseen(bindings: Iterable[Object], drained: Collection[str], clusters: Sequence[Object]) -> list[Stranded]:
    """Objects that run on these members only, and that no other cluster could take by policies and taints."""
    others = [each for each in clusters if each["metadata"]["name"] not in drained]
    found = []
    for binding in bindings:
        placement = binding["spec"].get("placement") or {}
        there = targets_of(binding)
        if not there or not there <= set(drained) or tolerates(placement.get("clusterTolerations") or ()):
            continue
        obstacles = {each["metadata"]["name"]: _obstacle(placement, each) for each in others}
        if all(obstacles.values()):
            found.append(Stranded(resource_of(binding), _told(obstacles), tuple(sorted(there))))
    return found


def seen(bindings: Iterable[Object], drained: Collection[str]) -> list[Stranded]:
    """Objects that are evicted from these members, and for which the scheduler has found no place."""
    found = []
    for binding in bindings:
        tasks = binding["spec"].get("gracefulEvictionTasks") or ()
        evicted = {str(each.get("fromCluster")) for each in tasks} & set(drained)
        scheduled = condition(binding, "Scheduled")
        if evicted and scheduled.get("status") == "False":
            why = f"{scheduled.get('reason', 'Unknown')}: {scheduled.get('message', '')}".removesuffix(": ")
            last = not targets_of(binding) - set(drained)
            found.append(Stranded(resource_of(binding), printable(why, _LONGEST), tuple(sorted(evicted)), last))
    return found


def refusal(
    stranded: Sequence[Stranded], confirmed: Collection[str], severity: Severity = Severity.ERROR
) -> Problem | None:
    """Problem if last replicas would go from members that were not ``confirmed`` by name."""
    lost = [each for each in stranded if each.last and not set(each.members) <= set(confirmed)]
    if not lost:
        return None
    members = sorted({name for each in lost for name in each.members})
    more = f", and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return Problem(
        what=f"no other cluster would take {len(lost)} of the objects there, so the last replica of each would go: "
        f"{', '.join(map(str, lost[:_SHOWN]))}{more}",
        where=f"member {', '.join(members)}",
        remedy="let their policies choose another member, or make room there; or, if they may stop, name the members: "
        f"-e karmada_confirm_drain={','.join(members)}",
        reason=Reason.CONFIRMATION_REQUIRED,
        severity=severity,
    )


def _obstacle(placement: Mapping[str, Any], cluster: Object) -> str:
    """Reason for which this cluster cannot be chosen; empty if it may be."""
    if cluster["metadata"].get("deletionTimestamp"):
        return "leaves"
    affinity = placement.get("clusterAffinity")
    affinities = [affinity] if affinity else placement.get("clusterAffinities") or [{}]
    if not any(_chosen(each, cluster) for each in affinities):
        return "is not in its policy"
    tolerations = placement.get("clusterTolerations") or ()
    for taint in cluster["spec"].get("taints") or ():
        if taint.get("effect") in _BLOCKING and not tolerates_taint(tolerations, taint):
            return f"has the taint {taint.get('key')}"
    return ""


def _chosen(affinity: Mapping[str, Any], cluster: Object) -> bool:
    name, metadata = cluster["metadata"]["name"], cluster["metadata"]
    if affinity.get("clusterNames") and name not in affinity["clusterNames"]:
        return False
    if name in (affinity.get("exclude") or ()):
        return False
    labels = {key: [value] for key, value in (metadata.get("labels") or {}).items()}
    selector = affinity.get("labelSelector") or {}
    wanted = [
        {"key": key, "operator": "In", "values": [value]} for key, value in (selector.get("matchLabels") or {}).items()
    ]
    fields: dict[str, list[str]] = {}
    for key, field in _FIELDS.items():
        value = cluster["spec"].get(field) or []
        fields[key] = [value] if isinstance(value, str) else list(value)
    of_fields = (affinity.get("fieldSelector") or {}).get("matchExpressions") or ()
    return all(_matches(each, labels) for each in (*wanted, *(selector.get("matchExpressions") or ()))) and all(
        _matches(each, fields) for each in of_fields
    )


def _matches(expression: Mapping[str, Any], known: Mapping[str, Sequence[str]]) -> bool:
    """Return whether an expression holds; one of an operator that is not known here counts as true."""
    here, values = known.get(expression.get("key", ""), ()), set(expression.get("values") or ())
    operator = expression.get("operator")
    if operator == "In":
        return bool(values & set(here))
    if operator == "NotIn":
        return not values & set(here)
    if operator in ("Exists", "DoesNotExist"):
        return bool(here) is (operator == "Exists")
    return True


def _told(obstacles: Mapping[str, str]) -> str:
    if not obstacles:
        return "there is no other cluster"
    if set(obstacles.values()) == {"is not in its policy"}:
        return "its policy chooses no other cluster"
    shown = [f"{name} {why}" for name, why in list(obstacles.items())[:_SHOWN]]
    more = [f"and {len(obstacles) - _SHOWN} more cannot"] if len(obstacles) > _SHOWN else []
    return ", ".join([*shown, *more])
