# SPDX-License-Identifier: Apache-2.0
"""What the control plane may do on a member in mode Push: everything, or what Karmada itself asks for and the resources
that the document lists. No I/O.

The requests are those of Karmada v1.16 to v1.18: the status of the Cluster, Works and what becomes of them,
FederatedHPA and karmada-metrics-adapter. Karmada changes an object by writing the whole of it, and never by a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..api_object import Object

#: The field of a member with what can be propagated there.
FIELD = "scopedRights"
_LOOK = ["list", "watch"]
_READ = ["get", *_LOOK]
_KEEP = [*_READ, "create", "update", "delete"]
RBAC = "rbac.authorization.k8s.io"
#: A control plane applies whatever kind its users propagate, so without a list it needs rights on every kind.
EVERYTHING: tuple[Object, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)
#: What Karmada asks of every member, whatever is propagated there.
BY_ITSELF: tuple[Object, ...] = (
    # Is it well, and what does it serve?
    {"nonResourceURLs": ["/readyz", "/healthz", "/version", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"]},
    # How much room is there?
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": _LOOK},
    {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list"]},
    # Namespaces of the control plane are made on every member, without a policy.
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": _KEEP},
    # So are rights of the impersonator. They cannot be made without having them; that they are not there has to be
    # seen, or Karmada waits for it with all that is propagated.
    {"apiGroups": [RBAC], "resources": ["clusterroles", "clusterrolebindings"], "verbs": _READ},
)


def are_scoped(entry: Mapping[str, Any]) -> bool:
    """Whether this member of the document gives the control plane less than all rights."""
    return bool(entry.get(FIELD))


def rules(entry: Mapping[str, Any]) -> list[Object]:
    """The rules of the account that the control plane uses on this member of the document."""
    if not are_scoped(entry):
        return list(EVERYTHING)
    more = []
    for each in entry[FIELD]:
        group, resources = [each["apiGroup"]], list(each["resources"])
        more += [
            {"apiGroups": group, "resources": resources, "verbs": _KEEP},
            # FederatedHPA asks how many replicas there are.
            {"apiGroups": group, "resources": [f"{name}/scale" for name in resources], "verbs": ["get"]},
        ]
    return [*BY_ITSELF, *more]


def listed(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The (API group, resource) pairs that the document lists for this member."""
    for each in entry.get(FIELD, []):
        for resource in each["resources"]:
            yield each["apiGroup"], resource


def full_name(group: str, resource: str) -> str:
    """A resource as kubectl writes it: ``deployments.apps``."""
    return f"{resource}.{group}" if group else resource


def may_keep(entry: Mapping[str, Any], group: str, resource: str) -> bool:
    """Whether objects of this resource can be propagated to this member, as far as its rights go."""
    return not are_scoped(entry) or (group, resource) in {("", "namespaces"), *listed(entry)}


def permissions(of: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, None, str]]:
    """(verb, API group, resource, namespace, subresource) of these rules, so far as they are about resources.

    Nobody can hand out rights that they do not hold.
    """
    found = []
    for rule in of:
        for group in rule.get("apiGroups", []):
            for resource in rule["resources"]:
                name, _, sub = resource.partition("/")
                found += [(verb, group, name, None, sub) for verb in rule["verbs"]]
    return found
