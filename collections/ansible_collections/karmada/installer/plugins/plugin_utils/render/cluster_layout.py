# SPDX-License-Identifier: Apache-2.0
"""Addresses and paths of an instance's pods in a host cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..components import endpoint
from ..components import hosts as component_hosts
from ..components.flags import ESTIMATOR_PORT
from ..components.instance import Instance
from ..components.ip_families import IPV4, IPV6
from ..components.server_names import server_names
from ..components.table import (
    ETCD,
    ETCD_PEER_COMMON_NAME,
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_APISERVER,
    KARMADA_METRICS_ADAPTER,
    KARMADA_SCHEDULER_ESTIMATOR,
    KARMADA_SEARCH,
    KARMADA_WEBHOOK,
    wanted_components,
)
from ..components.types import (
    Component,
    EtcdMember,
    Layout,
    LeafCertificate,
    Names,
    etcd_on_hosts,
    settings_of,
)

BASE = "/etc/karmada"
ETCD_DATA = "/var/lib/etcd"
#: Wildcard addresses, by the IP family from which kube-apiserver takes its own address; both listen on both families.
_BIND_ADDRESSES: Mapping[int, str] = {IPV4: "0.0.0.0", IPV6: "::"}  # noqa: S104 - a pod's own network namespace
#: Seconds for which an API server serves after its pod was told to stop: nodes and load balancers learn meanwhile that
#: it is no endpoint any more, and lead clients to the pod that has come in its place.
SHUTDOWN_DELAY = 5
#: Ports of Services; pods listen above 1024 because they have no capability.
SERVICE_PORTS: Mapping[str, int] = {
    KARMADA_APISERVER.name: endpoint.API_PORT,
    KARMADA_AGGREGATED_APISERVER.name: 443,
    KARMADA_WEBHOOK.name: 443,
    KARMADA_SEARCH.name: 443,
    KARMADA_METRICS_ADAPTER.name: 443,
    KARMADA_SCHEDULER_ESTIMATOR.name: ESTIMATOR_PORT,
}


def layout(instance: Instance, *endpoint_hosts: str) -> Layout:
    """Layout of this instance's pods. ``endpoint_hosts`` are the names and addresses for clients outside."""
    return Layout(
        base=BASE,
        data=ETCD_DATA,
        bind_address=_BIND_ADDRESSES[instance.service_networks[0].version],
        apiserver_url=service_url(instance, KARMADA_APISERVER),
        etcd_members=etcd_members(instance),
        service_account_issuer=f"https://kubernetes.default.svc.{instance.cluster_domain}",
        service_subnet=instance.service_subnet,
        server_names=_server_names(instance, endpoint_hosts),
        shutdown_delay=SHUTDOWN_DELAY,
    )


def service_url(instance: Instance, component: Component) -> str:
    """URL of a component within the host cluster."""
    return f"https://{instance.service_host(component.name)}:{SERVICE_PORTS[component.name]}"


def etcd_members(instance: Instance) -> tuple[EtcdMember, ...]:
    """Members of etcd: hosts of the document, or pods by their stable names; empty with an external etcd.

    Pods are those on record, and before the bootstrap those of the document.
    """
    if etcd_on_hosts(instance.spec):
        return component_hosts.etcd_members(instance)
    if instance.spec.external_etcd:
        return ()
    wanted = etcd_pod_names(instance)
    leaving = {each.name for each in instance.etcd_members if each.leaving or each.name not in wanted}
    names = [each.name for each in instance.etcd_members] or wanted
    return tuple(etcd_pod(instance, name, leaving=name in leaving) for name in names)


def etcd_pod_names(instance: Instance) -> list[str]:
    """Names of the members in pods that the document asks for."""
    name = instance.object_name(ETCD.name)
    return [f"{name}-{ordinal}" for ordinal in range(settings_of(ETCD, instance.spec).replicas)]


def etcd_pod(instance: Instance, name: str, *, leaving: bool = False) -> EtcdMember:
    """Member in the pod of this name, by the stable names of pods of its StatefulSet."""
    host = f"{name}.{instance.service_host(ETCD.name)}"
    return EtcdMember(
        name=name,
        client_url=f"https://{host}:{ETCD.ports['client']}",
        peer_url=f"https://{host}:{ETCD.ports['peer']}",
        leaving=leaving,
    )


def _server_names(instance: Instance, endpoint_hosts: Sequence[str]) -> dict[str, Names]:
    loopback = Names(dns=("localhost",), ips=("127.0.0.1", "::1"))

    def own(component: Component, leaf: LeafCertificate) -> Names:
        if leaf.common_name == ETCD_PEER_COMMON_NAME:
            return _etcd_names(instance)
        if component.peer_ports:
            return loopback + _etcd_names(instance)
        return loopback + _service_names(instance, component.name) if component.served_port else loopback

    per_member = [each for each in wanted_components(instance.spec, pushed=instance.pushed) if each.member]
    return server_names(instance, per_member, own, endpoint_hosts)


def _service_names(instance: Instance, component: str) -> Names:
    name, namespace = instance.service_name(component), instance.namespace
    return Names(dns=(name, f"{name}.{namespace}", f"{name}.{namespace}.svc", instance.service_host(component)))


def _etcd_names(instance: Instance) -> Names:
    """Names of all members, by a wildcard: a new member needs no new certificate."""
    service = f"{instance.object_name(ETCD.name)}.{instance.namespace}.svc"
    full = instance.service_host(ETCD.name)
    return Names(dns=(service, full, f"*.{service}", f"*.{full}"))
