# SPDX-License-Identifier: Apache-2.0
"""What means nothing in a mode is refused, by a rule of the schema or at its path; every field has been decided on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest, mode_fields
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.document_fields import AROUND, ROWS, put
from ansible_collections.karmada.installer.tests.unit.support.samples import document

Object = dict[str, Any]

ETCD_HOST: list[Object] = [{"name": "etcd1", "address": "192.0.2.1", "roles": ["etcd"]}]
ONE_HOST: Object = {"mode": "Binary", "hosts": [{"name": "host1", "address": "192.0.2.1"}]}

#: Fields that mean something on plain hosts, too, by the beginning of their path; those of components are below.
ON_HOSTS_TOO = (
    "spec.version",
    # The issuer of service accounts has it, and the name that clients inside of members know.
    "spec.hostCluster.domain",
    "spec.endpoint.type",
    "spec.endpoint.host",
    "spec.endpoint.port",
    "spec.endpoint.extraSANs",
    "spec.images.mirrorCountry",
    "spec.images.karmadaRegistry",
    "spec.images.kubeRegistry",
    "spec.images.etcdRegistry",
    "spec.artifacts.source",
    "spec.artifacts.url",
    "spec.certificates.validity",
    "spec.certificates.renewBefore",
    "spec.certificates.keyAlgorithm",
    "spec.certificates.administratorGeneration",
    "spec.encryption.provider",
    "spec.audit.enabled",
    "spec.audit.configMapRef.name",
    "spec.registration.karmadactl",
    "spec.installCRD",
    "spec.components.etcd.external.endpoints",
    "spec.components.etcd.external.keyPrefix",
    "spec.components.etcd.external.secretRef.name",
    "spec.components.karmadaAPIServer.serviceSubnet",
    "spec.members[].name",
    "spec.members[].mode",
    "spec.members[].secretRef.name",
    "spec.members[].kubeconfigFrom.",
    "spec.members[].context",
    "spec.members[].insecureSkipTLSVerification",
    "spec.members[].provider",
    "spec.members[].region",
    "spec.members[].zones",
    "spec.members[].labels",
    "spec.members[].taints[].",
    "spec.members[].onLeave",
    "spec.members[].scopedRights[].",
    "spec.deletion.policy",
)
#: Settings of components that units have.
OF_UNITS = (
    # Where programs come out of images (artifacts.source Image) these say out of which.
    "imageRepository",
    "imageTag",
    "resources.requests.cpu",
    "resources.requests.memory",
    "resources.limits.cpu",
    "resources.limits.memory",
    "extraArgs",
    "extraEnv[].name",
    "extraEnv[].value",
    "featureGates",
    "maintenance.minimumSize",
    "maintenance.freePercent",
)
#: Two stand for all components, which share what they have.
_SETTINGS_OF = ("spec.components.karmadaAPIServer.", "spec.components.etcd.local.")


def is_decided_on(path: str) -> bool:
    """Whether these tables say that the field means something on plain hosts."""
    setting = next((path.removeprefix(start) for start in _SETTINGS_OF if path.startswith(start)), None)
    return path.startswith(ON_HOSTS_TOO) if setting is None or path.startswith(ON_HOSTS_TOO) else setting in OF_UNITS


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in ROWS
        if path.startswith("spec.") and (not path.startswith("spec.components.") or path.startswith(_SETTINGS_OF))
    ],
)
def test_a_field_is_refused_on_plain_hosts_unless_it_is_said_to_mean_something_there(path: str) -> None:
    endpoint = {"type": "External", "host": "karmada.example.com"}
    spec = {**copy.deepcopy(AROUND.get(path, {})), **copy.deepcopy(ONE_HOST), "endpoint": endpoint}
    whole = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": {"name": "prod"}, "spec": spec}
    put(whole, path, ROWS[path][1])
    problems = manifest.validate(whole) or mode_fields.problems(manifest.resolve(whole))
    refused = Reason.FIELD_WITHOUT_EFFECT in {problem.reason for problem in problems}
    assert refused != is_decided_on(path), problems


def spec_of(**more: Any) -> Object:
    return {**copy.deepcopy(ONE_HOST), **more}


@pytest.mark.parametrize(
    ("more", "where", "remedy"),
    [
        ({"hostCluster": {"namespace": "other"}}, "spec.hostCluster.namespace", "there is no host cluster"),
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


def test_all_of_them_are_told_at_once() -> None:
    found = mode_fields.problems(
        document(
            spec_of(
                hostCluster={"namespace": "a"}, components={"karmadaWebhook": {"replicas": 2, "labels": {"a": "b"}}}
            )
        )
    )
    assert {problem.where.rpartition(".")[2] for problem in found} == {"namespace", "replicas", "labels"}


@pytest.mark.parametrize(
    "components",
    [
        {},
        {"karmadaScheduler": {"replicas": 1, "priorityClassName": "system-cluster-critical"}},
        {
            "karmadaAPIServer": {
                "extraArgs": {"v": "4"},
                "featureGates": {"AllAlpha": False},
                "extraEnv": [{"name": "A", "value": "b"}],
                "resources": {"limits": {"memory": "1Gi"}},
                "imageTag": "v1.35.4",
            }
        },
    ],
)
def test_what_means_something_or_has_its_default_passes(components: Object) -> None:
    assert mode_fields.problems(document(spec_of(components=components))) == []


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"extraArgs": {"v": "a\ufdd0b"}}, "extraArgs.v"),
        ({"extraArgs": {"v": "4", "vmodule": "\U0010fffe"}}, "extraArgs.vmodule"),
        ({"extraEnv": [{"name": "A", "value": "b"}, {"name": "B", "value": "\U0001ffff"}]}, "extraEnv[1].value"),
    ],
)
def test_text_that_systemd_reads_in_no_unit_is_refused_at_its_path(settings: Object, where: str) -> None:
    (problem,) = mode_fields.problems(document(spec_of(components={"karmadaScheduler": settings})))
    assert problem.where == f"spec.components.karmadaScheduler.{where}"
    assert problem.what.startswith("it has the character U+")
    pods = document({"components": {"karmadaScheduler": settings}})
    assert mode_fields.problems(pods) == []


@pytest.mark.parametrize("file", corpus_files.good(), ids=str)
def test_good_documents_mean_what_they_say(file: corpus_files.CorpusFile) -> None:
    assert mode_fields.problems(manifest.resolve(manifest.parse(file.text))) == []
