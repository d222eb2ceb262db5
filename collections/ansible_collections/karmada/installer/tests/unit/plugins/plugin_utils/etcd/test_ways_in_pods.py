# SPDX-License-Identifier: Apache-2.0
"""Before a member comes in pods: policies that keep members from each other are told, others are not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import ways_in_pods
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

Object = dict[str, Any]

NAME = "app.kubernetes.io/name"
LABELS = {NAME: "etcd", "app.kubernetes.io/instance": "prod"}
DENY_ALL: Object = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
OF_ETCD: Object = {"podSelector": {"matchLabels": {NAME: "etcd"}}}
PEERS: Object = {"ports": [{"protocol": "TCP", "port": 2380}]}
DNS: Object = {"ports": [{"protocol": "UDP", "port": 53}]}
LET_THROUGH: Object = {
    **OF_ETCD,
    "policyTypes": ["Ingress", "Egress"],
    "ingress": [{**PEERS, "from": [{"podSelector": {"matchLabels": {NAME: "etcd"}}}]}],
    "egress": [{**PEERS, "to": [{"podSelector": {"matchLabels": {NAME: "etcd"}}}]}, DNS],
}


def told(*specs: Object) -> list[str]:
    policies = [{"metadata": {"name": f"policy-{number}"}, "spec": spec} for number, spec in enumerate(specs)]
    return [each.what.partition("let through ")[2] for each in ways_in_pods.closed(LABELS, policies, "karmada")]


def test_without_policies_every_way_is_open() -> None:
    assert told() == []


def test_a_policy_that_denies_all_is_told_for_each_way_that_it_closes() -> None:
    assert told(DENY_ALL) == [
        "no connections to port 2380 from each other: policy-0",
        "no connections to port 2380 of each other: policy-0",
        "no questions to a name service, by which they find each other: policy-0",
    ]


def test_another_policy_opens_what_one_closes() -> None:
    assert told(DENY_ALL, LET_THROUGH) == []


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {NAME: "karmada-apiserver"}},
        {"matchExpressions": [{"key": NAME, "operator": "NotIn", "values": ["etcd"]}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": NAME, "operator": "DoesNotExist"}]},
    ],
)
def test_policies_of_other_pods_do_not_matter(selector: Object) -> None:
    assert told({**DENY_ALL, "podSelector": selector}) == []
    others = {"ports": [], "from": [{"podSelector": selector}]}
    assert told({**OF_ETCD, "policyTypes": ["Ingress"], "ingress": [others]}) == [
        "no connections to port 2380 from each other: policy-0"
    ]


@pytest.mark.parametrize(
    ("port", "is_open"),
    [
        ({"port": 2380}, True),
        ({"port": 2379}, False),
        ({"port": 2000, "endPort": 3000}, True),
        ({"port": 2000, "endPort": 2379}, False),
        ({"port": "peer"}, True),
        ({}, True),
    ],
)
def test_a_port_counts_as_the_api_server_reads_it(port: Object, is_open: bool) -> None:
    assert (told({**OF_ETCD, "policyTypes": ["Ingress"], "ingress": [{"ports": [port]}]}) == []) is is_open


@pytest.mark.parametrize("peer", [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"namespaceSelector": {}}])
def test_what_cannot_be_told_from_here_counts_as_open(peer: Object) -> None:
    assert told({**OF_ETCD, "policyTypes": ["Ingress"], "ingress": [{"from": [peer]}]}) == []


def test_a_policy_without_types_is_about_what_it_has() -> None:
    assert told({"podSelector": {}, "ingress": [PEERS]}) == []
    assert len(told({"podSelector": {}, "egress": [PEERS]})) == 2, "nobody comes in, and no name is found"


# -- which run looks ---------------------------------------------------------------------------------------------------


def problems(count: int, known: int, *, policies: bool = False, bootstrapped: bool = True) -> list[Problem]:
    host = FakeCluster("host cluster")
    metadata = {"name": "deny-all", "namespace": "karmada"}
    host.put({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": DENY_ALL})
    spec = {"networkPolicies": {"enabled": policies}, "components": {"etcd": {"local": {"replicas": count}}}}
    records = tuple(EtcdMemberState(f"prod-etcd-{ordinal}", id=f"{ordinal}") for ordinal in range(known))
    etcd = EtcdState(token="t", bootstrapped=bootstrapped, storage="volumeClaim", members=records)
    return ways_in_pods.problems(fake_run(samples.document(spec), host, stored=samples.state(etcd=etcd)))


def test_a_second_member_is_not_added_where_nobody_would_reach_it() -> None:
    assert {each.reason for each in problems(3, 1)} == {Reason.ETCD_UNREACHABLE}
    assert all(each.where == "namespace karmada of the host cluster" for each in problems(3, 1))


def test_a_first_install_with_several_members_looks_too() -> None:
    assert problems(3, 3, bootstrapped=False)


def test_the_policies_of_this_installer_let_members_through() -> None:
    assert [each for each in problems(3, 1, policies=True) if "2380 from" in each.what] == []


@pytest.mark.parametrize(("count", "known"), [(1, 1), (3, 3), (1, 3)])
def test_nobody_looks_where_no_member_comes(count: int, known: int) -> None:
    assert problems(count, known) == []
