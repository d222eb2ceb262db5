# SPDX-License-Identifier: Apache-2.0
"""Objects that a Karmada control plane needs before it can be used, whatever its processes run on.

Namespaces, RBAC, CRDs with their conversion, the aggregated API and the admission webhooks. The tables follow those of
Karmada v1.18 (``artifacts/deploy``), with all 22 webhooks, which no other installer registers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ..api_object import Object
from ..components import types
from ..components.flags import ESTIMATOR_PORT, ESTIMATOR_SERVICE_PREFIX
from ..components.table import (
    ADMIN,
    COMPONENT_GROUP,
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_METRICS_ADAPTER,
    KARMADA_SCHEDULER_ESTIMATOR,
    KARMADA_SEARCH,
)
from ..components.types import SYSTEM_NAMESPACE, Addresses, LeafCertificate
from ..encoding import base64_text
from ..kube import rbac
from ..kube.objects import Ref
from ..labels import FIELD_MANAGER, MANAGED_BY_LABEL, NAME_LABEL, OWNER_LABEL

MEMBER_NAMESPACE = types.MEMBER_NAMESPACE
SYSTEM_LABEL = "karmada.io/system"
_REGISTRATION = "apiregistration.k8s.io/v1"
#: Group of bearers of a token from ``karmadactl token create``.
BOOTSTRAP_TOKEN_GROUP = "system:bootstrappers:karmada:default-cluster-token"  # noqa: S105 - the name of a group
#: Prefix of an agent's user name; the name of its member follows.
AGENT_PREFIX = "system:karmada:agent:"
#: User suffix, in place of a member's name, with which ``karmadactl register`` creates the rights of an agent.
RIGHTS_GENERATOR = "rbac-generator"
#: Group of the agents of members in mode Pull.
AGENT_GROUP = "system:karmada:agents"


@dataclass(frozen=True)
class Webhook:
    """One admission webhook. ``resources`` is ``<group>/<plural>``; ``scope`` as in the admission API."""

    name: str
    path: str
    resource: str
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    scope: str = "Namespaced"
    timeout_seconds: int = 3
    side_effects: str = "None"
    object_selector: Mapping[str, Any] | None = None


_POLICY, _WORK, _CONFIG, _NETWORKING, _AUTOSCALING = (
    f"{group}.karmada.io" for group in ("policy", "work", "config", "networking", "autoscaling")
)
_CREATE = ("CREATE",)

MUTATING: tuple[Webhook, ...] = (
    Webhook("propagationpolicy.karmada.io", "/mutate-propagationpolicy", f"{_POLICY}/propagationpolicies"),
    Webhook(
        "clusterpropagationpolicy.karmada.io",
        "/mutate-clusterpropagationpolicy",
        f"{_POLICY}/clusterpropagationpolicies",
        scope="Cluster",
    ),
    Webhook("overridepolicy.karmada.io", "/mutate-overridepolicy", f"{_POLICY}/overridepolicies"),
    Webhook("resourcebinding.karmada.io", "/mutate-resourcebinding", f"{_WORK}/resourcebindings", _CREATE),
    Webhook(
        "clusterresourcebinding.karmada.io",
        "/mutate-clusterresourcebinding",
        f"{_WORK}/clusterresourcebindings",
        _CREATE,
        scope="Cluster",
    ),
    Webhook("work.karmada.io", "/mutate-work", f"{_WORK}/works"),
    Webhook("autoscaling.karmada.io", "/mutate-federatedhpa", f"{_AUTOSCALING}/federatedhpas"),
    Webhook("multiclusterservice.karmada.io", "/mutate-multiclusterservice", f"{_NETWORKING}/multiclusterservices"),
)

VALIDATING: tuple[Webhook, ...] = (
    Webhook("propagationpolicy.karmada.io", "/validate-propagationpolicy", f"{_POLICY}/propagationpolicies"),
    Webhook(
        "clusterpropagationpolicy.karmada.io",
        "/validate-clusterpropagationpolicy",
        f"{_POLICY}/clusterpropagationpolicies",
        scope="Cluster",
    ),
    Webhook("overridepolicy.karmada.io", "/validate-overridepolicy", f"{_POLICY}/overridepolicies"),
    Webhook(
        "clusteroverridepolicy.karmada.io",
        "/validate-clusteroverridepolicy",
        f"{_POLICY}/clusteroverridepolicies",
        scope="Cluster",
    ),
    Webhook(
        "config.karmada.io",
        "/validate-resourceinterpreterwebhookconfiguration",
        f"{_CONFIG}/resourceinterpreterwebhookconfigurations",
        scope="Cluster",
    ),
    Webhook(
        "resourceinterpretercustomization.karmada.io",
        "/validate-resourceinterpretercustomization",
        f"{_CONFIG}/resourceinterpretercustomizations",
        scope="Cluster",
        timeout_seconds=10,
    ),
    Webhook(
        "federatedresourcequota.karmada.io", "/validate-federatedresourcequota", f"{_POLICY}/federatedresourcequotas"
    ),
    Webhook("multiclusteringress.karmada.io", "/validate-multiclusteringress", f"{_NETWORKING}/multiclusteringresses"),
    Webhook("federatedhpa.karmada.io", "/validate-federatedhpa", f"{_AUTOSCALING}/federatedhpas"),
    Webhook("cronfederatedhpa.karmada.io", "/validate-cronfederatedhpa", f"{_AUTOSCALING}/cronfederatedhpas"),
    Webhook("multiclusterservice.karmada.io", "/validate-multiclusterservice", f"{_NETWORKING}/multiclusterservices"),
    Webhook(
        "resourcedeletionprotection.karmada.io",
        "/validate-resourcedeletionprotection",
        "*/*",
        ("DELETE",),
        scope="*",
        object_selector={
            "matchExpressions": [{"key": "resourcetemplate.karmada.io/deletion-protected", "operator": "Exists"}]
        },
    ),
    Webhook(
        "resourcebinding.karmada.io",
        "/validate-resourcebinding",
        f"{_WORK}/resourcebindings",
        side_effects="NoneOnDryRun",
    ),
    Webhook(
        "clustertaintpolicy.karmada.io",
        "/validate-clustertaintpolicy",
        f"{_POLICY}/clustertaintpolicies",
        scope="Cluster",
    ),
)

#: Binding that gives people the rights to run the control plane.
ADMINISTRATORS = "system:karmada:administrators"
#: Obsolete objects of earlier versions.
FORMER_RIGHTS = (
    # It would keep access to members open to an administrator whose binding was removed.
    Ref(rbac.API_VERSION, "ClusterRoleBinding", "cluster-proxy-admin"),
)

#: CRDs converted by the webhook; both have an older stored version.
CONVERTED_CRDS = ("clusterresourcebindings.work.karmada.io", "resourcebindings.work.karmada.io")


def owner_labels(owner: str) -> dict[str, str]:
    """Labels of every object that we create in a control plane or on a member."""
    return {MANAGED_BY_LABEL: FIELD_MANAGER, OWNER_LABEL: owner}


@dataclass(frozen=True)
class AggregatedApi:
    """A version of an API group that a component serves behind the API server."""

    component: str
    group: str
    version: str
    group_priority: int
    version_priority: int


_METRICS = KARMADA_METRICS_ADAPTER.name
AGGREGATED_APIS: tuple[AggregatedApi, ...] = (
    AggregatedApi(KARMADA_AGGREGATED_APISERVER.name, "cluster.karmada.io", "v1alpha1", 2000, 10),
    AggregatedApi(KARMADA_SEARCH.name, "search.karmada.io", "v1alpha1", 2000, 10),
    AggregatedApi(_METRICS, "metrics.k8s.io", "v1beta1", 2000, 10),
    AggregatedApi(_METRICS, "custom.metrics.k8s.io", "v1beta1", 100, 200),
    AggregatedApi(_METRICS, "custom.metrics.k8s.io", "v1beta2", 100, 200),
)


def rights(owner: str, administrator: LeafCertificate = ADMIN) -> list[Object]:
    """Namespaces and RBAC that components need to start, and people to administer the control plane."""
    return [labelled(owner, each) for each in (*_namespaces(), *_rights(), _administrators(administrator))]


def registration(owner: str) -> list[Object]:
    """RBAC that lets bearers of a bootstrap token register a cluster by ``karmadactl register``.

    It makes the bearer an administrator: Karmada approves every certificate request for the agents' group, including
    one for the user that creates rights of agents, and that user has all rights. A policy cannot tell these requests
    apart, because the subject is inside an encoded X.509 request, which CEL cannot read.
    """
    approve = "system:karmada:certificatesigningrequest:autoapprover"
    generator = "system:karmada:agent-rbac-generator"
    objects = [
        _binding_of_group("system:karmada:agent-bootstrap", "system:node-bootstrapper", BOOTSTRAP_TOKEN_GROUP),
        rbac.role(approve, _may_ask_for("clusteragent")),
        _binding_of_group("system:karmada:agent-autoapprove-bootstrap", approve, BOOTSTRAP_TOKEN_GROUP),
        # The role is named after the task, the user after the certificate that karmadactl register requests.
        *rbac.granted(
            generator,
            [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            rbac.user(f"{AGENT_PREFIX}{RIGHTS_GENERATOR}"),
        ),
    ]
    return [labelled(owner, each) for each in objects]


def foundation(owner: str, crds: Sequence[Object], addresses: Addresses) -> list[Object]:
    """CRDs and the Services of aggregated APIs, which components need to work."""
    services = [_external_service(name, host) for name, (host, _port) in addresses.aggregated.items()]
    return [labelled(owner, each) for each in (*services, *with_conversion(crds, addresses))]


def aggregation(owner: str, addresses: Addresses, components: Collection[str]) -> list[Object]:
    """APIServices of these components, to apply once they answer: an unavailable one stalls garbage collection."""
    return [labelled(owner, _api_service(api, addresses)) for api in AGGREGATED_APIS if api.component in components]


def estimator_services(owner: str, addresses: Mapping[str, tuple[str, int]]) -> list[Object]:
    """Services by which scheduler and descheduler find each member's estimator: member → DNS name and port.

    They look for a Service of this name, which must be an ExternalName with their default port.
    """
    name = KARMADA_SCHEDULER_ESTIMATOR.name
    services = []
    for member, (host, port) in addresses.items():
        service = _external_service(f"{ESTIMATOR_SERVICE_PREFIX}-{member}", host)
        service["metadata"]["labels"] = {NAME_LABEL: name}
        service["spec"]["ports"] = [{"name": "grpc", "port": ESTIMATOR_PORT, "protocol": "TCP", "targetPort": port}]
        services.append(labelled(owner, service))
    return services


def of_component(component: str) -> list[Ref]:
    """Objects of a component in the control plane, for their removal."""
    served = (f"{api.version}.{api.group}" for api in AGGREGATED_APIS if api.component == component)
    found = [Ref(_REGISTRATION, "APIService", name) for name in served]
    return [*found, Ref("v1", "Service", component, SYSTEM_NAMESPACE)] if found else []


def _api_service(api: AggregatedApi, addresses: Addresses) -> Object:
    return {
        "apiVersion": _REGISTRATION,
        "kind": "APIService",
        "metadata": {"name": f"{api.version}.{api.group}"},
        "spec": {
            "group": api.group,
            "version": api.version,
            "groupPriorityMinimum": api.group_priority,
            "versionPriority": api.version_priority,
            "caBundle": base64_text(addresses.ca_bundle),
            "service": {
                "name": api.component,
                "namespace": SYSTEM_NAMESPACE,
                "port": addresses.aggregated[api.component][1],
            },
        },
    }


def admission(owner: str, addresses: Addresses) -> list[Object]:
    """Webhook configurations, to apply once their server answers: they fail closed."""
    return [
        labelled(owner, _webhook_configuration("Mutating", "mutating-config", MUTATING, addresses)),
        labelled(owner, _webhook_configuration("Validating", "validating-config", VALIDATING, addresses)),
    ]


def discovery(owner: str, addresses: Addresses) -> list[Object]:
    """Objects by which a cluster that registers itself learns whom to trust; readable by everyone, as with kubeadm."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "",
                "cluster": {
                    "certificate-authority-data": base64_text(addresses.ca_bundle),
                    "server": addresses.public_url,
                },
            }
        ],
    }
    objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cluster-info", "namespace": "kube-public"},
            "data": {"kubeconfig": yaml.safe_dump(kubeconfig, sort_keys=False)},
        },
        *rbac.granted(
            "system:karmada:bootstrap-signer-clusterinfo",
            [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["cluster-info"], "verbs": ["get"]}],
            rbac.user("system:anonymous"),
            namespace="kube-public",
        ),
    ]
    return [labelled(owner, each) for each in objects]


def with_conversion(crds: Iterable[Object], addresses: Addresses) -> list[Object]:
    """CRDs, with the conversion webhook for those that need it."""
    found = []
    for crd in crds:
        each = copy.deepcopy(crd)
        if each["metadata"]["name"] in CONVERTED_CRDS:
            each["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {
                        "url": f"{addresses.webhook_url}/convert",
                        "caBundle": base64_text(addresses.ca_bundle),
                    },
                    "conversionReviewVersions": ["v1"],
                },
            }
        each.pop("status", None)
        found.append(each)
    return found


def _namespaces() -> list[Object]:
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {SYSTEM_LABEL: "true"}}}
        for name in (SYSTEM_NAMESPACE, MEMBER_NAMESPACE)
    ]


def _external_service(name: str, host: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": host},
    }


def _aggregated(name: str, to: str, rules: list[Object]) -> Object:
    """ClusterRole whose rules Kubernetes adds to its own role ``to``."""
    found = rbac.role(name, rules)
    found["metadata"]["labels"] = {f"{rbac.GROUP}/aggregate-to-{to}": "true"}
    return found


def _binding_of_group(name: str, role: str, group: str) -> Object:
    return rbac.binding(name, role, rbac.groups([group]))


#: API group → resources of Karmada that a user of a namespace may view or edit.
_USER_RESOURCES: Mapping[str, tuple[str, ...]] = {
    _AUTOSCALING: ("cronfederatedhpas", "federatedhpas"),
    "multicluster.x-k8s.io": ("serviceexports", "serviceimports"),
    _NETWORKING: ("multiclusteringresses", "multiclusterservices"),
    _POLICY: ("overridepolicies", "propagationpolicies"),
    _WORK: ("resourcebindings", "works"),
}
_WITHOUT_STATUS = ("overridepolicies", "propagationpolicies")


def _user_rules(verbs: list[str]) -> list[Object]:
    return [
        {
            "apiGroups": [group],
            "resources": [
                name
                for resource in resources
                for name in ((resource,) if resource in _WITHOUT_STATUS else (resource, f"{resource}/status"))
            ],
            "verbs": verbs,
        }
        for group, resources in _USER_RESOURCES.items()
    ]


def _administrators(administrator: LeafCertificate) -> Object:
    """Binding that alone makes administrators: without it, those that it names have no rights.

    Karmada proxies to members only for users whose name and groups are both bound to rights on ``clusters/proxy``.
    """
    subjects = [*rbac.groups(administrator.organizations), rbac.user(administrator.common_name)]
    return rbac.binding(ADMINISTRATORS, "cluster-admin", subjects)


def _may_ask_for(certificate: str) -> list[Object]:
    """Rules by which Karmada approves requests for a certificate of this kind."""
    resources = [f"certificatesigningrequests/{certificate}"]
    return [{"apiGroups": ["certificates.k8s.io"], "resources": resources, "verbs": ["create"]}]


def _rights() -> list[Object]:
    renew, proxy = "system:karmada:certificatesigningrequest:selfautoapprover", "cluster-proxy-admin"
    return [
        # Karmada's controllers act on any kind that a user propagates, so today they need all rights; by RBAC rather
        # than by system:masters, so that the rights can be narrowed and removed.
        _binding_of_group("system:karmada:components", "cluster-admin", COMPONENT_GROUP),
        rbac.role(proxy, [{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]}]),
        _aggregated("karmada-view", "view", _user_rules(["get", "list", "watch"])),
        _aggregated("karmada-edit", "edit", _user_rules(["create", "delete", "deletecollection", "patch", "update"])),
        # An agent renews its certificate. Karmada approves the request if the requester has the requested name.
        rbac.role(renew, _may_ask_for("selfclusteragent")),
        _binding_of_group("system:karmada:agent-autoapprove-certificate-rotation", renew, AGENT_GROUP),
    ]


def _webhook_configuration(kind: str, name: str, webhooks: Sequence[Webhook], addresses: Addresses) -> Object:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [_webhook(webhook, addresses) for webhook in webhooks],
    }


def _webhook(webhook: Webhook, addresses: Addresses) -> Object:
    group, resource = webhook.resource.split("/")
    entry: Object = {
        "name": webhook.name,
        "rules": [
            {
                "operations": list(webhook.operations),
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": [resource],
                "scope": webhook.scope,
            }
        ],
        "clientConfig": {
            "url": f"{addresses.webhook_url}{webhook.path}",
            "caBundle": base64_text(addresses.ca_bundle),
        },
        "failurePolicy": "Fail",
        "sideEffects": webhook.side_effects,
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": webhook.timeout_seconds,
    }
    if webhook.object_selector:
        entry["objectSelector"] = dict(webhook.object_selector)
    return entry


def labelled(owner: str, each: Object, *, system: bool = False) -> Object:
    """Object with the labels of its owner, and with Karmada's label of its own objects if it is a ``system`` one."""
    metadata = each["metadata"]
    labels = {**metadata.get("labels", {}), **owner_labels(owner), **({SYSTEM_LABEL: "true"} if system else {})}
    return {**each, "metadata": {**metadata, "labels": labels}}
