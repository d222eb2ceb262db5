# SPDX-License-Identifier: Apache-2.0
"""Who may connect to whom, out of the component table, as NetworkPolicies of the host cluster. No I/O.

Each component has one policy, which selects its pods only and denies what it does not allow. Pods of others in the same
namespace are not touched. Probes and port-forward come from the pod's own node, which policies never keep out.
"""

from __future__ import annotations

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import BY_NAME, COMPONENTS
from ..components.types import Call, Component

#: Of the name service, before and after its Service: OpenShift's pods listen on the second.
_DNS_PORTS = (53, 5353)


def of_component(instance: Instance, component: Component) -> list[Object]:
    """The policy of a component; none if the document switches them off.

    Callers that are not installed are allowed too: so a component that is switched on changes nothing but itself.
    """
    settings = instance.spec["networkPolicies"]
    if not settings["enabled"]:
        return []
    spec: Object = {
        "podSelector": {"matchLabels": instance.selector(component.row, component.member)},
        "policyTypes": ["Ingress"],
        "ingress": _ingress(instance, component, settings.get("metricsFrom", [])),
    }
    if component.calls_nobody_else:
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = _egress(instance, component)
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": instance.metadata(component.row, instance.object_name(component.name), component.member),
            "spec": spec,
        }
    ]


def _ingress(instance: Instance, component: Component, metrics_from: list[Object]) -> list[Object]:
    if component.for_everybody:
        # Clients come from anywhere and prove who they are.
        return [{"ports": [_tcp(component.listens(instance.spec)[component.served_port])]}]
    rules: list[Object] = []
    for port, number in component.listens(instance.spec).items():
        callers = [each for each in COMPONENTS if Call(component.row, port) in each.calls]
        peers = [_pods(instance, each) for each in callers]
        if port == component.metrics_port:
            peers += metrics_from
        if peers:
            rules.append({"from": peers, "ports": [_tcp(number)]})
    return rules


def _egress(instance: Instance, component: Component) -> list[Object]:
    return [
        *(
            {
                "to": [_pods(instance, BY_NAME[call.component])],
                "ports": [_tcp(BY_NAME[call.component].listens(instance.spec)[call.port])],
            }
            for call in component.calls
        ),
        # Where the name service runs differs from cluster to cluster.
        {"ports": [{"protocol": protocol, "port": port} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]},
    ]


def _pods(instance: Instance, component: Component) -> Object:
    """In the namespace of the policy."""
    return {"podSelector": {"matchLabels": instance.selector(component.name)}}


def _tcp(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
