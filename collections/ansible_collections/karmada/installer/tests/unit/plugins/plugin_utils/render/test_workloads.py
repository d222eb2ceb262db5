# SPDX-License-Identifier: Apache-2.0
"""What stands in the host cluster: rules that hold for every object, whatever the document says."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, clashing_names
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component
from ansible_collections.karmada.installer.plugins.plugin_utils.render import pods as render_pods
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    FULL_SPEC,
    OWNER,
    RUNNING,
    SPECS,
    Rendered,
    document,
    flags,
    pods,
    quickly_rendered,
    rendered,
    state,
    with_settings,
    workload,
)
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,37}[a-z0-9])?", fullmatch=True)

each_component = pytest.mark.parametrize("component", RUNNING, ids=lambda each: each.name)


@pytest.fixture(params=list(SPECS), scope="module")
def result(request: pytest.FixtureRequest) -> Rendered:
    return rendered(SPECS[request.param])


def test_every_object_can_be_told_to_be_ours(result: Rendered) -> None:
    for each in result.objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/managed-by"] == "karmada-installer"
        assert labels["app.kubernetes.io/instance"] == "prod"
        assert labels["installer.karmada.io/owner"] == OWNER
        assert each["metadata"]["namespace"] == "karmada"
        assert each["metadata"]["name"].startswith("prod-")


def test_no_object_is_rendered_twice(result: Rendered) -> None:
    assert max(Counter((each["kind"], each["metadata"]["name"]) for each in result.objects).values()) == 1


def test_objects_are_plain_data_and_the_same_each_time() -> None:
    one, two = rendered(FULL_SPEC), rendered(FULL_SPEC)
    two.material = one.material
    assert json.dumps(one.objects, sort_keys=True) == json.dumps(two.objects, sort_keys=True)


def all_names(name: str) -> set[tuple[str, str]]:
    found = {(each["kind"], each["metadata"]["name"]) for each in quickly_rendered(FULL_SPEC, name=name).objects}
    extra = {("Secret", f"{name}-{each}") for each in ("admin-cert", "admin-config", "installer-state")}
    return found | extra | {("Lease", f"{name}-installer")}


@settings(max_examples=60, deadline=None)
@given(NAMES, NAMES)
def test_two_instances_in_one_namespace_share_no_name(one: str, other: str) -> None:
    """Only ``x`` and ``x-kube``, ``x`` and ``x-aggregated`` do, and preflight refuses the second (test_checks)."""
    if one == other or any(a == f"{b}-{part}" for a, b in ((one, other), (other, one)) for part in CLASHING):
        return
    assert not all_names(one) & all_names(other)


CLASHING = {"kube", "aggregated"}


def test_the_names_that_clash_are_known_and_are_those_of_workloads() -> None:
    names = {name.removeprefix("prod-") for _, name in all_names("prod")}
    parts = {
        longer.removesuffix(f"-{shorter}") for longer in names for shorter in names if longer.endswith(f"-{shorter}")
    }
    clashing = {part for part in parts if all_names("prod") & all_names(f"prod-{part}")}
    assert clashing == CLASHING
    assert set(clashing_names("prod")) == {f"prod-{part}" for part in CLASHING}
    assert {name for part in CLASHING for name in clashing_names(f"x-{part}")} >= {"x"}
    assert "" not in clashing_names("-kube")
    for part in clashing:
        assert {"Deployment"} <= {kind for kind, _ in all_names("prod") & all_names(f"prod-{part}")}


@pytest.mark.parametrize("spec", [{}, FULL_SPEC], ids=["empty", "full"])
def test_the_longest_name_gives_names_that_services_and_pods_can_have(spec: dict[str, Any]) -> None:
    found = rendered(spec, name="a" * 39)
    for each in found.objects:
        name = each["metadata"]["name"]
        # a pod of a StatefulSet is a DNS label of its own, and its revision label is 11 characters longer than its name
        most = {"Deployment": 63, "Service": 63, "StatefulSet": 52}.get(each["kind"], 253)
        assert len(name) <= most, (each["kind"], name, len(name))
        for value in each["metadata"]["labels"].values():
            assert len(value) <= 63


def selectors(found: Rendered) -> dict[str, Any]:
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"]["selector"]
        for each in found.workloads
        if "selector" in each.get("spec", {})
    }


def test_selectors_change_with_nothing_but_the_name() -> None:
    """They cannot be changed in place; one that follows the document makes the next run fail."""
    before = selectors(rendered())
    for spec in (FULL_SPEC, SPECS["settings"]):
        after = selectors(Rendered(document(spec), state=state(owner="another-owner")))
        assert {name: after[name] for name in before} == before
    assert all(OWNER not in str(selector) for selector in before.values())


def test_a_selector_finds_the_pods_of_its_component_and_of_no_other(result: Rendered) -> None:
    templates = {name: pod["metadata"]["labels"] for name, pod in pods(result.workloads).items()}
    for each in result.workloads:
        if "selector" not in each.get("spec", {}):
            continue
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector).items()
        found = [name for name, labels in templates.items() if wanted <= labels.items()]
        assert found == [each["metadata"]["labels"]["app.kubernetes.io/name"]]


@pytest.mark.parametrize("names", [("prod", "prod-eu"), ("prod-eu", "prod")])
def test_two_control_planes_of_two_versions_in_one_namespace_have_nothing_in_common(names: tuple[str, str]) -> None:
    """Both at once, with a member and everything switched on; the scenario ``pods_many_instances`` runs them."""
    versions = ("v1.18.2", "v1.17.1")
    one, other = (
        quickly_rendered({**FULL_SPEC, "version": version}, name=name)
        for name, version in zip(names, versions, strict=True)
    )
    for found, version in ((one, versions[0]), (other, versions[1])):
        images = {
            container["image"]
            for pod in pods(found.workloads).values()
            for container in pod["spec"]["containers"]
            if "/karmada-" in container["image"]
        }
        assert images
        assert {image.partition("@")[0].rpartition(":")[2] for image in images} == {version}
    keys = [{(each["kind"], each["metadata"]["name"]) for each in found.objects} for found in (one, other)]
    assert not keys[0] & keys[1]
    for found, stranger in ((one, other), (other, one)):
        labels = [pod["metadata"]["labels"] for pod in pods(stranger.workloads).values()]
        for where, selector in _all_selectors(found):
            assert not any(selector.items() <= each.items() for each in labels), f"{where} finds pods of the other"


def _all_selectors(found: Rendered) -> list[tuple[str, dict[str, str]]]:
    """Where → labels that a pod of the same namespace has to have, wherever an object asks for any."""
    selectors = []

    def look(where: str, value: Any) -> None:
        if isinstance(value, list):
            for each in value:
                look(where, each)
        elif isinstance(value, dict):
            labels = value.get("matchLabels") if "namespaceSelector" not in value else None
            if where.startswith("Service/") and isinstance(value.get("selector"), dict):
                labels = value["selector"]
            if labels:
                selectors.append((where, labels))
            for key, each in value.items():
                if key != "namespaceSelector":
                    look(where, each)

    for each in found.workloads:
        look(f"{each['kind']}/{each['metadata']['name']}", each.get("spec", {}))
    return selectors


def test_every_service_leads_to_a_port_of_its_pods(result: Rendered) -> None:
    templates = pods(result.workloads)
    for each in result.workloads:
        if each["kind"] != "Service":
            continue
        component = each["metadata"]["labels"]["app.kubernetes.io/name"]
        declared = {port["containerPort"] for port in templates[component]["spec"]["containers"][0]["ports"]}
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= declared


def test_only_the_api_server_is_ever_exposed() -> None:
    found = rendered({"endpoint": {"type": "NodePort", "port": 32001}})
    types = {each["metadata"]["name"]: each["spec"]["type"] for each in found.workloads if each["kind"] == "Service"}
    assert {name for name, kind in types.items() if kind != "ClusterIP"} == {"prod-apiserver"}
    assert found.one("Service", "prod-apiserver")["spec"]["ports"][0]["nodePort"] == 32001
    chosen = rendered({"endpoint": {"type": "NodePort"}})
    # a node port that the host cluster chose stays only if we never send the field
    assert "nodePort" not in chosen.one("Service", "prod-apiserver")["spec"]["ports"][0]


def test_rendering_changes_nothing_in_the_document() -> None:
    found = rendered(SPECS["settings"])
    before = copy.deepcopy(found.deployment)
    assert found.objects
    assert found.deployment == before


def budgets(found: Rendered) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in found.workloads if each["kind"] == "PodDisruptionBudget"}


@each_component
@pytest.mark.parametrize(
    ("replicas", "asked", "expected"),
    [
        (1, None, None),
        (3, None, {"maxUnavailable": 1}),
        (1, {"maxUnavailable": 0}, {"maxUnavailable": 0}),
        (3, {"minAvailable": "50%"}, {"minAvailable": "50%"}),
    ],
)
def test_pods_may_be_taken_away_one_at_a_time_where_there_are_several(
    component: Component, replicas: int, asked: dict[str, Any] | None, expected: dict[str, Any] | None
) -> None:
    """With one replica a budget would only keep nodes from being drained."""
    settings = {"replicas": replicas, **({"podDisruptionBudgetConfig": asked} if asked else {})}
    found = with_settings(component, **settings)
    name = found.instance.object_name(component.name)
    selector = workload(found, component)["spec"]["selector"]
    assert budgets(found) == ({name: {**expected, "selector": selector}} if expected else {})


def test_without_their_names_optional_components_leave_no_trace() -> None:
    names = [component.name.removeprefix("karmada-") for component in RUNNING if component.optional]
    found = [
        each["metadata"]["name"]
        for each in rendered().objects
        if any(name in each["metadata"]["name"] for name in names)
    ]
    assert found == []


@pytest.mark.parametrize("component", [each for each in RUNNING if each.optional], ids=lambda each: each.name)
def test_an_optional_component_adds_its_own_objects_and_changes_no_other(component: Component) -> None:
    plain = quickly_rendered({})
    before = {(each["kind"], each["metadata"]["name"]): each for each in plain.objects}
    if component.member:
        # Who asks them is told so.
        del before["Deployment", "prod-scheduler"]
    after = {(each["kind"], each["metadata"]["name"]): each for each in with_settings(component).objects}
    assert {key: after[key] for key in before} == before
    new = set(after) - set(before) - {("Deployment", "prod-scheduler")}
    assert {after[key]["metadata"]["labels"]["app.kubernetes.io/name"] for key in new} == {component.row}
    kinds = Counter(kind for kind, _ in new)
    assert kinds["Deployment"] == 1
    assert kinds["Service"] == (1 if component.served_port else 0)
    own = [files for files in component.file_sets if files.name != "client-ca"]
    assert kinds["Secret"] == len(own)


def hashes(found: Rendered) -> dict[str, str]:
    return {
        name: pod["metadata"]["annotations"][render_pods.CONFIG_HASH_ANNOTATION]
        for name, pod in pods(found.workloads).items()
    }


def mounted(found: Rendered) -> dict[str, Any]:
    """Component → directory → files, as the pod sees them."""
    secrets = {each["metadata"]["name"]: each["data"] for each in found.secrets}
    return {
        name: {
            mount["mountPath"]: secrets[volume["secret"]["secretName"]]
            for volume in pod["spec"]["volumes"]
            if "secret" in volume
            for mount in pod["spec"]["containers"][0]["volumeMounts"]
            if mount["name"] == volume["name"]
        }
        for name, pod in pods(found.workloads).items()
    }


@pytest.mark.parametrize(
    "spec",
    [
        {
            "images": {"pullPolicy": "Always"},
            "components": {"karmadaWebhook": {"replicas": 3, "extraArgs": {"v": "9"}}},
        },
        {"encryption": {"provider": "identity"}},
        {"hostCluster": {"domain": "cluster.example"}},
        {"deletion": {"policy": "Retain"}},
    ],
    ids=["flags", "encryption", "domain", "deletion"],
)
def test_the_hash_changes_if_and_only_if_a_mounted_file_does(spec: dict[str, Any]) -> None:
    before, after = rendered(), rendered(spec)
    after.material = before.material
    same = {name for name, files in mounted(before).items() if mounted(after)[name] == files}
    assert len(same) > 1
    assert {name for name, value in hashes(before).items() if hashes(after)[name] == value} == same


def test_what_is_to_start_again_gets_other_pods_and_nothing_else_does() -> None:
    before, after = quickly_rendered(), quickly_rendered()
    after.state = replace(before.remembered, restarts={"karmada-controller-manager": 3})
    changed = {name for name, pod in pods(before.workloads).items() if pods(after.workloads)[name] != pod}
    assert changed == {"karmada-controller-manager"}
    annotations = pods(after.workloads)["karmada-controller-manager"]["metadata"]["annotations"]
    assert annotations[render_pods.RESTARTS_ANNOTATION] == "3"


def test_a_renewed_certificate_replaces_the_pods_that_mount_it_and_no_other() -> None:
    before = rendered()
    after = rendered()
    leaves = {**before.material.leaves, "karmada-webhook": after.material.leaves["karmada-webhook"]}
    material = before.material
    after.material = type(material)(
        authorities=material.authorities,
        leaves=leaves,
        service_account_key=material.service_account_key,
        encryption_key=material.encryption_key,
    )
    changed = {name for name, value in hashes(before).items() if hashes(after)[name] != value}
    assert changed == {"karmada-webhook"}


def test_renewed_certificates_of_etcd_replace_no_member_but_another_authority_and_other_settings_do() -> None:
    """etcd reads its certificate for every connection; the authorities and its settings when it starts only."""
    before, renewed = rendered(), rendered()
    old = before.material
    leaves = {**old.leaves, **{name: renewed.material.leaves[name] for name in ("etcd-server", "etcd-peer")}}
    renewed.material = replace(old, leaves=leaves)
    assert mounted(renewed)["etcd"] != mounted(before)["etcd"]
    assert hashes(renewed)["etcd"] == hashes(before)["etcd"]
    other = rendered()
    other.material = replace(old, authorities={**old.authorities, "etcd-ca": old.authorities["karmada-ca"]})
    assert hashes(other)["etcd"] != hashes(before)["etcd"]
    assert hashes(with_settings(ETCD, extraArgs={"log-level": "warn"}))["etcd"] != hashes(with_settings(ETCD))["etcd"]
    bootstrapped = rendered(bootstrapped=True)
    bootstrapped.material = old
    assert hashes(bootstrapped)["etcd"] == hashes(before)["etcd"]


def private_keys(each: dict[str, Any]) -> dict[str, bytes]:
    """Key of the Secret → public half of the private key that it holds."""
    found = {}
    for key, value in each["data"].items():
        content = base64.b64decode(value)
        if b"PRIVATE KEY" in content:
            found[key] = public_half(content)
    return found


def public_half(pem: bytes) -> bytes:
    key = serialization.load_pem_private_key(pem, None)
    return key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def test_the_key_of_an_authority_is_in_no_secret_but_the_one_that_signs_requests(result: Rendered) -> None:
    keys = {public_half(pair.key): name for name, pair in result.material.authorities.items()}
    found = {
        (each["metadata"]["name"], key): keys[public]
        for each in result.secrets
        for key, public in private_keys(each).items()
        if public in keys
    }
    assert found == {("prod-kube-controller-manager-signing", "tls.key"): "client-signing-ca"}


def test_no_object_but_a_secret_holds_a_key(result: Rendered) -> None:
    text = json.dumps(result.workloads)
    assert "PRIVATE KEY" not in text
    for pair in (*result.material.leaves.values(), *result.material.authorities.values()):
        assert base64.b64encode(pair.key).decode() not in text
    assert result.material.encryption_key not in text


def test_secrets_are_not_written_readable_into_etcd_unless_the_document_says_so() -> None:
    flag = "encryption-provider-config"
    assert flag in flags(pods(rendered().workloads)["karmada-apiserver"])
    encryption = json.loads(
        base64.b64decode(rendered().one("Secret", "prod-apiserver-encryption")["data"]["encryption.yaml"])
    )
    providers = [next(iter(each)) for each in encryption["resources"][0]["providers"]]
    assert providers == ["secretbox", "identity"], "the first one writes"
    plain = rendered({"encryption": {"provider": "identity"}})
    assert flag not in flags(pods(plain.workloads)["karmada-apiserver"])
    assert not [each for each in plain.secrets if "encryption" in each["metadata"]["name"]]


def test_the_namespace_enforces_what_the_pods_keep() -> None:
    labels = workloads.namespace(rendered().instance)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["installer.karmada.io/owner"] == OWNER
