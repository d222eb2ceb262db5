# SPDX-License-Identifier: Apache-2.0
"""Listening sockets of a control plane's processes on plain hosts, from their flags. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..components import endpoint, etcd_configuration
from ..components import hosts as component_hosts
from ..components.hosts import Host
from ..components.instance import Instance
from ..components.table import ETCD
from ..components.types import Component, Layout, settings_of
from . import load_balancer, units

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: All addresses of a machine.
_ANY = "::"
_NO_LISTENER = ("0", "")


@dataclass(frozen=True)
class Socket:
    """Listening socket of a process; ``needed_by`` is the component's name."""

    needed_by: str
    address: str
    port: int


def on_host(instance: Instance, host: Host) -> list[Socket]:
    """Sockets on which our processes on this host are to listen, from the flags that they are started with."""
    components = component_hosts.components_on(instance, host)
    found = [socket for component in components for socket in of_component(instance, host, component)]
    if host in load_balancer.load_balancers(instance.spec):
        address, port = load_balancer.virtual_ip(instance.spec), endpoint.port(instance.spec.endpoint, None)
        found.append(Socket(load_balancer.HAPROXY, address, port))
        found.append(Socket(load_balancer.HAPROXY, units.LOOPBACK, load_balancer.MONITOR_PORT))
    return found


def of_component(instance: Instance, host: Host, component: Component) -> Iterator[Socket]:
    """Sockets of one component on this host."""
    where = units.layout(instance, host, component, "")
    if component.settings_file:
        yield from _of_etcd(instance, host, where)
        return
    flags = dict(each.removeprefix("--").partition("=")[::2] for each in component.flags(instance.spec, where))
    if "server-port" in flags:
        yield Socket(component.name, _ANY, int(flags["server-port"]))
    if "secure-port" in flags and flags["secure-port"] not in _NO_LISTENER:
        yield Socket(component.name, flags.get("bind-address") or _ANY, int(flags["secure-port"]))
    for flag, value in sorted(flags.items()):
        address, _, port = value.rpartition(":")
        # controller-runtime takes 0 instead of an address as a request for no listener.
        if flag.endswith("-bind-address") and port not in _NO_LISTENER and port.isdigit():
            yield Socket(component.name, address.strip("[]") or _ANY, int(port))


def _of_etcd(instance: Instance, host: Host, where: Layout) -> Iterator[Socket]:
    configuration = etcd_configuration.of_member(
        next(member for member in where.etcd_members if member.name == host.name),
        where,
        token="",
        existing=False,
        generation=1,
        extra=settings_of(ETCD, instance.spec).extra_args,
    )
    for key in ("listen-client-urls", "listen-peer-urls", "listen-metrics-urls"):
        for url in map(urlsplit, str(configuration[key]).split(",")):
            if url.hostname and url.port:
                yield Socket(ETCD.name, url.hostname, url.port)


def overlap(first: str, second: str) -> bool:
    """Return whether two sockets with these addresses and the same port conflict."""
    addresses = [_plain(first), _plain(second)]
    if addresses[0] == addresses[1]:
        return True
    # By default a socket for all IPv6 addresses accepts IPv4, too.
    return any(
        one.is_unspecified and one.version in (other.version, 6) for one, other in (addresses, reversed(addresses))
    )


def _plain(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        # A host name of this machine; with any other the process does not start.
        return ipaddress.ip_address("127.0.0.1" if text == "localhost" else _ANY)
    return getattr(address, "ipv4_mapped", None) or address
