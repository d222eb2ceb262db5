# SPDX-License-Identifier: Apache-2.0
"""Plain hosts of a document: their roles, the components on each, and their members of etcd."""

from __future__ import annotations

from dataclasses import dataclass

from . import table
from .endpoint import url
from .instance import Instance
from .spec import HostEntry, Spec
from .table import ETCD, KARMADA_AGENT_ON_HOST
from .types import Component, EtcdMember, members_with_agent_hosts

ETCD_ROLE, CONTROL_PLANE_ROLE, AGENT_ROLE = "etcd", "controlPlane", "agent"


@dataclass(frozen=True)
class Host:
    """A plain host of the document. ``address`` is the one that other hosts and members use."""

    name: str
    address: str
    roles: tuple[str, ...]

    @property
    def is_of_members(self) -> bool:
        """True if it runs agents, and so nothing else. It is no part of the control plane and gets no key of it, and a
        problem of the host is a problem of the members that it serves.
        """
        return AGENT_ROLE in self.roles


def all_hosts(spec: Spec) -> tuple[Host, ...]:
    """Hosts of the document, in its order; empty if everything runs in pods."""
    return tuple(host_of(each) for each in spec.hosts)


def host_of(entry: HostEntry) -> Host:
    """Host described by an entry of the document."""
    return Host(entry.name, entry.address, entry.roles)


def hosts_of(spec: Spec, role: str) -> tuple[Host, ...]:
    """Hosts with this role, in the order of the document."""
    return tuple(host for host in all_hosts(spec) if role in host.roles)


def all_components(instance: Instance) -> tuple[Component, ...]:
    """All components that the instance may have on hosts, wanted or not."""
    return tuple(
        each
        for component in table.ON_HOSTS.values()
        for each in table.processes(component, instance.member_places, instance.member_places)
    )


def role_of(component: Component) -> str:
    """Role that a host needs to run the component."""
    return _ROLES.get(component.row, CONTROL_PLANE_ROLE)


_ROLES = {ETCD.name: ETCD_ROLE, KARMADA_AGENT_ON_HOST.name: AGENT_ROLE}


def components_on(instance: Instance, host: Host) -> list[Component]:
    """Components that run on this host."""
    wanted = table.wanted_components(instance.spec, instance.member_places, instance.pushed)
    return [*(each for each in wanted if role_of(each) in host.roles), *agents_on(instance, host)]


def agents_on(instance: Instance, host: Host) -> list[Component]:
    """Agents that run on this host, one for each member that names it."""
    members = [name for name, hosts in members_with_agent_hosts(instance.spec).items() if host.name in hosts]
    return list(table.processes(KARMADA_AGENT_ON_HOST, members, instance.member_places))


def etcd_members(instance: Instance) -> tuple[EtcdMember, ...]:
    """Members of etcd, one on each host with that role.

    Clients do without those that are on their way: that have no vote yet, or are to go.
    """
    hosts = hosts_of(instance.spec, ETCD_ROLE)
    serving = {each.name for each in instance.etcd_members if each.has_vote and not each.leaving}
    every = not serving & {host.name for host in hosts}
    return tuple(etcd_member(instance.spec, host, leaving=not (every or host.name in serving)) for host in hosts)


def etcd_member(spec: Spec, host: Host, *, leaving: bool = False) -> EtcdMember:
    """Member of etcd on this host, which need not be one of the document any more."""
    ports = ETCD.listens(spec)
    return EtcdMember(
        name=host.name,
        client_url=url(host.address, ports["client"]),
        peer_url=url(host.address, ports["peer"]),
        leaving=leaving,
    )
