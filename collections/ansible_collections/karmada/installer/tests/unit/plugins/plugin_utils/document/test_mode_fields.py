# SPDX-License-Identifier: Apache-2.0
"""What means nothing in a mode is refused at its path; every field of the schema has been decided on."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest, mode_fields
from ansible_collections.karmada.installer.plugins.plugin_utils.document.mode_fields import Means
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]

ETCD_HOST: list[Object] = [{"name": "etcd1", "address": "192.0.2.1", "roles": ["etcd"]}]
ONE_HOST: Object = {"mode": "Binary", "hosts": [{"name": "host1", "address": "192.0.2.1"}]}


def leaves(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every field of a schema that has no fields of its own."""
    items = schema.get("items", {})
    if schema.get("properties"):
        for name, each in schema["properties"].items():
            yield from leaves(each, f"{path}.{name}" if path else name)
    elif items.get("properties"):
        yield from leaves(items, f"{path}[]")
    else:
        yield path


LEAVES = sorted(leaves(manifest.schema()["properties"]["spec"]))


@pytest.mark.parametrize("path", LEAVES)
def test_it_is_decided_in_which_modes_a_field_means_something(path: str) -> None:
    try:
        mode_fields.meaning(path)
    except KeyError:
        pytest.fail(f"give {path} a row in mode_fields")


def test_no_row_is_of_a_field_that_is_gone() -> None:
    assert set(mode_fields.FIELDS) - set(LEAVES) == set()
    settings = {path.split(".", 2)[2].removeprefix("local.") for path in LEAVES if path.startswith("components.")}
    assert set(mode_fields.COMPONENT_SETTINGS) - settings == set()
    for start in mode_fields.INSTEAD:
        assert any(path.startswith(start) for path in LEAVES), start


def test_a_field_is_in_one_column_only() -> None:
    for path in mode_fields.FIELDS:
        assert mode_fields._setting(path) is None, path


def spec_of(**more: Any) -> Object:
    return {**copy.deepcopy(ONE_HOST), **more}


@pytest.mark.parametrize(
    ("more", "where", "remedy"),
    [
        ({"hostCluster": {"secretRef": {"name": "a"}}}, "spec.hostCluster.secretRef.name", "there is no host cluster"),
        ({"hostCluster": {"context": "a"}}, "spec.hostCluster.context", "there is no host cluster"),
        ({"hostCluster": {"namespace": "other"}}, "spec.hostCluster.namespace", "there is no host cluster"),
        ({"endpoint": {"serviceAnnotations": {"a": "b"}}}, "spec.endpoint.serviceAnnotations", "External"),
        ({"endpoint": {"ipFamilyPolicy": "SingleStack"}}, "spec.endpoint.ipFamilyPolicy", "External"),
        ({"images": {"pullSecrets": [{"name": "a"}]}}, "spec.images.pullSecrets[0].name", "docker"),
        ({"images": {"pullPolicy": "Never"}}, "spec.images.pullPolicy", "docker"),
        ({"overlay": {"configMapRef": {"name": "a"}}}, "spec.overlay.configMapRef.name", "extraArgs"),
        ({"networkPolicies": {"enabled": False}}, "spec.networkPolicies.enabled", "firewall"),
        (
            {"networkPolicies": {"metricsFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}},
            "spec.networkPolicies.metricsFrom[0].ipBlock.cidr",
            "loopback",
        ),
        (
            {"components": {"etcd": {"local": {"replicas": 3}}}},
            "spec.components.etcd.local.replicas",
            "on each host with the role etcd",
        ),
        (
            {"components": {"karmadaScheduler": {"replicas": 2}}},
            "spec.components.karmadaScheduler.replicas",
            "on each host with the role controlPlane",
        ),
        (
            {"components": {"karmadaSearch": {"nodeSelector": {"a": "b"}}}},
            "spec.components.karmadaSearch.nodeSelector",
            "setting of pods",
        ),
        (
            {
                "components": {
                    "karmadaAPIServer": {"extraEnv": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {}}]}
                }
            },
            "spec.components.karmadaAPIServer.extraEnv[1].valueFrom",
            "write the value itself",
        ),
        (
            {"components": {"karmadaAPIServer": {"resources": {"limits": {"ephemeral-storage": "1Gi"}}}}},
            "spec.components.karmadaAPIServer.resources.limits.ephemeral-storage",
            "mount",
        ),
    ],
)
def test_settings_of_pods_are_refused_on_plain_hosts(more: Object, where: str, remedy: str) -> None:
    (problem,) = mode_fields.problems(document(spec_of(**more)))
    assert problem.where == where
    assert problem.what == "has no meaning in mode Binary"
    assert remedy in problem.remedy


@pytest.mark.parametrize(("ssh", "where"), [({"user": "admin"}, "spec.ssh.user"), ({"port": 2222}, "spec.ssh.port")])
def test_settings_of_hosts_are_refused_in_pods(ssh: Object, where: str) -> None:
    (problem,) = mode_fields.problems(document({"ssh": ssh}))
    assert (problem.where, problem.what) == (where, "has no meaning without hosts")


@pytest.mark.parametrize(
    ("local", "where"),
    [
        ({"replicas": 3}, "spec.components.etcd.local.replicas"),
        ({"nodeSelector": {"a": "b"}}, "spec.components.etcd.local.nodeSelector"),
        (
            {"podDisruptionBudgetConfig": {"minAvailable": 1}},
            "spec.components.etcd.local.podDisruptionBudgetConfig.minAvailable",
        ),
    ],
)
def test_settings_of_pods_are_refused_for_an_etcd_on_hosts(local: Object, where: str) -> None:
    """All other components run in pods, and may have them."""
    components = {"etcd": {"local": local}, "karmadaScheduler": {"replicas": 2, "nodeSelector": {"a": "b"}}}
    (problem,) = mode_fields.problems(
        document({"hosts": ETCD_HOST, "ssh": {"user": "admin"}, "components": components})
    )
    assert (problem.where, problem.what) == (where, "has no meaning where etcd runs on hosts")
    assert problem.remedy.startswith("take it out: ")


def test_what_is_for_mode_binary_alone_is_refused_in_pods_with_hosts_for_etcd_too() -> None:
    deployment = document({"hosts": ETCD_HOST})
    deployment["spec"]["endpoint"]["virtualIP"] = {"address": "192.0.2.100"}
    (problem,) = mode_fields.problems(deployment)
    assert (problem.where, problem.what) == ("spec.endpoint.virtualIP.address", "has no meaning in mode Container")


def test_all_of_them_are_told_at_once() -> None:
    found = mode_fields.problems(
        document(
            spec_of(hostCluster={"context": "a"}, components={"karmadaWebhook": {"replicas": 2, "labels": {"a": "b"}}})
        )
    )
    assert {problem.where.rpartition(".")[2] for problem in found} == {"context", "replicas", "labels"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"components": {"karmadaScheduler": {"replicas": 1, "priorityClassName": "system-cluster-critical"}}},
        {"endpoint": {"ipFamilyPolicy": "PreferDualStack"}, "ssh": {"port": 2222, "user": "admin"}},
        {
            "components": {
                "karmadaAPIServer": {
                    "extraArgs": {"v": "4"},
                    "featureGates": {"AllAlpha": False},
                    "extraEnv": [{"name": "A", "value": "b"}],
                    "resources": {"limits": {"memory": "1Gi"}},
                    "imageTag": "v1.35.4",
                }
            }
        },
    ],
)
def test_what_means_something_or_has_its_default_passes(more: Object) -> None:
    assert mode_fields.problems(document(spec_of(**more))) == []


@pytest.mark.parametrize("file", corpus_files.good(), ids=str)
def test_good_documents_mean_what_they_say(file: corpus_files.CorpusFile) -> None:
    assert mode_fields.problems(manifest.resolve(manifest.parse(file.text))) == []


def test_the_meanings_are_those_of_the_two_modes() -> None:
    modes = manifest.schema()["properties"]["spec"]["properties"]["mode"]["enum"]
    assert {Means.CONTAINER.value, Means.BINARY.value} == set(modes)
