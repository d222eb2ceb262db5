# SPDX-License-Identifier: Apache-2.0
"""Judgement of NetworkPolicies on a connection, written down from the API's documentation.

https://kubernetes.io/docs/concepts/services-networking/network-policies/ as of Kubernetes 1.35. A policy selects pods
of its namespace; pods that no policy of a direction selects are open in that direction; policies add up; a connection
needs the leave of both ends. Named ports and port ranges are not needed here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where a connection begins or ends: a pod, or (without a namespace) an address outside of the cluster."""

    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def reaches(
    policies: Sequence[Object],
    namespaces: Mapping[str, Mapping[str, str]],
    source: Place,
    target: Place,
    port: int,
    protocol: str = "TCP",
) -> bool:
    """Whether ``source`` may open a connection to this port of ``target``. ``namespaces``: name → labels."""

    def allowed(one: Place, other: Place, direction: str, rules: str, peers: str) -> bool:
        own = [each for each in policies if one.namespace and _selects_pod(each, one) and _has(each, direction)]
        return not own or any(
            _peer(rule.get(peers), each["metadata"]["namespace"], other, namespaces)
            and _port(rule.get("ports"), port, protocol)
            for each in own
            for rule in each["spec"].get(rules) or []
        )

    return allowed(source, target, "Egress", "egress", "to") and allowed(target, source, "Ingress", "ingress", "from")


def _has(policy: Object, direction: str) -> bool:
    spec = policy["spec"]
    return direction in (spec.get("policyTypes") or ["Ingress", *(["Egress"] if spec.get("egress") else [])])


def _selects_pod(policy: Object, pod: Place) -> bool:
    return policy["metadata"]["namespace"] == pod.namespace and _matches(policy["spec"]["podSelector"], pod.labels)


def _peer(peers: list[Object] | None, home: str, other: Place, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """No list, or an empty one, means everybody."""
    return not peers or any(_one_peer(each, home, other, namespaces) for each in peers)


def _one_peer(peer: Object, home: str, other: Place, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], ipaddress.ip_address(other.address)
        return address in ipaddress.ip_network(block["cidr"]) and not any(
            address in ipaddress.ip_network(each) for each in block.get("except", [])
        )
    if not other.namespace:
        return False
    if "namespaceSelector" in peer:
        in_namespace = _matches(peer["namespaceSelector"], namespaces[other.namespace])
    else:
        in_namespace = other.namespace == home
    return in_namespace and _matches(peer.get("podSelector") or {}, other.labels)


def _port(ports: list[Object] | None, number: int, protocol: str) -> bool:
    return not ports or any(
        each.get("protocol", "TCP") == protocol and each.get("port", number) == number for each in ports
    )


def _matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """An empty selector selects everything."""
    tests = {
        "In": lambda each: labels.get(each["key"]) in each["values"],
        "NotIn": lambda each: labels.get(each["key"]) not in each["values"],
        "Exists": lambda each: each["key"] in labels,
        "DoesNotExist": lambda each: each["key"] not in labels,
    }
    wanted = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    return wanted.items() <= labels.items() and all(tests[each["operator"]](each) for each in expressions)
