# SPDX-License-Identifier: Apache-2.0
"""What we say that a ResourceQuota or LimitRange admits, against the admission of a real kube-apiserver.

Its controller does not run here, so the amounts that a quota allows are written into its status as that would do; what
is used is counted by admission itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import COMPONENTS, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import quota
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.unit.support.moments import IN_VAIN_SECONDS
from ansible_collections.karmada.installer.tests.unit.support.samples import rendered

Object = dict[str, Any]
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
WORKLOADS = ("Deployment", "StatefulSet")


def wanted(namespace: str, resources: Object | None = RESOURCES) -> list[Object]:
    """The outline of an instance whose components have these resources."""
    settings = {"resources": resources} if resources else {}
    components: Object = {each.field: dict(settings) for each in COMPONENTS if not each.optional and each is not ETCD}
    spec = {"components": {**components, "etcd": {"local": dict(settings)}}}
    found = rendered(spec, namespace=namespace, storage="volumeClaim")
    return workloads.outline(found.instance, found.layout, found.remembered.etcd)


def brought(objects: list[Object], namespace: str) -> Iterator[Object]:
    """The objects, and the pods and claims that controllers would make of them."""
    for each in objects:
        yield each
        if each["kind"] not in WORKLOADS:
            continue
        name, template = each["metadata"]["name"], each["spec"]["template"]
        claims = each["spec"].get("volumeClaimTemplates") or []
        for claim in claims:
            metadata = {"name": f"{claim['metadata']['name']}-{name}-0", "namespace": namespace}
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim["spec"]}
        volumes = [
            {
                "name": claim["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{name}-0"},
            }
            for claim in claims
        ]
        assert each["spec"]["replicas"] == 1
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-0", "namespace": namespace, "labels": template["metadata"]["labels"]},
            "spec": {**template["spec"], "volumes": [*template["spec"]["volumes"], *volumes]},
        }


def allow(cluster: Cluster, namespace: str, hard: Object, **spec: Any) -> Object:
    """A quota as its controller would leave it before anything is there."""
    metadata = {"name": "team", "namespace": namespace}
    made = cluster.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}
    )
    made["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    return cluster.replace(made, "status")


def refusals(cluster: Cluster, objects: Iterator[Object]) -> list[str]:
    found = []
    for each in objects:
        deadline = time.monotonic() + IN_VAIN_SECONDS
        while True:
            try:
                cluster.create(each)
            except Forbidden as error:
                # Admission learns of a new quota by a watch.
                if "status unknown for quota" in error.message and time.monotonic() < deadline:
                    time.sleep(0.2)
                    continue
                found.append(f"{each['kind']} {each['metadata']['name']}: {error.message}")
            break
    return found


def told(namespace: str, quotas: list[Object], limits: list[Object], objects: list[Object]) -> list[str]:
    return [each.what for each in quota.problems(namespace, quotas, limits, objects, [])]


#: What an instance with these resources takes of each, as the unit tests of the check count it.
AMOUNTS = {
    "requests.cpu": ("700m", "699m"),
    "requests.memory": ("448Mi", "447Mi"),
    "limits.cpu": ("7", "6999m"),
    "limits.memory": ("7Gi", "7167Mi"),
    "pods": ("7", "6"),
    "count/deployments.apps": ("6", "5"),
    "count/statefulsets.apps": ("1", "0"),
    "configmaps": ("2", "1"),
    "persistentvolumeclaims": ("1", "0"),
    "requests.storage": ("5Gi", "4Gi"),
    "count/networkpolicies.networking.k8s.io": ("7", "6"),
}


def test_what_we_say_is_enough_is_admitted(cluster: Cluster, namespace: str) -> None:
    made = allow(cluster, namespace, {key: enough for key, (enough, _) in AMOUNTS.items()})
    objects = wanted(namespace)
    assert told(namespace, [made], [], objects) == []
    assert refusals(cluster, brought(objects, namespace)) == []


@pytest.mark.parametrize("key", AMOUNTS)
def test_what_we_say_is_too_little_is_refused(cluster: Cluster, namespace: str, key: str) -> None:
    made = allow(cluster, namespace, {key: AMOUNTS[key][1]})
    objects = wanted(namespace)
    (problem,) = told(namespace, [made], [], objects)
    assert f" {key}, of which 0 are taken" in problem
    (refusal,) = refusals(cluster, brought(objects, namespace))
    assert "exceeded quota: team" in refusal
    assert key in refusal


def test_what_has_to_be_stated_has_to_be_stated(cluster: Cluster, namespace: str) -> None:
    made = allow(cluster, namespace, {"limits.memory": "64Gi"})
    objects = wanted(namespace, None)
    (problem,) = told(namespace, [made], [], objects)
    refused = refusals(cluster, brought(objects, namespace))
    assert len(refused) == 7
    assert all("must specify limits.memory" in each for each in refused)
    assert all(f" {each.name}" in problem for each in COMPONENTS if not each.optional)


@pytest.mark.parametrize(
    ("scopes", "resources", "counted"),
    [
        (["BestEffort"], None, True),
        (["BestEffort"], RESOURCES, False),
        (["NotTerminating"], RESOURCES, True),
        (["Terminating"], RESOURCES, False),
    ],
)
def test_scopes_count_what_we_say_that_they_count(
    cluster: Cluster, namespace: str, scopes: list[str], resources: Object | None, counted: bool
) -> None:
    made = allow(cluster, namespace, {"pods": "6"}, scopes=scopes)
    objects = wanted(namespace, resources)
    pods = (each for each in brought(objects, namespace) if each["kind"] == "Pod")
    assert bool(told(namespace, [made], [], objects)) == counted
    assert bool(refusals(cluster, pods)) == counted


@pytest.mark.parametrize(
    ("item", "resources", "fits"),
    [
        ({"max": {"memory": "1Gi"}}, RESOURCES, True),
        ({"max": {"memory": "512Mi"}}, RESOURCES, False),
        ({"min": {"cpu": "100m"}}, RESOURCES, True),
        ({"min": {"cpu": "200m"}}, RESOURCES, False),
        ({"maxLimitRequestRatio": {"cpu": "10"}}, RESOURCES, True),
        ({"maxLimitRequestRatio": {"cpu": "5"}}, RESOURCES, False),
        ({"max": {"memory": "1Gi"}}, None, True),
        ({"default": {"memory": "2Gi"}, "max": {"memory": "2Gi"}}, None, True),
    ],
)
def test_bounds_of_containers_are_those_of_the_api_server(
    cluster: Cluster, namespace: str, item: Object, resources: Object | None, fits: bool
) -> None:
    """The API server fills in defaults of a LimitRange itself, so it is read back."""
    metadata = {"name": "bounds", "namespace": namespace}
    made = cluster.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": metadata,
            "spec": {"limits": [{"type": "Container", **item}]},
        }
    )
    objects = wanted(namespace, resources)
    pods = [each for each in brought(objects, namespace) if each["kind"] == "Pod"]
    assert (told(namespace, [], [made], objects) == []) == fits
    # Admission learns of a LimitRange by a watch, and looks itself as long as it has heard of none.
    assert (refusals(cluster, iter(pods)) == []) == fits
