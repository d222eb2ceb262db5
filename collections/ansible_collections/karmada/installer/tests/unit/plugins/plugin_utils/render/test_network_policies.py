# SPDX-License-Identifier: Apache-2.0
"""Who reaches what, computed from the rendered objects by an evaluator of NetworkPolicies of the tests' own."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.tests.unit.support.network_policy import Place, reaches
from ansible_collections.karmada.installer.tests.unit.support.samples import MEMBER as A_MEMBER
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OPTIONAL,
    RUNNING,
    Rendered,
    flags,
    pods,
    quickly_rendered,
    settings_in,
)

EVERYTHING = {"components": {**OPTIONAL, "etcd": {"local": {"replicas": 3}}}, "members": [A_MEMBER]}
SHORT = {component.row.removeprefix("karmada-"): component for component in RUNNING}
NAMESPACES = {
    name: {"kubernetes.io/metadata.name": name} for name in ("karmada", "elsewhere", "monitoring", "kube-system")
}
PROMETHEUS = Place("10.0.4.1", "monitoring", {"app": "prometheus"})
DNS = Place("10.0.4.53", "kube-system", {"k8s-app": "kube-dns"})
MEMBER, INTERNET = Place("192.0.2.7"), Place("198.51.100.9")
OUTSIDERS = {
    "a stranger beside it": Place("10.0.2.1", "karmada", {"app.kubernetes.io/instance": "prod"}),
    "a stranger elsewhere": Place("10.0.2.2", "elsewhere", {"app.kubernetes.io/name": "karmada-apiserver"}),
    "prometheus": PROMETHEUS,
    "the internet": INTERNET,
}


def policies(found: Rendered) -> list[dict[str, Any]]:
    return [each for each in found.objects if each["kind"] == "NetworkPolicy"]


def places(found: Rendered, address: str = "10.0.1.1") -> dict[str, Place]:
    """Short name of a component → one of its pods."""
    return {
        name.removeprefix("karmada-"): Place(address, found.instance.namespace, pod["metadata"]["labels"])
        for name, pod in pods(found.workloads).items()
    }


def doors(found: Rendered, sources: dict[str, Place], rules: list[dict[str, Any]] | None = None) -> dict[str, set[str]]:
    """Which of ``sources`` reach which port: ``etcd:client`` → their names."""
    rules = policies(found) if rules is None else rules
    return {
        f"{name}:{port}": {who for who, source in sources.items() if reaches(rules, NAMESPACES, source, place, number)}
        for name, place in places(found).items()
        for port, number in SHORT[name].ports.items()
    }


#: Who of all components and strangers reaches each port; the karmada-apiserver is reached by everybody.
EXPECTED = {
    "etcd:client": {"apiserver", "aggregated-apiserver", "search"},
    "etcd:peer": {"etcd"},
    "etcd:metrics": set(),
    "aggregated-apiserver:https": {"apiserver"},
    "kube-controller-manager:https": set(),
    "controller-manager:health": set(),
    "controller-manager:metrics": set(),
    "scheduler:health": set(),
    "scheduler:metrics": set(),
    "webhook:https": {"apiserver"},
    "webhook:health": set(),
    "webhook:metrics": set(),
    "descheduler:health": set(),
    "descheduler:metrics": set(),
    "search:https": {"apiserver"},
    "metrics-adapter:https": {"apiserver"},
    "metrics-adapter:metrics": set(),
    "scheduler-estimator:grpc": {"scheduler", "descheduler"},
    "scheduler-estimator:health": set(),
    "scheduler-estimator:metrics": set(),
}
#: etcd has no business with anybody else, so not even with the karmada-apiserver.
WITHOUT_EGRESS = {"etcd"}


def test_the_table_of_who_reaches_what() -> None:
    found = quickly_rendered(EVERYTHING)
    everybody = {**places(found), **OUTSIDERS}
    reached = doors(found, everybody)
    assert reached.pop("apiserver:https") == set(everybody) - WITHOUT_EGRESS
    assert reached == EXPECTED


def test_components_of_another_instance_are_strangers_in_the_same_namespace_too() -> None:
    found = quickly_rendered(EVERYTHING)
    for other in (quickly_rendered(EVERYTHING, name="test"), quickly_rendered(EVERYTHING, namespace="elsewhere")):
        rules = [*policies(found), *policies(other)]
        reached = doors(found, places(other, "10.0.3.1"), rules)
        allowed = reached.pop("apiserver:https")
        assert set().union(*reached.values()) == set()
        # those with an egress of their own stay with their own karmada-apiserver
        assert allowed == set(SHORT) - {"etcd", "webhook", "kube-controller-manager"}


@pytest.mark.parametrize("component", RUNNING, ids=lambda each: each.name)
def test_metrics_are_for_those_whom_the_document_names_and_open_no_other_port(component: Component) -> None:
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    peers = [
        {**monitoring, "podSelector": {"matchLabels": {"app": "prometheus"}}},
        {"ipBlock": {"cidr": "198.51.100.0/24", "except": ["198.51.100.128/25"]}},
    ]
    found = quickly_rendered({**EVERYTHING, "networkPolicies": {"metricsFrom": peers}})
    sources = {
        "prometheus": PROMETHEUS,
        "named": INTERNET,
        "left out": Place("198.51.100.129"),
        "another": Place("10.0.4.2", "monitoring", {"app": "grafana"}),
    }
    own = component.name.removeprefix("karmada-")
    reached = {door: who for door, who in doors(found, sources).items() if door.startswith(f"{own}:")}
    if component.for_everybody:
        assert reached == {f"{own}:https": set(sources)}
    else:
        metrics = {f"{own}:{component.metrics_port}": {"prometheus", "named"}}
        assert reached == {door: metrics.get(door, set()) for door in reached}


#: Everything that a pod may connect to outside of the control plane.
OUTWARD = {
    "members and whatever users name": (MEMBER, 6443, "TCP"),
    "the name service": (DNS, 53, "UDP"),
    "the name service by TCP": (DNS, 53, "TCP"),
    "the name service of OpenShift": (DNS, 5353, "UDP"),
    "another pod of the cluster": (Place("10.0.2.2", "elsewhere", {}), 8080, "TCP"),
}
NAMES = {each for each in OUTWARD if "name service" in each}


@pytest.mark.parametrize("name", SHORT)
def test_what_a_component_reaches_outside(name: str) -> None:
    found = quickly_rendered(EVERYTHING)
    reached = {
        what
        for what, (target, port, protocol) in OUTWARD.items()
        if reaches(policies(found), NAMESPACES, places(found)[name], target, port, protocol)
    }
    # these have no business there; the others connect to members, estimators, webhooks or stores that users name
    closed = {"etcd", "webhook", "kube-controller-manager"}
    assert reached == (NAMES if name in closed else set(OUTWARD))


@pytest.mark.parametrize("name", SHORT)
def test_every_address_that_a_component_is_told_of_can_be_reached(name: str) -> None:
    """The command lines and kubeconfigs, and not the table that the policies are made from, say who calls whom."""
    found = quickly_rendered(EVERYTHING)
    told = flags(pods(found.workloads)[SHORT[name].row])
    wanted = {("etcd", "client")} if "etcd-servers" in told else set()
    if any("karmada.config" in value for value in told.values()):
        wanted.add(("apiserver", "https"))
    if name == "etcd":
        wanted.add(("etcd", "peer"))
    if name == "apiserver":
        wanted |= {(each.removeprefix("karmada-"), "https") for each in found.addresses.aggregated}
        wanted.add(("webhook", "https"))
    if "scheduler-estimator-port" in told:
        wanted.add(("scheduler-estimator", "grpc"))
    # An estimator looks at its member only.
    assert wanted or "cluster-name" in told
    for target, port in wanted:
        number = SHORT[target].ports[port]
        assert reaches(policies(found), NAMESPACES, places(found)[name], places(found)[target], number), target


def test_pods_of_others_in_the_namespace_are_not_touched() -> None:
    found = quickly_rendered(EVERYTHING)
    theirs = Place("10.0.2.1", "karmada", {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": "theirs"})
    for source in (*places(found).values(), INTERNET):
        closed = source.labels.get("app.kubernetes.io/name") in ("etcd", "karmada-webhook", "kube-controller-manager")
        assert reaches(policies(found), NAMESPACES, source, theirs, 2379) == (not closed)


def test_switched_off_there_are_none_and_everybody_reaches_everything() -> None:
    found = quickly_rendered({**EVERYTHING, "networkPolicies": {"enabled": False}})
    assert policies(found) == []
    everybody = {**places(found), **OUTSIDERS}
    assert all(who == set(everybody) for who in doors(found, everybody).values())


def test_a_component_that_is_switched_on_brings_its_own_policy_and_changes_no_other() -> None:
    before = {each["metadata"]["name"]: each for each in policies(quickly_rendered())}
    assert len(before) == len([each for each in RUNNING if not each.optional])
    for component in RUNNING:
        if component.optional:
            spec = {"components": {component.field: settings_in(component)}, "members": [A_MEMBER]}
            after = {each["metadata"]["name"]: each for each in policies(quickly_rendered(spec))}
            assert set(after) - set(before) == {f"prod-{component.name.removeprefix('karmada-')}"}
            assert {name: after[name] for name in before} == before


def test_the_table_names_ports_that_are_there() -> None:
    for component in RUNNING:
        assert component.metrics_port in component.ports
        for call in component.calls:
            assert call.port in next(each for each in RUNNING if each.row == call.component).ports


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, True),
        ({"from": []}, True),
        ({"from": [{"podSelector": {}}]}, True),
        ({"from": [{"podSelector": {"matchLabels": {"a": "c"}}}]}, False),
        ({"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}, True),
        (
            {"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}}]},
            False,
        ),
        ({"from": [{"namespaceSelector": {"matchLabels": {"x": "y"}}}]}, False),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}, True),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/24"]}}]}, False),
        ({"ports": [{"port": 80}]}, True),
        ({"ports": [{"port": 80, "protocol": "UDP"}]}, False),
        ({"ports": [{"protocol": "TCP"}]}, True),
        (None, False),
    ],
)
def test_the_evaluator_itself_keeps_to_the_rules(rule: dict[str, Any] | None, expected: bool) -> None:
    policy = {
        "metadata": {"namespace": "n"},
        "spec": {"podSelector": {"matchLabels": {"t": "t"}}, "ingress": [] if rule is None else [rule]},
    }
    source = Place("10.0.0.5", "n", {"a": "b"})
    assert reaches([policy], {"n": {}}, source, Place("10.0.0.6", "n", {"t": "t"}), 80) is expected
    assert reaches([policy], {"n": {}}, source, Place("10.0.0.6", "n", {"t": "u"}), 80), "not selected"
    assert reaches([policy], {"n": {}, "m": {}}, source, Place("10.0.0.6", "m", {"t": "t"}), 80), "not its namespace"
