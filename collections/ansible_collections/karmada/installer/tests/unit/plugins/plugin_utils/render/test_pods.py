# SPDX-License-Identifier: Apache-2.0
"""Pods: rules that hold for every one, and what users set."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD, wanted_components
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.pod_security import violations
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    MEMBER,
    OPTIONAL,
    RUNNING,
    SETTINGS,
    SPECS,
    Rendered,
    flags,
    pods,
    quickly_rendered,
    rendered,
    settings_in,
    with_settings,
    workload,
)

POD_NAME = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


@pytest.fixture(params=list(SPECS), scope="module")
def result(request: pytest.FixtureRequest) -> Rendered:
    return rendered(SPECS[request.param])


def test_every_pod_may_run_in_a_restricted_namespace(result: Rendered) -> None:
    assert {name: violations(pod["spec"]) for name, pod in pods(result.workloads).items()} == {
        component.row: [] for component in wanted_components(result.spec)
    }


def test_the_documents_of_these_tests_have_every_component() -> None:
    """Else the rules that hold for all objects would not be known of some."""
    assert {name for spec in SPECS.values() for name in pods(rendered(spec).workloads)} == set(BY_NAME)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda pod: pod["securityContext"].pop("runAsNonRoot"),
        lambda pod: pod["securityContext"].pop("seccompProfile"),
        lambda pod: pod["securityContext"].update(runAsUser=0),
        lambda pod: pod.update(hostNetwork=True),
        lambda pod: pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        lambda pod: pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"),
        lambda pod: pod["containers"][0]["securityContext"].pop("capabilities"),
        lambda pod: pod["containers"][0]["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
        lambda pod: pod["containers"][0]["securityContext"].update(privileged=True),
        lambda pod: pod["containers"][0]["ports"].append({"containerPort": 1, "hostPort": 1}),
        lambda pod: pod.setdefault("initContainers", []).append({"name": "bare"}),
    ],
)
def test_the_checker_itself_finds_what_is_not_restricted(spoil: Any) -> None:
    pod = copy.deepcopy(pods(rendered().workloads)["karmada-webhook"]["spec"])
    spoil(pod)
    assert violations(pod)


def test_no_port_needs_a_privilege(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        (container,) = pod["spec"]["containers"]
        ports = [port["containerPort"] for port in container["ports"]]
        named = re.findall(r"(?:-port=|address=[^=]*:)(\d+)", " ".join(container["command"]))
        assert ports
        assert min([*ports, *map(int, named)]) >= 1024


def test_every_probe_asks_a_port_that_the_container_declares(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        (container,) = pod["spec"]["containers"]
        declared = {port["containerPort"] for port in container["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert asked["port"] in declared
        # readiness is asked often, life is given up late: five minutes of a busy disk kill nothing
        assert container["livenessProbe"]["periodSeconds"] * container["livenessProbe"]["failureThreshold"] >= 60


def test_pods_hold_no_identity_of_the_host_cluster_and_cannot_write_their_image(result: Rendered) -> None:
    for pod in pods(result.workloads).values():
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["enableServiceLinks"] is False
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_every_mount_has_its_volume_and_every_volume_its_object(result: Rendered) -> None:
    present = {(each["kind"], each["metadata"]["name"]) for each in result.objects}
    for name, pod in pods(result.workloads).items():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        claims = {"data"} if name == "etcd" and "data" not in volumes else set()
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {mount["name"] for mount in mounts} == set(volumes) | claims
        assert len({mount["mountPath"] for mount in mounts}) == len(mounts)
        for volume in volumes.values():
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in present
                assert volume["secret"]["defaultMode"] & 0o007 == 0, "a key must not be readable for others"
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in present
        assert all(mount.get("readOnly") for mount in mounts if mount["name"] not in ("data", "scratch"))


def paths(value: Any) -> set[str]:
    """Every file of ours that a text names."""
    return set(re.findall(r"/etc/karmada/[\w./-]+", json.dumps(value)))


def test_every_file_that_a_component_is_told_of_is_mounted_with_that_content(result: Rendered) -> None:
    """A flag that names a file nobody mounts is a component that does not start."""
    secrets = {each["metadata"]["name"]: each["data"] for each in result.secrets}
    for name, pod in pods(result.workloads).items():
        (container,) = pod["spec"]["containers"]
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        files = {
            f"{mount['mountPath']}/{key}"
            for mount in container["volumeMounts"]
            if "secret" in volumes.get(mount["name"], {})
            for key in secrets[volumes[mount["name"]]["secret"]["secretName"]]
        } | {
            f"{mount['mountPath']}/{key}"
            for mount in container["volumeMounts"]
            if "configMap" in volumes.get(mount["name"], {})
            for key in result.one("ConfigMap", volumes[mount["name"]]["configMap"]["name"])["data"]
        }
        wanted = paths(container["command"])
        if name == "etcd":
            wanted |= paths(result.one("ConfigMap", "prod-etcd-config")["data"]) - {"/etc/karmada/etcd.yaml"}
            wanted.discard("/etc/karmada/etcd.yaml")
        if name == "karmada-webhook":  # is told of a directory
            wanted = {f"{each}/tls.crt" if each.endswith("/server") else each for each in wanted}
        assert wanted, name
        assert wanted <= files, name


def test_an_api_server_that_stops_serves_until_clients_are_led_to_another_one() -> None:
    of = flags(pods(rendered({}).workloads)["karmada-apiserver"])
    assert (of["shutdown-delay-duration"], of["shutdown-watch-termination-grace-period"]) == ("5s", "5s")


@pytest.mark.parametrize("component", [each for each in RUNNING if each is not ETCD], ids=lambda each: each.name)
def test_flags_of_the_user_win_and_leave_the_others_alone(component: Any) -> None:
    plain = flags(pods(with_settings(component).workloads)[component.row])
    taken = next(iter(plain))
    given = {taken: "a=b,c", "zz-new": ""}
    found = flags(pods(with_settings(component, extraArgs=given).workloads)[component.row])
    assert found == {**plain, taken: "a=b,c", "zz-new": ""}
    assert list(found) == sorted(found), "the order must not depend on anything"


each_component = pytest.mark.parametrize("component", RUNNING, ids=lambda each: each.name)


@each_component
def test_labels_and_annotations_are_on_the_workload_and_on_its_pods(component: Component) -> None:
    plain = workload(with_settings(component), component)
    found = workload(with_settings(component, labels={"team": "a"}, annotations={"example.com/x": "y"}), component)
    for was, now in ((plain, found), (plain["spec"]["template"], found["spec"]["template"])):
        before, after = was["metadata"], now["metadata"]
        assert after["labels"] == {**before["labels"], "team": "a"}
        assert after["annotations"] == {**before.get("annotations", {}), "example.com/x": "y"}
    assert found["spec"]["selector"] == plain["spec"]["selector"]


@each_component
def test_labels_and_annotations_of_the_installer_cannot_be_replaced(component: Component) -> None:
    """The schema refuses them; what finds our objects again must not depend on that."""
    ours = workload(with_settings(component), component)["spec"]["template"]["metadata"]
    spoilt = with_settings(component)
    settings = spoilt.deployment["spec"]["components"][component.field]
    settings = settings["local"] if component is ETCD else settings
    settings["labels"] = dict.fromkeys(ours["labels"], "x")
    settings["annotations"] = dict.fromkeys(ours["annotations"], "x")
    found = workload(spoilt, component)
    assert found["metadata"]["labels"] == found["spec"]["template"]["metadata"]["labels"] == ours["labels"]
    assert found["spec"]["template"]["metadata"]["annotations"] == ours["annotations"]


@each_component
def test_settings_of_a_pod_are_taken_over_as_they_are(component: Component) -> None:
    pod = workload(with_settings(component, **SETTINGS, priorityClassName="high"), component)["spec"]["template"][
        "spec"
    ]
    for name in ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints"):
        assert pod[name] == SETTINGS[name]
    assert pod["priorityClassName"] == "high"
    (container,) = pod["containers"]
    assert container["imagePullPolicy"] == "Always"
    assert container["env"][: len(SETTINGS["extraEnv"])] == SETTINGS["extraEnv"]
    assert SETTINGS["extraVolumes"][0] in pod["volumes"]
    assert SETTINGS["extraVolumeMounts"][0] in container["volumeMounts"]


@each_component
def test_nothing_is_sent_for_settings_that_nobody_made(component: Component) -> None:
    pod = workload(with_settings(component), component)["spec"]["template"]["spec"]
    assert not {"affinity", "nodeSelector", "tolerations", "imagePullSecrets"} & set(pod)
    assert pod["containers"][0].get("env", []) == ([POD_NAME] if component is ETCD else [])


@each_component
def test_pods_are_spread_over_the_nodes_that_take_them_and_members_of_etcd_strictly(component: Component) -> None:
    found = workload(with_settings(component, replicas=3), component)
    (spread,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"] == found["spec"]["selector"]
    assert spread["nodeTaintsPolicy"] == "Honor", "or members wait for ever for a tainted node to have one"
    assert spread["whenUnsatisfiable"] == ("DoNotSchedule" if component is ETCD else "ScheduleAnyway")
    # only pods of a Deployment have this label, and without it the old pods count while new ones come
    assert spread.get("matchLabelKeys") == (None if component is ETCD else ["pod-template-hash"])


@each_component
@pytest.mark.parametrize(("asked", "expected"), [(None, "system-cluster-critical"), ("high", "high"), ("", None)])
def test_pods_outrank_ordinary_ones_unless_told_otherwise(
    component: Component, asked: str | None, expected: str | None
) -> None:
    settings = {} if asked is None else {"priorityClassName": asked}
    pod = workload(with_settings(component, **settings), component)["spec"]["template"]["spec"]
    assert pod.get("priorityClassName") == expected


@each_component
def test_pull_secrets_of_a_component_stand_in_the_place_of_those_of_all(component: Component) -> None:
    def of(**settings: Any) -> Any:
        spec = {
            "images": {"pullSecrets": [{"name": "all"}]},
            "components": {component.field: settings_in(component, **settings)},
            "members": [MEMBER],
        }
        return workload(quickly_rendered(spec), component)["spec"]["template"]["spec"].get("imagePullSecrets")

    assert of() == [{"name": "all"}]
    assert of(imagePullSecrets=[{"name": "own"}]) == [{"name": "own"}]
    assert of(imagePullSecrets=[]) is None


def test_a_component_runs_on_any_architecture_that_its_image_has(result: Rendered) -> None:
    """No image, selector or flag of ours speaks of one."""
    text = json.dumps(result.workloads)
    assert [each for each in ("amd64", "arm64", "x86_64", "kubernetes.io/arch") if each in text] == []


def images(found: Rendered) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in pods(found.workloads).items()}


def test_a_mirror_takes_the_place_of_every_registry_that_the_document_does_not_give() -> None:
    plain = images(quickly_rendered({"components": OPTIONAL}))
    assert {image.rpartition("/")[0] for image in plain.values()} == set(releases.REGISTRIES.values())
    mirrored = images(quickly_rendered({"images": {"mirrorCountry": "cn"}, "components": OPTIONAL}))
    assert mirrored == {name: f"m.daocloud.io/{image}" for name, image in plain.items()}
    own = {"mirrorCountry": "cn", "kubeRegistry": "registry.example.com"}
    some = images(quickly_rendered({"images": own, "components": {**OPTIONAL, "etcd": {"local": {"imageTag": "x"}}}}))
    assert some["karmada-apiserver"] == f"registry.example.com/kube-apiserver:{releases.newest().kubernetes}"
    assert some["etcd"] == "m.daocloud.io/quay.io/coreos/etcd:x"
    assert some["karmada-webhook"] == mirrored["karmada-webhook"]


def test_the_reference_tells_which_registries_are_meant_where_none_is_given() -> None:
    fields = manifest.schema()["properties"]["spec"]["properties"]["images"]["properties"]
    countries = fields["mirrorCountry"]
    assert set(countries["enum"]) == set(releases.MIRRORS)
    for field, registry in releases.REGISTRIES.items():
        assert registry in fields[field]["description"]
        for mirrors in releases.MIRRORS.values():
            assert mirrors[field] in countries["description"]


@each_component
def test_security_settings_of_the_document_win_and_leave_the_others_alone(component: Component) -> None:
    plain = workload(with_settings(component), component)["spec"]["template"]["spec"]
    found = workload(with_settings(component, securityContext={"runAsUser": 7, "fsGroup": 8}), component)
    pod = found["spec"]["template"]["spec"]
    assert pod["securityContext"] == {**plain["securityContext"], "runAsUser": 7, "fsGroup": 8}
    assert pod["containers"][0]["securityContext"] == plain["containers"][0]["securityContext"]
    assert violations(pod) == []
