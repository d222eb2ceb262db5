# SPDX-License-Identifier: Apache-2.0
"""Objects of joining in mode Push: accounts on the member, its credentials and its Cluster in the control plane.

They are those of ``karmadactl join`` (Karmada v1.18), so that every tool for such members works with ours, too. No I/O.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.state import FORMER_MODE
from ..components.table import ADMIN
from ..control_plane.bootstrap import MEMBER_NAMESPACE, labelled
from ..encoding import base64_files, files_of
from ..kube import rbac
from ..pki import kubeconfig as pki_kubeconfig
from ..problems import Problem, ProblemsError, Reason
from . import rights as member_rights

#: Namespace of a probe pod on a member that is not joined yet; it exists only as long as the pod.
NAMESPACE_ON_MEMBER = "karmada-installer-reach-probe"


#: Field of a member, and of its Cluster, that turns off the verification of the certificate.
INSECURE = "insecureSkipTLSVerification"
#: Values of ``onLeave``: propagated objects stay on a member that leaves, or are deleted.
RETAIN, DELETE = "Retain", "Delete"
#: Fields of a member that locate its kubeconfig; it has one of them.
REACHED_BY = ("secretRef", "kubeconfigFrom")
PUSH, PULL = "Push", "Pull"
IMPERSONATOR = "karmada-impersonator"
#: On objects that we create on a member: the control plane that it belongs to.
CONTROL_PLANE_ANNOTATION = "installer.karmada.io/control-plane"
#: On the account of the control plane on a member: which place of it the member follows (``epoch``).
CLAIM_ANNOTATION = "installer.karmada.io/epoch"
CLUSTER_API = "cluster.karmada.io/v1alpha1"


@dataclass(frozen=True, repr=False)
class Credentials:
    """Credentials of the control plane for a member. Has no repr, because it holds tokens."""

    token: str
    impersonator_token: str
    ca_bundle: bytes
    #: Token of the account of the member's estimator, if there is one.
    estimator_token: str = ""


def unfilled(*, estimator: bool) -> Credentials:
    """Placeholder for credentials that the member has yet to fill, used to predict changes; never written."""
    return Credentials("", "", b"", "-" if estimator else "")


@dataclass(frozen=True)
class Registration:
    """Address of the member's API server as seen by the control plane, and identity of the cluster.

    ``insecure``: its certificate is not verified.
    """

    cluster_id: str
    endpoint: str
    proxy: str | None = None
    insecure: bool = False


def account(member: str) -> str:
    """Name of the control plane's service account on a member."""
    return f"karmada-{member}"


def role(member: str) -> str:
    """Name of that account's ClusterRole and its binding."""
    return f"karmada-controller-manager:{account(member)}"


def estimator_account(member: str) -> str:
    """Name of the account of the member's estimator there, and of its Secret; no member's account has this name."""
    return f"{account(member)}.scheduler-estimator"


def estimator_secret(member: str) -> str:
    """Name of the Secret in the control plane for the member's estimator; no Secret of a member has this name."""
    return f"{member}.scheduler-estimator"


def credential_secrets(member: str) -> tuple[str, ...]:
    """Names of all Secrets that the control plane may have for a member."""
    return (member, f"{member}-impersonator", estimator_secret(member))


def namespace_on_member(owner: str) -> Object:
    """Namespace of the accounts; it may exist already and belong to somebody else."""
    return labelled(
        owner, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MEMBER_NAMESPACE}}, system=True
    )


def objects_on_member(
    member: str,
    owner: str,
    control_plane: str,
    *,
    estimator: bool = False,
    rules: Sequence[Object] = member_rights.EVERYTHING,
    administrators: Sequence[str] = ADMIN.organizations,
    claim: str = "",
) -> list[Object]:
    """Accounts and rights on the member, with tokens that do not expire, as Karmada expects them.

    ``control_plane`` is the ``<namespace>/<name>`` that they belong to, so that other installers can tell. With
    ``estimator`` those of ``estimator_objects`` are included. ``rules`` are the rights of the control plane there. The
    groups of its ``administrators`` get them, too: Karmada proxies requests with the identity of their user. ``claim``
    is that of the place, if the control plane was moved.
    """
    own_account, token = account_with_token(account(member))
    if claim:
        own_account["metadata"]["annotations"] = {CLAIM_ANNOTATION: claim}
    objects = [
        own_account,
        token,
        *account_with_token(IMPERSONATOR),
        *_role_of_account(role(member), account(member), rules, *rbac.groups(administrators)),
    ]
    return [
        *marked(objects, owner, control_plane),
        *(estimator_objects(member, owner, control_plane) if estimator else ()),
    ]


def estimator_objects(member: str, owner: str, control_plane: str) -> list[Object]:
    """Service account of the member's estimator, limited to reading what an estimator watches."""
    name = estimator_account(member)
    objects = [
        *account_with_token(name),
        *_role_of_account(
            f"karmada-scheduler-estimator:{account(member)}",
            name,
            [
                {"apiGroups": [""], "resources": ["nodes", "pods", "resourcequotas"], "verbs": _READ},
                {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": _READ},
            ],
        ),
    ]
    return marked(objects, owner, control_plane)


_READ = ["get", "list", "watch"]


def account_with_token(name: str) -> list[Object]:
    """Service account on a member, and a Secret that its API server fills with a token of it."""
    return [
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


def role_with_all_rights(name: str, account_name: str) -> list[Object]:
    """ClusterRole with all rights, and its binding to this account of a member."""
    return _role_of_account(name, account_name, member_rights.EVERYTHING)


def _role_of_account(name: str, account_name: str, rules: Sequence[Object], *others: Object) -> list[Object]:
    """ClusterRole with these rules, and its binding to this account of a member and to the other subjects."""
    subject = {"kind": "ServiceAccount", "name": account_name, "namespace": MEMBER_NAMESPACE}
    return rbac.granted(name, rules, subject, *others)


def marked(objects: list[Object], owner: str, control_plane: str) -> list[Object]:
    """Objects with the labels of their owner and an annotation with their control plane."""
    # Like karmadactl join: everything but the tokens.
    for each in objects:
        if each["kind"] != "Secret":
            annotations = each["metadata"].get("annotations") or {}
            each["metadata"] = {
                **each["metadata"],
                "annotations": {**annotations, CONTROL_PLANE_ANNOTATION: control_plane},
            }
    return [labelled(owner, each, system=each["kind"] != "Secret") for each in objects]


def secrets_in_control_plane(
    member: str, owner: str, credentials: Credentials, cluster_uid: str | None
) -> list[Object]:
    """Secrets with the member's credentials; with ``cluster_uid`` they are garbage-collected with the Cluster."""
    contents: dict[str, dict[str, bytes]] = {
        member: {"caBundle": credentials.ca_bundle, "token": credentials.token.encode()},
        f"{member}-impersonator": {"token": credentials.impersonator_token.encode()},
    }
    if credentials.estimator_token:
        contents[estimator_secret(member)] = {
            "caBundle": credentials.ca_bundle,
            "token": credentials.estimator_token.encode(),
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
                "data": base64_files(data),
            }
        )
    return [labelled(owner, each, system=True) for each in secrets]


def cluster(entry: MemberEntry, owner: str, registration: Registration) -> Object:
    """Cluster object of a member; ``entry`` is its part of the document."""
    name = entry.name
    spec: Object = {
        "id": registration.cluster_id,
        "syncMode": entry.mode,
        "apiEndpoint": registration.endpoint,
        "secretRef": {"namespace": MEMBER_NAMESPACE, "name": name},
        "impersonatorSecretRef": {"namespace": MEMBER_NAMESPACE, "name": f"{name}-impersonator"},
    }
    # For a member in mode Pull this is only the installer's way to it, and of no use to the control plane.
    if registration.proxy and not entry.pulls:
        spec["proxyURL"] = registration.proxy
    if registration.insecure and not entry.pulls:
        spec[INSECURE] = True
    spec.update({key: entry.plain[key] for key in ("provider", "region", "zones") if entry.plain.get(key)})
    labels = dict(entry.labels)
    return labelled(
        owner,
        {"apiVersion": CLUSTER_API, "kind": "Cluster", "metadata": {"name": name, "labels": labels}, "spec": spec},
    )


def reached_by(entry: MemberEntry) -> str:
    """Field of a member, in the document or recorded, that locates its kubeconfig; empty if it has none."""
    return next((field for field in REACHED_BY if field in entry.plain), "")


def record(entry: MemberEntry) -> Object:
    """Facts about a member that are needed when its entry is gone: how to reach it, and what leaving means for it.

    ``entry`` is its part of the document, or an earlier record, whose missing fields get their defaults.
    """
    return {
        "mode": entry.mode,
        **{field: dict(entry.plain[field]) for field in REACHED_BY if field in entry.plain},
        "context": entry.context,
        **({"agentHosts": list(entry.agent_hosts)} if entry.agent_hosts else {}),
        "onLeave": entry.on_leave or RETAIN,
        **({INSECURE: True} if entry.insecure else {}),
    }


def changed_record(former: MemberEntry | None, entry: MemberEntry) -> Object:
    """New record of a member whose record was ``former``; until ``settled`` it includes the former mode.

    It also does after a change of mode that was reverted halfway, so that its objects are found and removed.
    """
    found = record(entry)
    if former is None:
        return found
    before = former.mode if former.mode != entry.mode else former.former_mode
    return {**found, FORMER_MODE: before} if before else found


def settled(known: Mapping[str, Any]) -> Object:
    """Record of a member that has reached its mode, with no objects of the former one."""
    return {field: value for field, value in known.items() if field != FORMER_MODE}


def may_have_agent(*known: MemberEntry) -> bool:
    """Return whether a member may have an agent, by any of these: its entry of the document, its records."""
    return any(each.pulls or each.former_mode == PULL for each in known)


def token_secrets(member: str, *, estimator: bool) -> tuple[str, ...]:
    """Names of the Secrets on the member that its API server fills with tokens."""
    return (account(member), IMPERSONATOR, *((estimator_account(member),) if estimator else ()))


def credentials_from(
    secrets: Mapping[str, Mapping[str, Any]], member: str, *, estimator: bool = False
) -> Credentials | None:
    """Credentials in a member's token Secrets (name → Secret); None while its API server has not filled them.

    Raises ProblemsError if they hold something else than tokens.
    """
    data = {name: (secret.get("data") or {}) for name, secret in secrets.items()}
    if not all(data.get(name, {}).get("token") for name in token_secrets(member, estimator=estimator)):
        return None
    ours = data[account(member)]
    if not ours.get("ca.crt"):
        return None

    def filled_in(name: str, key: str = "token") -> bytes:
        return filled(data[name], key, member, f"Secret {MEMBER_NAMESPACE}/{name}")

    return Credentials(
        token=filled_in(account(member)).decode(),
        impersonator_token=filled_in(IMPERSONATOR).decode(),
        ca_bundle=filled_in(account(member), "ca.crt"),
        estimator_token=filled_in(estimator_account(member)).decode() if estimator else "",
    )


def filled(data: Mapping[str, Any], key: str, member: str, secret: str) -> bytes:
    """Value that a member has filled into the key ``token`` or ``ca.crt`` of a Secret with this data: ASCII text.

    Raises ProblemsError for anything else; ``secret`` is the name of the Secret for people.
    """
    try:
        found = base64.b64decode(data[key], validate=True)
        fits = found.isascii() and (key != "token" or found.decode().isprintable())
    except (TypeError, ValueError):
        fits, found = False, b""
    if not fits:
        raise ProblemsError(
            Problem(
                what=f"its key {key}, which that cluster has filled, holds no {'token' if key == 'token' else 'PEM'}",
                where=f"member {member}, {secret}",
                remedy="delete that Secret there, so that it is made and filled anew, and see who else writes it",
                reason=Reason.CREDENTIALS_NOT_ISSUED,
            )
        )
    return found


def estimator_access(cluster: Mapping[str, Any], secret: Mapping[str, Any]) -> bytes:
    """Kubeconfig of a member's estimator: address from its Cluster, token from its Secret in the control plane."""
    member, data = cluster["metadata"]["name"], files_of(secret["data"])
    config = pki_kubeconfig.kubeconfig(
        member,
        cluster["spec"]["apiEndpoint"],
        data["caBundle"],
        "karmada-scheduler-estimator",
        data["token"].decode(),
        context=member,
    )
    return yaml.safe_dump(config, sort_keys=False).encode()


def made_by_karmada_for(member: str, live: Mapping[str, Any]) -> bool:
    """Return whether an object on the member comes from a Work of this member's execution namespace."""
    annotations = live["metadata"].get("annotations") or {}
    labels = live["metadata"].get("labels") or {}
    managed = labels.get("karmada.io/managed") == "true"
    return managed and annotations.get("work.karmada.io/namespace") == f"karmada-es-{member}"
