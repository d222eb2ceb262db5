# SPDX-License-Identifier: Apache-2.0
"""What the table of components is made of, and what a document says about one of them.

Nothing here knows of Kubernetes objects or of systemd: what differs between the two (addresses, names, directories)
comes in as a Layout.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from .releases import Image


@dataclass(frozen=True)
class KeyPair:
    """A certificate (one PEM block; of a leaf or of a CA) and its private key (PEM, PKCS#8). `repr` hides the key."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Addresses:
    """Where the control plane's own API server finds its helpers, and where others find it.

    ``webhook_url`` has no trailing slash. ``aggregated`` holds, for each component that serves an API of its own, a DNS
    name (an ExternalName takes no address) and a port.
    """

    webhook_url: str
    aggregated: Mapping[str, tuple[str, int]]
    public_url: str
    ca_bundle: bytes


#: The namespace that components use inside the control plane (leases, Services for aggregated APIs).
SYSTEM_NAMESPACE = "karmada-system"
#: Where the credentials of member clusters live, in the control plane and as the home of accounts on each member.
MEMBER_NAMESPACE = "karmada-cluster"


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
    #: The port that opens when it can do its work, for one that answers before it can. A key of Component.ports.
    opens_when_ready: str = ""


class Holds(Enum):
    """What a file set contains; decides its file names (see ``pki.files.contents``)."""

    CERTIFICATE = "certificate"  # ca.crt, tls.crt, tls.key
    IDENTITY = "identity"  # the same, and a kubeconfig ``karmada.config`` that points at them
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

    ``name`` is unique within an instance; ``directory`` is where the component finds them, below Layout.base.
    ``certificate`` is the row of its leaf in the table, ``member`` whose it is where each member has one.
    """

    name: str
    directory: str
    holds: Holds
    certificate: str = ""
    member: str = ""

    @property
    def leaf(self) -> str:
        """The name of the leaf that is in it."""
        return of_member(self.certificate, self.member)


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


def of_member(name: str, member: str) -> str:
    """The name of what each member has one of; without a member it is the name of the row."""
    return f"{name}-{member}" if name and member else name


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
    #: A folder that a process has while it runs, for what is fetched for it; empty where there is none.
    runtime: str = ""
    #: The address of a member's API server, as its Cluster has it; for its agent.
    member_url: str = ""
    #: Seconds that an API server which is told to stop goes on serving, so that whoever leads clients to it sees that
    #: it is not ready and leads them to another one. None: who runs it sees to that, and to its watches.
    shutdown_delay: int | None = None

    def path(self, *parts: str) -> str:
        """A path below the directory of file sets."""
        return "/".join((self.base, *parts))


#: The flags that most components have for their ports.
PORT_FLAGS: Mapping[str, str] = {
    "https": "secure-port",
    "grpc": "server-port",
    "health": "health-probe-bind-address",
    "metrics": "metrics-bind-address",
}
#: What ends with a port: 8443, :8443, [::1]:8443, https://192.0.2.1:8443, and the first of several of these.
_PORT = re.compile(r"(?:[^,]*:)?([0-9]{1,5})/?(?:,.*)?")

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
    #: Key of ``ports`` → the flag that says where it is.
    port_flags: Mapping[str, str] = dataclasses.field(default_factory=lambda: PORT_FLAGS)
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
    #: Names of files that it reads for every connection, so that a new one replaces no process. It reads all others at
    #: its start only.
    read_again: tuple[str, ...] = ()
    #: The file that has its settings instead of a command line; empty for one that takes flags.
    settings_file: str = ""
    #: It has a data directory, which outlives it.
    keeps_data: bool = False
    #: There is one for each member that the control plane pushes to.
    per_member: bool = False
    #: Which member this one is for; empty in the table.
    member: str = ""

    @property
    def row(self) -> str:
        """Its name in the table, which all those have in common that there is one of for each member."""
        return self.name.removesuffix(f"-{self.member}") if self.member else self.name

    @property
    def peers(self) -> bool:
        """Its processes are members of one cluster, and each connects to the others."""
        return any(call.component == self.name for call in self.calls)

    def for_member(self, member: str, place: int) -> Component:
        """The one for a member. ``place`` counts those that share a host, so that each has ports of its own."""
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

    def is_wanted(self, spec: Mapping[str, Any]) -> bool:
        """Whether this document calls for the component."""
        if self.field == "etcd":
            return external_etcd(spec) is None
        return not self.optional or spec["components"].get(self.field) is not None

    def listens(self, spec: Mapping[str, Any]) -> dict[str, int]:
        """``ports`` as the document has them: ``extraArgs`` move a port by the flag that belongs to it.

        Whoever looks for a component looks here. A listener that a flag turns off keeps the number that it would have.
        """
        given = settings_of(self, spec).get("extraArgs") or {}
        moved = {key: _port_in(str(given.get(flag, ""))) for key, flag in self.port_flags.items()}
        return {key: moved.get(key) or number for key, number in self.ports.items()}

    def is_on_hosts(self, spec: Mapping[str, Any]) -> bool:
        """Whether it is a unit of plain hosts, if it is wanted at all; else it runs in pods."""
        return bool(spec["mode"] == "Binary") or (self.field == "etcd" and etcd_on_hosts(spec))

    def flags(self, spec: Mapping[str, Any], layout: Layout) -> list[str]:
        """The command line, sorted by flag; ``extraArgs`` of the document win over ours."""
        settings = settings_of(self, spec)
        gates = settings.get("featureGates") or {}
        ours = self.arguments(spec, layout, self.ports)
        if self.member:
            ours["cluster-name"] = self.member
        if gates:
            ours["feature-gates"] = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(gates.items()))
        merged = {**ours, **settings.get("extraArgs", {})}
        return [f"--{name}={value}" for name, value in sorted(merged.items())]


def _port_in(value: str) -> int:
    """The port in the value of a flag; 0 where there is none, as in a flag that turns a listener off."""
    found = _PORT.fullmatch(value)
    return int(found[1]) if found else 0


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


def etcd_on_hosts(spec: Mapping[str, Any]) -> bool:
    """Whether members of etcd are units of plain hosts: those with its role, in mode Container, too."""
    return any("etcd" in host["roles"] for host in spec.get("hosts") or ())


def has_estimators(spec: Mapping[str, Any]) -> bool:
    """Whether there is a karmada-scheduler-estimator for each member."""
    return spec["components"].get("karmadaSchedulerEstimator") is not None


def pushed_members(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The members of the document whose API servers the control plane connects to."""
    return tuple(entry["name"] for entry in spec["members"] if not pulls(entry))


def pulls(entry: Mapping[str, Any]) -> bool:
    """Whether this member connects to the control plane, by an agent; ``entry`` as in the document, or on record."""
    return bool(entry.get("mode") == "Pull")


def agent_hosts(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the plain hosts that run the agent of this member; none where it is a Deployment on the member."""
    return tuple(entry.get("agentHosts") or ())


def members_with_agent_hosts(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Member → the hosts that run its agent, of the members whose agent runs on hosts."""
    return {entry["name"]: hosts for entry in spec["members"] if (hosts := agent_hosts(entry))}


def etcd_client_urls(spec: Mapping[str, Any], layout: Layout) -> tuple[str, ...]:
    """Where etcd's clients find it: the document's endpoints, or our members in their order."""
    external = external_etcd(spec)
    return tuple(external["endpoints"] if external else (member.client_url for member in layout.etcd_members))
