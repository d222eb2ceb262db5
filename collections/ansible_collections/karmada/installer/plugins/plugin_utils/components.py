# SPDX-License-Identifier: Apache-2.0
"""The one table of components: what each process of a control plane is, whatever it runs on.

A flag, port, probe, certificate or file is written here once; the renderers turn the same rows into objects of a host
cluster or into units of plain hosts. Nothing in this module knows of Kubernetes objects or of systemd: what differs
between the two (addresses, names, directories) comes in as a Layout.

Facts about flags, ports and probes are those of Karmada v1.18 and Kubernetes v1.35 (the binaries' own ``--help``).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import audit_policy
from ansible_collections.karmada.installer.plugins.plugin_utils.releases import Image

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
#: The namespace that components use inside the control plane (leases, Services for aggregated APIs).
SYSTEM_NAMESPACE = "karmada-system"


class Scheme(Enum):
    """How a health endpoint is asked."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"


@dataclass(frozen=True)
class Health:
    """Where a component says how it is. ``port`` is a key of Component.ports."""

    port: str
    live: str
    ready: str
    scheme: Scheme = Scheme.HTTP


class Holds(Enum):
    """What a file set contains; decides its file names (see ``pki_files.contents``)."""

    CERTIFICATE = "certificate"  # ca.crt, tls.crt, tls.key
    IDENTITY = "identity"  # the same, and a kubeconfig ``karmada.config`` that points at them
    CLIENT_AUTHORITIES = "client-authorities"  # ca.crt: every authority whose client certificates are accepted
    SIGNING_AUTHORITY = "signing-authority"  # tls.crt, tls.key of the authority that signs certificate requests
    SERVICE_ACCOUNT_PAIR = "service-account-pair"  # sa.pub, sa.key
    SERVICE_ACCOUNT_KEY = "service-account-key"  # sa.key
    ENCRYPTION = "encryption"  # encryption.yaml
    EXTERNAL_ETCD = "external-etcd"  # ca.crt, tls.crt, tls.key, as the document's Secret has them


@dataclass(frozen=True)
class FileSet:
    """Files that belong together: one Secret of a namespace, or one directory of a host.

    ``name`` is unique within an instance; ``directory`` is where the component finds them, below Layout.base.
    """

    name: str
    directory: str
    holds: Holds
    certificate: str = ""


@dataclass(frozen=True)
class ConfigFiles:
    """Files without secrets: one ConfigMap of a namespace, or one directory of a host.

    ``contents`` makes file name → content of the spec and of the ConfigMaps that the document refers to (name → key →
    text). Without a file there is no directory either.
    """

    name: str
    directory: str
    contents: Callable[[Mapping[str, Any], Mapping[str, Mapping[str, str]]], dict[str, str]]


@dataclass(frozen=True)
class Names:
    """Names and addresses a serving certificate has to carry."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Names and addresses apart, as a certificate wants them, each once."""
        addresses, dns = [], []
        for name in names:
            try:
                addresses.append(str(ipaddress.ip_address(name)))
            except ValueError:
                dns.append(name)
        return cls(dns=tuple(dict.fromkeys(dns)), ips=tuple(dict.fromkeys(addresses)))

    def __add__(self, more: Names) -> Names:
        """Those of both, each once."""
        return Names(dns=tuple(dict.fromkeys(self.dns + more.dns)), ips=tuple(dict.fromkeys(self.ips + more.ips)))


@dataclass(frozen=True)
class LeafCertificate:
    """One leaf of the table. Serving certificates get their names from the Layout."""

    name: str
    authority: str
    common_name: str
    organizations: tuple[str, ...] = ()
    server: bool = False
    client: bool = False


@dataclass(frozen=True)
class Call:
    """A port that a component connects to: of which other component, and which key of its ports."""

    component: str
    port: str


@dataclass(frozen=True)
class EtcdMember:
    """One member of etcd, with addresses that are its own and nobody else's."""

    name: str
    client_url: str
    peer_url: str


@dataclass(frozen=True)
class Layout:
    """Where the processes of one instance find each other and their files."""

    base: str
    data: str
    bind_address: str
    apiserver_url: str
    #: Those that we run; none where the document names an external etcd.
    etcd_members: tuple[EtcdMember, ...]
    service_account_issuer: str
    service_subnet: str
    server_names: Mapping[str, Names]
    #: Where etcd serves health and metrics, for which nobody has to say who they are; empty: where it serves the rest.
    metrics_address: str = ""

    def path(self, *parts: str) -> str:
        """A path below the directory of file sets."""
        return "/".join((self.base, *parts))


Arguments = Callable[[Mapping[str, Any], Layout, Mapping[str, int]], dict[str, str]]


@dataclass(frozen=True)
class Component:
    """One process of the control plane.

    ``field`` is its key in ``spec.components``; ``arguments`` gives flags (without dashes) from spec, layout and ports.
    """

    name: str
    field: str
    binary: str
    image: Image
    ports: Mapping[str, int]
    health: Health
    arguments: Arguments
    file_sets: tuple[FileSet, ...] = ()
    config_files: tuple[ConfigFiles, ...] = ()
    served_port: str = ""
    certificates: tuple[LeafCertificate, ...] = ()
    #: Optional components run only when the document names them; an empty mapping is enough.
    optional: bool = False
    takes_feature_gates: bool = False
    #: The components it connects to; what a network may not keep apart, and nothing else.
    calls: tuple[Call, ...] = ()
    #: It connects to nothing but those and the name service. Most connect to members, or to what users name.
    calls_nobody_else: bool = False
    #: Whether clients from anywhere connect to ``served_port``.
    for_everybody: bool = False
    #: Which key of ``ports`` serves metrics.
    metrics_port: str = ""
    #: It becomes ready only when its API is registered, so it has to be reachable before that.
    ready_when_registered: bool = False

    def is_wanted(self, spec: Mapping[str, Any]) -> bool:
        """Whether this document calls for the component."""
        if self.field == "etcd":
            return external_etcd(spec) is None
        return not self.optional or spec["components"].get(self.field) is not None

    def flags(self, spec: Mapping[str, Any], layout: Layout) -> list[str]:
        """The command line, sorted by flag; ``extraArgs`` of the document win over ours."""
        settings = settings_of(self, spec)
        gates = settings.get("featureGates") or {}
        ours = self.arguments(spec, layout, self.ports)
        if gates:
            ours["feature-gates"] = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
        merged = {**ours, **settings.get("extraArgs", {})}
        return [f"--{name}={value}" for name, value in sorted(merged.items())]


def settings_of(component: Component, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the document says about this component; etcd's settings are those of ``etcd.local``."""
    settings: Mapping[str, Any] = spec["components"].get(component.field) or {}
    return (settings.get("local") or {}) if component.field == "etcd" else settings


def settings_path(component: Component) -> str:
    """Where in the document those settings are."""
    return f"spec.components.{component.field}" + (".local" if component.field == "etcd" else "")


def external_etcd(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What the document says about an etcd that is not ours to run; None where etcd is a component of ours."""
    found: Mapping[str, Any] | None = spec["components"]["etcd"].get("external")
    return found


def etcd_client_urls(spec: Mapping[str, Any], layout: Layout) -> tuple[str, ...]:
    """Where etcd's clients find it: the document's endpoints, or our members in their order."""
    external = external_etcd(spec)
    return tuple(external["endpoints"] if external else (member.client_url for member in layout.etcd_members))


def _pki(layout: Layout, directory: str, file: str) -> str:
    return layout.path("pki", directory, file)


def _identity(layout: Layout) -> str:
    return layout.path("config", "karmada.config")


def _delegated_authentication(layout: Layout) -> dict[str, str]:
    """An extension API server asks the API server who a caller is and what they may do."""
    return {
        "kubeconfig": _identity(layout),
        "authentication-kubeconfig": _identity(layout),
        "authorization-kubeconfig": _identity(layout),
    }


def _etcd_client(spec: Mapping[str, Any], layout: Layout) -> dict[str, str]:
    arguments = {
        "etcd-servers": ",".join(etcd_client_urls(spec, layout)),
        "etcd-cafile": _pki(layout, _ETCD_CLIENT, "ca.crt"),
        "etcd-certfile": _pki(layout, _ETCD_CLIENT, "tls.crt"),
        "etcd-keyfile": _pki(layout, _ETCD_CLIENT, "tls.key"),
    }
    external = external_etcd(spec)
    if external:
        arguments["etcd-prefix"] = external["keyPrefix"]
    return arguments


def _serving(layout: Layout) -> dict[str, str]:
    return {
        "tls-cert-file": _pki(layout, "server", "tls.crt"),
        "tls-private-key-file": _pki(layout, "server", "tls.key"),
        "tls-min-version": "VersionTLS13",
    }


def _kube_apiserver(spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    arguments = {
        **_etcd_client(spec, layout),
        **_serving(layout),
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "bind-address": layout.bind_address,
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        # ServiceAccount admission would want a default account and a mounted token in every pod template that passes
        # through; StorageObjectInUseProtection adds finalizers that no controller here ever removes.
        "disable-admission-plugins": "ServiceAccount,StorageObjectInUseProtection",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "max-mutating-requests-inflight": "500",
        "max-requests-inflight": "1500",
        "profiling": "false",
        "proxy-client-cert-file": _pki(layout, "front-proxy-client", "tls.crt"),
        "proxy-client-key-file": _pki(layout, "front-proxy-client", "tls.key"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-client-ca-file": _pki(layout, "front-proxy-client", "ca.crt"),
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-username-headers": "X-Remote-User",
        "secure-port": str(ports["https"]),
        "service-account-issuer": layout.service_account_issuer,
        "service-account-key-file": _pki(layout, "service-account", "sa.pub"),
        "service-account-signing-key-file": _pki(layout, "service-account", "sa.key"),
        "service-cluster-ip-range": layout.service_subnet,
    }
    if spec["audit"]["enabled"]:
        arguments["audit-log-path"] = "-"
        arguments["audit-policy-file"] = layout.path("audit", audit_policy.FILE)
    if spec["encryption"]["provider"] != "identity":
        arguments["encryption-provider-config"] = layout.path("encryption", "encryption.yaml")
    return arguments


def _extension_apiserver(_spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_delegated_authentication(layout),
        **_serving(layout),
        "audit-log-maxage": "0",
        "audit-log-maxbackup": "0",
        "audit-log-path": "-",
        "bind-address": layout.bind_address,
        "secure-port": str(ports["https"]),
    }


def _stored_extension_apiserver(spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {**_extension_apiserver(spec, layout, ports), **_etcd_client(spec, layout)}


def _kube_controller_manager(_spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_delegated_authentication(layout),
        **_serving(layout),
        "bind-address": layout.bind_address,
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        "cluster-name": "karmada",
        "cluster-signing-cert-file": _pki(layout, "signing", "tls.crt"),
        "cluster-signing-key-file": _pki(layout, "signing", "tls.key"),
        # Workload controllers stay off: a Deployment in this API server is a template, and no pod may come of it.
        "controllers": ",".join(
            (
                "namespace",
                "garbagecollector",
                "serviceaccount-token",
                "ttl-after-finished",
                "bootstrapsigner",
                "tokencleaner",
                "csrcleaner",
                "csrsigning",
                "clusterrole-aggregation",
            )
        ),
        "leader-elect": "true",
        "profiling": "false",
        "root-ca-file": _pki(layout, "server", "ca.crt"),
        "secure-port": str(ports["https"]),
        "service-account-private-key-file": _pki(layout, "service-account", "sa.key"),
        "service-cluster-ip-range": layout.service_subnet,
        "use-service-account-credentials": "true",
    }


def _bind_addresses(layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        "health-probe-bind-address": f"{bracketed(layout.bind_address)}:{ports['health']}",
        "metrics-bind-address": f"{bracketed(layout.bind_address)}:{ports['metrics']}",
    }


def _controller_manager(_spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        "cluster-status-update-frequency": "10s",
        "kubeconfig": _identity(layout),
        "leader-elect-resource-namespace": SYSTEM_NAMESPACE,
    }


def _scheduler(_spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        "kubeconfig": _identity(layout),
        "leader-elect-resource-namespace": SYSTEM_NAMESPACE,
    }


def _metrics_adapter(spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_extension_apiserver(spec, layout, ports),
        "client-ca-file": _pki(layout, "client-ca", "ca.crt"),
        "metrics-bind-address": f"{bracketed(layout.bind_address)}:{ports['metrics']}",
    }


def _webhook(_spec: Mapping[str, Any], layout: Layout, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        **_bind_addresses(layout, ports),
        "bind-address": layout.bind_address,
        "cert-dir": layout.path("pki", "server"),
        "kubeconfig": _identity(layout),
        "secure-port": str(ports["https"]),
    }


def _etcd(_spec: Mapping[str, Any], _layout: Layout, _ports: Mapping[str, int]) -> dict[str, str]:
    """etcd reads a file per member (see etcd_configuration): a flag list cannot differ between replicas."""
    return {}


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

#: The directory of an etcd client's certificate in all that store something.
_ETCD_CLIENT = "etcd-client"
_EXTERNAL_ETCD_FILES = FileSet("external-etcd-client", f"pki/{_ETCD_CLIENT}", Holds.EXTERNAL_ETCD)

#: The administrator's identity. Not of a component: it goes to the people who run the control plane.
ADMIN = LeafCertificate("admin", KARMADA_CA, "system:admin", organizations=("system:masters",), client=True)

_ENCRYPTION_FILES = FileSet("karmada-apiserver-encryption", "encryption", Holds.ENCRYPTION)
_CLIENT_AUTHORITIES_FILES = FileSet("client-ca", "pki/client-ca", Holds.CLIENT_AUTHORITIES)

_TO_ETCD, _TO_APISERVER = Call("etcd", "client"), Call("karmada-apiserver", "https")

ETCD = Component(
    name="etcd",
    field="etcd",
    binary="/usr/local/bin/etcd",
    image=Image(registry="etcdRegistry", repository="etcd", release="etcd"),
    ports={"client": 2379, "peer": 2380, "metrics": 2381},
    served_port="client",
    health=Health(port="metrics", live="/livez", ready="/readyz"),
    arguments=_etcd,
    calls=(Call("etcd", "peer"),),
    calls_nobody_else=True,
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
    arguments=_kube_apiserver,
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
        _certificate_files(_APISERVER_ETCD, _ETCD_CLIENT),
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
    arguments=_stored_extension_apiserver,
    takes_feature_gates=True,
    calls=(_TO_ETCD, _TO_APISERVER),
    metrics_port="https",
    certificates=(_AGGREGATED, _AGGREGATED_ETCD, _AGGREGATED_IDENTITY),
    file_sets=(
        _certificate_files(_AGGREGATED, "server"),
        _certificate_files(_AGGREGATED_ETCD, _ETCD_CLIENT),
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
    arguments=_kube_controller_manager,
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
    arguments=_controller_manager,
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
    arguments=_scheduler,
    takes_feature_gates=True,
    calls=(_TO_APISERVER,),
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
    arguments=_webhook,
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
    arguments=_scheduler,
    optional=True,
    calls=(_TO_APISERVER,),
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
    arguments=_stored_extension_apiserver,
    optional=True,
    calls=(_TO_ETCD, _TO_APISERVER),
    metrics_port="https",
    certificates=(_SEARCH, _SEARCH_ETCD, _SEARCH_IDENTITY),
    file_sets=(
        _certificate_files(_SEARCH, "server"),
        _certificate_files(_SEARCH_ETCD, _ETCD_CLIENT),
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
    arguments=_metrics_adapter,
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
)
#: Components that serve an API of their own behind the API server.
AGGREGATED_SERVERS = (KARMADA_AGGREGATED_APISERVER.name, KARMADA_SEARCH.name, KARMADA_METRICS_ADAPTER.name)
BY_NAME: Mapping[str, Component] = {component.name: component for component in COMPONENTS}


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


def etcd_configuration(
    member: EtcdMember,
    layout: Layout,
    *,
    token: str,
    existing: bool,
    generation: int,
    extra: Mapping[str, str],
) -> dict[str, Any]:
    """The configuration file of one member.

    ``existing`` is the permanent setting once the cluster has been healthy: a member that lost its disk then serves
    nothing instead of founding an empty cluster. ``generation`` numbers the data directory, so that a restore can put a
    new one beside the old. ``extra`` holds configuration keys of the document, which win; their values are read as YAML
    scalars because the file is typed where a command line is not.
    """
    ports = ETCD.ports
    listen = bracketed(layout.bind_address)

    def tls(directory: str, client_directory: str) -> dict[str, Any]:
        return {
            "cert-file": _pki(layout, directory, "tls.crt"),
            "key-file": _pki(layout, directory, "tls.key"),
            "client-cert-file": _pki(layout, client_directory, "tls.crt"),
            "client-key-file": _pki(layout, client_directory, "tls.key"),
            "client-cert-auth": True,
            "trusted-ca-file": _pki(layout, directory, "ca.crt"),
        }

    configuration: dict[str, Any] = {
        "name": member.name,
        "data-dir": f"{layout.data}/gen-{generation}",
        "listen-client-urls": f"https://{listen}:{ports['client']}",
        "advertise-client-urls": member.client_url,
        "listen-peer-urls": f"https://{listen}:{ports['peer']}",
        "initial-advertise-peer-urls": member.peer_url,
        # Probes carry no client certificate, so health has a listener of its own; it serves no keys.
        "listen-metrics-urls": f"http://{bracketed(layout.metrics_address) or listen}:{ports['metrics']}",
        "initial-cluster": ",".join(f"{each.name}={each.peer_url}" for each in layout.etcd_members),
        "initial-cluster-state": "existing" if existing else "new",
        "initial-cluster-token": token,
        "client-transport-security": tls("server", "server"),
        "peer-transport-security": {**tls("peer", "peer-client"), "allowed-cn": [ETCD_PEER_COMMON_NAME]},
        "feature-gates": "CompactHashCheck=true,InitialCorruptCheck=true",
        "log-level": "info",
    }
    return {**configuration, **{key: _typed(key, value) for key, value in extra.items()}}


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if ":" in address else address


_INTEGER = re.compile(r"-?[0-9]{1,19}")
#: What etcd reads as a list, and as text though it looks like a number; it does not start with anything else there.
_LISTS = frozenset({"cipher-suites", "log-outputs"})
_TEXTS = frozenset({"auto-compaction-retention", "initial-cluster-token", "name"})


def _typed(key: str, value: str) -> bool | int | str | list[str]:
    if key in _LISTS:
        return value.split(",")
    if key in _TEXTS:
        return value
    if value in ("true", "false"):
        return value == "true"
    return int(value) if _INTEGER.fullmatch(value) else value


def wanted_components(spec: Mapping[str, Any]) -> tuple[Component, ...]:
    """The components that this document calls for, in the order of the table."""
    return tuple(component for component in COMPONENTS if component.is_wanted(spec))


def wanted_authorities(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The authorities of an instance: none for etcd where it is somebody else's."""
    return tuple(name for name in AUTHORITIES if name != ETCD_CA or external_etcd(spec) is None)


def leaf_certificates(components: Sequence[Component] = COMPONENTS) -> tuple[LeafCertificate, ...]:
    """Every leaf of these components and the administrator's, each once."""
    leaves = {leaf.name: leaf for component in components for leaf in component.certificates}
    return (*leaves.values(), ADMIN)


def wanted_leaf_certificates(spec: Mapping[str, Any]) -> tuple[LeafCertificate, ...]:
    """The leaves that this document calls for."""
    authorities = wanted_authorities(spec)
    return tuple(leaf for leaf in leaf_certificates(wanted_components(spec)) if leaf.authority in authorities)
