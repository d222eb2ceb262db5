# SPDX-License-Identifier: Apache-2.0
"""The table of components: one row for each process of a control plane, wherever it runs.

A port, probe, certificate or file is defined here once, a flag in ``components.flags``; the renderers turn these rows
into objects of a host cluster or units of plain hosts.

The file is long because it is one table: a row is read beside the others, and no renderer asks another place.

Facts about ports and probes are those of Karmada v1.18 and Kubernetes v1.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from . import audit_policy, flags
from .flags import ETCD_CLIENT_DIRECTORY
from .releases import Image
from .spec import Spec
from .types import (
    Call,
    Component,
    ConfigFiles,
    FileSet,
    Health,
    Holds,
    LeafCertificate,
    Scheme,
    members_with_agent_hosts,
    pushed_members,
)

#: Exit status of klog's Fatal, with which a program of Karmada ends that gives up its Lease, when it is stopped, too.
_FATAL = 255
#: Seconds in which an extension API server that was told to stop ends what it was asked before. It accepts nothing new
#: from then on, and would wait for a minute for the watches that the API server holds open with it.
_EXTENSION_STOPS = 10

# Certificate authorities, each trusted for one purpose only, so that each can be replaced alone.
KARMADA_CA = "karmada-ca"  # serving certificates and component identities
CLIENT_SIGNING_CA = "client-signing-ca"  # used by kube-controller-manager to sign certificate requests
FRONT_PROXY_CA = "front-proxy-ca"  # the aggregator's identity towards extension API servers
ETCD_CA = "etcd-ca"  # both ports of etcd
AUTHORITIES: Mapping[str, str] = {
    KARMADA_CA: "karmada-ca",
    CLIENT_SIGNING_CA: "karmada-client-signing-ca",
    FRONT_PROXY_CA: "karmada-front-proxy-ca",
    ETCD_CA: "karmada-etcd-ca",
}

#: Common name of etcd peers; the peer port refuses any other certificate of this authority.
ETCD_PEER_COMMON_NAME = "system:karmada:etcd-peer"
#: Group of the component identities; RBAC binds it to its rights, so that these can change without new certificates.
COMPONENT_GROUP = "system:karmada:components"
#: Group of the people who run the control plane; RBAC binds it to its rights, so that these can be revoked.
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
# Peers dial with a certificate without names: etcd would look each name up and compare it with the remote address,
# which fails behind NAT and while there is no DNS yet.
_ETCD_PEER_CLIENT = LeafCertificate("etcd-peer-client", ETCD_CA, ETCD_PEER_COMMON_NAME, client=True)
_APISERVER = _serving_certificate("karmada-apiserver")
_APISERVER_ETCD = _etcd_client_certificate("karmada-apiserver")
_FRONT_PROXY = LeafCertificate("front-proxy-client", FRONT_PROXY_CA, "front-proxy-client", client=True)
_AGGREGATED = _serving_certificate("karmada-aggregated-apiserver")
_AGGREGATED_ETCD = _etcd_client_certificate("karmada-aggregated-apiserver")
_AGGREGATED_IDENTITY = _identity_certificate("karmada-aggregated-apiserver")
_KUBE_CONTROLLER_MANAGER = _serving_certificate("kube-controller-manager")
# Kubernetes' bootstrap policy grants this user exactly what it needs.
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

#: The administrator's identity. It belongs to the people who run the control plane, not to a component.
ADMIN = LeafCertificate("admin", KARMADA_CA, "system:admin", organizations=(ADMINISTRATOR_GROUP,), client=True)

_CLIENT_AUTHORITIES_FILES = FileSet("client-ca", "pki/client-ca", Holds.CLIENT_AUTHORITIES)

_TO_ETCD, _TO_APISERVER = Call("etcd", "client"), Call("karmada-apiserver", "https")
_TO_ESTIMATORS = Call("karmada-scheduler-estimator", "grpc")

#: Own flags of a component that is a client of etcd.
_ETCD_CLIENT_OWNS = ("etcd-servers",)

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
    own_flags=(
        "data-dir",
        "force-new-cluster",
        "initial-advertise-peer-urls",
        "initial-cluster",
        "initial-cluster-state",
        "initial-cluster-token",
        "name",
        "wal-dir",
    ),
    keeps_data=True,
    metrics_port="metrics",
    metrics_apart=True,
    notifies_systemd=True,
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
    own_flags=_ETCD_CLIENT_OWNS,
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
        FileSet("karmada-apiserver-encryption", "encryption", Holds.ENCRYPTION),
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
    own_flags=_ETCD_CLIENT_OWNS,
    stop_seconds=_EXTENSION_STOPS,
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
    stops_with=_FATAL,
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
    # The health listener has no check behind it; the serving port itself answers /readyz.
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
    stops_with=_FATAL,
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
    own_flags=_ETCD_CLIENT_OWNS,
    stop_seconds=_EXTENSION_STOPS,
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
    # On a host the next member's component uses the next three.
    ports={"grpc": 20352, "health": 20353, "metrics": 20354},
    served_port="grpc",
    # It reports healthy from the start, and serves once it has listed the nodes and pods of its member.
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

#: The agent runs for members in mode Pull, and so is no component of a control plane.
KARMADA_AGENT = Component(
    name="karmada-agent",
    field="karmadaAgent",
    binary="/bin/karmada-agent",
    image=Image(registry="karmadaRegistry", repository="karmada-agent", release="karmada"),
    ports={"health": 10359, "metrics": 10369},
    # It answers once it has found its Cluster in the control plane.
    health=Health(port="health", live="/healthz", ready="/healthz"),
    arguments=flags.agent,
    takes_feature_gates=True,
    per_member=True,
    metrics_port="metrics",
)
#: The agent as a unit of hosts, with a kubeconfig of its member.
KARMADA_AGENT_ON_HOST = replace(
    KARMADA_AGENT,
    # The next member's agent on a host uses the next two.
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
#: Components that serve an aggregated API behind the API server.
AGGREGATED_SERVERS = (KARMADA_AGGREGATED_APISERVER.name, KARMADA_SEARCH.name, KARMADA_METRICS_ADAPTER.name)
#: All programs of a release, wherever they run.
PROGRAMS: tuple[Component, ...] = (*COMPONENTS, KARMADA_AGENT)
BY_NAME: Mapping[str, Component] = {component.name: component for component in COMPONENTS}
#: All components that can be units of a plain host.
ON_HOSTS: Mapping[str, Component] = {**BY_NAME, KARMADA_AGENT_ON_HOST.name: KARMADA_AGENT_ON_HOST}


def clashing_names(name: str) -> tuple[str, ...]:
    """Names of instances in the same namespace whose object names would collide with this one's.

    Object names join an instance and a component with a hyphen, so they collide where one component's name is the end
    of another's: the kube-controller-manager of ``prod`` is the controller-manager of ``prod-kube``.
    """
    short = {component.name.removeprefix("karmada-") for component in COMPONENTS}
    between = sorted(
        longer.removesuffix(f"-{shorter}") for longer in short for shorter in short if longer.endswith(f"-{shorter}")
    )
    shorter_names = (name.removesuffix(f"-{part}") for part in between if name.endswith(f"-{part}"))
    return (*(f"{name}-{part}" for part in between), *(each for each in shorter_names if each))


def enabled_file_sets(component: Component, spec: Spec) -> tuple[FileSet, ...]:
    """File sets that this document needs.

    Without encryption there is no encryption configuration; an external etcd has its own client certificate.
    """
    encrypted = spec.encryption_provider != "identity"
    external = spec.external_etcd is not None
    return tuple(
        _EXTERNAL_ETCD_FILES if external and files.directory == _EXTERNAL_ETCD_FILES.directory else files
        for files in component.file_sets
        if encrypted or files.holds is not Holds.ENCRYPTION
    )


def wanted_rows(spec: Spec) -> tuple[Component, ...]:
    """Rows of the table that this document needs, each with one section of settings."""
    return tuple(component for component in COMPONENTS if component.is_wanted(spec))


def agents(spec: Spec) -> tuple[Component, ...]:
    """The agents' row, if any member is in mode Pull."""
    return (KARMADA_AGENT,) if any(entry.pulls for entry in spec.members) else ()


def wanted_components(
    spec: Spec, places: Mapping[str, int] | None = None, pushed: Iterable[str] | None = None
) -> tuple[Component, ...]:
    """Components that this document needs, in the order of the table; of a per-member row one for each of ``pushed``.

    By default these are members listed in mode Push. ``places`` (member → number) tells them apart on a shared host.
    """
    members = pushed_members(spec) if pushed is None else tuple(pushed)
    return tuple(each for component in wanted_rows(spec) for each in processes(component, members, places))


def pod_rows(spec: Spec) -> tuple[Component, ...]:
    """Rows whose components run in pods of the host cluster."""
    return tuple(component for component in wanted_rows(spec) if not component.is_on_hosts(spec))


def pod_components(spec: Spec, pushed: Iterable[str] | None = None) -> tuple[Component, ...]:
    """Components that run in pods of the host cluster; ``pushed`` as for ``wanted_components``."""
    return tuple(each for each in wanted_components(spec, pushed=pushed) if not each.is_on_hosts(spec))


def processes(
    component: Component, members: Iterable[str], places: Mapping[str, int] | None = None
) -> tuple[Component, ...]:
    """Components of a row: the row itself, or one for each of these members."""
    if not component.per_member:
        return (component,)
    return tuple(component.for_member(member, (places or {}).get(member, 0)) for member in members)


def member_places(spec: Spec, recorded: Mapping[str, int]) -> dict[str, int]:
    """Place of each member with components of its own on hosts: the recorded one, or the first that is free.

    Recorded places are kept, also after the member has left: something of it may still be on hosts.
    """
    found = dict(recorded)
    for member in members_on_hosts(spec):
        if member not in found:
            taken = set(found.values())
            found[member] = next(place for place in range(len(taken) + 1) if place not in taken)
    return found


def members_on_hosts(spec: Spec) -> tuple[str, ...]:
    """Members with a component of their own on hosts: an estimator, or their agent."""
    estimated = any(component.per_member and component.is_wanted(spec) for component in COMPONENTS)
    return (*(pushed_members(spec) if estimated else ()), *members_with_agent_hosts(spec))


def wanted_authorities(spec: Spec) -> tuple[str, ...]:
    """Authorities of an instance; no etcd authority if etcd is external."""
    return tuple(name for name in AUTHORITIES if name != ETCD_CA or spec.external_etcd is None)


def leaf_certificates(components: Sequence[Component] = COMPONENTS) -> tuple[LeafCertificate, ...]:
    """Leaf certificates of these components and the administrator's, each once."""
    leaves = {leaf.name: leaf for component in components for leaf in component.certificates}
    return (*leaves.values(), ADMIN)


def administrator(spec: Spec) -> LeafCertificate:
    """The administrator's certificate, whose name and group change with each generation in the document."""
    generation = spec.certificates.administrator_generation
    if generation == 1:
        return ADMIN
    groups = tuple(f"{name}:{generation}" for name in ADMIN.organizations)
    return replace(ADMIN, common_name=f"{ADMIN.common_name}:{generation}", organizations=groups)


def wanted_leaf_certificates(
    spec: Spec, component: Component | None = None, pushed: Iterable[str] | None = None
) -> tuple[LeafCertificate, ...]:
    """Leaf certificates that this document needs: for pods and the administrator, or for one component."""
    authorities = wanted_authorities(spec)
    leaves = component.certificates if component else leaf_certificates(pod_components(spec, pushed))
    named = (administrator(spec) if leaf is ADMIN else leaf for leaf in leaves)
    return tuple(leaf for leaf in named if leaf.authority in authorities)
