# SPDX-License-Identifier: Apache-2.0
"""IP families of a host cluster, and the Service range of a control plane that follows from them. No I/O.

kube-apiserver does not start when its first Service range is of another family than its own address, which is that of
its pod. So the range follows the host cluster unless the document names one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..api_object import Object
from ..problems import Problem, Reason

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

IPV4, IPV6 = 4, 6
#: Nothing is routed to these ranges: Services of a control plane are templates for those of its members.
DEFAULT_RANGES: Mapping[int, str] = {IPV4: "10.96.0.0/12", IPV6: "fd00:10:96::/108"}
_NAMES = {"IPv4": IPV4, "IPv6": IPV6}


def probe(name: str, namespace: str, policy: str) -> dict[str, Any]:
    """Service for a dry run, which shows the IP families that the API server would assign."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"ipFamilyPolicy": policy, "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]},
    }


def of_service(service: Object | None) -> tuple[int, ...]:
    """IP families of a Service, the preferred one first; empty if there is none."""
    return tuple(_NAMES[name] for name in ((service or {}).get("spec") or {}).get("ipFamilies") or ())


def of_nodes(nodes: Iterable[Object]) -> tuple[int, ...]:
    """IP families of the nodes' addresses and pod ranges: pods have no others."""
    found: list[int] = []
    for node in nodes:
        spec, addresses = node.get("spec") or {}, (node.get("status") or {}).get("addresses") or ()
        found += [ipaddress.ip_network(each).version for each in spec.get("podCIDRs") or ()]
        found += [ipaddress.ip_address(each["address"]).version for each in addresses if each["type"] == "InternalIP"]
    return tuple(dict.fromkeys(found))


def of_api_server(versions: Object) -> tuple[int, ...]:
    """IP family of the address that an API server advertises (``/api``); empty if it is a name or missing.

    Its Services prefer the same family: it does not start otherwise, unless its endpoints are managed by others.
    """
    for each in versions.get("serverAddressByClientCIDRs") or ():
        host = urlsplit(f"//{each.get('serverAddress', '')}").hostname or ""
        try:
            return (ipaddress.ip_address(host).version,)
        except ValueError:
            continue
    return ()


def default_service_subnet(families: Sequence[int]) -> str:
    """Default ranges, one for each IP family, as ``serviceSubnet`` has them."""
    return ",".join(DEFAULT_RANGES[family] for family in families)


def networks(subnet: str) -> list[Network]:
    """Ranges of a ``serviceSubnet``: one, or two of different families."""
    return [ipaddress.ip_network(part) for part in subnet.split(",")]


def problem(subnet: str, families: Sequence[int]) -> Problem | None:
    """Problem if a control plane cannot start with this range in a host cluster of these families; else None."""
    first = networks(subnet)[0].version
    if first in families:
        return None
    return Problem(
        what=f"{subnet} begins with IPv{first}, which the host cluster does not have: kube-apiserver would not start",
        where="spec.components.karmadaAPIServer.serviceSubnet",
        remedy=f"leave it out, which means {default_service_subnet(families)} there, or begin with IPv{families[0]}",
        reason=Reason.INVALID_ADDRESS,
    )


def bracketed(address: str) -> str:
    """Address as written before a port: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address
