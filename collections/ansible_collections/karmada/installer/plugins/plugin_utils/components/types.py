# SPDX-License-Identifier: Apache-2.0
"""Types of the component table, and the document's settings of a component.

Nothing here knows Kubernetes objects or systemd: what differs between the two (addresses, names, directories) comes
in as a Layout.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from .releases import Image
from .spec import Settings, Spec


@dataclass(frozen=True)
class KeyPair:
    """A certificate (one PEM block; of a leaf or of a CA) and its private key (PEM, PKCS#8). `repr` hides the key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Addresses:
    """Addresses of the API server's webhook and aggregated APIs, and its own public address.

    ``webhook_url`` has no trailing slash. ``aggregated`` holds, for each component with an aggregated API, a DNS name
    (an ExternalName takes no address) and a port.
    """

    webhook_url: str
    aggregated: Mapping[str, tuple[str, int]]
    public_url: str
    ca_bundle: bytes


#: The namespace that components use inside the control plane (leases, Services for aggregated APIs).
SYSTEM_NAMESPACE = "karmada-system"
#: Namespace of member credentials in the control plane, and of our service accounts on each member.
MEMBER_NAMESPACE = "karmada-cluster"


class Scheme(Enum):
    """URL scheme of a health endpoint."""

    HTTP = "HTTP"
    HTTPS = "HTTPS"


@dataclass(frozen=True)
class Health:
    """Health endpoints of a component. ``port`` is a key of Component.ports."""

    port: str
    live: str
    ready: str
    scheme: Scheme = Scheme.HTTP
    #: Port that opens once the component serves, if its probe succeeds before that. A key of Component.ports.
    opens_when_ready: str = ""


class Holds(Enum):
    """Content of a file set, which decides its file names (see ``pki.files.contents``)."""

    CERTIFICATE = "certificate"  # ca.crt, tls.crt, tls.key
    IDENTITY = "identity"  # ca.crt, tls.crt, tls.key, and a kubeconfig ``karmada.config`` that points at them
    CLIENT_AUTHORITIES = "client-authorities"  # ca.crt: every authority whose client certificates are accepted
    SIGNING_AUTHORITY = "signing-authority"  # tls.crt, tls.key of the authority that signs certificate requests
    SERVICE_ACCOUNT_PAIR = "service-account-pair"  # sa.pub, sa.key
    SERVICE_ACCOUNT_KEY = "service-account-key"  # sa.key
    ENCRYPTION = "encryption"  # encryption.yaml
    EXTERNAL_ETCD = "external-etcd"  # ca.crt, tls.crt, tls.key, as the document's Secret has them
    MEMBER_ACCESS = "member-access"  # member.config: a kubeconfig of one member


@dataclass(frozen=True)
class FileSet:
    """Files that belong together: one Secret of a namespace, or one directory of a host.

    ``name`` is unique within an instance; ``directory`` is where the component reads them, below Layout.base.
    ``certificate`` is the table's name of its leaf, ``member`` the member of a per-member component.
    """

    name: str
    directory: str
    holds: Holds
    certificate: str = ""
    member: str = ""

    @property
    def leaf(self) -> str:
        """Name of its leaf certificate."""
        return of_member(self.certificate, self.member)


@dataclass(frozen=True)
class ConfigFiles:
    """Files without secrets: one ConfigMap of a namespace, or one directory of a host.

    ``contents`` maps the spec and the document's ConfigMaps (name → key → text) to file name → content. Without files
    there is no directory.
    """

    name: str
    directory: str
    contents: Callable[[Spec, Mapping[str, Mapping[str, str]]], dict[str, str]]


@dataclass(frozen=True)
class Names:
    """DNS names and IP addresses of a serving certificate."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Names sorted into DNS names and addresses, each once."""
        addresses, dns = [], []
        for name in names:
            try:
                addresses.append(str(ipaddress.ip_address(name)))
            except ValueError:
                dns.append(name)
        return cls(dns=tuple(dict.fromkeys(dns)), ips=tuple(dict.fromkeys(addresses)))

    def __add__(self, more: Names) -> Names:
        """Union of both, each name once."""
        return Names(dns=tuple(dict.fromkeys(self.dns + more.dns)), ips=tuple(dict.fromkeys(self.ips + more.ips)))


def of_member(name: str, member: str) -> str:
    """Name with the member appended, for per-member components; unchanged without a member."""
    return f"{name}-{member}" if name and member else name


@dataclass(frozen=True)
class LeafCertificate:
    """A leaf certificate of the table. The Layout gives the names of serving certificates."""

    name: str
    authority: str
    common_name: str
    organizations: tuple[str, ...] = ()
    server: bool = False
    client: bool = False


@dataclass(frozen=True)
class Call:
    """A port to which a component connects: the other component's name and a key of its ports."""

    component: str
    port: str


@dataclass(frozen=True)
class EtcdMember:
    """A member of etcd, with its own addresses. ``leaving``: it goes, and clients do without it."""

    name: str
    client_url: str
    peer_url: str
    leaving: bool = False


@dataclass(frozen=True)
class Layout:
    """Addresses, names and paths by which the processes of one instance find each other and their files."""

    base: str
    data: str
    bind_address: str
    apiserver_url: str
    #: Members of our own etcd; empty if the document names an external one.
    etcd_members: tuple[EtcdMember, ...]
    service_account_issuer: str
    service_subnet: str
    server_names: Mapping[str, Names]
    #: Address on which etcd serves health and metrics without client certificates; empty: that of all its listeners.
    metrics_address: str = ""
    #: Folder that exists while the process runs, for files fetched at its start; empty if there is none.
    runtime: str = ""
    #: Address of a member's API server, for its agent to enter in the Cluster.
    member_url: str = ""
    #: Seconds for which a stopping API server keeps serving, so that load balancers see that it is not ready and use
    #: another one.
    shutdown_delay: int = 0

    def path(self, *parts: str) -> str:
        """Path below the directory of file sets."""
        return "/".join((self.base, *parts))


#: Flags by which most components set their ports.
PORT_FLAGS: Mapping[str, str] = {
    "https": "secure-port",
    "grpc": "server-port",
    "health": "health-probe-bind-address",
    "metrics": "metrics-bind-address",
}
#: A value that ends with a port: 8443, :8443, [::1]:8443, https://192.0.2.1:8443; of a list, the first entry.
_PORT = re.compile(r"(?:[^,]*:)?([0-9]{1,5})/?(?:,.*)?")

Arguments = Callable[[Spec, Layout, Mapping[str, int]], dict[str, str]]


@dataclass(frozen=True)
class Component:
    """One process of the control plane.

    ``field`` is its key in ``spec.components``; ``arguments`` returns flags (without dashes) for spec, layout and
    ports.
    """

    name: str
    field: str
    binary: str
    image: Image
    ports: Mapping[str, int]
    health: Health
    arguments: Arguments
    #: Key of ``ports`` → flag that sets it.
    port_flags: Mapping[str, str] = dataclasses.field(default_factory=lambda: PORT_FLAGS)
    file_sets: tuple[FileSet, ...] = ()
    config_files: tuple[ConfigFiles, ...] = ()
    served_port: str = ""
    certificates: tuple[LeafCertificate, ...] = ()
    #: Optional components run only when the document names them; an empty mapping is enough.
    optional: bool = False
    takes_feature_gates: bool = False
    #: Components to which it connects, as network policies must allow it.
    calls: tuple[Call, ...] = ()
    #: True if it connects to nothing else but DNS. Most components connect to members, or to what users name.
    calls_nobody_else: bool = False
    #: True if clients from anywhere connect to ``served_port``.
    for_everybody: bool = False
    #: Key of ``ports`` that serves metrics.
    metrics_port: str = ""
    #: True if that port is at an address of its own.
    metrics_apart: bool = False
    #: True if it tells systemd that it has started.
    notifies_systemd: bool = False
    #: Exit status, beside 0, with which it ends when it is told to stop: no failure then.
    stops_with: int = 0
    #: Seconds after which a unit that was told to stop is killed.
    stop_seconds: int = 60
    #: It becomes ready only once its API is registered, so it must be reachable before.
    ready_when_registered: bool = False
    #: Names of files that it reads anew for each connection, so that a change restarts nothing. It reads all others
    #: only at its start.
    read_again: tuple[str, ...] = ()
    #: File that holds its settings; empty for a component that takes flags.
    settings_file: str = ""
    #: Flags, or settings of its file, that extraArgs cannot have: by them the installer knows where its data lies and
    #: which members of etcd there are, and it would go by what is not so.
    own_flags: tuple[str, ...] = ()
    #: It has a data directory that outlives its processes.
    keeps_data: bool = False
    #: One component for each member to which the control plane pushes.
    per_member: bool = False
    #: The member of a per-member component; empty in the table.
    member: str = ""

    @property
    def row(self) -> str:
        """Name of its row in the table; shared by the copies made for members."""
        return self.name.removesuffix(f"-{self.member}") if self.member else self.name

    @property
    def peer_ports(self) -> list[str]:
        """Keys of ``ports`` at which its processes, which form one cluster, connect to one another; else empty."""
        return [call.port for call in self.calls if call.component == self.name]

    def address(self, where: Layout, port: str) -> str:
        """Address at which it listens on a port of ``ports``."""
        return where.metrics_address if self.metrics_apart and port == self.metrics_port else where.bind_address

    def for_member(self, member: str, place: int) -> Component:
        """Component of one member. ``place`` numbers those that share a host, so that each has its own ports."""
        name = of_member(self.name, member)
        return replace(
            self,
            name=name,
            member=member,
            ports={key: port + place * len(self.ports) for key, port in self.ports.items()},
            certificates=tuple(replace(leaf, name=of_member(leaf.name, member)) for leaf in self.certificates),
            file_sets=tuple(
                replace(files, name=files.name.replace(self.name, name, 1), member=member) for files in self.file_sets
            ),
        )

    def is_wanted(self, spec: Spec) -> bool:
        """Return whether this document needs the component."""
        if self.field == "etcd":
            return spec.external_etcd is None
        return not self.optional or spec.component(self.field) is not None

    def listens(self, spec: Spec) -> dict[str, int]:
        """``ports`` as the document sets them: ``extraArgs`` may move a port by its flag.

        Use this to connect to a component. A listener that a flag turns off keeps its default number.
        """
        given = settings_of(self, spec).extra_args
        moved = {key: _port_in(given.get(flag, "")) for key, flag in self.port_flags.items()}
        return {key: moved.get(key) or number for key, number in self.ports.items()}

    def is_on_hosts(self, spec: Spec) -> bool:
        """Return whether it is, if wanted at all, a unit of plain hosts; else it runs in pods."""
        return spec.mode == "Binary" or (self.field == "etcd" and etcd_on_hosts(spec))

    def flags(self, spec: Spec, layout: Layout) -> list[str]:
        """Command line, sorted by flag; ``extraArgs`` of the document win over ours."""
        settings = settings_of(self, spec)
        gates = settings.feature_gates
        ours = self.arguments(spec, layout, self.ports)
        if self.member:
            ours["cluster-name"] = self.member
        if gates:
            ours["feature-gates"] = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
        merged = {**ours, **settings.extra_args}
        return [f"--{name}={value}" for name, value in sorted(merged.items())]


def _port_in(value: str) -> int:
    """Port in the value of a flag; 0 if there is none, as in a flag that turns a listener off."""
    found = _PORT.fullmatch(value)
    return int(found[1]) if found else 0


def settings_of(component: Component, spec: Spec) -> Settings:
    """Settings of this component in the document; empty where it has none."""
    return spec.component(component.field) or Settings({})


def image_pull_secrets(component: Component, spec: Spec) -> tuple[str, ...]:
    """Secrets with which its image is pulled: its own, none if its list is empty, or those of ``spec.images``."""
    own = settings_of(component, spec).image_pull_secrets
    return tuple(each["name"] for each in (spec.images.pull_secrets if own is None else own))


def settings_path(component: Component) -> str:
    """Path of those settings in the document."""
    return f"spec.components.{component.field}" + (".local" if component.field == "etcd" else "")


def etcd_on_hosts(spec: Spec) -> bool:
    """Return whether members of etcd are units of plain hosts: of those with its role, also in mode Container."""
    return any("etcd" in host.roles for host in spec.hosts)


def has_estimators(spec: Spec) -> bool:
    """Return whether each push member has a karmada-scheduler-estimator."""
    return spec.component("karmadaSchedulerEstimator") is not None


def pushed_members(spec: Spec) -> tuple[str, ...]:
    """Push members of the document: the control plane connects to their API servers."""
    return tuple(entry.name for entry in spec.members if not entry.pulls)


def members_with_agent_hosts(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Member → hosts that run its agent, for members whose agent runs on hosts."""
    return {entry.name: hosts for entry in spec.members if (hosts := entry.agent_hosts)}


def etcd_client_urls(spec: Spec, layout: Layout) -> tuple[str, ...]:
    """Client URLs of etcd: the document's endpoints, or our members in their order, without those that leave."""
    external = spec.external_etcd
    staying = tuple(member.client_url for member in layout.etcd_members if not member.leaving)
    return external.endpoints if external else staying
