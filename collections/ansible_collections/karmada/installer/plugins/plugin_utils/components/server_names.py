# SPDX-License-Identifier: Apache-2.0
"""Names in serving certificates, in pods and on plain hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .instance import Instance
from .table import AGGREGATED_SERVERS, COMPONENTS, KARMADA_APISERVER
from .types import SYSTEM_NAMESPACE, Component, LeafCertificate, Names


def server_names(
    instance: Instance,
    per_member: Iterable[Component],
    own: Callable[[Component, LeafCertificate], Names],
    endpoint_hosts: Iterable[str],
) -> dict[str, Names]:
    """Serving certificate → its names, for every row of the table and these per-member components.

    ``own`` gives the names of a component where it runs; ``endpoint_hosts`` are those that clients outside use.
    """
    rows = (*(each for each in COMPONENTS if not each.per_member), *per_member)
    return {
        leaf.name: own(component, leaf) + _called(instance, component, endpoint_hosts)
        for component in rows
        for leaf in component.certificates
        if leaf.server
    }


def _called(instance: Instance, component: Component, endpoint_hosts: Iterable[str]) -> Names:
    """Names of a component that do not depend on where it runs."""
    if component is KARMADA_APISERVER:
        service = "kubernetes.default.svc"
        return Names(
            dns=("kubernetes", "kubernetes.default", service, f"{service}.{instance.cluster_domain}"),
            ips=tuple(str(network[1]) for network in instance.service_networks),
        ) + Names.of(_outside(instance, endpoint_hosts))
    if component.name in AGGREGATED_SERVERS:
        # The aggregator verifies the name in the APIService, not the one it dials.
        return Names(dns=(f"{component.name}.{SYSTEM_NAMESPACE}.svc",))
    return Names()


def _outside(instance: Instance, endpoint_hosts: Iterable[str]) -> list[str]:
    settings = instance.spec.endpoint
    names = (*endpoint_hosts, settings.host, settings.virtual_ip, *settings.extra_sans)
    return [name for name in names if name]
