# SPDX-License-Identifier: Apache-2.0
"""How people and members outside reach the API server: host, port, and the Service that leads there. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

#: Port of the API server's Service, and of a name or address of the site's own unless it says otherwise.
API_PORT = 5443
#: Name of the Service port that a load balancer opens beside the one that pods use.
PUBLIC_PORT_NAME = "public"


def service_type(settings: Object) -> str:
    """The type of the API server's Service. What leads to an External endpoint is the site's business."""
    kind: str = settings["type"]
    return kind if kind in ("NodePort", "LoadBalancer") else "ClusterIP"


def service_ports(settings: Object, target: int) -> list[dict[str, Any]]:
    """The ports of that Service: the one that pods use, and one for a load balancer that is to listen elsewhere."""
    port: dict[str, Any] = {"name": "https", "port": API_PORT, "protocol": "TCP", "targetPort": target}
    wanted = settings.get("port")
    if settings["type"] == "NodePort" and wanted:
        port["nodePort"] = wanted
    ports = [port]
    if settings["type"] == "LoadBalancer" and wanted and wanted != API_PORT:
        ports.append({"name": PUBLIC_PORT_NAME, "port": wanted, "protocol": "TCP", "targetPort": target})
    return ports


def address_of_load_balancer(service: Object | None) -> str:
    """The address or name that the load balancer has given the Service; empty while it has not."""
    return next(iter(addresses_of_load_balancer(service)), "")


def addresses_of_load_balancer(service: Object | None) -> list[str]:
    """All addresses and names that the load balancer has given the Service: of both families, say."""
    entries = ((service or {}).get("status") or {}).get("loadBalancer", {}).get("ingress") or []
    return [str(entry.get("ip") or entry.get("hostname")) for entry in entries]


def internal_addresses(nodes: Sequence[Object]) -> list[list[str]]:
    """The addresses at which each node is reached by others: one, or one of each family."""
    return [
        [entry["address"] for entry in node["status"].get("addresses", []) if entry["type"] == "InternalIP"]
        for node in nodes
    ]


def host(settings: Object, recorded: str, nodes: Sequence[Sequence[str]], service: Object | None) -> str:
    """The name or address that goes into the certificate and into kubeconfigs; empty where there is none.

    The document's own wins. A node's address is chosen once and kept as long as a node has it; a load balancer's is
    what it gave, and the one on record while it gives none. ``nodes``: the addresses of each node.
    """
    if settings.get("host"):
        return str(settings["host"])
    if settings["type"] == "LoadBalancer":
        return address_of_load_balancer(service) or recorded
    if settings["type"] == "NodePort":
        found = [address for addresses in nodes for address in addresses]
        return recorded if recorded in found or not found else found[0]
    return ""


def same_place(
    settings: Object, host_name: str, nodes: Sequence[Sequence[str]], service: Object | None
) -> tuple[str, ...]:
    """What leads there beside that host, and so belongs into the certificate: addresses of the other family."""
    if settings.get("host"):
        return ()
    groups = [addresses_of_load_balancer(service)] if settings["type"] == "LoadBalancer" else nodes
    return tuple(each for group in groups if host_name in group for each in group if each != host_name)


def port(settings: Object, service: Object | None) -> int:
    """The port that goes with that host; 0 while the host cluster has not chosen one."""
    if settings["type"] == "NodePort":
        ports = ((service or {}).get("spec") or {}).get("ports") or [{}]
        return int(ports[0].get("nodePort") or settings.get("port") or 0)
    return int(settings.get("port") or API_PORT)


def url(host_name: str, port_number: int) -> str:
    """The address as a URL; IPv6 addresses in brackets."""
    return f"https://{f'[{host_name}]' if ':' in host_name else host_name}:{port_number}"
