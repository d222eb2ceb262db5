# SPDX-License-Identifier: Apache-2.0
"""The one table of components: what each process of a control plane is, whatever it runs on.

A port, probe, certificate or file stands here once, a flag in ``components.flags``; the renderers turn the same rows
into objects of a host cluster or into units of plain hosts.

Facts about ports and probes are those of Karmada v1.18 and Kubernetes v1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from . import audit_policy, flags
from .flags import ETCD_CLIENT_DIRECTORY
from .releases import Image
from .types import (
    Call,
    Component,
    ConfigFiles,
    FileSet,
    Health,
    Holds,
    LeafCertificate,
    Scheme,
    external_etcd,
    members_with_agent_hosts,
    pulls,
    pushed_members,
)

# Authorities. Each is trusted for one thing only, so that revoking one leaves the others alone.
KARMADA_CA = "karmada-ca"  # serving certificates and component identities
CLIENT_SIGNING_CA = "client-signing-ca"  # what kube-controller-manager signs for certificate requests
FRONT_PROXY_CA = "front-proxy-ca"  # the aggregator's identity towards extension API servers
ETCD_CA = "etcd-ca"  # both ports of etcd
AUTHORITIES: Mapping[str, str] = {
    KARMADA_CA: "karmada-ca",
    CLIENT_SIGNING_CA: "karmada-client-signing-ca",
    FRONT_PROXY_CA: "karmada-front-proxy-ca",
    ETCD_CA: "karmada-etcd-ca",
}

#: Peers prove themselves by this common name; any other certificate of the same authority is refused on the peer port.
ETCD_PEER_COMMON_NAME = "system:karmada:etcd-peer"
#: Group of the component identities; bound to its rights by RBAC, so that it can be narrowed without new certificates.
COMPONENT_GROUP = "system:karmada:components"
#: Group of the people who run the control plane; bound to its rights by RBAC, so that they can be taken away.
ADMINISTRATOR_GROUP = "system:karmada:administrators"


def _serving_certificate(name: str) -> LeafCertificate:
    return LeafCertificate(name=name, authority=KARMADA_CA, common_name=f"system:karmada:{name}", server=True)


def _identity_certificate(name: str, common_name: str = "", group: str = COMPONENT_GROUP) -> LeafCertificate:
    return LeafCertificate(
        name=f"{name}-identity",
        authority=KARMADA_CA,
        common_name=common_name or f"system:karmada:{name}",
        organizations=(group,) if group else (),
        client=True,
    )


def _etcd_client_certificate(name: str) -> LeafCertificate:
    common_name = f"system:karmada:{name}-etcd-client"
    return LeafCertificate(name=f"{name}-etcd-client", authority=ETCD_CA, common_name=common_name, client=True)


def _certificate_files(certificate: LeafCertificate, directory: str) -> FileSet:
    return FileSet(f"{certificate.name}-cert", f"pki/{directory}", Holds.CERTIFICATE, certificate.name)


def _identity_files(certificate: LeafCertificate) -> FileSet:
    return FileSet(f"{certificate.name.removesuffix('-identity')}-config", "config", Holds.IDENTITY, certificate.name)


_ETCD_SERVER = LeafCertificate("etcd-server", ETCD_CA, "system:karmada:etcd-server", server=True, client=True)
_ETCD_PEER = LeafCertificate("etcd-peer", ETCD_CA, ETCD_PEER_COMMON_NAME, server=True)
# Peers dial with a certificate without names: etcd would otherwise look each of them up and compare it with the remote
# address, which fails behind address translation and while DNS is not yet there.
_ETCD_PEER_CLIENT = LeafCertificate("etcd-peer-client", ETCD_CA, ETCD_PEER_COMMON_NAME, client=True)
_APISERVER = _serving_certificate("karmada-apiserver")
_APISERVER_ETCD = _etcd_client_certificate("karmada-apiserver")
_FRONT_PROXY = LeafCertificate("front-proxy-client", FRONT_PROXY_CA, "front-proxy-client", client=True)
_AGGREGATED = _serving_certificate("karmada-aggregated-apiserver")
_AGGREGATED_ETCD = _etcd_client_certificate("karmada-aggregated-apiserver")
_AGGREGATED_IDENTITY = _identity_certificate("karmada-aggregated-apiserver")
_KUBE_CONTROLLER_MANAGER = _serving_certificate("kube-controller-manager")
# Kubernetes' own bootstrap policy gives this user exactly what it needs.
_KUBE_CONTROLLER_MANAGER_IDENTITY = _identity_certificate(
    "kube-controller-manager", common_name="system:kube-controller-manager", group=""
)
_CONTROLLER_MANAGER_IDENTITY = _identity_certificate("karmada-controller-manager")
_SCHEDULER_IDENTITY = _identity_certificate("karmada-scheduler")
_WEBHOOK = _serving_certificate("karmada-webhook")
_WEBHOOK_IDENTITY = _identity_certificate("karmada-webhook")
_DESCHEDULER_IDENTITY = _identity_certificate("karmada-descheduler")
_SEARCH = _serving_certificate("karmada-search")
_SEARCH_ETCD = _etcd_client_certificate("karmada-search")
_SEARCH_IDENTITY = _identity_certificate("karmada-search")
_METRICS_ADAPTER = _serving_certificate("karmada-metrics-adapter")
_METRICS_ADAPTER_IDENTITY = _identity_certificate("karmada-metrics-adapter")
_SCHEDULER_ESTIMATOR = _serving_certificate("karmada-scheduler-estimator")
_EXTERNAL_ETCD_FILES = FileSet("external-etcd-client", f"pki/{ETCD_CLIENT_DIRECTORY}", Holds.EXTERNAL_ETCD)

#: The administrator's identity. Not of a component: it goes to the people who run the control plane.
ADMIN = LeafCertificate("admin", KARMADA_CA, "system:admin", organizations=(ADMINISTRATOR_GROUP,), client=True)

_ENCRYPTION_FILES = FileSet("karmada-apiserver-encryption", "encryption", Holds.ENCRYPTION)
_CLIENT_AUTHORITIES_FILES = FileSet("client-ca", "pki/client-ca", Holds.CLIENT_AUTHORITIES)

_TO_ETCD, _TO_APISERVER = Call("etcd", "client"), Call("karmada-apiserver", "https")
_TO_ESTIMATORS = Call("karmada-scheduler-estimator", "grpc")

ETCD = Component(
    name="etcd",
    field="etcd",
    binary="/usr/local/bin/etcd",
    image=Image(registry="etcdRegistry", repository="etcd", release="etcd"),
    ports={"client": 2379, "peer": 2380, "metrics": 2381},
    port_flags={"client": "listen-client-urls", "peer": "listen-peer-urls", "metrics": "listen-metrics-urls"},
    served_port="client",
    health=Health(port="metrics", live="/livez", ready="/readyz"),
    arguments=flags.etcd,
    calls=(Call("etcd", "peer"),),
    calls_nobody_else=True,
    read_again=("tls.crt", "tls.key"),
    settings_file="etcd.yaml",
    keeps_data=True,
    metrics_port="metrics",
    certificates=(_ETCD_SERVER, _ETCD_PEER, _ETCD_PEER_CLIENT),
    file_sets=(
        _certificate_files(_ETCD_SERVER, "server"),
        _certificate_files(_ETCD_PEER, "peer"),
        _certificate_files(_ETCD_PEER_CLIENT, "peer-client"),
    ),
)

KARMADA_APISERVER = Component(
    name="karmada-apiserver",
    field="karmadaAPIServer",
    binary="/usr/local/bin/kube-apiserver",
    image=Image(registry="kubeRegistry", repository="kube-apiserver", release="kubernetes"),
    ports={"https": 5443},
    served_port="https",
    health=Health(port="https", live="/livez", ready="/readyz", scheme=Scheme.HTTPS),
    arguments=flags.kube_apiserver,
    takes_feature_gates=True,
    calls=(
        _TO_ETCD,
        Call("karmada-aggregated-apiserver", "https"),
        Call("karmada-search", "https"),
        Call("karmada-metrics-adapter", "https"),
        Call("karmada-webhook", "https"),
    ),
    for_everybody=True,
    metrics_port="https",
    certificates=(_APISERVER, _APISERVER_ETCD, _FRONT_PROXY),
    file_sets=(
        _certificate_files(_APISERVER, "server"),
        _CLIENT_AUTHORITIES_FILES,
        _certificate_files(_APISERVER_ETCD, ETCD_CLIENT_DIRECTORY),
        _certificate_files(_FRONT_PROXY, "front-proxy-client"),
        FileSet("karmada-apiserver-service-account", "pki/service-account", Holds.SERVICE_ACCOUNT_PAIR),
        _ENCRYPTION_FILES,
    ),
    config_files=(ConfigFiles("karmada-apiserver-audit", "audit", audit_policy.files),),
)

KARMADA_AGGREGATED_APISERVER = Component(
    name="karmada-aggregated-apiserver",
    field="karmadaAggregatedAPIServer",
    binary="/bin/karmada-aggregated-apiserver",
    image=Image(registry="karmadaRegistry", repository="karmada-aggregated-apiserver", release="karmada"),
    ports={"https": 7443},
    served_port="https",
    health=Health(port="https", live="/livez", ready="/readyz", scheme=Scheme.HTTPS),
    arguments=flags.stored_extension_apiserver,
    takes_feature_gates=True,
    calls=(_TO_ETCD, _TO_APISERVER),
    metrics_port="https",
    certificates=(_AGGREGATED, _AGGREGATED_ETCD, _AGGREGATED_IDENTITY),
    file_sets=(
        _certificate_files(_AGGREGATED, "server"),
        _certificate_files(_AGGREGATED_ETCD, ETCD_CLIENT_DIRECTORY),
        _identity_files(_AGGREGATED_IDENTITY),
    ),
)

KUBE_CONTROLLER_MANAGER = Component(
    name="kube-controller-manager",
    field="kubeControllerManager",
    binary="/usr/local/bin/kube-controller-manager",
    image=Image(registry="kubeRegistry", repository="kube-controller-manager", release="kubernetes"),
    ports={"https": 10257},
    health=Health(port="https", live="/healthz", ready="/healthz", scheme=Scheme.HTTPS),
    arguments=flags.kube_controller_manager,
    takes_feature_gates=True,
    calls=(_TO_APISERVER,),
    calls_nobody_else=True,
    metrics_port="https",
    certificates=(_KUBE_CONTROLLER_MANAGER, _KUBE_CONTROLLER_MANAGER_IDENTITY),
    file_sets=(
        _certificate_files(_KUBE_CONTROLLER_MANAGER, "server"),
        _CLIENT_AUTHORITIES_FILES,
        FileSet("kube-controller-manager-signing", "pki/signing", Holds.SIGNING_AUTHORITY),
        FileSet("kube-controller-manager-service-account", "pki/service-account", Holds.SERVICE_ACCOUNT_KEY),
        _identity_files(_KUBE_CONTROLLER_MANAGER_IDENTITY),
    ),
)

KARMADA_CONTROLLER_MANAGER = Component(
    name="karmada-controller-manager",
    field="karmadaControllerManager",
    binary="/bin/karmada-controller-manager",
    image=Image(registry="karmadaRegistry", repository="karmada-controller-manager", release="karmada"),
    ports={"health": 10357, "metrics": 10367},
    health=Health(port="health", live="/healthz", ready="/healthz"),
    arguments=flags.controller_manager,
    takes_feature_gates=True,
    calls=(_TO_APISERVER,),
    metrics_port="metrics",
    certificates=(_CONTROLLER_MANAGER_IDENTITY,),
    file_sets=(_identity_files(_CONTROLLER_MANAGER_IDENTITY),),
)

KARMADA_SCHEDULER = Component(
    name="karmada-scheduler",
    field="karmadaScheduler",
    binary="/bin/karmada-scheduler",
    image=Image(registry="karmadaRegistry", repository="karmada-scheduler", release="karmada"),
    ports={"health": 10351, "metrics": 10361},
    health=Health(port="health", live="/healthz", ready="/healthz"),
    arguments=flags.scheduler,
    takes_feature_gates=True,
    calls=(_TO_APISERVER, _TO_ESTIMATORS),
    metrics_port="metrics",
    certificates=(_SCHEDULER_IDENTITY,),
    file_sets=(_identity_files(_SCHEDULER_IDENTITY),),
)

KARMADA_WEBHOOK = Component(
    name="karmada-webhook",
    field="karmadaWebhook",
    binary="/bin/karmada-webhook",
    image=Image(registry="karmadaRegistry", repository="karmada-webhook", release="karmada"),
    # The health listener has no check behind it; the serving port answers /readyz itself.
    ports={"https": 8443, "health": 8000, "metrics": 8001},
    served_port="https",
    health=Health(port="https", live="/readyz", ready="/readyz", scheme=Scheme.HTTPS),
    arguments=flags.webhook,
    takes_feature_gates=True,
    calls=(_TO_APISERVER,),
    calls_nobody_else=True,
    metrics_port="metrics",
    certificates=(_WEBHOOK, _WEBHOOK_IDENTITY),
    file_sets=(_certificate_files(_WEBHOOK, "server"), _identity_files(_WEBHOOK_IDENTITY)),
)

KARMADA_DESCHEDULER = Component(
    name="karmada-descheduler",
    field="karmadaDescheduler",
    binary="/bin/karmada-descheduler",
    image=Image(registry="karmadaRegistry", repository="karmada-descheduler", release="karmada"),
    ports={"health": 10358, "metrics": 10368},
    health=Health(port="health", live="/healthz", ready="/healthz"),
    arguments=flags.descheduler,
    optional=True,
    calls=(_TO_APISERVER, _TO_ESTIMATORS),
    metrics_port="metrics",
    certificates=(_DESCHEDULER_IDENTITY,),
    file_sets=(_identity_files(_DESCHEDULER_IDENTITY),),
)

KARMADA_SEARCH = Component(
    name="karmada-search",
    field="karmadaSearch",
    ready_when_registered=True,
    binary="/bin/karmada-search",
    image=Image(registry="karmadaRegistry", repository="karmada-search", release="karmada"),
    ports={"https": 9443},
    served_port="https",
    health=Health(port="https", live="/livez", ready="/readyz", scheme=Scheme.HTTPS),
    arguments=flags.stored_extension_apiserver,
    optional=True,
    calls=(_TO_ETCD, _TO_APISERVER),
    metrics_port="https",
    certificates=(_SEARCH, _SEARCH_ETCD, _SEARCH_IDENTITY),
    file_sets=(
        _certificate_files(_SEARCH, "server"),
        _certificate_files(_SEARCH_ETCD, ETCD_CLIENT_DIRECTORY),
        _identity_files(_SEARCH_IDENTITY),
    ),
)

KARMADA_METRICS_ADAPTER = Component(
    name="karmada-metrics-adapter",
    field="karmadaMetricsAdapter",
    binary="/bin/karmada-metrics-adapter",
    image=Image(registry="karmadaRegistry", repository="karmada-metrics-adapter", release="karmada"),
    ports={"https": 9444, "metrics": 9445},
    served_port="https",
    health=Health(port="https", live="/healthz", ready="/readyz", scheme=Scheme.HTTPS),
    arguments=flags.metrics_adapter,
    optional=True,
    calls=(_TO_APISERVER,),
    metrics_port="metrics",
    certificates=(_METRICS_ADAPTER, _METRICS_ADAPTER_IDENTITY),
    file_sets=(
        _certificate_files(_METRICS_ADAPTER, "server"),
        _CLIENT_AUTHORITIES_FILES,
        _identity_files(_METRICS_ADAPTER_IDENTITY),
    ),
)

KARMADA_SCHEDULER_ESTIMATOR = Component(
    name="karmada-scheduler-estimator",
    field="karmadaSchedulerEstimator",
    binary="/bin/karmada-scheduler-estimator",
    image=Image(registry="karmadaRegistry", repository="karmada-scheduler-estimator", release="karmada"),
    # On a host the next member's are the next three.
    ports={"grpc": 20352, "health": 20353, "metrics": 20354},
    served_port="grpc",
    # It says that it is well from the start, and serves when it has seen the nodes and pods of its member.
    health=Health(port="health", live="/healthz", ready="/healthz", opens_when_ready="grpc"),
    arguments=flags.scheduler_estimator,
    optional=True,
    takes_feature_gates=True,
    per_member=True,
    metrics_port="metrics",
    certificates=(_SCHEDULER_ESTIMATOR,),
    file_sets=(
        _certificate_files(_SCHEDULER_ESTIMATOR, "server"),
        FileSet("karmada-scheduler-estimator-member", "member", Holds.MEMBER_ACCESS),
    ),
)

#: On members in mode Pull, and so not among the components of a control plane.
KARMADA_AGENT = Component(
    name="karmada-agent",
    field="karmadaAgent",
    binary="/bin/karmada-agent",
    image=Image(registry="karmadaRegistry", repository="karmada-agent", release="karmada"),
    ports={"health": 10359, "metrics": 10369},
    # It answers from when it has found its Cluster in the control plane.
    health=Health(port="health", live="/healthz", ready="/healthz"),
    arguments=flags.agent,
    takes_feature_gates=True,
    per_member=True,
    metrics_port="metrics",
)
#: The same as a unit of hosts, where it is told how to get to its member.
KARMADA_AGENT_ON_HOST = replace(
    KARMADA_AGENT,
    # Side by side: the next member's are the next two.
    ports={"health": 10359, "metrics": 10360},
    arguments=flags.agent_on_host,
    file_sets=(FileSet("karmada-agent-member", "member", Holds.MEMBER_ACCESS),),
)

COMPONENTS: tuple[Component, ...] = (
    ETCD,
    KARMADA_APISERVER,
    KARMADA_AGGREGATED_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KARMADA_CONTROLLER_MANAGER,
    KARMADA_SCHEDULER,
    KARMADA_WEBHOOK,
    KARMADA_DESCHEDULER,
    KARMADA_SEARCH,
    KARMADA_METRICS_ADAPTER,
    KARMADA_SCHEDULER_ESTIMATOR,
)
#: Components that serve an API of their own behind the API server.
AGGREGATED_SERVERS = (KARMADA_AGGREGATED_APISERVER.name, KARMADA_SEARCH.name, KARMADA_METRICS_ADAPTER.name)
#: Everything that is a program of a release, wherever it runs.
PROGRAMS: tuple[Component, ...] = (*COMPONENTS, KARMADA_AGENT)
BY_NAME: Mapping[str, Component] = {component.name: component for component in COMPONENTS}
#: Everything that can be a unit of a plain host.
ON_HOSTS: Mapping[str, Component] = {**BY_NAME, KARMADA_AGENT_ON_HOST.name: KARMADA_AGENT_ON_HOST}


def clashing_names(name: str) -> tuple[str, ...]:
    """The instances of a namespace whose objects would have names of those of this one.

    Names are an instance and a component with a hyphen between, so they meet where a component's name ends like
    another one's: the kube-controller-manager of ``prod`` is the controller-manager of ``prod-kube``.
    """
    short = {component.name.removeprefix("karmada-") for component in COMPONENTS}
    between = sorted(
        longer.removesuffix(f"-{shorter}") for longer in short for shorter in short if longer.endswith(f"-{shorter}")
    )
    shorter_names = (name.removesuffix(f"-{part}") for part in between if name.endswith(f"-{part}"))
    return (*(f"{name}-{part}" for part in between), *(each for each in shorter_names if each))


def enabled_file_sets(component: Component, spec: Mapping[str, Any]) -> tuple[FileSet, ...]:
    """The file sets this document calls for.

    Without encryption there is no encryption configuration; an external etcd has a client certificate of its own.
    """
    encrypted = spec["encryption"]["provider"] != "identity"
    external = external_etcd(spec) is not None
    return tuple(
        _EXTERNAL_ETCD_FILES if external and files.directory == _EXTERNAL_ETCD_FILES.directory else files
        for files in component.file_sets
        if encrypted or files.holds is not Holds.ENCRYPTION
    )


def wanted_rows(spec: Mapping[str, Any]) -> tuple[Component, ...]:
    """The rows of the table that this document calls for, each with one section of settings."""
    return tuple(component for component in COMPONENTS if component.is_wanted(spec))


def agents(spec: Mapping[str, Any]) -> tuple[Component, ...]:
    """The row of the agents, where a member in mode Pull has one."""
    return (KARMADA_AGENT,) if any(pulls(entry) for entry in spec["members"]) else ()


def wanted_components(spec: Mapping[str, Any], places: Mapping[str, int] | None = None) -> tuple[Component, ...]:
    """The components that this document calls for, in the order of the table.

    Of a row that is there for each member, those of the members. ``places`` (member → number) tells them apart where
    they share a host.
    """
    return tuple(each for component in wanted_rows(spec) for each in processes(component, pushed_members(spec), places))


def pod_rows(spec: Mapping[str, Any]) -> tuple[Component, ...]:
    """The rows of those that run in pods of the host cluster."""
    return tuple(component for component in wanted_rows(spec) if not component.is_on_hosts(spec))


def pod_components(spec: Mapping[str, Any]) -> tuple[Component, ...]:
    """The components that run in pods of the host cluster."""
    return tuple(component for component in wanted_components(spec) if not component.is_on_hosts(spec))


def processes(
    component: Component, members: Iterable[str], places: Mapping[str, int] | None = None
) -> tuple[Component, ...]:
    """What a row of the table stands for: itself, or one for each of these members."""
    if not component.per_member:
        return (component,)
    return tuple(component.for_member(member, (places or {}).get(member, 0)) for member in members)


def member_places(spec: Mapping[str, Any], recorded: Mapping[str, int]) -> dict[str, int]:
    """A number for each member that has a component of its own: that on record, or the first that is free.

    Those on record keep theirs, also when their member has left: what it had on hosts may still be there.
    """
    found = dict(recorded)
    for member in members_on_hosts(spec):
        if member not in found:
            taken = set(found.values())
            found[member] = next(place for place in range(len(taken) + 1) if place not in taken)
    return found


def members_on_hosts(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The members that have a component of their own on hosts: an estimator, or their agent."""
    estimated = any(component.per_member and component.is_wanted(spec) for component in COMPONENTS)
    return (*(pushed_members(spec) if estimated else ()), *members_with_agent_hosts(spec))


def wanted_authorities(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The authorities of an instance: none for etcd where it is somebody else's."""
    return tuple(name for name in AUTHORITIES if name != ETCD_CA or external_etcd(spec) is None)


def leaf_certificates(components: Sequence[Component] = COMPONENTS) -> tuple[LeafCertificate, ...]:
    """Every leaf of these components and the administrator's, each once."""
    leaves = {leaf.name: leaf for component in components for leaf in component.certificates}
    return (*leaves.values(), ADMIN)


def administrator(spec: Mapping[str, Any]) -> LeafCertificate:
    """The administrator as this document has them. With each generation they have another name and another group."""
    generation = spec["certificates"]["administratorGeneration"]
    if generation == 1:
        return ADMIN
    groups = tuple(f"{name}:{generation}" for name in ADMIN.organizations)
    return replace(ADMIN, common_name=f"{ADMIN.common_name}:{generation}", organizations=groups)


def wanted_leaf_certificates(
    spec: Mapping[str, Any], component: Component | None = None
) -> tuple[LeafCertificate, ...]:
    """The leaves that this document calls for: those of pods and of the administrator, or those of one component."""
    authorities = wanted_authorities(spec)
    leaves = component.certificates if component else leaf_certificates(pod_components(spec))
    named = (administrator(spec) if leaf is ADMIN else leaf for leaf in leaves)
    return tuple(leaf for leaf in named if leaf.authority in authorities)
