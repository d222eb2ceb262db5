# SPDX-License-Identifier: Apache-2.0
"""The endpoint by which people and members reach the API server: host, port, and the objects behind it. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..api_object import Object
from .spec import Endpoint

T = TypeVar("T")

#: Port of the API server's Service, and the default port of the site's own name or address.
API_PORT = 5443
#: Port on which Ingress controllers and routers listen for TLS.
SHARED_PORT = 443
#: Name of the Service port that pods use, and to which a Route leads.
PORT_NAME = "https"
#: Name of the additional Service port that a load balancer opens.
PUBLIC_PORT_NAME = "public"
INGRESS_CLASS = ("networking.k8s.io/v1", "IngressClass")
DEFAULT_INGRESS_CLASS_ANNOTATION = "ingressclass.kubernetes.io/is-default-class"


class Passage(NamedTuple):
    """Kind of object by which a proxy of the host cluster passes TLS connections through to the Service."""

    api_version: str
    kind: str
    resource: str

    @property
    def group(self) -> str:
        """API group, as RBAC names it."""
        return self.api_version.partition("/")[0]


#: Endpoint type → the object that it needs beside the Service.
PASSAGES: Mapping[str, Passage] = {
    "Ingress": Passage("networking.k8s.io/v1", "Ingress", "ingresses"),
    "Route": Passage("route.openshift.io/v1", "Route", "routes"),
}
#: Ingress controllers with TLS passthrough: spec.controller of their IngressClass → annotation that turns it on.
PASS_THROUGH_ANNOTATIONS: Mapping[str, tuple[str, str]] = {
    "k8s.io/ingress-nginx": ("nginx.ingress.kubernetes.io/ssl-passthrough", "true"),
    "haproxy-ingress.github.io/controller": ("haproxy-ingress.github.io/ssl-passthrough", "true"),
    "haproxy.org/ingress-controller": ("haproxy.org/ssl-passthrough", "true"),
    "cilium.io/ingress-controller": ("ingress.cilium.io/tls-passthrough", "enabled"),
}
#: Ingress controllers without TLS passthrough for an Ingress → alternative to use.
WITHOUT_PASS_THROUGH: Mapping[str, str] = {
    "traefik.io/ingress-controller": "an IngressRouteTCP with tls.passthrough of your own and type: External, or an "
    "IngressClass of its provider kubernetesIngressNGINX",
    "projectcontour.io": "an HTTPProxy with tls.passthrough of your own and type: External",
    "ingress-controllers.konghq.com/kong": "a TLSRoute of your own and type: External",
    "istio.io/ingress-controller": "a Gateway with tls.mode PASSTHROUGH of your own and type: External",
    "nginx.org/ingress-controller": "a TransportServer that passes TLS through of your own and type: External",
    "azure/application-gateway": "type: LoadBalancer",
    "ingress.k8s.aws/alb": "type: LoadBalancer",
    "openshift.io/ingress-to-route": "type: Route",
}


def service_type(settings: Endpoint) -> str:
    """Type of the API server's Service. The path to an External endpoint is up to the site."""
    return settings.type if settings.type in ("NodePort", "LoadBalancer") else "ClusterIP"


def service_ports(settings: Endpoint, target: int) -> list[dict[str, Any]]:
    """Ports of the API server's Service: the one that pods use, and another if a load balancer listens elsewhere."""
    port: dict[str, Any] = {"name": PORT_NAME, "port": API_PORT, "protocol": "TCP", "targetPort": target}
    wanted = settings.port
    if settings.type == "NodePort" and wanted:
        port["nodePort"] = wanted
    ports = [port]
    if settings.type == "LoadBalancer" and wanted and wanted != API_PORT:
        ports.append({"name": PUBLIC_PORT_NAME, "port": wanted, "protocol": "TCP", "targetPort": target})
    return ports


def address_of_load_balancer(service: Object | None) -> str:
    """Address or name that the load balancer has given the Service; empty while there is none."""
    return next(iter(addresses_of_load_balancer(service)), "")


def addresses_of_load_balancer(service: Object | None) -> list[str]:
    """All addresses and names that the load balancer has given the Service, such as one of each IP family."""
    entries = ((service or {}).get("status") or {}).get("loadBalancer", {}).get("ingress") or []
    return [str(entry.get("ip") or entry.get("hostname")) for entry in entries]


def internal_addresses(nodes: Sequence[Object]) -> list[list[str]]:
    """Internal addresses of each node: one, or one of each IP family."""
    return [
        [each["address"] for each in node["status"].get("addresses", []) if each["type"] == "InternalIP"]
        for node in nodes
    ]


def host_of_route(route: Object | None) -> str:
    """Host name under which a router serves the Route; empty while none does."""
    return next((str(each.get("host", "")) for each in _routers(route) if _admission(each).get("status") == "True"), "")


def reason_without_address(live: Object) -> str | None:
    """Reason why clients cannot use this Service of type LoadBalancer or this Route yet; None when they can."""
    if live["kind"] != "Route":
        return None if address_of_load_balancer(live) else "the load balancer has given it no address yet"
    if host_of_route(live):
        return None
    refusals = [
        f"router {each.get('routerName', '')} refuses it: {told.get('message') or told.get('reason')}"
        for each in _routers(live)
        if (told := _admission(each)).get("status") == "False"
    ]
    return "; ".join(refusals) or "no router has admitted it yet"


def _routers(route: Object | None) -> Sequence[Object]:
    found: Sequence[Object] = ((route or {}).get("status") or {}).get("ingress") or ()
    return found


def _admission(router: Object) -> Object:
    conditions = router.get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Admitted"), {})


def host(
    settings: Endpoint, recorded: str, nodes: Sequence[Sequence[str]], service: Object | None, route: Object | None
) -> str:
    """Host of the endpoint in the certificate and in kubeconfigs; empty if there is none.

    The document's own host wins. A node's address is chosen once and kept as long as a node has it; a load balancer's
    or a router's is the current one, or the recorded one while there is none. ``recorded`` is of the same endpoint
    type; ``nodes``: the addresses of each node.
    """
    if settings.host:
        return settings.host
    if settings.type == "LoadBalancer":
        return address_of_load_balancer(service) or recorded
    if settings.type == "Route":
        return host_of_route(route) or recorded
    if settings.type == "NodePort":
        found = [address for addresses in nodes for address in addresses]
        return recorded if recorded in found or not found else found[0]
    return ""


def named(settings: Endpoint) -> str:
    """Host or virtual IP that the document gives; empty where it is discovered."""
    return settings.host or settings.virtual_ip


def is_address(name: str) -> bool:
    """Return whether this is an IP address, which needs no DNS."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def same_place(
    settings: Endpoint, host_name: str, nodes: Sequence[Sequence[str]], service: Object | None
) -> tuple[str, ...]:
    """Other addresses of the same endpoint, which also belong in the certificate: those of the other IP family."""
    if settings.host:
        return ()
    groups = [addresses_of_load_balancer(service)] if settings.type == "LoadBalancer" else nodes
    return tuple(each for group in groups if host_name in group for each in group if each != host_name)


def port(settings: Endpoint, service: Object | None) -> int:
    """Port of the endpoint; 0 while the host cluster has not assigned one."""
    if settings.type == "NodePort":
        ports = ((service or {}).get("spec") or {}).get("ports") or [{}]
        return int(ports[0].get("nodePort") or settings.port or 0)
    return settings.port or (SHARED_PORT if settings.type in PASSAGES else API_PORT)


def url(host_name: str, port_number: int) -> str:
    """The address as a URL; IPv6 addresses in brackets."""
    return f"https://{f'[{host_name}]' if ':' in host_name else host_name}:{port_number}"


def ingress_class(settings: Endpoint, classes: Sequence[Object]) -> Object | None:
    """IngressClass of an Ingress with these settings: the one they name, else the default one."""
    name = settings.ingress_class
    for each in classes:
        metadata = each["metadata"]
        default = (metadata.get("annotations") or {}).get(DEFAULT_INGRESS_CLASS_ANNOTATION) == "true"
        if metadata["name"] == name or (not name and default):
            return each
    return None


def pass_through(controller: str) -> dict[str, str]:
    """Annotation that turns on TLS passthrough for this Ingress controller; empty if none is known."""
    found = _of_controller(PASS_THROUGH_ANNOTATIONS, controller)
    return dict([found]) if found else {}


def instead_of_ingress(controller: str) -> str | None:
    """Alternative for an Ingress controller without TLS passthrough; None for any other controller."""
    return _of_controller(WITHOUT_PASS_THROUGH, controller)


def takes(live: Object, name: str, class_name: str) -> bool:
    """Return whether this Ingress or Route serves that name; an Ingress of another class does not."""
    if live["kind"] == "Route":
        return bool(live["spec"].get("host") == name)
    annotations = live["metadata"].get("annotations") or {}
    served = live["spec"].get("ingressClassName") or annotations.get("kubernetes.io/ingress.class") or class_name
    return served == class_name and any(rule.get("host") == name for rule in live["spec"].get("rules") or ())


def _of_controller(known: Mapping[str, T], controller: str) -> T | None:
    """Entry of a controller; several of one make in a cluster have different suffixes after a slash."""
    return next((value for name, value in known.items() if f"{controller}/".startswith(f"{name}/")), None)
