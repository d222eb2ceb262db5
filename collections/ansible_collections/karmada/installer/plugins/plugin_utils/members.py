# SPDX-License-Identifier: Apache-2.0
"""What joining a member by push puts where: accounts on the member, its credentials and its Cluster in the control
plane.

The objects are those of ``karmadactl join`` (Karmada v1.18), so that everything that knows such a member knows ours.
No I/O.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane_objects import (
    MEMBER_NAMESPACE,
    SYSTEM_LABEL,
    owner_labels,
)

Object = dict[str, Any]

#: What ``onLeave`` says: what was propagated to a member stays there when it leaves, or goes.
RETAIN, DELETE = "Retain", "Delete"
IMPERSONATOR = "karmada-impersonator"
#: On what we put on a member: the control plane that holds it.
CONTROL_PLANE_ANNOTATION = "installer.karmada.io/control-plane"
CLUSTER_API = "cluster.karmada.io/v1alpha1"
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, repr=False)
class Credentials:
    """What the control plane uses to work on a member. Has no representation, because it holds tokens."""

    token: str
    impersonator_token: str
    ca_bundle: bytes


@dataclass(frozen=True)
class Registration:
    """How the member's API server is reached from the control plane, and which cluster it really is."""

    cluster_id: str
    endpoint: str


def account(member: str) -> str:
    """The name of the account that the control plane uses on a member."""
    return f"karmada-{member}"


def role(member: str) -> str:
    """The name of that account's ClusterRole and its binding."""
    return f"karmada-controller-manager:{account(member)}"


def namespace_on_member(owner: str) -> Object:
    """The home of the accounts; it may be there already and be somebody else's."""
    return _labelled(
        owner, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MEMBER_NAMESPACE}}, system=True
    )


def objects_on_member(member: str, owner: str, control_plane: str) -> list[Object]:
    """Accounts and rights on the member, with tokens that do not expire, as Karmada expects them.

    ``control_plane`` is ``<namespace>/<name>`` of whom they are for, so that the next one knows who is there.
    """
    objects: list[Object] = []
    for name in (account(member), IMPERSONATOR):
        objects += [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": MEMBER_NAMESPACE}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": name,
                    "namespace": MEMBER_NAMESPACE,
                    "annotations": {"kubernetes.io/service-account.name": name},
                },
            },
        ]
    objects += [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role(member)},
            # A control plane applies whatever kind its users propagate, so it needs rights on every kind.
            "rules": [
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["get"]},
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role(member)},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role(member)},
            "subjects": [{"kind": "ServiceAccount", "name": account(member), "namespace": MEMBER_NAMESPACE}],
        },
    ]
    # As karmadactl join does it: everything but the tokens.
    for each in objects:
        if each["kind"] != "Secret":
            each["metadata"]["annotations"] = {CONTROL_PLANE_ANNOTATION: control_plane}
    return [_labelled(owner, each, system=each["kind"] != "Secret") for each in objects]


def secrets_in_control_plane(
    member: str, owner: str, credentials: Credentials, cluster_uid: str | None
) -> list[Object]:
    """The member's credentials; with ``cluster_uid`` they go when the Cluster goes."""
    contents: dict[str, dict[str, bytes]] = {
        member: {"caBundle": credentials.ca_bundle, "token": credentials.token.encode()},
        f"{member}-impersonator": {"token": credentials.impersonator_token.encode()},
    }
    secrets = []
    for name, data in contents.items():
        metadata: Object = {"name": name, "namespace": MEMBER_NAMESPACE}
        if cluster_uid:
            metadata["ownerReferences"] = [
                {"apiVersion": CLUSTER_API, "kind": "Cluster", "name": member, "uid": cluster_uid}
            ]
        secrets.append(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "Opaque",
                "metadata": metadata,
                "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
            }
        )
    return [_labelled(owner, each, system=True) for each in secrets]


def cluster(entry: Mapping[str, Any], owner: str, registration: Registration) -> Object:
    """The Cluster object of a member; ``entry`` is its part of the document."""
    name = entry["name"]
    spec: Object = {
        "id": registration.cluster_id,
        "syncMode": entry["mode"],
        "apiEndpoint": registration.endpoint,
        "secretRef": {"namespace": MEMBER_NAMESPACE, "name": name},
        "impersonatorSecretRef": {"namespace": MEMBER_NAMESPACE, "name": f"{name}-impersonator"},
    }
    spec.update({key: entry[key] for key in ("provider", "region", "zones") if entry.get(key)})
    labels = dict(entry.get("labels") or {})
    return _labelled(
        owner,
        {"apiVersion": CLUSTER_API, "kind": "Cluster", "metadata": {"name": name, "labels": labels}, "spec": spec},
    )


def record(entry: Mapping[str, Any]) -> Object:
    """What has to be known of a member when its entry is gone: how it is reached, and what leaving means for it.

    ``entry`` is its part of the document, or an earlier record, in which what it did not have yet gets its default.
    """
    return {
        "mode": entry["mode"],
        "secretRef": dict(entry["secretRef"]),
        "context": entry.get("context"),
        "onLeave": entry.get("onLeave", RETAIN),
    }


def credentials_from(secrets: Mapping[str, Mapping[str, Any]], member: str) -> Credentials | None:
    """The credentials in a member's token Secrets (name → Secret); None while its API server has not filled them."""
    data = {name: (secret.get("data") or {}) for name, secret in secrets.items()}
    ours, theirs = data.get(account(member), {}), data.get(IMPERSONATOR, {})
    if not (ours.get("token") and ours.get("ca.crt") and theirs.get("token")):
        return None
    return Credentials(
        token=base64.b64decode(ours["token"]).decode(),
        impersonator_token=base64.b64decode(theirs["token"]).decode(),
        ca_bundle=base64.b64decode(ours["ca.crt"]),
    )


def made_by_karmada_for(member: str, live: Mapping[str, Any]) -> bool:
    """Whether an object on the member was put there through a Work of this member's execution namespace."""
    annotations = live["metadata"].get("annotations") or {}
    labels = live["metadata"].get("labels") or {}
    managed = labels.get("karmada.io/managed") == "true"
    return managed and annotations.get("work.karmada.io/namespace") == f"karmada-es-{member}"


def _labelled(owner: str, each: Object, *, system: bool = False) -> Object:
    metadata = each["metadata"]
    labels = {**metadata.get("labels", {}), **owner_labels(owner), **({SYSTEM_LABEL: "true"} if system else {})}
    return {**each, "metadata": {**metadata, "labels": labels}}
