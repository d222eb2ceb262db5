# SPDX-License-Identifier: Apache-2.0
"""etcd's data in directories of nodes: which nodes, which volumes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Settings
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import removal
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    account_rights,
    component_checks,
    pod_security,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_nodes, etcd_pods
from ansible_collections.karmada.installer.plugins.plugin_utils.report import observe
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, storage_class
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
    document,
    etcd,
    pods,
    rendered,
    state,
)

Object = dict[str, Any]

DATA = {"hostPath": {"path": "/var/lib/karmada-etcd"}}
NODES = ("node-a", "node-b", "node-c")


def node(name: str, *, zone: str = "", ready: str = "True", taints: Any = (), **spec: Any) -> Object:
    labels = {etcd_nodes.HOSTNAME_LABEL: f"{name}.host"} | ({"topology.kubernetes.io/zone": zone} if zone else {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints), **spec},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "addresses": []},
    }


CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def test_members_get_a_node_each_by_host_name_and_in_the_order_of_names() -> None:
    nodes = [node("c"), node("a"), node("b"), node("d")]
    assert etcd_nodes.choose(nodes, Settings({"replicas": 3})) == ("a.host", "b.host", "c.host")


def test_members_are_in_as_many_zones_as_there_are() -> None:
    nodes = [node("a", zone="x"), node("b", zone="x"), node("c", zone="x"), node("d", zone="y"), node("e", zone="z")]
    assert etcd_nodes.choose(nodes, Settings({"replicas": 3})) == ("a.host", "d.host", "e.host")
    assert etcd_nodes.choose(nodes, Settings({"replicas": 5})) == ("a.host", "d.host", "e.host", "b.host", "c.host")


@pytest.mark.parametrize(
    ("unfit", "reason"),
    [
        (node("n", ready="False"), "it is not ready"),
        (node("n", unschedulable=True), "cordoned"),
        (node("n", taints=[CONTROL_PLANE]), "its taint node-role.kubernetes.io/control-plane is not tolerated"),
        ({**node("n"), "metadata": {"name": "n"}}, "it has no label kubernetes.io/hostname"),
    ],
)
def test_a_node_that_takes_no_member_is_passed_over_for_a_reason(unfit: Object, reason: str) -> None:
    assert reason in etcd_nodes.reason_unfit(unfit, Settings({"replicas": 1}))
    assert etcd_nodes.choose([unfit, node("z")], Settings({"replicas": 1})) == ("z.host",)


def test_a_selector_holds() -> None:
    assert "pool=etcd" in etcd_nodes.reason_unfit(node("n"), Settings({"nodeSelector": {"pool": "etcd"}}))


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": CONTROL_PLANE["key"], "operator": "Exists"},
        {"key": CONTROL_PLANE["key"], "effect": "NoSchedule"},
    ],
)
def test_a_taint_that_is_tolerated_does_not_matter(toleration: Object) -> None:
    assert etcd_nodes.reason_unfit(node("n", taints=[CONTROL_PLANE]), Settings({"tolerations": [toleration]})) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "other", "operator": "Exists"},
        {"key": CONTROL_PLANE["key"], "effect": "NoExecute"},
        {"key": CONTROL_PLANE["key"], "value": "x"},
    ],
)
def test_a_taint_that_is_not_tolerated_matters(toleration: Object) -> None:
    assert etcd_nodes.reason_unfit(node("n", taints=[CONTROL_PLANE]), Settings({"tolerations": [toleration]}))


def test_a_mere_preference_of_a_node_does_not_matter() -> None:
    preferred = node("n", taints=[{**CONTROL_PLANE, "effect": "PreferNoSchedule"}])
    assert etcd_nodes.reason_unfit(preferred, Settings({})) == ""


def test_each_member_has_two_volumes_to_one_directory_of_its_own_node() -> None:
    found = rendered(etcd(replicas=3, volumeData=DATA), storage="hostPath", nodes=NODES)
    volumes = [each for each in found.workloads if each["kind"] == "PersistentVolume"]
    assert len(volumes) == 6
    for ordinal, hostname in enumerate(NODES):
        mine = [each for each in volumes if each["spec"]["claimRef"]["name"].endswith(f"prod-etcd-{ordinal}")]
        assert {each["spec"]["claimRef"]["name"] for each in mine} == {
            f"data-prod-etcd-{ordinal}",
            f"directory-prod-etcd-{ordinal}",
        }
        for each in mine:
            (term,) = each["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert term["matchExpressions"] == [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
            ]
            assert each["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
        paths = {(each["spec"].get("local") or each["spec"]["hostPath"])["path"] for each in mine}
        assert paths == {f"/var/lib/karmada-etcd/prod-{OWNER}"}


def test_claims_and_volumes_are_for_each_other_only() -> None:
    found = rendered(etcd(replicas=3, volumeData=DATA), storage="hostPath", nodes=NODES)
    (stateful_set,) = (each for each in found.workloads if each["kind"] == "StatefulSet")
    claims = stateful_set["spec"]["volumeClaimTemplates"]
    volumes = [each for each in found.workloads if each["kind"] == "PersistentVolume"]
    assert {each["spec"]["storageClassName"] for each in [*claims, *volumes]} == {etcd_pods.HOST_PATH_CLASS}
    wanted = {f"{claim['metadata']['name']}-prod-etcd-{number}" for claim in claims for number in range(3)}
    assert {each["spec"]["claimRef"]["name"] for each in volumes} == wanted
    mounted = {each["name"] for each in stateful_set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert {claim["metadata"]["name"] for claim in claims} <= mounted


def test_the_pods_stay_restricted() -> None:
    found = rendered(etcd(replicas=3, volumeData=DATA), storage="hostPath", nodes=NODES)
    assert pod_security.violations(pods(found.workloads)["etcd"]["spec"], "restricted") == []


def test_other_storage_has_no_such_volumes() -> None:
    assert not [each for each in rendered().workloads if each["kind"] == "PersistentVolume"]


def run_with(*nodes: Object, replicas: int = 3, **settings: Any) -> Any:
    return fake_run(document(etcd(replicas=replicas, volumeData=DATA, **settings)), FakeCluster("host cluster", *nodes))


def test_too_few_nodes_are_told_with_why_the_others_are_none() -> None:
    (problem,) = component_checks.host_path_nodes(run_with(node("a"), node("b"), node("c", taints=[CONTROL_PLANE])))
    assert "3 members of etcd with hostPath need as many nodes, and 2 of 3 nodes can have one" in problem.what
    assert "c: its taint node-role.kubernetes.io/control-plane is not tolerated" in problem.what
    assert problem.where == "spec.components.etcd.local.replicas"


def test_enough_nodes_are_recorded_at_the_first_installation() -> None:
    run = run_with(node("a"), node("b"), node("c"))
    assert list(component_checks.host_path_nodes(run)) == []
    assert run.state.etcd.nodes == ("a.host", "b.host", "c.host")


def test_affinity_to_nodes_is_refused_because_it_is_not_followed() -> None:
    run = run_with(node("a"), replicas=1, affinity={"nodeAffinity": {}})
    assert list(component_checks.host_path_nodes(run)) == []
    run = run_with(
        node("a"), replicas=1, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}
    )
    assert [problem.where for problem in component_checks.host_path_nodes(run)] == [
        "spec.components.etcd.local.affinity.nodeAffinity"
    ]


def test_the_rights_it_needs_are_asked_for() -> None:
    run = run_with(node("a"), replicas=1)
    run.host_cluster.denied = {("create", "persistentvolumes"), ("list", "nodes")}
    (problem,) = account_rights.problems(run)
    assert "persistentvolumes" in problem.what
    assert "nodes" in problem.what


def test_an_uninstall_removes_the_volumes_and_names_the_directories_that_stay() -> None:
    remembered = state()
    found = rendered(etcd(replicas=3, volumeData=DATA), storage="hostPath", nodes=NODES)
    assert found.remembered.etcd.nodes == NODES
    host, owned = FakeCluster("host cluster"), {}
    for each in found.workloads:
        if each["kind"] == "PersistentVolume":
            stored = host.put(each)
            owned[f"PersistentVolume {each['metadata']['name']}"] = stored["metadata"]["uid"]
    stranger = host.put({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "other"}, "spec": {}})
    run = fake_run(found.deployment, host, stored=found.remembered.with_owned("host", owned))
    said: list[str] = []
    run.say = said.append
    removal.remove_control_plane(run)
    assert host.names("PersistentVolume") == {stranger["metadata"]["name"]}
    assert f"/var/lib/karmada-etcd/prod-{OWNER} on node-a, node-b, node-c" in said[0]
    assert remembered.etcd.nodes == ()


def test_the_report_says_that_it_is_an_exception() -> None:
    found = rendered(etcd(volumeData=DATA), storage="hostPath", nodes=("node-a",))
    run = fake_run(found.deployment, FakeCluster("host cluster"), stored=found.remembered)
    (note,) = map(str, observe._host_path_notes(run))
    assert "exception to the restricted" in note
    assert "node-a" in note


@pytest.mark.parametrize(
    ("local", "refused", "told"),
    [
        ({"extraArgs": {"quota-backend-bytes": "8589934592"}}, True, False),
        ({"extraArgs": {"quota-backend-bytes": "4294967296"}}, False, False),
        (
            {"volumeData": {"volumeClaim": {"size": "10Gi"}}, "extraArgs": {"quota-backend-bytes": "8589934592"}},
            False,
            False,
        ),
        ({"volumeData": {"volumeClaim": {"size": "1Gi"}}}, True, True),
        (
            {"volumeData": {"volumeClaim": {"size": "1Gi"}}, "extraArgs": {"quota-backend-bytes": "536870912"}},
            False,
            False,
        ),
        ({"volumeData": {"emptyDir": {}}, "extraArgs": {"quota-backend-bytes": "8589934592"}}, False, False),
        ({}, False, False),
    ],
)
def test_a_database_that_may_outgrow_its_volume_is_refused(local: Object, refused: bool, told: bool) -> None:
    """Only ``told`` is a quota that nobody has named, once there is an etcd which may have more in use already."""
    deployment = document({"components": {"etcd": {"local": local}}})
    run = fake_run(deployment, FakeCluster("host cluster", storage_class("fast")))
    found = list(component_checks.quota_above_volume(run))
    assert [each.where for each in found] == ["spec.components.etcd.local.extraArgs.quota-backend-bytes"] * refused
    assert list(run.told) == []
    assert [
        each.remedy.endswith("; 536870912 is half of it. Or ask for a larger volume") for each in found if told
    ] == ([True] * told)
    stored = state(etcd=run.state.etcd)
    installed = fake_run(deployment, FakeCluster("host cluster", storage_class("fast")), stored=stored)
    assert bool(list(component_checks.quota_above_volume(installed))) == (refused and not told)
    assert [
        each.what.startswith("etcd's database may grow to 2.0 GiB, and its volume has 1Gi") for each in installed.told
    ] == [True] * told
