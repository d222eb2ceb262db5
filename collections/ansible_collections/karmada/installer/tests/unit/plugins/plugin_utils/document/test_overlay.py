# SPDX-License-Identifier: Apache-2.0
"""Overlays: what is merged how, what is refused, and that they concern what they name and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import overlay
from ansible_collections.karmada.installer.plugins.plugin_utils.document.overlay import Overlay
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import component_checks
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, rendered, spec_of, state

Object = dict[str, Any]

SPEC = {"overlay": {"configMapRef": {"name": "extra"}}}
FOUND = rendered()
WEBHOOK = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "prod-webhook"}}


def of_pod(**spec: Any) -> Object:
    return {**WEBHOOK, "spec": {"template": {"spec": spec}}}


def of_container(**fields: Any) -> Object:
    return of_pod(containers=[{"name": "karmada-webhook", **fields}])


def merged(*patches: Object) -> Object:
    """The webhook's Deployment with these overlays."""
    target = FOUND.one("Deployment", "prod-webhook")
    before = copy.deepcopy(target)
    (found,) = overlay.laid_over([target], [Overlay(each, "here") for each in patches])
    assert target == before, "what is rendered is not changed in place"
    return found


def pod(*patches: Object) -> Object:
    spec: Object = merged(*patches)["spec"]["template"]["spec"]
    return spec


def container(*patches: Object) -> Object:
    found: Object = pod(*patches)["containers"][0]
    return found


# -- merging -----------------------------------------------------------------------------------------------------------


def test_mappings_are_merged_null_takes_away_and_lists_are_replaced() -> None:
    plain = pod()
    assert pod(of_pod(dnsConfig={"options": [{"name": "ndots", "value": "1"}]})) == {
        **plain,
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
    }
    security = pod(of_pod(securityContext={"runAsUser": 7, "fsGroup": None}))["securityContext"]
    assert security == {key: value for key, value in plain["securityContext"].items() if key != "fsGroup"} | {
        "runAsUser": 7
    }
    capabilities = {"capabilities": {"drop": ["NET_RAW"]}}
    assert container(of_container(securityContext=capabilities))["securityContext"]["capabilities"] == {
        "drop": ["NET_RAW"]
    }
    assert pod(of_pod(securityContext={"$patch": "replace", "runAsUser": 7}))["securityContext"] == {"runAsUser": 7}


@pytest.mark.parametrize(
    ("field", "entry", "key"),
    [
        ("volumeMounts", {"mountPath": "/scratch", "name": "scratch"}, "mountPath"),
        ("env", {"name": "GODEBUG", "value": "x"}, "name"),
        ("ports", {"containerPort": 6060, "name": "pprof"}, "containerPort"),
    ],
)
def test_lists_with_a_key_are_merged_by_it(field: str, entry: Object, key: str) -> None:
    plain = container().get(field, [])
    assert container(of_container(**{field: [entry]})) == {**container(), field: [*plain, entry]}
    changed = {**entry, "extra": 1}
    assert container(of_container(**{field: [entry]}), of_container(**{field: [changed]}))[field] == [*plain, changed]
    gone = {"$patch": "delete", key: entry[key]}
    assert container(of_container(**{field: [entry]}), of_container(**{field: [gone]}))[field] == plain


def test_a_list_of_objects_without_a_key_is_replaced_as_an_api_server_does() -> None:
    cpu, memory = ({"resourceName": each, "restartPolicy": "NotRequired"} for each in ("cpu", "memory"))
    found = container(of_container(resizePolicy=[cpu]), of_container(resizePolicy=[memory]))
    assert found["resizePolicy"] == [memory]


def test_a_container_or_volume_beside_ours_and_one_of_ours_that_is_changed() -> None:
    sidecar = {"name": "proxy", "image": "example.com/proxy:1"}
    found = pod(of_pod(containers=[sidecar], volumes=[{"name": "scratch", "emptyDir": {}}]))
    assert found["containers"] == [container(), sidecar]
    assert found["volumes"][-1] == {"name": "scratch", "emptyDir": {}}
    assert found["volumes"][:-1] == pod()["volumes"]
    assert container(of_container(terminationMessagePolicy="FallbackToLogsOnError")) == {
        **container(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def test_ports_of_a_service_are_merged_by_their_number() -> None:
    service = FOUND.one("Service", "prod-webhook")
    patch = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "prod-webhook"},
        "spec": {"ports": [{"port": 443, "appProtocol": "https"}]},
    }
    (found,) = overlay.laid_over([service], [Overlay(patch, "here")])
    assert found["spec"]["ports"] == [{**service["spec"]["ports"][0], "appProtocol": "https"}]


def test_what_is_not_named_is_the_same_object_as_before() -> None:
    found = overlay.laid_over(FOUND.objects, [Overlay(of_pod(hostname="x"), "here")])
    different = [now for was, now in zip(FOUND.objects, found, strict=True) if now != was]
    assert [(each["kind"], each["metadata"]["name"]) for each in different] == [("Deployment", "prod-webhook")]


# -- reading -----------------------------------------------------------------------------------------------------------


def read(**texts: str) -> tuple[list[Overlay], list[Problem]]:
    return overlay.read(spec_of(SPEC), {"extra": texts})


def test_every_document_of_every_key_is_one_overlay_and_says_where_it_was() -> None:
    two = "---\n" + "---\n".join(yaml.safe_dump(of_pod(hostname=name)) for name in ("a", "b"))
    overlays, problems = read(one=yaml.safe_dump(of_pod(hostname="c")), two=two, empty="# nothing\n")
    assert problems == []
    assert [each.where.removeprefix("spec.overlay.configMapRef: ConfigMap extra, ") for each in overlays] == [
        "one",
        "two, document 1",
        "two, document 2",
    ]
    assert {each.target for each in overlays} == {("apps/v1", "Deployment", "prod-webhook")}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: [", ""),
        ("a: 1\na: 2", ""),
        ("text", "does not say which object"),
        ("kind: Deployment", "does not say which object"),
        ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: 1}}", "does not say which object"),
    ],
)
def test_what_is_no_partial_object_is_told_with_its_place(text: str, what: str) -> None:
    overlays, (problem,) = read(**{"bad.yaml": text, "good.yaml": yaml.safe_dump(of_pod(hostname="a"))})
    assert what in problem.what
    assert problem.where.startswith("spec.overlay.configMapRef: ConfigMap extra, bad.yaml")
    assert len(overlays) == 1


def test_without_a_reference_there_is_nothing_and_without_the_config_map_a_problem() -> None:
    assert overlay.read(spec_of(), {}) == ([], [])
    _, (problem,) = overlay.read(spec_of(SPEC), {})
    assert problem.what == "there is no ConfigMap extra"


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusals(patch: Object) -> list[Problem]:
    return list(overlay.find_problems(FOUND.objects, [Overlay(patch, "here")]))


def test_an_overlay_for_what_we_do_not_make_names_what_there_is_the_nearest_first() -> None:
    (problem,) = refusals({**WEBHOOK, "metadata": {"name": "prod-webhok"}})
    assert problem.what == "there is no Deployment prod-webhok"
    assert problem.remedy.startswith("there are prod-webhook, ")
    assert "prod-aggregated-apiserver" in problem.remedy
    (problem,) = refusals({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "prod-webhook"}})
    assert problem.what == "we make no Deployment (apps/v1beta1)"
    assert "Deployment (apps/v1)" in problem.remedy


def other(kind: str, name: str, version: str = "v1", **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


OWNER = "installer.karmada.io/owner"


@pytest.mark.parametrize(
    ("patch", "what"),
    [
        ({**WEBHOOK, "metadata": {"name": "prod-webhook", "namespace": "other"}}, "is for namespace other"),
        ({**WEBHOOK, "metadata": {"name": "prod-webhook", "finalizers": ["a/b"]}}, "sets metadata.finalizers"),
        ({**WEBHOOK, "metadata": {"name": "prod-webhook", "labels": {OWNER: "x"}}}, f"metadata.labels.{OWNER}"),
        (
            {**WEBHOOK, "metadata": {"name": "prod-webhook", "labels": {"app.kubernetes.io/x": ""}}},
            "app.kubernetes.io/x",
        ),
        ({**WEBHOOK, "metadata": {"name": "prod-webhook", "labels": None}}, "changes metadata.labels"),
        ({**WEBHOOK, "spec": {"template": {"metadata": {"labels": {OWNER: "x"}}}}}, "changes spec.template.metadata"),
        ({**WEBHOOK, "spec": {"template": {"$patch": "replace"}}}, "changes spec.template.metadata"),
        (
            {
                **WEBHOOK,
                "spec": {"template": {"metadata": {"annotations": {"installer.karmada.io/config-hash": None}}}},
            },
            "config-hash",
        ),
        ({**WEBHOOK, "spec": {"selector": {"matchLabels": {"a": "b"}}}}, "changes spec.selector"),
        ({**WEBHOOK, "spec": {"replicas": 2}}, "changes spec.replicas"),
        ({**WEBHOOK, "spec": None}, "changes spec.selector"),
        ({**WEBHOOK, "status": {}}, "sets status"),
        (other("StatefulSet", "prod-etcd", "apps/v1", spec={"replicas": 3}), "changes spec.replicas"),
        (
            other("StatefulSet", "prod-etcd", "apps/v1", spec={"updateStrategy": {"type": "RollingUpdate"}}),
            "changes spec.updateStrategy",
        ),
        (other("Service", "prod-apiserver", spec={"selector": {"a": "b"}}), "changes spec.selector"),
        (other("Secret", "prod-webhook-cert", data={"tls.key": "eA=="}), "changes data"),
        (other("Secret", "prod-webhook-cert", stringData={"x": "y"}), "changes stringData"),
        (other("ConfigMap", "prod-etcd-config", data={"x": "y"}), "changes data"),
        (
            other("NetworkPolicy", "prod-etcd", "networking.k8s.io/v1", spec={"podSelector": None}),
            "changes spec.podSelector",
        ),
        (of_pod(volumes=[{"emptyDir": {}}]), "has no name in spec.template.spec.volumes[0]"),
        (of_pod(volumes=["scratch"]), "has no name in spec.template.spec.volumes[0]"),
        (of_container(ports=[{"name": "x"}]), "has no port in"),
        (of_pod(dnsConfig={"$patch": "delete"}), "has spec.template.spec.dnsConfig.$patch: 'delete'"),
        (of_pod(volumes=[{"name": "a", "$patch": "merge"}]), "$patch: 'merge'"),
        (of_pod(tolerations=[{"key": "a", "$patch": "delete"}]), "$patch: 'delete'"),
        (of_pod(**{"$setElementOrder/volumes": []}), "has spec.template.spec.$setElementOrder/volumes"),
    ],
)
def test_what_an_overlay_must_not_do(patch: Object, what: str) -> None:
    found = refusals(patch)
    assert any(what in problem.what for problem in found), found
    assert all(problem.where == "here" and problem.remedy for problem in found)


@pytest.mark.parametrize(
    "patch",
    [
        {**WEBHOOK, "metadata": {"name": "prod-webhook", "namespace": "karmada", "labels": {"team": "a"}}},
        {**WEBHOOK, "spec": {"replicas": 1, "minReadySeconds": 5}},
        {**WEBHOOK, "spec": {"template": {"metadata": {"annotations": {"example.com/x": "y"}}}}},
        other("Secret", "prod-webhook-cert", metadata={"name": "prod-webhook-cert", "annotations": {"a": "b"}}),
        other("Service", "prod-webhook", spec={"internalTrafficPolicy": "Local"}),
        other(
            "NetworkPolicy",
            "prod-scheduler",
            "networking.k8s.io/v1",
            spec={"ingress": [{"ports": [{"protocol": "TCP"}]}]},
        ),
        of_pod(volumes=[{"name": "a", "$patch": "delete"}], securityContext={"$patch": "replace"}),
    ],
)
def test_what_an_overlay_may_do(patch: Object) -> None:
    assert refusals(patch) == []


# -- in a run ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def config_maps(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    found = {"extra": {"a.yaml": yaml.safe_dump(of_pod(hostname="odd"))}}
    monkeypatch.setattr(Run, "config_maps", found)
    return found


def host() -> FakeCluster:
    return FakeCluster("host", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}})


def test_what_is_applied_has_the_overlay_and_a_run_that_cannot_read_it_applies_nothing(
    config_maps: dict[str, dict[str, str]],
) -> None:
    run = fake_run(document(SPEC), host(), stored=state(), check=True)
    plain = [FOUND.one("Deployment", "prod-webhook"), FOUND.one("Deployment", "prod-scheduler")]
    shown = {change.ref.name: change.diff["after"] for change in run.apply_to_host_cluster("start", lambda: plain)}
    assert {name for name, text in shown.items() if "hostname: odd" in text} == {"prod-webhook"}
    config_maps["extra"]["a.yaml"] = "text"
    with pytest.raises(ProblemsError):
        fake_run(document(SPEC), host(), stored=state(), check=True).apply_to_host_cluster("start", lambda: plain)


def test_preflight_asks_the_api_server_about_the_result_and_changes_nothing(
    config_maps: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = host()
    asked = []
    monkeypatch.setattr(cluster, "apply", lambda each, *, dry_run: asked.append((each, dry_run)))
    assert list(component_checks.overlays(fake_run(document(SPEC), cluster, stored=state()))) == []
    ((deployment, dry_run),) = asked
    assert dry_run
    assert deployment["spec"]["template"]["spec"]["hostname"] == "odd"

    def refuse(_each: Object, *, dry_run: bool) -> None:
        raise ApiError("host", "PATCH", "/x", 400, "BadRequest", ".spec.hostname: field not declared in schema")

    monkeypatch.setattr(cluster, "apply", refuse)
    (problem,) = component_checks.overlays(fake_run(document(SPEC), cluster, stored=state()))
    assert "field not declared in schema" in problem.what
    assert "Deployment prod-webhook" in problem.what
    config_maps["extra"]["a.yaml"] = yaml.safe_dump({**WEBHOOK, "metadata": {"name": "prod-webhok"}})
    (problem,) = component_checks.overlays(fake_run(document(SPEC), cluster, stored=state()))
    assert problem.what == "there is no Deployment prod-webhok"
