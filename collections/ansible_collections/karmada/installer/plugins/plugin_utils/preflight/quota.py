# SPDX-License-Identifier: Apache-2.0
"""Admission of a control plane's objects by the ResourceQuotas and LimitRanges of a namespace. No I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..api_object import Object
from ..kube.objects import quantity
from ..labels import NAME_LABEL
from ..problems import Problem, Reason

#: resource of a quota (``requests.cpu``, ``count/services``) → amount
Usage = Counter[str]

#: Resources that each container has to state if a quota counts them.
_STATED = ("requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory", "ephemeral-storage": "requests.ephemeral-storage"}
_COUNTED = {
    "Deployment": "deployments.apps",
    "StatefulSet": "statefulsets.apps",
    "Service": "services",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
    "NetworkPolicy": "networkpolicies.networking.k8s.io",
    "Ingress": "ingresses.networking.k8s.io",
}
#: Kinds that had quotas before ``count/`` was introduced.
_PLAIN = frozenset({"services", "secrets", "configmaps", "persistentvolumeclaims", "pods"})
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_WORKLOADS = ("Deployment", "StatefulSet")


@dataclass(frozen=True)
class Pods:
    """Pods of one workload: their number, and their spec."""

    component: str
    replicas: int
    spec: Object


def problems(
    namespace: str,
    quotas: Sequence[Object],
    limit_ranges: Sequence[Object],
    wanted: Sequence[Object],
    present: Sequence[Object],
) -> Iterator[Problem]:
    """Reasons why the objects ``wanted`` would not be admitted.

    ``present`` are our objects that are already counted, and etcd's claims, which exist on their own because they
    outlive the StatefulSet.
    """
    where = f"namespace {namespace} of the host cluster"
    pods = [_with_defaults(each, limit_ranges) for each in _pods(wanted)]
    counted_already = [_with_defaults(each, limit_ranges) for each in _pods(present)]
    claims = list(_claims(wanted))
    for limits in limit_ranges:
        yield from _outside_limits(limits, pods, claims, where)
    for quota in quotas:
        counted = [each for each in pods if _in_scope(quota, each.spec)]
        missing = _unstated(quota, counted)
        yield from _missing_problems(quota, missing, where)
        before = [each for each in counted_already if _in_scope(quota, each.spec)]
        more = _usage(wanted, counted, claims)
        more.subtract(_usage(present, before, list(_claims_there(present))))
        yield from _exceeded(quota, more, where)


def _pods(objects: Iterable[Object]) -> Iterator[Pods]:
    for each in objects:
        if each["kind"] in _WORKLOADS:
            labels = each["metadata"].get("labels") or {}
            component = labels.get(NAME_LABEL, each["metadata"]["name"])
            yield Pods(component, each["spec"].get("replicas", 1), each["spec"]["template"]["spec"])


def _claims(objects: Iterable[Object]) -> Iterator[tuple[int, Object]]:
    """Claims of StatefulSets: their number and spec."""
    for each in objects:
        if each["kind"] == "StatefulSet":
            for claim in each["spec"].get("volumeClaimTemplates") or []:
                yield each["spec"].get("replicas", 1), claim["spec"]


def _claims_there(objects: Iterable[Object]) -> Iterator[tuple[int, Object]]:
    """Claims among these objects, in the form of ``_claims``."""
    yield from ((1, each["spec"]) for each in objects if each["kind"] == "PersistentVolumeClaim")


# -- LimitRange --------------------------------------------------------------------------------------------------------


def _with_defaults(pods: Pods, limit_ranges: Iterable[Object]) -> Pods:
    """Pods with defaults as on admission: limits count as requests, then the defaults of LimitRanges apply."""
    items = [item for each in limit_ranges for item in _items(each, "Container")]
    containers = []
    for container in pods.spec["containers"]:
        given = container.get("resources") or {}
        limits, requests = dict(given.get("limits") or {}), dict(given.get("requests") or {})
        requests = {**limits, **requests}
        for item in items:
            limits = {**(item.get("default") or {}), **limits}
            requests = {**(item.get("defaultRequest") or {}), **requests}
        containers.append({**container, "resources": {"limits": limits, "requests": requests}})
    return Pods(pods.component, pods.replicas, {**pods.spec, "containers": containers})


def _items(limit_range: Object, kind: str) -> Iterator[Object]:
    yield from (item for item in limit_range["spec"].get("limits") or [] if item.get("type") == kind)


def _outside_limits(
    limit_range: Object, pods: Iterable[Pods], claims: Iterable[tuple[int, Object]], where: str
) -> Iterator[Problem]:
    name = limit_range["metadata"]["name"]
    found: list[str] = []
    for each in pods:
        for item in _items(limit_range, "Container"):
            for container in each.spec["containers"]:
                found += _outside(item, each.component, container["resources"])
        for item in _items(limit_range, "Pod"):
            found += _outside(item, each.component, _total(each.spec))
    for item in _items(limit_range, "PersistentVolumeClaim"):
        for _, claim in claims:
            found += _outside(item, "the claim of etcd", {"requests": claim["resources"]["requests"]}, limits=False)
    for what in dict.fromkeys(found):
        yield Problem(
            what=f"its LimitRange {name} does not admit {what}",
            where=where,
            remedy="change resources of the component (spec.components.*.resources), or the LimitRange",
            reason=Reason.QUOTA_EXCEEDED,
        )


def _outside(item: Object, who: str, resources: Object, *, limits: bool = True) -> Iterator[str]:
    """Bounds that are violated; as on the API server, a bound on an unstated resource is violated."""
    requests, most = resources.get("requests") or {}, resources.get("limits" if limits else "requests") or {}
    for name, bound in (item.get("min") or {}).items():
        if name not in requests or _number(requests[name]) < _number(bound):
            yield f"{who}: it requests {requests.get(name, 'no')} {name}, the least is {bound}"
    for name, bound in (item.get("max") or {}).items():
        if name not in most or _number(most[name]) > _number(bound):
            yield f"{who}: its limit of {name} is {most.get(name, 'not set')}, the most is {bound}"
    for name, bound in (item.get("maxLimitRequestRatio") or {}).items():
        request, limit = _number(requests.get(name, 0)), _number(most.get(name, 0))
        if not request or limit / request > _number(bound):
            yield f"{who}: its limit of {name} may be {bound} times its request at most"


def _total(spec: Object) -> Object:
    sums: dict[str, Counter[str]] = {"requests": Counter(), "limits": Counter()}
    for container in spec["containers"]:
        for kind, total in sums.items():
            for name, amount in container["resources"][kind].items():
                total[name] += _number(amount)  # type: ignore[assignment]  # a Counter counts anything
    return sums


# -- ResourceQuota -----------------------------------------------------------------------------------------------------


def _in_scope(quota: Object, pod: Object) -> bool:
    """Return whether a quota counts this pod."""
    spec = quota["spec"]
    selectors = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or []]
    selectors += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_matches(each, pod) for each in selectors)


def _matches(selector: Object, pod: Object) -> bool:
    scope = selector["scopeName"]
    if scope in ("Terminating", "NotTerminating"):
        return bool((scope == "Terminating") == ("activeDeadlineSeconds" in pod))
    if scope in ("BestEffort", "NotBestEffort"):
        stated = any(_resources(container, kind) for container in pod["containers"] for kind in ("requests", "limits"))
        return bool((scope == "NotBestEffort") == stated)
    if scope == "PriorityClass":
        name, values = pod.get("priorityClassName") or "", selector.get("values") or []
        verdicts = {"In": name in values, "NotIn": name not in values, "Exists": bool(name), "DoesNotExist": not name}
        return verdicts.get(selector.get("operator", "Exists"), True)
    # Scopes for other kinds of pods.
    return False


def _unstated(quota: Object, pods: Iterable[Pods]) -> dict[str, list[str]]:
    """Resource → components with a container that does not state it although this quota counts it."""
    found: dict[str, list[str]] = defaultdict(list)
    for key in quota["spec"].get("hard") or {}:
        resource = _ALIASES.get(key, key)
        if resource in _STATED:
            kind, _, name = resource.partition(".")
            for each in pods:
                if any(name not in _resources(container, kind) for container in each.spec["containers"]):
                    found[resource].append(each.component)
    return found


def _missing_problems(quota: Object, missing: Mapping[str, Sequence[str]], where: str) -> Iterator[Problem]:
    for resource, components in missing.items():
        yield Problem(
            what=f"its ResourceQuota {quota['metadata']['name']} counts {resource}, so every container has to state "
            f"it, and these do not: {', '.join(dict.fromkeys(components))}",
            where=where,
            remedy=f"set resources.{resource} of these components, or have a LimitRange give a default",
            reason=Reason.QUOTA_EXCEEDED,
        )


def _usage(objects: Sequence[Object], pods: Sequence[Pods], claims: Sequence[tuple[int, Object]]) -> Usage:
    """Amounts that the objects take from quotas."""
    used: dict[str, Decimal] = defaultdict(Decimal)

    def count(resource: str, number: int = 1) -> None:
        for key in (f"count/{resource}", *((resource,) if resource in _PLAIN else ())):
            used[key] += number

    for each in objects:
        if each["kind"] in _COUNTED:
            count(_COUNTED[each["kind"]])
        if each["kind"] == "Service":
            kind = each["spec"].get("type")
            ports = len(each["spec"].get("ports") or [])
            used["services.nodeports"] += ports if kind in ("NodePort", "LoadBalancer") else 0
            used["services.loadbalancers"] += kind == "LoadBalancer"
    for pod in pods:
        count("pods", pod.replicas)
        for container in pod.spec["containers"]:
            for kind in ("requests", "limits"):
                for name, amount in _resources(container, kind).items():
                    used[f"{kind}.{name}"] += pod.replicas * _number(amount)
    for number, claim in claims:
        size = number * _number(claim["resources"]["requests"]["storage"])
        count("persistentvolumeclaims", number)
        used["requests.storage"] += size
        if claim.get("storageClassName"):
            prefix = claim["storageClassName"] + _STORAGE_CLASS
            used[f"{prefix}requests.storage"] += size
            used[f"{prefix}persistentvolumeclaims"] += number
    return Counter(used)


def _exceeded(quota: Object, more: Usage, where: str) -> Iterator[Problem]:
    used = (quota.get("status") or {}).get("used") or {}
    for key, hard in (quota["spec"].get("hard") or {}).items():
        needed = Decimal(more.get(_ALIASES.get(key, key), 0))
        taken = _number(used.get(key, 0))
        if needed > 0 and taken + needed > _number(hard):
            yield Problem(
                what=f"its ResourceQuota {quota['metadata']['name']} allows {hard} {key}, of which {used.get(key, 0)} "
                f"are taken; this control plane needs {_shown(needed)} more",
                where=where,
                remedy="raise the quota, set less under spec.components.*.resources and replicas, or choose another "
                "namespace",
                reason=Reason.QUOTA_EXCEEDED,
            )


def _resources(container: Object, kind: str) -> Object:
    found: Object = (container.get("resources") or {}).get(kind) or {}
    return found


def _number(value: Any) -> Decimal:
    return quantity(value) or Decimal(0)


def _shown(amount: Decimal) -> str:
    """Quantity in the usual notation: 1500m, 3, 5Gi."""
    if amount != amount.to_integral_value():
        return f"{amount * 1000:f}".rstrip("0").rstrip(".") + "m"
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if amount >= size and amount % size == 0:
            return f"{int(amount) // size}{suffix}"
    return str(int(amount))
