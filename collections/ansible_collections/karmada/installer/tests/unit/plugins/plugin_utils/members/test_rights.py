# SPDX-License-Identifier: Apache-2.0
"""What the control plane may do on a member: all, or what Karmada asks for and the document lists."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.members import rights as member_rights
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import member_rights_checks
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object

LISTED = [
    {"apiGroup": "", "resources": ["configmaps"]},
    {"apiGroup": "apps", "resources": ["deployments", "statefulsets"]},
]
SCOPED = {"name": "m1", "mode": "Push", "scopedRights": LISTED}
WORK = "work.karmada.io/v1alpha1"


@pytest.mark.parametrize("entry", [{"name": "m1"}])
def test_all_rights_are_the_default(entry: Object) -> None:
    assert member_rights.rules(MemberEntry(entry)) == list(member_rights.EVERYTHING)
    assert member_rights.permissions(member_rights.rules(MemberEntry(entry))) == [("*", "*", "*", None, "")]
    assert member_rights.may_keep(MemberEntry(entry), "apps", "deployments")


def test_scoped_rights_have_no_wildcard_and_impersonate_nobody() -> None:
    for verb, group, resource, _, _ in member_rights.permissions(member_rights.rules(MemberEntry(SCOPED))):
        assert "*" not in (verb, group, resource)
        assert verb not in ("impersonate", "escalate", "bind", "patch")
    assert {url for rule in member_rights.rules(MemberEntry(SCOPED)) for url in rule.get("nonResourceURLs", [])} >= {
        "/readyz"
    }


def test_scoped_rights_keep_what_is_listed_and_namespaces_and_only_look_at_what_karmada_counts() -> None:
    verbs: dict[str, set[str]] = {}
    for verb, group, resource, _, sub in member_rights.permissions(member_rights.rules(MemberEntry(SCOPED))):
        name = member_rights.full_name(group, f"{resource}/{sub}" if sub else resource)
        verbs.setdefault(name, set()).add(verb)
    look = {"list", "watch"}
    keep = {"get", "create", "update", "delete"} | look
    assert verbs == {
        "nodes": look,
        "pods": look,
        "nodes.metrics.k8s.io": {"get", "list"},
        "pods.metrics.k8s.io": {"get", "list"},
        "namespaces": keep,
        "clusterroles.rbac.authorization.k8s.io": {"get"} | look,
        "clusterrolebindings.rbac.authorization.k8s.io": {"get"} | look,
        "configmaps": keep,
        "configmaps/scale": {"get"},
        "deployments.apps": keep,
        "deployments/scale.apps": {"get"},
        "statefulsets.apps": keep,
        "statefulsets/scale.apps": {"get"},
    }


@pytest.mark.parametrize(
    ("group", "resource", "yes"),
    [
        ("apps", "deployments", True),
        ("", "deployments", False),
        ("", "namespaces", True),
        ("apps", "daemonsets", False),
        ("rbac.authorization.k8s.io", "clusterroles", False),
    ],
)
def test_what_can_be_propagated(group: str, resource: str, yes: bool) -> None:
    assert member_rights.may_keep(MemberEntry(SCOPED), group, resource) is yes


# -- preflight ---------------------------------------------------------------------------------------------------------


class Member(FakeCluster):
    """A member that serves two groups."""

    def __init__(self) -> None:
        super().__init__("member m1")

    def resource(self, api_version: str, kind: str) -> str | None:  # noqa: ARG002 - the signature is Cluster's
        return f"{kind.lower()}s"

    def resources_of(self, group: str) -> dict[str, set[str]]:
        served: dict[str, dict[str, set[str]]] = {
            "": {"configmaps": {"configmap", "cm"}, "namespaces": {"namespace", "ns"}},
            "apps": {"deployments": {"deployment", "deploy"}, "statefulsets": {"statefulset", "sts"}},
        }
        return served.get(group, {})


def found(*listed: Object) -> tuple[list[str], list[str]]:
    """Problems of a member with these resources, and what is said."""
    said: list[str] = []
    entry = {**SCOPED, "scopedRights": list(listed)}
    return [str(each) for each in member_rights_checks.of_member(MemberEntry(entry), Member(), said.append)], said


def test_resources_that_the_member_has_are_in_order() -> None:
    assert found(*LISTED) == ([], [])


@pytest.mark.parametrize("name", ["deployment", "deploy"])
def test_another_name_of_a_resource_is_told_with_the_right_one(name: str) -> None:
    (problem,), _ = found({"apiGroup": "apps", "resources": [name]})
    assert f"{name}.apps is no name of a resource" in problem
    assert "spec.members[m1].scopedRights" in problem
    assert "Write deployments" in problem


def test_a_resource_of_another_builtin_group_is_refused() -> None:
    (problem,), _ = found({"apiGroup": "", "resources": ["deployments"]})
    assert "has no resource deployments, and no CRD can bring it" in problem


def test_a_resource_whose_crd_may_come_is_said_and_not_refused() -> None:
    problems, said = found({"apiGroup": "example.com", "resources": ["widgets"]})
    assert problems == []
    assert said == ["member m1 does not have widgets.example.com yet; it can be propagated there when its CRD has come"]


def work(name: str, kind: str, api_version: str = "apps/v1", **metadata: Any) -> Object:
    propagated = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}}
    return {
        "apiVersion": WORK,
        "kind": "Work",
        "metadata": {"name": f"{name}-{kind.lower()}", "namespace": "karmada-es-m1", **metadata},
        "spec": {"workload": {"manifests": [propagated]}},
    }


def propagated(*works: Object, entry: Object = SCOPED) -> list[str]:
    control_plane = FakeCluster("control plane", *works)
    return [
        str(each) for each in member_rights_checks.of_what_is_propagated(MemberEntry(entry), Member(), control_plane)
    ]


def test_what_is_propagated_and_would_have_no_rights_any_more_is_refused_with_its_names() -> None:
    daemons = [work(f"agent-{number}", "DaemonSet") for number in range(5)]
    (problem,) = propagated(work("web", "Deployment"), work("prod", "Namespace", "v1"), *daemons)
    assert (
        "daemonsets.apps are propagated to it (default/agent-0, default/agent-1, default/agent-2 and 2 more)" in problem
    )
    assert "spec.members[m1].scopedRights" in problem


def test_what_karmada_makes_for_the_cluster_itself_is_none_of_it() -> None:
    of_cluster = {"ownerReferences": [{"kind": "Cluster", "name": "m1"}]}
    assert propagated(work("x", "ClusterRole", "rbac.authorization.k8s.io/v1", **of_cluster)) == []


def test_with_all_rights_nothing_is_looked_for() -> None:
    assert propagated(work("agent", "DaemonSet"), entry={"name": "m1"}) == []
