# SPDX-License-Identifier: Apache-2.0
"""What a control plane has propagated to a member, and how it stays there when the member leaves. No I/O.

Karmada keeps it as Works in the execution namespace of the member. When the Cluster is deleted, so is that namespace,
and with each Work what it stands for on the member, unless ``spec.preserveResourcesOnDeletion`` of the Work is true.
Controllers write the whole spec of a Work anew whenever what it comes from changes, so that setting the field is not
enough: the API server has to refuse to take it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..api_object import Object
from ..control_plane.bootstrap import owner_labels
from ..kube.objects import Ref
from .registration import RETAIN

WORK_API = "work.karmada.io/v1alpha1"
#: On the execution namespace of a member that leaves and whose workloads stay. It goes with that namespace.
ON_LEAVE_LABEL = "installer.karmada.io/on-leave"
#: On a Cluster that is going, to make its controller look whether it may.
WAKE_ANNOTATION = "installer.karmada.io/looked-at"
POLICY = "retain-works.installer.karmada.io"
#: On the execution namespace of a member whose Works go before its Cluster, and the policy that follows from it.
NO_NEW_WORKS_LABEL = "installer.karmada.io/no-new-works"
NO_NEW_WORKS_POLICY = "no-new-works.installer.karmada.io"
_ADMISSION = "admissionregistration.k8s.io/v1"
_MANAGED = ("karmada.io/managed", "true")
#: How many names of propagated objects a message shows.
_SHOWN = 5


def execution_namespace(member: str) -> str:
    """The namespace in the control plane with the Works of this member."""
    return f"karmada-es-{member}"


def policies(owner: str) -> list[Object]:
    """What makes the API server keep the Works of members that leave as they have to be until they are gone.

    Each concerns namespaces with a label of ours only, so they may stay for good.

    The first refuses Works that would take along what they stand for. Works that Karmada made for the Cluster itself
    (its rights on the member) are to go with it. The second refuses new Works. An agent loses its rights with the
    execution namespace, and sees to no Work any more. So Works go before, and must not come back.
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
        *_policy(owner, POLICY, {ON_LEAVE_LABEL: RETAIN}, ["CREATE", "UPDATE"], retains_all, message),
        *_policy(
            owner,
            NO_NEW_WORKS_POLICY,
            {NO_NEW_WORKS_LABEL: "true"},
            ["CREATE"],
            "false",
            "this member is leaving, and nothing more is propagated to it",
        ),
    ]


def _policy(
    owner: str, name: str, namespaces: dict[str, str], operations: list[str], expression: str, message: str
) -> list[Object]:
    """A policy for these operations on Works in namespaces with these labels: those that do not keep it are refused."""
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
    """A Work in this execution namespace that this policy refuses and no other one, to see whether it is in force."""
    return {
        "apiVersion": WORK_API,
        "kind": "Work",
        "metadata": {"name": "installer-probe", "namespace": namespace},
        "spec": {"preserveResourcesOnDeletion": policy_name != POLICY, "workload": {"manifests": []}},
    }


def is_of_cluster(work: Mapping[str, Any]) -> bool:
    """Whether Karmada made this Work for the Cluster itself, and for nobody's application."""
    return any(each.get("kind") == "Cluster" for each in work["metadata"].get("ownerReferences") or [])


def retains(work: Mapping[str, Any]) -> bool:
    """Whether what this Work stands for stays on the member when the Work goes."""
    return (work.get("spec") or {}).get("preserveResourcesOnDeletion") is True


def to_retain(works: Sequence[Object]) -> list[Object]:
    """Those that have to be told to leave on the member what they stand for."""
    return [work for work in works if not is_of_cluster(work) and not retains(work)]


def is_going(live: Mapping[str, Any]) -> bool:
    """Whether the deletion of this object has been asked for."""
    return bool(live["metadata"].get("deletionTimestamp"))


def references(work: Mapping[str, Any]) -> list[Ref]:
    """What a Work stands for on the member."""
    manifests = ((work.get("spec") or {}).get("workload") or {}).get("manifests") or []
    return [Ref.of(each) for each in manifests if each.get("kind") and (each.get("metadata") or {}).get("name")]


def is_managed(live: Mapping[str, Any]) -> bool:
    """Whether Karmada claims this object of a member."""
    key, value = _MANAGED
    return (live["metadata"].get("labels") or {}).get(key) == value


def told(works: Sequence[Mapping[str, Any]]) -> str:
    """What these Works stand for on the member, for people: some names, and how many more."""
    found = sorted({str(ref) for work in works if not is_of_cluster(work) for ref in references(work)})
    more = [f"{len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join([*found[:_SHOWN], *more])
