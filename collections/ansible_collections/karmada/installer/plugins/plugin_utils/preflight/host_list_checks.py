# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with the hosts that a document names, known without a look at them. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from ..components import endpoint
from ..components import hosts as component_hosts
from ..components.hosts import AGENT_ROLE, CONTROL_PLANE_ROLE, ETCD_ROLE, Host
from ..components.instance import Instance
from ..components.state import State
from ..components.table import ETCD, KARMADA_APISERVER
from ..components.types import Component, agent_hosts, settings_path
from ..problems import Problem, Reason
from ..render import sockets, units


def of_the_document(instance: Instance) -> Iterator[Problem]:
    """What the document alone tells and no rule of its schema can say."""
    yield from _agent_hosts(instance)
    yield from _unheard(instance)
    yield from _direct_endpoint(instance)


def _agent_hosts(instance: Instance) -> Iterator[Problem]:
    """Hosts that members name and that are not there for that.

    No rule of the schema: to look for each of 8 names of 5,000 members among 64 hosts is beyond an API server's limit.
    """
    of_members = {host.name: host.is_of_members for host in component_hosts.all_hosts(instance.spec)}
    for number, entry in enumerate(instance.spec["members"]):
        for place, name in enumerate(agent_hosts(entry)):
            if not of_members.get(name):
                what = f"has not the role {AGENT_ROLE}" if name in of_members else "is no host of the document"
                remedy = f"list it in spec.hosts with roles: [{AGENT_ROLE}], or name another one"
                yield Problem(
                    f"{name} {what}",
                    f"spec.members[{number}].agentHosts[{place}]",
                    remedy,
                    reason=Reason.INVALID_DOCUMENT,
                )


def _unheard(instance: Instance) -> Iterator[Problem]:
    """Components that would not listen where they are looked for: flags may move ports, and do no more than that.

    No rule of the schema, which does not know the ports and flags of the table of components.
    """
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
                    reason=Reason.INVALID_FLAG,
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
    """A host that is the endpoint itself has to listen where clients are sent. For the table, too, no rule."""
    settings = instance.spec["endpoint"]
    port, listens = endpoint.port(settings, None), KARMADA_APISERVER.listens(instance.spec)["https"]
    addresses = [host.address for host in component_hosts.hosts_of(instance.spec, CONTROL_PLANE_ROLE)]
    if settings["type"] == "External" and settings.get("host") in addresses and port != listens:
        yield Problem(
            f"clients are sent to port {port} of {settings['host']}, and {KARMADA_APISERVER.name} listens on port "
            f"{listens} there",
            "spec.endpoint.port",
            f"set it to {listens}, or name a load balancer in endpoint.host",
            reason=Reason.ENDPOINT_MISDIRECTED,
        )


def of_the_past(instance: Instance, state: State) -> Iterator[Problem]:
    """Members of etcd are neither added, removed nor moved by writing other hosts into the document.

    No rule of the schema: before etcd has begun, hosts may be corrected, and only the state says whether it has.
    """
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
            reason=Reason.IMMUTABLE_SETTING,
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
                reason=Reason.IMMUTABLE_SETTING,
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
                    reason=Reason.IMMUTABLE_SETTING,
                )
