# SPDX-License-Identifier: Apache-2.0
"""Checks of the list of hosts in a document, without looking at the hosts. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from ..components import endpoint
from ..components import hosts as component_hosts
from ..components.hosts import AGENT_ROLE, CONTROL_PLANE_ROLE, ETCD_ROLE, Host
from ..components.instance import Instance
from ..components.spec import HostEntry, Spec
from ..components.state import State
from ..components.table import ETCD, KARMADA_APISERVER
from ..components.types import Component, settings_path
from ..problems import Problem, Reason
from ..render import sockets, units

_WHY_FIXED = "; members that have not been healthy together yet cannot change"
_OR_BEGIN_ANEW = ", or uninstall with them first: etcd has never been healthy"


def of_the_document(instance: Instance) -> Iterator[Problem]:
    """Problems of the document alone that no rule of its schema can express."""
    yield from _agent_hosts(instance)
    yield from _unheard(instance)
    yield from _direct_endpoint(instance)


def _agent_hosts(instance: Instance) -> Iterator[Problem]:
    """Hosts that members name as agent hosts and that do not exist or have another role.

    Not a rule of the schema: looking up 8 names of each of 5,000 members among 64 hosts exceeds CEL's cost limit.
    """
    of_members = {host.name: host.is_of_members for host in component_hosts.all_hosts(instance.spec)}
    for number, entry in enumerate(instance.spec.members):
        for place, name in enumerate(entry.agent_hosts):
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
    """Components that would not listen where others connect to: flags may only change the port of a listener.

    Not a rule of the schema, which does not know the ports and flags of the component table.
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
    """Addresses and ports at which others connect to a component of this host, and at which its health is checked."""
    where, ports = units.layout(instance, host, component, ""), component.listens(instance.spec)
    looked_for = (component.served_port, *component.peer_ports, component.health.port)
    return [(component.address(where, name), ports[name]) for name in dict.fromkeys(looked_for) if name]


def _direct_endpoint(instance: Instance) -> Iterator[Problem]:
    """Host that is the endpoint itself and does not listen on that port. No schema rule: it needs the table."""
    settings = instance.spec.endpoint
    port, listens = endpoint.port(settings, None), KARMADA_APISERVER.listens(instance.spec)["https"]
    addresses = [host.address for host in component_hosts.hosts_of(instance.spec, CONTROL_PLANE_ROLE)]
    if settings.type == "External" and settings.host in addresses and port != listens:
        yield Problem(
            f"clients are sent to port {port} of {settings.host}, and {KARMADA_APISERVER.name} listens on port "
            f"{listens} there",
            "spec.endpoint.port",
            f"set it to {listens}, or name a load balancer in endpoint.host",
            reason=Reason.ENDPOINT_MISDIRECTED,
        )


def of_the_past(instance: Instance, state: State) -> Iterator[Problem]:
    """Changes of hosts that add, remove or move members of etcd while they have not been healthy together yet, and
    changes of ports.

    Not a rule of the schema: hosts may be corrected until etcd is bootstrapped, which only the state knows.
    """
    recorded = Spec((state.document or {}).get("spec") or {})
    if state.etcd.bootstrapped:
        yield from _fixed_ports(instance, recorded)
    elif state.etcd.nodes:
        yield from _fixed_members(instance, state, recorded)
        yield from _fixed_ports(instance, recorded)


def _fixed_members(instance: Instance, state: State, recorded: Spec) -> Iterator[Problem]:
    """Other hosts, or other addresses of hosts, for members that have begun and do not know each other yet."""
    hosts_before = recorded.hosts or tuple(map(HostEntry, state.hosts.values()))
    addresses_before = {each.name: each.address for each in hosts_before}
    before = sorted(state.etcd.nodes)
    members = component_hosts.hosts_of(instance.spec, ETCD_ROLE)
    now = sorted(host.name for host in members)
    if before != now:
        yield Problem(
            f"etcd runs on {', '.join(before)}, and the document wants it on {', '.join(now) or 'no host'}{_WHY_FIXED}",
            "spec.hosts",
            f"give the role {ETCD_ROLE} to {', '.join(before)} again{_OR_BEGIN_ANEW}",
            reason=Reason.IMMUTABLE_SETTING,
        )
    for host in members:
        address = addresses_before.get(host.name, host.address)
        if ipaddress.ip_address(address) != ipaddress.ip_address(host.address):
            yield Problem(
                f"the member of etcd on {host.name} is known to the others at {address}, and the document says "
                f"{host.address}{_WHY_FIXED}",
                "spec.hosts",
                f"set the address of {host.name} back to {address}{_OR_BEGIN_ANEW}",
                reason=Reason.IMMUTABLE_SETTING,
            )


def _fixed_ports(instance: Instance, before: Spec) -> Iterator[Problem]:
    """Changed ports: hosts are updated one after the other, and must find each other until the last one is.

    Not a rule of the schema, which does not know the ports and flags of the component table.
    """
    if "components" not in before.plain:
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
