# SPDX-License-Identifier: Apache-2.0
"""NetworkPolicies of the host cluster, from the calls in the component table. No I/O.

Each component has one policy, which selects only its pods and denies what it does not allow. Pods of others in the same
namespace are not affected. Probes and port-forward come from the pod's own node, which policies never block.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..api_object import Object
from ..components.instance import Instance
from ..components.table import BY_NAME, COMPONENTS
from ..components.types import Call, Component

#: Ports of DNS, before and after its Service: OpenShift's pods listen on the second.
_DNS_PORTS = (53, 5353)


def of_component(instance: Instance, component: Component) -> list[Object]:
    """Policy of a component; empty if the document disables policies.

    Callers that are not installed are allowed, too, so that enabling a component changes no other component's policy.
    """
    if not instance.spec.network_policies_enabled:
        return []
    spec: Object = {
        "podSelector": {"matchLabels": instance.selector(component.row, component.member)},
        "policyTypes": ["Ingress"],
        "ingress": _ingress(instance, component, instance.spec.metrics_from),
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


def _ingress(instance: Instance, component: Component, metrics_from: Sequence[Object]) -> list[Object]:
    if component.for_everybody:
        # Clients come from anywhere and authenticate.
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
        # The address of DNS pods differs between clusters.
        {"ports": [{"protocol": protocol, "port": port} for port in _DNS_PORTS for protocol in ("UDP", "TCP")]},
    ]


def _pods(instance: Instance, component: Component) -> Object:
    """Peer for pods of the component in the namespace of the policy."""
    return {"podSelector": {"matchLabels": instance.selector(component.name)}}


def _tcp(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
