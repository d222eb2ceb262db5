# SPDX-License-Identifier: Apache-2.0
"""The karmada-agent of a member in mode Pull: what it consists of, and who it is and what it may in the control plane.

It comes to the same as ``karmadactl register`` (Karmada v1.18), with fewer rights: its Cluster is there before it, with
all that the document says of the member, so the agent makes and changes no Cluster, and reads no Secret. No I/O.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.module_utils import agent_identity

from ..api_object import Object
from ..components.flags import AGENT_IDENTITY
from ..components.instance import Instance
from ..components.table import KARMADA_AGENT
from ..components.types import MEMBER_NAMESPACE, SYSTEM_NAMESPACE, KeyPair, Layout, settings_of
from ..control_plane.bootstrap import AGENT_GROUP, AGENT_PREFIX, SYSTEM_LABEL, owner_labels
from ..encoding import base64_text
from ..kube.objects import Ref
from ..labels import MEMBER_LABEL
from ..pki import kubeconfig as pki_kubeconfig
from ..pki import x509
from ..pki.files import CLUSTER_NAME
from ..render.cluster_layout import BASE
from ..render.pods import pod_template
from . import registration
from .works import WORK_API, execution_namespace

ROW = KARMADA_AGENT
ACCOUNT = "karmada-agent-sa"
SECRET = AGENT_IDENTITY
DEPLOYMENT = Ref("apps/v1", "Deployment", ROW.name, MEMBER_NAMESPACE)
#: The Secret with a token of its account, where it runs on hosts; filled by the member.
TOKEN = Ref("v1", "Secret", ACCOUNT, MEMBER_NAMESPACE)
#: An agent is at work by one of these.
ACTS_BY = (DEPLOYMENT, TOKEN)
#: On the Secret with its identity: the fingerprint of the certificate that the installer put there. The agent leaves
#: it when it renews.
ISSUED_ANNOTATION = "installer.karmada.io/issued"
CSR_API = "certificates.k8s.io/v1"
_LEASE_API = "coordination.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io"
_USAGES = ["digital signature", "key encipherment", "client auth"]
#: A signer grants no less.
_SHORTEST_SECONDS = 600
#: Of the validity of a certificate; with more left it is the agent that renews it, from a fifth on.
_LAST_PART = 10
#: Every address of the pod, of either family.
_ANY_ADDRESS = ""


class _Dumper(yaml.SafeDumper):
    """Quotes what Go takes for a number and Python does not, such as the name of a member."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile("[0-9]+e-?[0-9]+|0o[0-7]+"), list(string.digits))


@dataclass(frozen=True, repr=False)
class Identity:
    """Who an agent is, and where it finds the control plane. Has no representation, because it holds a key."""

    pair: KeyPair
    server: str
    ca_pem: bytes
    #: Fingerprint of the certificate that the installer made; ``pair`` may be one that the agent has renewed since.
    issued: str


def user(member: str) -> str:
    """The name of this member's agent in the control plane."""
    return f"{AGENT_PREFIX}{member}"


# -- in the control plane ----------------------------------------------------------------------------------------------


def namespace(member: str, owner: str) -> Object:
    """The execution namespace, in which the agent gets rights. Karmada makes it for a Cluster where it is not there."""
    metadata = {"name": execution_namespace(member), "labels": {SYSTEM_LABEL: "true", **owner_labels(owner)}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def rights(member: str, owner: str) -> list[Object]:
    """What the agent may do in the control plane: its own Cluster, Works and leases, and what all of them read."""
    name, work_group = f"system:karmada:{member}:agent", WORK_API.partition("/")[0]
    cluster_group, config_group = registration.CLUSTER_API.partition("/")[0], "config.karmada.io"
    everywhere = [
        _rule(cluster_group, ["clusters"], ["get"], member),
        _rule(cluster_group, ["clusters"], ["list", "watch"]),
        _rule(cluster_group, ["clusters/status"], ["update"], member),
        _rule(
            config_group,
            ["resourceinterpreterwebhookconfigurations", "resourceinterpretercustomizations"],
            ["get", "list", "watch"],
        ),
        _rule("", ["namespaces"], ["get"]),
        _rule("", ["services"], ["list", "watch"]),
        _rule("", ["events"], ["create", "patch", "update"]),
        _rule("certificates.k8s.io", ["certificatesigningrequests"], ["create", "get"]),
    ]
    works = [
        _rule(work_group, ["works"], ["get", "create", "list", "watch", "update", "delete"]),
        _rule(work_group, ["works/status"], ["patch", "update"]),
    ]
    objects = [
        *_granted(name, None, everywhere, member),
        *_granted(f"{name}-work", execution_namespace(member), works, member),
    ]
    for lease in leases(member):
        # A name cannot be said of what does not exist yet.
        rules = [
            _rule("coordination.k8s.io", ["leases"], ["create"]),
            _rule("coordination.k8s.io", ["leases"], ["get", "update"], lease.name),
        ]
        objects += _granted(f"{name}-lease", lease.namespace, rules, member)
    for each in objects:
        each["metadata"]["labels"] = _labels(member, owner)
    return objects


def leases(member: str) -> tuple[Ref, Ref]:
    """What the agent writes to say that it is there, and that it is the one of several that acts."""
    return (
        Ref(_LEASE_API, "Lease", member, MEMBER_NAMESPACE),
        Ref(_LEASE_API, "Lease", f"{ROW.name}-{member}", SYSTEM_NAMESPACE),
    )


def signing_request(member: str, owner: str, request_pem: bytes, validity: timedelta) -> Object:
    """The request for the agent's certificate, which kube-controller-manager signs when it is approved."""
    return {
        "apiVersion": CSR_API,
        "kind": "CertificateSigningRequest",
        "metadata": {"name": f"{member}-{secrets.token_hex(4)}", "labels": _labels(member, owner)},
        "spec": {
            "request": base64_text(request_pem),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": max(_SHORTEST_SECONDS, min(int(validity.total_seconds()), 2**31 - 1)),
            "usages": _USAGES,
        },
    }


def approved(request: Object, why: str) -> Object:
    """A request, as the API server has it, with the word of whoever asked for it that it may be signed."""
    status = request.get("status") or {}
    condition = {"type": "Approved", "status": "True", "reason": "ListedMember", "message": why}
    return {**request, "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]}}


def selector(member: str, owner: str) -> str:
    """The labels of what was made in the control plane for this member's agent."""
    return ",".join(f"{key}={value}" for key, value in _labels(member, owner).items())


def _labels(member: str, owner: str) -> dict[str, str]:
    return {**owner_labels(owner), MEMBER_LABEL: member}


def _rule(group: str, resources: list[str], verbs: list[str], name: str = "") -> Object:
    rule: Object = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": [name]} if name else rule


def _granted(name: str, home: str | None, rules: list[Object], member: str) -> list[Object]:
    """A role with these rules, in a namespace or not, and its binding to the agent."""
    prefix, metadata = ("", {"namespace": home}) if home else ("Cluster", {})
    version = f"{_RBAC}/v1"
    return [
        {"apiVersion": version, "kind": f"{prefix}Role", "metadata": {"name": name, **metadata}, "rules": rules},
        {
            "apiVersion": version,
            "kind": f"{prefix}RoleBinding",
            "metadata": {"name": name, **metadata},
            "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user(member)}],
        },
    ]


# -- its identity ------------------------------------------------------------------------------------------------------


def identity_of(secret: Mapping[str, Any] | None) -> Identity | None:
    """What the Secret on a member says; None if there is none, or it is not as the agent and the installer write it.

    It is read as the hosts of agents read it, so what one of them would not take is replaced.
    """
    if secret is None:
        return None
    try:
        found = _parts(secret)
    except ValueError:
        return None
    issued = str((secret["metadata"].get("annotations") or {}).get(ISSUED_ANNOTATION, ""))
    return Identity(KeyPair(found.certificate, found.key), found.server, found.authority, issued)


def strange(secret: Mapping[str, Any]) -> str:
    """What in that Secret neither the agent nor the installer writes, in words without its values; empty if nothing."""
    try:
        _parts(secret)
    except ValueError as error:
        return str(error)
    return ""


def _parts(secret: Mapping[str, Any]) -> agent_identity.Parts:
    """Raises ValueError, which says what is not as it should be."""
    data = secret.get("data")
    encoded = data.get(SECRET) if isinstance(data, Mapping) else None
    if not encoded:
        raise ValueError(f"it has no {SECRET}")
    try:
        content = base64.b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise ValueError(f"{SECRET} is not base64") from None
    return agent_identity.read(content)


def reasons_for_a_new_certificate(
    member: str, found: Identity | None, authority: bytes, now: datetime, validity: timedelta
) -> list[str]:
    """Why the agent needs another one, a sentence each; none while it has a good one, which it renews itself.

    ``authority`` is the certificate of whoever signs for kube-controller-manager.
    """
    wanted = x509.Certificate(ROW.name, "", user(member), (AGENT_GROUP,), client=True)
    pair = found.pair if found else None
    # It chooses the kind of key when it renews.
    return x509.reasons_to_reissue(wanted, pair, authority, None, now, validity / _LAST_PART)


def identity_secret(member: str, owner: str, control_plane: str, identity: Identity | None) -> Object:
    """The Secret on the member with the agent's kubeconfig. The user in it has the name by which the agent knows it.

    Without an ``identity`` it is that of one that is still to be made, and empty.
    """
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": SECRET, "namespace": MEMBER_NAMESPACE},
    }
    (marked,) = registration.marked([secret], owner, control_plane)
    if identity:
        config = pki_kubeconfig.kubeconfig(
            CLUSTER_NAME, identity.server, identity.ca_pem, member, identity.pair, context=member
        )
        content = yaml.dump(config, Dumper=_Dumper, sort_keys=False).encode()
        marked["data"] = {SECRET: base64_text(content)}
        marked["metadata"]["annotations"] = {ISSUED_ANNOTATION: identity.issued}
    return marked


# -- on the member -----------------------------------------------------------------------------------------------------


def objects_on_member(
    instance: Instance, member: str, endpoint: str, identity: Identity | None, *, on_hosts: bool = False
) -> list[Object]:
    """The agent and its rights on the member, but for the Secret with its identity; what has to be there first, first.

    ``endpoint`` is the address of the member's API server, as its Cluster has it. Without an ``identity`` the pods are
    those of one that is still to be made. For an agent ``on_hosts`` there is a token of its account in their place.
    """
    account, token = registration.account_with_token(ACCOUNT)
    rights = [account, *registration.role_with_all_rights(ROW.name, ACCOUNT)]
    acts = [token] if on_hosts else [_deployment(instance, member, endpoint, identity)]
    return registration.marked([*rights, *acts], instance.owner, instance.full_name)


def other_form(*, on_hosts: bool) -> Ref:
    """What an agent has on its member where it runs in the other way, and so not where it runs like this."""
    return DEPLOYMENT if on_hosts else TOKEN


def host_access(member: str, endpoint: str, secret: Mapping[str, Any] | None) -> bytes | None:
    """What an agent on a host gets to its member with; None while its API server has not filled the Secret.

    It is a kubeconfig in JSON, which is YAML, too: the hosts' Python has no parser for all of that. Raises
    ProblemsError when what fills it is no token.
    """
    data = (secret or {}).get("data") or {}
    if not (data.get("token") and data.get("ca.crt")):
        return None
    token, ca_pem = (registration.filled(data, key, member, str(TOKEN)) for key in ("token", "ca.crt"))
    return json.dumps(
        pki_kubeconfig.kubeconfig(member, endpoint, ca_pem, ROW.name, token.decode(), context=member), indent=1
    ).encode()


def references() -> list[Ref]:
    """Everything of an agent on its member, what acts first."""
    rbac = f"{_RBAC}/v1"
    return [
        DEPLOYMENT,
        Ref("v1", "Secret", SECRET, MEMBER_NAMESPACE),
        TOKEN,
        Ref("v1", "ServiceAccount", ACCOUNT, MEMBER_NAMESPACE),
        Ref(rbac, "ClusterRoleBinding", ROW.name, None),
        Ref(rbac, "ClusterRole", ROW.name, None),
    ]


def flags(instance: Instance, member: str, endpoint: str) -> list[str]:
    """The command line of this member's agent."""
    return ROW.for_member(member, 0).flags(instance.spec, replace(_LAYOUT, member_url=endpoint))


#: Of all that pods of a control plane have to know the agent needs where its files are.
_LAYOUT = Layout(
    base=BASE,
    data="",
    bind_address=_ANY_ADDRESS,
    apiserver_url="",
    etcd_members=(),
    service_account_issuer="",
    service_subnet="",
    server_names={},
)


def _deployment(instance: Instance, member: str, endpoint: str, identity: Identity | None) -> Object:
    component = ROW.for_member(member, 0)
    pod = pod_template(instance, component, config_hash(identity), flags(instance, member, endpoint))
    spec = pod["spec"]
    spec.update(serviceAccountName=ACCOUNT, automountServiceAccountToken=True)
    spec["volumes"] += [{"name": "kubeconfig", "secret": {"secretName": SECRET, "defaultMode": 0o440}}]
    spec["containers"][0]["volumeMounts"] += [
        {"name": "kubeconfig", "mountPath": f"{BASE}/kubeconfig", "readOnly": True}
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": ROW.name, "namespace": MEMBER_NAMESPACE, "labels": instance.labels(ROW.name, member)},
        "spec": {
            "replicas": settings_of(ROW, instance.spec).get("replicas", 1),
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": instance.selector(ROW.name, member)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pod,
        },
    }


def config_hash(identity: Identity | None) -> str:
    """Changes with what the installer writes for the agent, and not when that renews its certificate.

    A renewed one is read when the process starts again, at the latest when the former one has ended: then the agent
    loses its lease, and ends.
    """
    if identity is None:
        return ""
    parts = (identity.server.encode(), identity.ca_pem, identity.issued.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
