# SPDX-License-Identifier: Apache-2.0
"""Propagated objects of a member, and the means by which they stay there when the member leaves. No I/O.

Karmada keeps them as Works in the execution namespace of the member. Deletion of the Cluster deletes that namespace,
and with each Work its objects on the member, unless ``spec.preserveResourcesOnDeletion`` of the Work is true.
Controllers write the whole spec of a Work again whenever its template changes, so setting the field is not enough: the
API server must refuse to revert it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..api_object import Object
from ..control_plane.bootstrap import owner_labels
from ..kube.objects import Ref
from ..problems import Problem, Reason, Severity
from .counts import counted
from .registration import RETAIN

WORK_API = "work.karmada.io/v1alpha1"
#: On the execution namespace of a member that leaves and whose workloads stay. It is deleted with that namespace.
ON_LEAVE_LABEL = "installer.karmada.io/on-leave"
#: On a Cluster that is being deleted, to make its controller reconcile.
WAKE_ANNOTATION = "installer.karmada.io/looked-at"
POLICY = "retain-works.installer.karmada.io"
#: On the execution namespace of a member whose Works are deleted before its Cluster, and the policy for this label.
NO_NEW_WORKS_LABEL = "installer.karmada.io/no-new-works"
NO_NEW_WORKS_POLICY = "no-new-works.installer.karmada.io"
_ADMISSION = "admissionregistration.k8s.io/v1"
_MANAGED = ("karmada.io/managed", "true")
#: Number of propagated objects that a message names.
_SHOWN = 5


def execution_namespace(member: str) -> str:
    """Namespace in the control plane with the Works of this member."""
    return f"karmada-es-{member}"


def policies(owner: str) -> list[Object]:
    """Policies by which the API server protects the Works of members that leave until they are gone.

    Each applies only to namespaces with a label of ours, so they may stay for good.

    The first refuses Works that would delete their objects. Works that Karmada created for the Cluster itself (its
    rights on the member) are exempt. The second refuses new Works: an agent loses its rights with the execution
    namespace and can finish no Work afterwards, so Works are deleted first and must not come back.
    """
    retains_all = (
        "has(object.metadata.deletionTimestamp)"
        " || (has(object.metadata.ownerReferences)"
        " && object.metadata.ownerReferences.exists(each, each.kind == 'Cluster'))"
        " || (has(object.spec.preserveResourcesOnDeletion)"
        " && object.spec.preserveResourcesOnDeletion)"
    )
    message = "this member is leaving, and what is propagated to it stays there"
    return [
        *policy(owner, POLICY, {ON_LEAVE_LABEL: RETAIN}, ["CREATE", "UPDATE"], retains_all, message),
        *policy(
            owner,
            NO_NEW_WORKS_POLICY,
            {NO_NEW_WORKS_LABEL: "true"},
            ["CREATE"],
            "false",
            "this member is leaving, and nothing more is propagated to it",
        ),
    ]


def policy(
    owner: str, name: str, namespaces: dict[str, str], operations: list[str], expression: str, message: str
) -> list[Object]:
    """Policy that refuses these operations on Works which fail the expression, in namespaces with these labels."""
    labels = owner_labels(owner)
    rule = {
        "apiGroups": ["work.karmada.io"],
        "apiVersions": ["*"],
        "operations": operations,
        "resources": ["works"],
        "scope": "Namespaced",
    }
    return [
        {
            "apiVersion": _ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": namespaces},
                    "resourceRules": [rule],
                },
                "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
            },
        },
        {
            "apiVersion": _ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": labels},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]


def probe(namespace: str, policy_name: str) -> Object:
    """Work in this execution namespace that only this policy refuses; its dry run shows whether it is in force."""
    return {
        "apiVersion": WORK_API,
        "kind": "Work",
        "metadata": {"name": "installer-probe", "namespace": namespace},
        "spec": {"preserveResourcesOnDeletion": policy_name != POLICY, "workload": {"manifests": []}},
    }


def is_of_cluster(work: Mapping[str, Any]) -> bool:
    """Return whether Karmada created this Work for the Cluster itself rather than for an application."""
    return any(each.get("kind") == "Cluster" for each in work["metadata"].get("ownerReferences") or [])


def retains(work: Mapping[str, Any]) -> bool:
    """Return whether the objects of this Work stay on the member when the Work is deleted."""
    return (work.get("spec") or {}).get("preserveResourcesOnDeletion") is True


def to_retain(works: Sequence[Object]) -> list[Object]:
    """Works that do not preserve their resources yet and must."""
    return [work for work in works if not is_of_cluster(work) and not retains(work)]


def is_going(live: Mapping[str, Any]) -> bool:
    """Return whether this object is being deleted."""
    return bool(live["metadata"].get("deletionTimestamp"))


def references(work: Mapping[str, Any]) -> list[Ref]:
    """Objects on the member that a Work applies."""
    manifests = ((work.get("spec") or {}).get("workload") or {}).get("manifests") or []
    return [Ref.of(each) for each in manifests if each.get("kind") and (each.get("metadata") or {}).get("name")]


def propagated(works: Sequence[Mapping[str, Any]]) -> set[Ref]:
    """Objects on the member that these Works apply for applications, and not for the Cluster itself."""
    return {ref for work in works if not is_of_cluster(work) for ref in references(work)}


def by_member(works: Iterable[Mapping[str, Any]]) -> dict[str, set[Ref]]:
    """Propagated objects of these Works of all execution namespaces, by member."""
    prefix, found = execution_namespace(""), dict[str, list[Mapping[str, Any]]]()
    for work in works:
        namespace = work["metadata"].get("namespace", "")
        if namespace.startswith(prefix):
            found.setdefault(namespace.removeprefix(prefix), []).append(work)
    return {name: propagated(each) for name, each in found.items()}


def left_on(member: str, found: Collection[Ref], *, check: bool) -> Problem:
    """Hint at objects that stay on a member which has left, and at the condition for their return."""
    verbs = ("would stay", "would stay") if check else ("stays", "stay")
    return Problem(
        what=f"{counted((ref.kind for ref in found), *verbs)} there, as the member's own",
        where=f"member {member}",
        remedy="should it come back, Karmada takes over only what a policy with conflictResolution: Overwrite chooses",
        reason=Reason.LEFT_BEHIND,
        severity=Severity.HINT,
    )


def is_managed(live: Mapping[str, Any]) -> bool:
    """Return whether Karmada claims this object of a member."""
    key, value = _MANAGED
    return (live["metadata"].get("labels") or {}).get(key) == value


def told(works: Sequence[Mapping[str, Any]]) -> str:
    """Objects on the member that these Works apply, for people: some names, and the number of the others."""
    found = sorted(map(str, propagated(works)))
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join([*found[:_SHOWN], *more])
