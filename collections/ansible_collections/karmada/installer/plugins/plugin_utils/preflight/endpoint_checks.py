# SPDX-License-Identifier: Apache-2.0
"""Checks of the endpoint: its port, its name, and the controller that would serve it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

from ..components import endpoint
from ..components import hosts as component_hosts
from ..components.hosts import CONTROL_PLANE_ROLE
from ..components.table import KARMADA_APISERVER, KARMADA_CA
from ..pki import x509
from ..problems import Problem, Reason
from ..render import load_balancer
from ..run.reach import Fault
from ..run.run import Run
from . import endpoint_look, reach_from_hosts
from .endpoint_look import Seen

#: Names of the API server in any cluster, one of which is in its certificate.
_NAMES_OF_API_SERVERS = {"kubernetes", "kubernetes.default", "kubernetes.default.svc"}
#: Characters shown of a certificate's names.
_MOST_WORDS = 200


def node_port(run: Run) -> Iterable[Problem]:
    """Node port in the document, if another Service has it."""
    settings = run.spec.endpoint
    if settings.type != "NodePort" or not settings.port:
        return
    ours = run.instance.object_name(KARMADA_APISERVER.name)
    denied = run.host_cluster.can_i([("list", "", "services", None)])
    services = [] if denied else run.host_cluster.list("v1", "Service")
    for service in services:
        metadata = service["metadata"]
        if (metadata["namespace"], metadata["name"]) == (run.namespace, ours):
            continue
        if any(port.get("nodePort") == settings.port for port in service["spec"].get("ports") or []):
            yield Problem(
                what=f"node port {settings.port} belongs to Service {metadata['namespace']}/{metadata['name']}",
                where="spec.endpoint.port",
                remedy="choose another port, or leave it out to have one chosen",
                reason=Reason.PORT_IN_USE,
            )


def ingress(run: Run) -> Iterable[Problem]:
    """Ingress endpoint: needs a controller that passes TLS through, and a name that is free there."""
    settings = run.spec.endpoint
    if settings.type != "Ingress":
        return
    classes = run.host_cluster.list(*endpoint.INGRESS_CLASS)
    chosen = endpoint.ingress_class(settings, classes)
    if chosen is None:
        there = ", ".join(sorted(each["metadata"]["name"] for each in classes)) or "none"
        wanted = f"no IngressClass {settings.ingress_class}" if settings.ingress_class else "no default IngressClass"
        yield Problem(
            what=f"there is {wanted} (there are: {there})",
            where="spec.endpoint.ingress.className",
            remedy="name one of them" if classes else "install an Ingress controller, or choose another endpoint.type",
            reason=Reason.ENDPOINT_UNSUPPORTED,
        )
        return
    name, controller = chosen["metadata"]["name"], str(chosen["spec"].get("controller", ""))
    instead = endpoint.instead_of_ingress(controller)
    if instead:
        yield Problem(
            what=f"IngressClass {name} is served by {controller}, which cannot pass TLS through for an Ingress",
            where="spec.endpoint.ingress.className",
            remedy=f"use {instead}, or name another IngressClass",
            reason=Reason.ENDPOINT_UNSUPPORTED,
        )
    elif not endpoint.pass_through(controller) and not settings.ingress_annotations:
        run.tell(
            Problem.hint(
                f"IngressClass {name} is served by {controller}, which is not known here: if it passes TLS through "
                "only when told so, tell it by spec.endpoint.ingress.annotations",
                Reason.ENDPOINT_UNSUPPORTED,
            )
        )
    yield from _taken_host(run, name)


def route(run: Run) -> Iterable[Problem]:
    """Route endpoint: needs a cluster with Routes, and a name that is free."""
    settings, passage = run.spec.endpoint, endpoint.PASSAGES["Route"]
    if settings.type != passage.kind:
        return
    if run.host_cluster.resource(passage.api_version, passage.kind) is None:
        yield Problem(
            what="the host cluster has no Routes, so it is not one of OpenShift",
            where="spec.endpoint.type",
            remedy="choose another type, such as Ingress",
            reason=Reason.ENDPOINT_UNSUPPORTED,
        )
    elif settings.host:
        yield from _taken_host(run, "")


def _taken_host(run: Run, class_name: str) -> Iterable[Problem]:
    """Ingress (of this class) or Route of others that has the name, as far as the account may look."""
    settings = run.spec.endpoint
    passage = endpoint.PASSAGES[settings.type]
    ours = (run.namespace, run.instance.object_name(KARMADA_APISERVER.name))
    everywhere = not run.host_cluster.can_i([("list", passage.group, passage.resource, None)])
    for each in run.host_cluster.list(passage.api_version, passage.kind, None if everywhere else run.namespace):
        where = (each["metadata"]["namespace"], each["metadata"]["name"])
        if where != ours and endpoint.takes(each, settings.host, class_name):
            yield Problem(
                what=f"the name {settings.host} belongs to {passage.kind} {'/'.join(where)}",
                where="spec.endpoint.host",
                remedy="choose another name, or remove that object",
                reason=Reason.ENDPOINT_TAKEN,
            )


def leads(run: Run) -> Iterable[Problem]:
    """Endpoint in the document that leads to another control plane, as far as this can be seen from here.

    Clients may be elsewhere, with other DNS: a name that is unknown here, or that leads to an address that the document
    does not know, is only a hint. If an API server of others answers there, that is a problem.
    """
    settings = run.spec.endpoint
    name = endpoint.named(settings)
    if not name or settings.type == "ClusterIP":
        return
    port = endpoint.port(settings, None)
    seen = endpoint_look.look(name, port)
    for hint in (*_hints(run, name, seen), *_of_hosts(run, name)):
        run.tell(Problem.hint(hint, Reason.ENDPOINT_MISDIRECTED))
    if run.store.may_be_unseen:
        return  # it may be ours: the host that could tell may be one that cannot be looked at
    ours = run.state.authorities[KARMADA_CA].certificate if run.stored_state else b""
    if stranger := _stranger(seen.certificate, ours):
        via = "" if endpoint.is_address(name) else f", which leads to {', '.join(seen.addresses)} from here"
        yield Problem(
            what=f"another API server answers at {endpoint.url(name, port)}{via}: its certificate is of {stranger}, "
            "and not signed by the CA of this control plane",
            where="spec.endpoint.host" if settings.host else "spec.endpoint.virtualIP.address",
            remedy="let it lead to this control plane, or name another one; a name that is to move here later can "
            "stand in spec.endpoint.extraSANs until then",
            reason=Reason.ENDPOINT_TAKEN,
        )


def _stranger(certificate: str, ours: bytes) -> str:
    """Names of the API server with this certificate, as text; empty if it is ours, or no API server.

    Before ours runs, a proxy that it is to share with others may answer with a certificate of its own.
    """
    try:
        about = x509.describe(certificate.encode(), *filter(None, [ours])) if certificate else {}
    except ValueError:
        return ""
    if not about or about["issuer_fingerprint"] or not _NAMES_OF_API_SERVERS & {_bare(each) for each in about["sans"]}:
        return ""
    said = f"{about['subject'] or 'nobody'}, issued by {about['issuer'] or 'nobody'}"
    return "".join(letter if letter.isprintable() else "?" for letter in said[:_MOST_WORDS])


def _bare(name: str) -> str:
    return name.rpartition(":")[2]


def _hints(run: Run, name: str, seen: Seen) -> Iterator[str]:
    """Hints on a name that may be right for clients but looks wrong from here."""
    if not seen.addresses:
        yield (
            f"{_called(name)} is not known to this machine ({seen.unknown}): kubeconfigs lead there, so let the name "
            "service of those who use them have it, or name an address"
        )
    elif KARMADA_APISERVER.is_on_hosts(run.spec) and not endpoint.is_address(name):
        yield from _past_hosts(run, name, seen.addresses)


def _past_hosts(run: Run, name: str, addresses: Sequence[str]) -> Iterator[str]:
    """Hints on a name whose addresses cannot serve the endpoint, as far as the document tells."""
    virtual_ip = run.spec.endpoint.virtual_ip
    of_hosts = {host.address: host for host in component_hosts.all_hosts(run.spec)}
    known = {_address(each): host for each, host in of_hosts.items()}
    led_to = ", ".join(addresses)
    found = [_address(each) for each in addresses]
    if virtual_ip:
        if _address(virtual_ip) not in found:
            yield (
                f"{_called(name)} leads to {led_to} from here, and not to the virtual IP {virtual_ip}: clients come "
                "to it only if something passes their connections on"
            )
        return
    if any(each.is_loopback for each in found):
        yield f"{_called(name)} leads this machine to itself ({led_to}), and others elsewhere"
    serving = {CONTROL_PLANE_ROLE, load_balancer.ROLE}
    deaf = [known[each].name for each in found if each in known and not serving & set(known[each].roles)]
    if deaf and len(deaf) == len(found):
        yield (
            f"{_called(name)} leads to {', '.join(deaf)} ({led_to}), where no API server runs: clients get through "
            "only if a load balancer of yours is there"
        )


def _of_hosts(run: Run, name: str) -> Iterator[str]:
    """Hints on hosts that do not know the name; for hosts with agents it is a problem of their members."""
    faults: dict[Fault, list[str]] = {}
    for host, observed in run.observed.items():
        found = observed.unreached.get(reach_from_hosts.ENDPOINT)
        if found and found.kind == kinds.UNKNOWN_NAME:
            faults.setdefault(found, []).append(host)
    for fault, hosts in faults.items():
        yield (
            f"{_called(name)} is not known on {', '.join(hosts)} ({fault.detail}): the control plane does without, "
            "who uses a kubeconfig there does not"
        )


def _called(name: str) -> str:
    return f"the name {name} (spec.endpoint.host)"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    # A link-local address is followed by its interface.
    return ipaddress.ip_address(text.partition("%")[0])
