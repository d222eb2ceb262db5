# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the hosts that a document names, known without a look at them. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from ..components import endpoint, ip_families
from ..components import hosts as component_hosts
from ..components.hosts import AGENT_ROLE, CONTROL_PLANE_ROLE, ETCD_ROLE, Host
from ..components.instance import Instance
from ..components.state import State
from ..components.table import ETCD, KARMADA_APISERVER
from ..components.types import Component, agent_hosts, settings_path
from ..problems import Problem
from ..render import load_balancer, sockets, units

MOST_ETCD_MEMBERS = 7


def of_the_document(instance: Instance) -> Iterator[Problem]:
    """What the document alone tells."""
    spec, hosts = instance.spec, component_hosts.all_hosts(instance.spec)
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
    yield from _agent_hosts(instance)
    yield from _unheard(instance)
    yield from _direct_endpoint(instance)
    members = component_hosts.hosts_of(spec, ETCD_ROLE)
    if len(members) > MOST_ETCD_MEMBERS:
        yield Problem(
            f"has {len(members)} hosts with the role etcd",
            "spec.hosts",
            f"use at most {MOST_ETCD_MEMBERS}, better 3 or 5: each write waits for more than half of them",
        )


def _agent_hosts(instance: Instance) -> Iterator[Problem]:
    """Hosts that members name and that are not there for that. Too much of a search for a rule of the schema."""
    of_members = {host.name: host.is_of_members for host in component_hosts.all_hosts(instance.spec)}
    for number, entry in enumerate(instance.spec["members"]):
        for place, name in enumerate(agent_hosts(entry)):
            if not of_members.get(name):
                what = f"has not the role {AGENT_ROLE}" if name in of_members else "is no host of the document"
                remedy = f"list it in spec.hosts with roles: [{AGENT_ROLE}], or name another one"
                yield Problem(f"{name} {what}", f"spec.members[{number}].agentHosts[{place}]", remedy)


def _unheard(instance: Instance) -> Iterator[Problem]:
    """Components that would not listen where they are looked for: flags may move ports, and do no more than that."""
    told = set()
    for host in component_hosts.all_hosts(instance.spec):
        for component in component_hosts.components_on(instance, host):
            listening = list(sockets.of_component(instance, host, component))
            deaf = [
                f"port {port} of {address}"
                for address, port in _looked_for(instance, host, component)
                if not any(each.port == port and sockets.overlap(each.address, address) for each in listening)
            ]
            if deaf and component.name not in told:
                told.add(component.name)
                yield Problem(
                    f"{component.name} would not listen on {' and '.join(deaf)}, where it is looked for",
                    f"{settings_path(component)}.extraArgs",
                    "a flag may give it another port, but has to leave that listener on, at that address or at all",
                )


def _looked_for(instance: Instance, host: Host, component: Component) -> list[tuple[str, int]]:
    """Where others connect to a component of this host, and where it is asked how it is."""
    where, ports = units.layout(instance, host, component, ""), component.listens(instance.spec)
    if component is ETCD:
        return [
            (where.bind_address, ports["client"]),
            (where.bind_address, ports["peer"]),
            (where.metrics_address, ports["metrics"]),
        ]
    names = dict.fromkeys(name for name in (component.served_port, component.health.port) if name)
    return [(where.bind_address, ports[name]) for name in names]


def _direct_endpoint(instance: Instance) -> Iterator[Problem]:
    """A host that is the endpoint itself has to listen where clients are sent."""
    settings = instance.spec["endpoint"]
    port, listens = endpoint.port(settings, None), KARMADA_APISERVER.listens(instance.spec)["https"]
    addresses = [host.address for host in component_hosts.hosts_of(instance.spec, CONTROL_PLANE_ROLE)]
    if settings["type"] == "External" and settings.get("host") in addresses and port != listens:
        yield Problem(
            f"clients are sent to port {port} of {settings['host']}, and {KARMADA_APISERVER.name} listens on port "
            f"{listens} there",
            "spec.endpoint.port",
            f"set it to {listens}, or name a load balancer in endpoint.host",
        )


def _families(instance: Instance, virtual_ip: str) -> Iterator[Problem]:
    spec = instance.spec
    hosts = [host for host in component_hosts.all_hosts(spec) if not host.is_of_members]
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
    # In pods the API server has an address of the host cluster.
    if (
        subnet
        and component_hosts.hosts_of(spec, CONTROL_PLANE_ROLE)
        and ip_families.networks(subnet)[0].version != family
    ):
        yield Problem(
            f"{subnet} begins with another family than the addresses of the hosts have, which kube-apiserver refuses",
            "spec.components.karmadaAPIServer.serviceSubnet",
            f"write a range of IPv{family} first",
        )


def of_the_past(instance: Instance, state: State) -> Iterator[Problem]:
    """Members of etcd are neither added, removed nor moved by writing other hosts into the document."""
    if not (state.etcd.bootstrapped or state.etcd.nodes):
        return
    hosts_before = ((state.document or {}).get("spec") or {}).get("hosts") or state.hosts.values()
    addresses_before = {each["name"]: each["address"] for each in hosts_before}
    before = sorted(
        state.etcd.nodes or (each["name"] for each in hosts_before if ETCD_ROLE in each.get("roles", (ETCD_ROLE,)))
    )
    members = component_hosts.hosts_of(instance.spec, ETCD_ROLE)
    now = sorted(host.name for host in members)
    if before and before != now:
        yield Problem(
            f"etcd runs on {', '.join(before)}, and the document wants it on {', '.join(now) or 'no host'}; this "
            "version cannot change the members of etcd",
            "spec.hosts",
            f"give the role {ETCD_ROLE} to {', '.join(before)} again{_or_begin_anew(state)}",
        )
    yield from _fixed_ports(instance, (state.document or {}).get("spec") or {})
    for host in members:
        address = addresses_before.get(host.name, host.address)
        if ipaddress.ip_address(address) != ipaddress.ip_address(host.address):
            yield Problem(
                f"the member of etcd on {host.name} is known to the others at {address}, and the document says "
                f"{host.address}; this version cannot change the members of etcd",
                "spec.hosts",
                f"set the address of {host.name} back to {address}{_or_begin_anew(state)}",
            )


def _or_begin_anew(state: State) -> str:
    return "" if state.etcd.bootstrapped else ", or uninstall with them first: etcd has never been healthy"


def _fixed_ports(instance: Instance, before: Mapping[str, Any]) -> Iterator[Problem]:
    """Hosts are changed one after the other, and until the last of them is, they have to find each other."""
    if "components" not in before:
        return
    for component, names in ((ETCD, ("client", "peer")), (KARMADA_APISERVER, ("https",))):
        old, new = component.listens(before), component.listens(instance.spec)
        for name in names:
            if old[name] != new[name] and component.is_wanted(instance.spec):
                yield Problem(
                    f"{component.name} listens on port {old[name]} since the install, and the document says "
                    f"{new[name]}; that cannot be changed in place",
                    f"{settings_path(component)}.extraArgs.{component.port_flags[name]}",
                    f"set it back to port {old[name]}",
                )
