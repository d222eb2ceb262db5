# SPDX-License-Identifier: Apache-2.0
"""What ResourceQuotas and LimitRanges of a namespace do not admit is known before the first change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import quota
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

Object = dict[str, Any]
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
#: Seven components run by default, with these resources each.
PODS = 7


def outline(resources: Object | None = None, **spec: Any) -> list[Object]:
    settings = {"resources": resources} if resources else {}
    components: Object = {each.field: dict(settings) for each in COMPONENTS if not each.optional and each is not ETCD}
    components["etcd"] = {"local": dict(settings)}
    found = rendered({"components": components, **spec}, storage="volumeClaim")
    return workloads.outline(found.instance, found.layout, found.remembered.etcd)


def with_class(objects: list[Object], name: str) -> list[Object]:
    """The same with claims of a StorageClass."""
    found = copy.deepcopy(objects)
    for each in found:
        for claim in each["spec"].get("volumeClaimTemplates", []) if each["kind"] == "StatefulSet" else []:
            claim["spec"]["storageClassName"] = name
    return found


def quota_of(hard: Object, used: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"name": "team"}, "spec": {"hard": hard, **spec}, "status": {"used": used or {}}}


def limits_of(**item: Any) -> Object:
    return {"metadata": {"name": "defaults"}, "spec": {"limits": [{"type": "Container", **item}]}}


def told(quotas: list[Object], limits: list[Object], wanted: list[Object], present: list[Object] | None = None) -> str:
    found = list(quota.problems("karmada", quotas, limits, wanted, present or []))
    assert all(each.where == "namespace karmada of the host cluster" and each.remedy for each in found)
    return "\n".join(each.what for each in found)


def test_a_namespace_without_rules_admits_everything() -> None:
    assert told([], [], outline()) == ""


@pytest.mark.parametrize(
    ("key", "enough", "little", "needs"),
    [
        ("requests.cpu", "700m", "699m", "700m"),
        ("cpu", "0.7", "500m", "700m"),
        ("requests.memory", "448Mi", "447Mi", "448Mi"),
        ("memory", "1Gi", "400Mi", "448Mi"),
        ("limits.cpu", "7", "6", "7"),
        ("limits.memory", "7Gi", "7167Mi", "7Gi"),
        ("pods", "7", "6", "7"),
        ("count/pods", "7", "6", "7"),
        ("count/deployments.apps", "6", "5", "6"),
        ("count/statefulsets.apps", "1", "0", "1"),
        ("configmaps", "2", "1", "2"),
        ("persistentvolumeclaims", "1", "0", "1"),
        ("requests.storage", "5Gi", "4Gi", "5Gi"),
        ("fast.storageclass.storage.k8s.io/requests.storage", "5Gi", "4Gi", "5Gi"),
        ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", "1", "0", "1"),
    ],
)
def test_each_resource_is_counted(key: str, enough: str, little: str, needs: str) -> None:
    wanted = outline(RESOURCES)
    if key.startswith("fast."):
        wanted = with_class(wanted, "fast")
    assert told([quota_of({key: enough})], [], wanted) == ""
    found = told([quota_of({key: little})], [], wanted)
    assert found == (
        f"its ResourceQuota team allows {little} {key}, of which 0 are taken; this control plane needs {needs} more"
    )


def test_what_others_use_is_taken_and_what_is_ours_already_is_not_counted_twice() -> None:
    wanted = outline(RESOURCES)
    hard = {"requests.cpu": "1"}
    assert "of which 400m are taken" in told([quota_of(hard, {"requests.cpu": "400m"})], [], wanted)
    ours = quota_of(hard, {"requests.cpu": "1"})
    assert told([ours], [], wanted, present=wanted) == ""
    more = outline({"requests": {"cpu": "200m"}})
    assert "needs 700m more" in told([ours], [], more, present=wanted)


def claim(size: str = "5Gi") -> Object:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-prod-etcd-0"},
        "spec": {"resources": {"requests": {"storage": size}}},
    }


@pytest.mark.parametrize(("key", "full"), [("persistentvolumeclaims", "1"), ("requests.storage", "5Gi")])
def test_a_claim_that_is_there_is_not_counted_twice_with_its_stateful_set_or_without(key: str, full: str) -> None:
    wanted, taken = outline(RESOURCES), quota_of({key: full}, {key: full})
    assert told([taken], [], wanted, present=[claim()]) == ""
    assert told([taken], [], wanted, present=[*wanted, claim()]) == ""
    assert f"needs {full} more" in told([taken], [], wanted)
    assert f"needs {full} more" in told([taken], [], wanted, present=wanted), "its claim has not been made"


def test_a_rerun_is_judged_with_the_defaults_of_the_namespace_on_both_sides() -> None:
    wanted = outline()
    full = quota_of({"requests.cpu": "700m"}, {"requests.cpu": "700m"})
    assert told([full], [limits_of(defaultRequest={"cpu": "100m"})], wanted, present=wanted) == ""


def test_a_counted_resource_has_to_be_stated_and_the_components_without_it_are_named() -> None:
    wanted = outline()
    found = told([quota_of({"limits.memory": "64Gi"})], [], wanted)
    assert "counts limits.memory, so every container has to state it" in found
    assert all(each.name in found for each in COMPONENTS if not each.optional)
    assert told([quota_of({"limits.memory": "64Gi"})], [limits_of(default={"memory": "1Gi"})], wanted) == ""
    assert "needs 7Gi more" in told(
        [quota_of({"limits.memory": "6Gi"})], [limits_of(default={"memory": "1Gi"})], wanted
    )


def test_limits_count_as_requests_where_there_are_none() -> None:
    assert "needs 7 more" in told([quota_of({"requests.cpu": "6"})], [], outline({"limits": {"cpu": "1"}}))


@pytest.mark.parametrize(
    ("spec", "counted"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["BestEffort"]}, True),
        ({"scopes": ["NotBestEffort"]}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, False),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}}, True),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["x"]}]
                }
            },
            False,
        ),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
    ],
    ids=str,
)
def test_a_quota_counts_the_pods_of_its_scope_only(spec: Object, counted: bool) -> None:
    wanted = outline()
    for each in wanted:
        if each["kind"] in ("Deployment", "StatefulSet"):
            each["spec"]["template"]["spec"].pop("priorityClassName", None)
    assert bool(told([quota_of({"pods": "0"}, **spec)], [], wanted)) is counted


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ({"max": {"cpu": "500m"}}, "its limit of cpu is 1, the most is 500m"),
        ({"min": {"cpu": "200m"}}, "it requests 100m cpu, the least is 200m"),
        ({"min": {"example.com/gpu": "1"}}, "it requests no example.com/gpu, the least is 1"),
        ({"maxLimitRequestRatio": {"cpu": "5"}}, "its limit of cpu may be 5 times its request at most"),
        ({"type": "Pod", "max": {"memory": "1Mi"}}, "its limit of memory is"),
        (
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
            "the claim of etcd: its limit of storage is 5Gi",
        ),
    ],
    ids=str,
)
def test_bounds_of_a_limit_range(item: Object, what: str) -> None:
    limits = limits_of()
    limits["spec"]["limits"][0].update(item)
    assert what in told([], [limits], outline(RESOURCES))
    for kind in ("max", "maxLimitRequestRatio"):
        if kind in item:
            limits["spec"]["limits"][0][kind] = dict.fromkeys(item[kind], "1000Gi")
            assert told([], [limits], outline(RESOURCES)) == ""


def test_load_balancers_and_node_ports() -> None:
    wanted = outline(endpoint={"type": "NodePort"})
    assert "needs 1 more" in told([quota_of({"services.nodeports": "0"})], [], wanted)
    assert told([quota_of({"services.loadbalancers": "0"})], [], wanted) == ""
    wanted = outline(endpoint={"type": "LoadBalancer"})
    assert "needs 1 more" in told([quota_of({"services.loadbalancers": "0"})], [], wanted)
