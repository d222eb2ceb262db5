# SPDX-License-Identifier: Apache-2.0
"""The karmada-agent of a member in mode Pull: its objects, its identity, and its rights in the control plane.

Equivalent to ``karmadactl register`` (Karmada v1.18) with fewer rights: its Cluster exists before it, with all settings
of the member from the document, so the agent creates and changes no Cluster, and reads no Secret. No I/O.
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
from ..components.spec import MemberEntry
from ..components.table import KARMADA_AGENT
from ..components.types import MEMBER_NAMESPACE, SYSTEM_NAMESPACE, KeyPair, Layout, settings_of
from ..control_plane.bootstrap import AGENT_GROUP, AGENT_PREFIX, SYSTEM_LABEL, owner_labels
from ..encoding import base64_text
from ..kube import rbac
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
#: Secret with a token of its account, if it runs on hosts; filled by the member.
TOKEN = Ref("v1", "Secret", ACCOUNT, MEMBER_NAMESPACE)
#: An agent works as long as one of these exists.
ACTS_BY = (DEPLOYMENT, TOKEN)
#: On the Secret with its identity: the fingerprint of the certificate that the installer put there. The agent keeps it
#: when it renews.
ISSUED_ANNOTATION = "installer.karmada.io/issued"
CSR_API = "certificates.k8s.io/v1"
_LEASE_API = "coordination.k8s.io/v1"
_USAGES = ["digital signature", "key encipherment", "client auth"]
#: Shortest validity that a signer grants.
_SHORTEST_SECONDS = 600
#: Denominator: the installer reissues in the last tenth of the validity; the agent renews from the last fifth on.
_LAST_PART = 10
#: All addresses of the pod, of both IP families.
_ANY_ADDRESS = ""


def log_of(instance: Instance, entry: MemberEntry) -> str:
    """Command that shows the log of a member's agent, and where it is run; ``entry`` is listed or on record."""
    if entry.agent_hosts:
        return f"journalctl -u karmada-{instance.object_name(f'agent-{entry.name}')} on {', '.join(entry.agent_hosts)}"
    return f"kubectl logs -n {MEMBER_NAMESPACE} deployment/{ROW.name} on the member"


class _Dumper(yaml.SafeDumper):
    """YAML dumper that quotes strings which only Go reads as numbers; the name of a member may be one."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile("[0-9]+e-?[0-9]+|0o[0-7]+"), list(string.digits))


@dataclass(frozen=True, repr=False)
class Identity:
    """Certificate of an agent and its way to the control plane. Has no repr, because it holds a key."""

    pair: KeyPair
    server: str
    ca_pem: bytes
    #: Fingerprint of the certificate that the installer issued; ``pair`` may be one that the agent has renewed since.
    issued: str


def user(member: str) -> str:
    """User name of this member's agent in the control plane."""
    return f"{AGENT_PREFIX}{member}"


# -- in the control plane ----------------------------------------------------------------------------------------------


def namespace(member: str, owner: str) -> Object:
    """Execution namespace, in which the agent gets rights. Karmada creates it for a Cluster if it is missing."""
    metadata = {"name": execution_namespace(member), "labels": {SYSTEM_LABEL: "true", **owner_labels(owner)}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def rights(member: str, owner: str) -> list[Object]:
    """RBAC of the agent in the control plane: its own Cluster, Works and leases, and what every agent reads."""
    name, work_group = f"system:karmada:{member}:agent", WORK_API.partition("/")[0]
    agent = rbac.user(user(member))
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
        *rbac.granted(name, everywhere, agent),
        *rbac.granted(f"{name}-work", works, agent, namespace=execution_namespace(member)),
    ]
    for lease in leases(member):
        # RBAC cannot restrict create to a name.
        rules = [
            _rule("coordination.k8s.io", ["leases"], ["create"]),
            _rule("coordination.k8s.io", ["leases"], ["get", "update"], lease.name),
        ]
        objects += rbac.granted(f"{name}-lease", rules, agent, namespace=lease.namespace)
    for each in objects:
        each["metadata"]["labels"] = _labels(member, owner)
    return objects


def leases(member: str) -> tuple[Ref, Ref]:
    """Leases of the agent: the heartbeat of its Cluster, and leader election among its replicas."""
    return (
        Ref(_LEASE_API, "Lease", member, MEMBER_NAMESPACE),
        Ref(_LEASE_API, "Lease", f"{ROW.name}-{member}", SYSTEM_NAMESPACE),
    )


def signing_request(member: str, owner: str, request_pem: bytes, validity: timedelta) -> Object:
    """CertificateSigningRequest of the agent, which kube-controller-manager signs once it is approved."""
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


def asks_for(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether this CertificateSigningRequest asks for the wanted certificate, and for the same key."""
    return all(live["spec"].get(field) == value for field, value in wanted["spec"].items())


def approved(request: Object, why: str) -> Object:
    """CertificateSigningRequest as read from the API server, with the condition Approved and ``why`` as its message."""
    status = request.get("status") or {}
    condition = {"type": "Approved", "status": "True", "reason": "ListedMember", "message": why}
    return {**request, "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]}}


def selector(member: str, owner: str) -> str:
    """Label selector of the objects in the control plane for this member's agent."""
    return ",".join(f"{key}={value}" for key, value in _labels(member, owner).items())


def _labels(member: str, owner: str) -> dict[str, str]:
    return {**owner_labels(owner), MEMBER_LABEL: member}


def _rule(group: str, resources: list[str], verbs: list[str], name: str = "") -> Object:
    rule: Object = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": [name]} if name else rule


# -- its identity ------------------------------------------------------------------------------------------------------


def identity_of(secret: Mapping[str, Any] | None) -> Identity | None:
    """Identity in the Secret on a member; None if there is none, or its content is not what agent or installer write.

    It is parsed as the hosts of agents do, so an identity that one of them would refuse is replaced.
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
    """Reason why that Secret was not written by the agent or the installer, without its values; empty if it was."""
    try:
        _parts(secret)
    except ValueError as error:
        return str(error)
    return ""


def _parts(secret: Mapping[str, Any]) -> agent_identity.Parts:
    """Content of the Secret. Raises ValueError with the reason why it is invalid."""
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
    """Reasons why the agent needs another certificate, a sentence each; empty while it can renew a good one itself.

    ``authority`` is the CA certificate with which kube-controller-manager signs.
    """
    wanted = x509.Certificate(ROW.name, "", user(member), (AGENT_GROUP,), client=True)
    pair = found.pair if found else None
    # The agent chooses the key algorithm when it renews.
    return x509.reasons_to_reissue(wanted, pair, authority, None, now, validity / _LAST_PART)


def identity_secret(member: str, owner: str, control_plane: str, identity: Identity | None) -> Object:
    """Secret on the member with the agent's kubeconfig, whose user has the name that the agent expects.

    Without an ``identity`` it has no data and stands for one that is not issued yet.
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
    """Agent and its rights on the member, without the Secret with its identity, in order of creation.

    ``endpoint`` is the address of the member's API server, as in its Cluster. Without an ``identity`` the pods are
    those of one that is not issued yet. An agent ``on_hosts`` has a token of its account instead of pods.
    """
    account, token = registration.account_with_token(ACCOUNT)
    rights = [account, *registration.role_with_all_rights(ROW.name, ACCOUNT)]
    acts = [token] if on_hosts else [_deployment(instance, member, endpoint, identity)]
    return registration.marked([*rights, *acts], instance.owner, instance.full_name)


def other_form(*, on_hosts: bool) -> Ref:
    """Object on the member of an agent in the other form: its Deployment (in pods) or its token (on hosts)."""
    return DEPLOYMENT if on_hosts else TOKEN


def host_access(member: str, endpoint: str, secret: Mapping[str, Any] | None) -> bytes | None:
    """Kubeconfig with which an agent on a host reaches its member; None while its API server has not filled the Secret.

    It is JSON, and so YAML, too: the hosts' Python has no YAML parser. Raises ProblemsError if the Secret is filled
    with something else than a token.
    """
    data = (secret or {}).get("data") or {}
    if not (data.get("token") and data.get("ca.crt")):
        return None
    token, ca_pem = (registration.filled(data, key, member, str(TOKEN)) for key in ("token", "ca.crt"))
    return json.dumps(
        pki_kubeconfig.kubeconfig(member, endpoint, ca_pem, ROW.name, token.decode(), context=member), indent=1
    ).encode()


def references() -> list[Ref]:
    """Objects of an agent on its member, the Deployment first."""
    return [
        DEPLOYMENT,
        Ref("v1", "Secret", SECRET, MEMBER_NAMESPACE),
        TOKEN,
        Ref("v1", "ServiceAccount", ACCOUNT, MEMBER_NAMESPACE),
        Ref(rbac.API_VERSION, "ClusterRoleBinding", ROW.name, None),
        Ref(rbac.API_VERSION, "ClusterRole", ROW.name, None),
    ]


def flags(instance: Instance, member: str, endpoint: str) -> list[str]:
    """Command line of this member's agent."""
    return ROW.for_member(member, 0).flags(instance.spec, replace(_LAYOUT, member_url=endpoint))


#: Layout of the agent: of the values for pods of a control plane it needs only the directory of its files.
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
            "replicas": settings_of(ROW, instance.spec).replicas,
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": instance.selector(ROW.name, member)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": pod,
        },
    }


def config_hash(identity: Identity | None) -> str:
    """Hash of what the installer writes for the agent; a renewal of its certificate does not change it.

    A renewed certificate is read when the process restarts, at the latest when the former one has expired: then the
    agent loses its lease and exits.
    """
    if identity is None:
        return ""
    parts = (identity.server.encode(), identity.ca_pem, identity.issued.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
