# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the hosts that a document names, known without a look at them. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ansible_collections.karmada.installer.plugins.plugin_utils import host_sockets, ip_families, load_balancer
from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import settings_path
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.state import State

MOST_ETCD_MEMBERS = 7


def of_the_document(instance: Instance) -> Iterator[Problem]:
    """What the document alone tells."""
    spec, hosts = instance.spec, render.all_hosts(instance.spec)
    virtual_ip = (spec["endpoint"].get("virtualIP") or {}).get("address", "")
    for number, host in enumerate(hosts):
        address, where = ipaddress.ip_address(host.address), f"spec.hosts[{number}]"
        if address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local:
            yield Problem(
                f"{host.address} is no address at which other hosts can reach {host.name}",
                f"{where}.address",
                "name one of a network that all of the hosts are in",
            )
        if virtual_ip and ipaddress.ip_address(virtual_ip) == address:
            yield Problem(
                f"{virtual_ip} is the address of {host.name} itself",
                "spec.endpoint.virtualIP.address",
                "choose an address that no host has: it moves between them",
            )
        if load_balancer.ROLE in host.roles and spec["endpoint"]["type"] != load_balancer.VIRTUAL_IP:
            yield Problem(
                f"the role {load_balancer.ROLE} of {host.name} has no meaning without endpoint.type "
                f"{load_balancer.VIRTUAL_IP}",
                f"{where}.roles",
                f"take it out, or set endpoint.type to {load_balancer.VIRTUAL_IP}",
            )
    yield from _families(instance, virtual_ip)
    yield from _moved_ports(instance)
    members = render.hosts_of(spec, render.ETCD_ROLE)
    if len(members) > MOST_ETCD_MEMBERS:
        yield Problem(
            f"has {len(members)} hosts with the role etcd",
            "spec.hosts",
            f"use at most {MOST_ETCD_MEMBERS}, better 3 or 5: each write waits for more than half of them",
        )


def _moved_ports(instance: Instance) -> Iterator[Problem]:
    """A component is found by others, and asked how it is, at ports of the table of components."""
    told = set()
    for host in render.all_hosts(instance.spec):
        for component in render.components_on(instance.spec, host):
            ports = {socket.port for socket in host_sockets.of_component(instance, host, component)}
            needed = {component.ports[name] for name in (component.served_port, component.health.port) if name}
            if needed <= ports or component.name in told:
                continue
            told.add(component.name)
            gone = ", ".join(str(port) for port in sorted(needed - ports))
            yield Problem(
                f"{component.name} would not listen on port {gone}, where it is looked for",
                f"{settings_path(component)}.extraArgs",
                "leave that port as it is; moving it is not possible on plain hosts yet",
            )


def _families(instance: Instance, virtual_ip: str) -> Iterator[Problem]:
    spec, hosts = instance.spec, render.all_hosts(instance.spec)
    of_family = {
        version: [host.name for host in hosts if ipaddress.ip_address(host.address).version == version]
        for version in (4, 6)
    }
    if all(of_family.values()):
        yield Problem(
            f"mixes addresses of IPv4 ({', '.join(of_family[4])}) and IPv6 ({', '.join(of_family[6])})",
            "spec.hosts",
            "name all hosts by addresses of one family; members of etcd and API servers dial each other by them",
        )
        return
    family = 4 if of_family[4] else 6
    if virtual_ip and ipaddress.ip_address(virtual_ip).version != family:
        yield Problem(
            f"{virtual_ip} is of another family than the addresses of the hosts",
            "spec.endpoint.virtualIP.address",
            f"choose one of IPv{family}",
        )
    subnet = spec["components"]["karmadaAPIServer"].get("serviceSubnet")
    if subnet and ip_families.networks(subnet)[0].version != family:
        yield Problem(
            f"{subnet} begins with another family than the addresses of the hosts have, which kube-apiserver refuses",
            "spec.components.karmadaAPIServer.serviceSubnet",
            f"write a range of IPv{family} first",
        )


def of_the_past(instance: Instance, state: State) -> Iterator[Problem]:
    """Members of etcd are neither added, removed nor moved by writing other hosts into the document."""
    if not state.etcd.bootstrapped:
        return
    hosts_before = ((state.document or {}).get("spec") or {}).get("hosts") or ()
    addresses_before = {each["name"]: each["address"] for each in hosts_before}
    before = sorted(
        state.etcd.nodes
        or (each["name"] for each in hosts_before if render.ETCD_ROLE in each.get("roles", (render.ETCD_ROLE,)))
    )
    members = render.hosts_of(instance.spec, render.ETCD_ROLE)
    now = sorted(host.name for host in members)
    if before and before != now:
        yield Problem(
            f"etcd runs on {', '.join(before)}, and the document wants it on {', '.join(now) or 'no host'}; this "
            "version cannot change the members of etcd",
            "spec.hosts",
            f"give the role {render.ETCD_ROLE} to {', '.join(before)} again",
        )
    for host in members:
        address = addresses_before.get(host.name, host.address)
        if ipaddress.ip_address(address) != ipaddress.ip_address(host.address):
            yield Problem(
                f"the member of etcd on {host.name} is known to the others at {address}, and the document says "
                f"{host.address}; this version cannot change the members of etcd",
                "spec.hosts",
                f"set the address of {host.name} back to {address}",
            )
