# SPDX-License-Identifier: Apache-2.0
"""Ways between pods with members of etcd, as the NetworkPolicies of their namespace leave them, before a member comes.

Nothing listens yet where a member is to come, and its pod is on no node yet. A single member needs nobody, so a policy
that keeps pods from each other shows only when the second one comes. What that cannot prove: that the network between
nodes lets it through, what policies of other kinds say, and what namespaces and addresses a policy means. A member
without a way gets no vote, and those that there are go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..api_object import Object
from ..components.table import ETCD
from ..labels import OWNER_LABEL
from ..problems import Problem, Reason
from ..render import cluster_layout, network_policies
from ..run.run import Run
from .members_seen import are_ours

_KIND = ("networking.k8s.io/v1", "NetworkPolicy")
#: Ports of DNS as pods ask for it; OpenShift's pods listen on the second.
_DNS_PORTS = (53, 5353)


def problems(run: Run) -> list[Problem]:
    """Network policies that would keep members from each other, or from the name service.

    They are looked for where a member is to be added beside another one.
    """
    etcd = run.stored_state.etcd if run.stored_state else None
    known = {each.name for each in etcd.members} if etcd and etcd.bootstrapped else set()
    if not are_ours(run):
        return []
    wanted = cluster_layout.etcd_pod_names(run.instance)
    if len(wanted) < 2 or known >= set(wanted):
        return []
    live = run.host_cluster.list(*_KIND, run.namespace)
    others = [each for each in live if (each["metadata"].get("labels") or {}).get(OWNER_LABEL) != run.state.owner]
    ours = network_policies.of_component(run.instance, ETCD)
    return list(closed(run.instance.labels(ETCD.name), [*others, *ours], run.namespace))


def closed(labels: Mapping[str, str], policies: Iterable[Object], namespace: str) -> Iterable[Problem]:
    """Problems of ways that these policies certainly close to pods with these labels."""
    selecting = [each for each in policies if _selects(each["spec"].get("podSelector"), labels)]
    peer = ETCD.ports["peer"]
    ways = (
        ("Ingress", "from", (peer,), labels, f"no connections to port {peer} from each other"),
        ("Egress", "to", (peer,), labels, f"no connections to port {peer} of each other"),
        ("Egress", "to", _DNS_PORTS, None, "no questions to a name service, by which they find each other"),
    )
    for direction, key, ports, whom, what in ways:
        those = [each["spec"] for each in selecting if direction in _types(each["spec"])]
        rules = [rule for spec in those for rule in spec.get(direction.lower()) or []]
        if those and not any(_admits(rule, key, ports, whom) for rule in rules):
            names = sorted(each["metadata"]["name"] for each in selecting if each["spec"] in those)
            yield Problem(
                f"the NetworkPolicies of members of etcd let through {what}: {', '.join(names)}",
                f"namespace {namespace} of the host cluster",
                "add a policy that lets them, or leave that to this installer (networkPolicies.enabled)",
                reason=Reason.ETCD_UNREACHABLE,
            )


def _types(spec: Object) -> Iterable[str]:
    """Directions of a policy; an API server fills them in."""
    return spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]


def _admits(rule: Mapping[str, Any], key: str, ports: Iterable[int], whom: Mapping[str, str] | None) -> bool:
    """Return whether a rule lets through connections to one of these ports; ``whom`` are the labels of the other side.

    What cannot be told from here counts as let through.
    """
    peers = rule.get(key) or []
    if peers and whom is not None and not any(_may_be(each, whom) for each in peers):
        return False
    given = rule.get("ports") or []
    return not given or any(_is_port(each, port) for each in given for port in ports)


def _may_be(peer: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a peer of a rule may be a pod with these labels: namespaces and addresses are not looked up."""
    return "ipBlock" in peer or _selects(peer.get("podSelector"), labels)


def _is_port(given: Mapping[str, Any], port: int) -> bool:
    low = given.get("port")
    # A name of a port is one of a pod's.
    return not isinstance(low, int) or low <= port <= given.get("endPort", low)


def _selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects these labels; one that is not given selects all."""
    found = selector or {}
    if not (found.get("matchLabels") or {}).items() <= labels.items():
        return False
    return all(_holds(each, labels) for each in found.get("matchExpressions") or [])


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, among = labels.get(expression["key"]), expression.get("values") or []
    return {
        "In": value in among,
        "NotIn": value not in among,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(expression["operator"], True)
