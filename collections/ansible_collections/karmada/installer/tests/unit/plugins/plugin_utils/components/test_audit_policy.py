# SPDX-License-Identifier: Apache-2.0
"""What is audited, and which policies of users are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import audit_policy
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    ADMIN,
    COMPONENT_GROUP,
    COMPONENTS,
    leaf_certificates,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import Rendered, document, flags, pods, rendered

OWN = {"audit": {"configMapRef": {"name": "own"}}}
GOOD = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Request", "verbs": ["create"]}]}


def level(user: str, groups: set[str], verb: str, resource: str, group: str = "", path: str = "") -> str:
    """As kube-apiserver decides it: the first rule of which all that is given fits. ``path``: no resource."""
    for rule in audit_policy.POLICY["rules"]:
        if "users" in rule and user not in rule["users"]:
            continue
        if "userGroups" in rule and not groups & set(rule["userGroups"]):
            continue
        if "verbs" in rule and verb not in rule["verbs"]:
            continue
        if "nonResourceURLs" in rule and not any(
            path == each or (each.endswith("*") and path and path.startswith(each[:-1]))
            for each in rule["nonResourceURLs"]
        ):
            continue
        if "resources" in rule and not any(_covers(each, resource, group) for each in rule["resources"]):
            continue
        return str(rule["level"])
    raise AssertionError("the last rule fits everything")


def _covers(entry: dict[str, Any], resource: str, group: str) -> bool:
    name, _, subresource = resource.partition("/")
    return entry["group"] == group and any(
        each in (resource, "*" if not subresource else "", f"*/{subresource}", f"{name}/*") or each == "*"
        for each in entry["resources"]
    )


PERSON = ("jane", {"system:authenticated", "developers"})
AGENT = ("system:karmada:agent:m1", {"system:karmada:agents", "system:authenticated"})
COMPONENT = ("system:karmada:karmada-controller-manager", {COMPONENT_GROUP, "system:authenticated"})
MANAGER = ("system:kube-controller-manager", {"system:authenticated"})
ACCOUNT = ("system:serviceaccount:kube-system:namespace-controller", {"system:serviceaccounts:kube-system"})


@pytest.mark.parametrize(
    ("who", "verb", "resource", "group", "expected"),
    [
        (PERSON, "create", "propagationpolicies", "policy.karmada.io", "Metadata"),
        (PERSON, "delete", "deployments", "apps", "Metadata"),
        (PERSON, "patch", "configmaps", "", "Metadata"),
        (PERSON, "get", "secrets", "", "Metadata"),
        (PERSON, "list", "deployments", "apps", "None"),
        (PERSON, "watch", "configmaps", "", "None"),
        (PERSON, "get", "clusters/proxy", "cluster.karmada.io", "Metadata"),
        (PERSON, "create", "events", "", "None"),
        (AGENT, "update", "works", "work.karmada.io", "Metadata"),
        (AGENT, "update", "works/status", "work.karmada.io", "None"),
        (AGENT, "update", "clusters/status", "cluster.karmada.io", "None"),
        (AGENT, "update", "leases", "coordination.k8s.io", "None"),
        (AGENT, "list", "works", "work.karmada.io", "None"),
        *(
            (who, verb, resource, group, expected)
            for who in (COMPONENT, MANAGER, ACCOUNT)
            for verb, resource, group, expected in (
                ("watch", "secrets", "", "None"),
                ("list", "resourcebindings", "work.karmada.io", "None"),
                ("update", "works", "work.karmada.io", "None"),
                ("create", "subjectaccessreviews", "authorization.k8s.io", "None"),
                ("update", "leases", "coordination.k8s.io", "None"),
                ("create", "secrets", "", "Metadata"),
                ("create", "serviceaccounts/token", "", "Metadata"),
                ("patch", "clusterroles", "rbac.authorization.k8s.io", "Metadata"),
                ("update", "certificatesigningrequests/approval", "certificates.k8s.io", "Metadata"),
                ("delete", "clusters", "cluster.karmada.io", "Metadata"),
            )
        ),
    ],
)
def test_what_is_logged_of_whom(who: tuple[str, set[str]], verb: str, resource: str, group: str, expected: str) -> None:
    assert level(*who, verb, resource, group) == expected


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz/etcd", "/livez", "/version", "/api", "/apis/apps", "/openapi/v3"]
)
def test_nothing_is_logged_of_probes_and_discovery(path: str) -> None:
    assert level("system:anonymous", {"system:unauthenticated"}, "get", "", path=path) == "None"


def test_no_rule_ever_writes_what_was_in_a_request() -> None:
    assert {rule["level"] for rule in audit_policy.POLICY["rules"]} == {"None", "Metadata"}


def test_every_component_is_told_from_people() -> None:
    for leaf in leaf_certificates(COMPONENTS):
        if leaf.name.endswith("-identity"):
            assert level(leaf.common_name, set(leaf.organizations), "update", "works", "work.karmada.io") == "None"
    for leaf in (ADMIN, replace(ADMIN, common_name="system:karmada:break-glass", organizations=("system:masters",))):
        assert level(leaf.common_name, set(leaf.organizations), "update", "works", "work.karmada.io") == "Metadata"


# -- as the karmada-apiserver gets it ----------------------------------------------------------------------------------


def with_policy(text: str | None, key: str = "policy.yaml") -> Rendered:
    return Rendered(document(OWN), config_maps={} if text is None else {"own": {key: text}})


def test_the_policy_is_a_file_of_the_api_server_and_the_log_is_its_output() -> None:
    found = rendered()
    told = flags(pods(found.workloads)["karmada-apiserver"])
    assert told["audit-policy-file"] == "/etc/karmada/audit/policy.yaml"
    assert told["audit-log-path"] == "-"
    data = found.one("ConfigMap", "prod-apiserver-audit")["data"]
    assert json.loads(data["policy.yaml"]) == audit_policy.POLICY


def test_without_audit_there_is_neither_file_nor_flag() -> None:
    found = rendered({"audit": {"enabled": False, "configMapRef": {"name": "not there"[:3]}}})
    told = flags(pods(found.workloads)["karmada-apiserver"])
    assert not [each for each in told if each.startswith("audit")]
    assert not [each for each in found.objects if "audit" in each["metadata"]["name"]]


def test_flags_of_the_document_win() -> None:
    extra = {"audit-log-path": "/var/log/audit/audit.log", "audit-log-maxage": "7"}
    told = flags(
        pods(rendered({"components": {"karmadaAPIServer": {"extraArgs": extra}}}).workloads)["karmada-apiserver"]
    )
    assert extra.items() <= told.items()


def test_a_policy_of_the_document_is_taken_as_it_is_and_another_one_replaces_the_api_server_only() -> None:
    found, other = with_policy("# mine\n" + yaml.safe_dump(GOOD)), with_policy(json.dumps(GOOD))
    other.material = found.material
    assert found.one("ConfigMap", "prod-apiserver-audit")["data"]["policy.yaml"].startswith("# mine\n")
    before, after = (
        {name: pod["metadata"]["annotations"] for name, pod in pods(each.workloads).items()} for each in (found, other)
    )
    assert {name for name in before if before[name] != after[name]} == {"karmada-apiserver"}


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("", "is not one Policy", ""),
        ("kind: Policy", "is not one Policy", ""),
        (json.dumps({**GOOD, "apiVersion": "audit.k8s.io/v1beta1"}), "is not one Policy", ""),
        (f"{json.dumps(GOOD)}\n---\n{json.dumps(GOOD)}", "is not one Policy", ""),
        ("a: [", "", "line"),
        (json.dumps({**GOOD, "rules": []}), "has no rules", ""),
        (json.dumps({**GOOD, "rules": {}}), "has no rules", ""),
        (json.dumps({**GOOD, "rules": ["Metadata"]}), "is not a rule", "rules[0]"),
        (json.dumps({**GOOD, "rules": [{}]}), "is None", "rules[0].level"),
        (json.dumps({**GOOD, "rules": [{"level": "metadata"}]}), "is 'metadata'", "rules[0].level"),
        (json.dumps({**GOOD, "omitStages": ["Received"]}), "is 'Received'", "omitStages"),
        (
            json.dumps({**GOOD, "rules": [{"level": "None", "omitStages": ["x"]}]}),
            "is 'x'",
            "rules[0].omitStages",
        ),
        (
            json.dumps({**GOOD, "rules": [{"level": "None", "nonResourceURLs": ["/x"], "namespaces": ["a"]}]}),
            "nonResourceURLs beside",
            "rules[0]",
        ),
    ],
)
def test_a_policy_that_the_api_server_would_not_start_with_is_refused(text: str, what: str, where: str) -> None:
    found = with_policy(text)
    (problem,) = audit_policy.find_problems(found.spec, found.config_maps)
    assert what in problem.what
    assert problem.where.startswith("spec.audit.configMapRef: ConfigMap own, policy.yaml")
    assert where in problem.where
    with pytest.raises(ProblemsError):
        _ = found.workloads


def test_a_config_map_that_is_not_there_or_lacks_the_key_is_told() -> None:
    absent, other = with_policy(None), with_policy("x", key="audit.yaml")
    (problem,) = audit_policy.find_problems(absent.spec, absent.config_maps)
    assert problem.what == "there is no ConfigMap own"
    assert "config_maps: ./config-maps, with the file own/policy.yaml" in problem.remedy
    (problem,) = audit_policy.find_problems(other.spec, other.config_maps)
    assert problem.what == "ConfigMap own has no key policy.yaml (it has: audit.yaml)"
