# SPDX-License-Identifier: Apache-2.0
"""Rights of the control plane on a member in mode Push: everything, or Karmada's own requests and listed resources.

The requests are those of Karmada v1.16 to v1.18: the status of the Cluster, Works and the objects that they apply,
FederatedHPA and karmada-metrics-adapter. Karmada changes an object by an update of the whole, never by a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..api_object import Object
from ..components.spec import MemberEntry
from ..kube import rbac

#: Field of a member that lists the resources which can be propagated there.
FIELD = "scopedRights"
_LOOK = ["list", "watch"]
_READ = ["get", *_LOOK]
_KEEP = [*_READ, "create", "update", "delete"]
#: A control plane applies any kind that its users propagate, so without a list it needs rights on every kind.
EVERYTHING: tuple[Object, ...] = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
)
#: Rights that Karmada needs on every member, whatever is propagated there.
BY_ITSELF: tuple[Object, ...] = (
    # Health, version and discovery.
    {"nonResourceURLs": ["/readyz", "/healthz", "/version", "/api", "/api/*", "/apis", "/apis/*"], "verbs": ["get"]},
    # Capacity and usage.
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": _LOOK},
    {"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list"]},
    # Namespaces of the control plane are created on every member, without a policy.
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": _KEEP},
    # So are the impersonator's rights, which cannot be created without holding them. Karmada must be able to read that
    # they are missing, or it waits for this before it propagates anything.
    {"apiGroups": [rbac.GROUP], "resources": ["clusterroles", "clusterrolebindings"], "verbs": _READ},
)


def are_scoped(entry: MemberEntry) -> bool:
    """Return whether this member of the document gives the control plane less than all rights."""
    return bool(entry.scoped_rights)


def rules(entry: MemberEntry) -> list[Object]:
    """Rules of the control plane's account on this member of the document."""
    if not are_scoped(entry):
        return list(EVERYTHING)
    more = []
    for each in entry.scoped_rights:
        group, resources = [each["apiGroup"]], list(each["resources"])
        more += [
            {"apiGroups": group, "resources": resources, "verbs": _KEEP},
            # FederatedHPA reads the number of replicas.
            {"apiGroups": group, "resources": [f"{name}/scale" for name in resources], "verbs": ["get"]},
        ]
    return [*BY_ITSELF, *more]


def listed(entry: MemberEntry) -> Iterator[tuple[str, str]]:
    """(API group, resource) pairs that the document lists for this member."""
    for each in entry.scoped_rights:
        for resource in each["resources"]:
            yield each["apiGroup"], resource


def full_name(group: str, resource: str) -> str:
    """Name of a resource as kubectl writes it: ``deployments.apps``."""
    return f"{resource}.{group}" if group else resource


def may_keep(entry: MemberEntry, group: str, resource: str) -> bool:
    """Return whether the rights on this member allow for propagating objects of this resource."""
    return not are_scoped(entry) or (group, resource) in {("", "namespaces"), *listed(entry)}


def permissions(of: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str, None, str]]:
    """(verb, API group, resource, namespace, subresource) of these rules, without those for non-resource URLs.

    Their creator must hold them: Kubernetes refuses escalation of rights.
    """
    found = []
    for rule in of:
        for group in rule.get("apiGroups", []):
            for resource in rule["resources"]:
                name, _, sub = resource.partition("/")
                found += [(verb, group, name, None, sub) for verb in rule["verbs"]]
    return found
