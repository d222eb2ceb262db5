# SPDX-License-Identifier: Apache-2.0
"""What is refused before the first change; each refusal with a place and a remedy."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import (
    artifacts,
    checks,
    etcd_configuration,
    host_rights,
    member_join,
    members,
    program_flags,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import Component, settings_path
from ansible_collections.karmada.installer.plugins.plugin_utils.components import BY_NAME, COMPONENTS, ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.tests.unit.fake_cluster import (
    FakeCluster,
    fake_run,
    ingress_class,
    node,
    storage_class,
)
from ansible_collections.karmada.installer.tests.unit.samples import (
    OPTIONAL,
    SETTINGS,
    SPECS,
    Rendered,
    document,
    etcd,
    passage,
    rendered,
    settings_in,
    state,
)

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada"}}
SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}


@pytest.fixture(autouse=True)
def no_crds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "crds", lambda *_: [])


def host(*objects: Any) -> FakeCluster:
    return FakeCluster("host cluster", NAMESPACE, storage_class("standard"), node("192.0.2.1"), *objects)


def problems(run: Run) -> list[Problem]:
    before = dict(run.host.objects)
    found = checks.all_problems(run)
    assert run.host.objects == before, "preflight changes nothing"
    assert run.host.log == []
    assert all(problem.where and problem.remedy for problem in found)
    return found


def installed(spec: dict[str, Any] | None = None, later: dict[str, Any] | None = None) -> Run:
    """A run with the document ``later`` over an instance that was installed with ``spec``."""
    was = document(spec)
    found = Rendered(was, state=state(document=was))
    cluster = host(*found.objects)
    return fake_run(document(later), cluster, stored=found.remembered)


def test_a_host_cluster_that_can_take_it() -> None:
    assert problems(fake_run(document(), host())) == []
    assert problems(installed()) == []


def test_an_old_host_cluster_is_refused() -> None:
    cluster = host()
    cluster.minor = "31+"
    (problem,) = problems(fake_run(document(), cluster))
    assert "1.32 is the oldest" in problem.what


def test_everything_is_told_at_once() -> None:
    cluster = host()
    cluster.minor = "20"
    spec = {"version": "v1.0.0", **etcd(volumeData={"volumeClaim": {"size": "1Gi", "storageClassName": "gold"}})}
    found = [problem.what for problem in problems(fake_run(document(spec), cluster))]
    assert len(found) == 3
    assert "there is no StorageClass gold (there are: standard)" in found


def test_rights_that_are_missing_are_all_named() -> None:
    cluster = host()
    cluster.denied = {("create", "secrets"), ("patch", "statefulsets"), ("create", "pods")}
    (problem,) = problems(fake_run(document(), cluster))
    assert "secrets" in problem.what
    assert "statefulsets" in problem.what


def test_a_namespace_that_is_there_needs_no_right_to_make_one() -> None:
    cluster = host()
    cluster.denied = {("create", "namespaces")}
    assert problems(fake_run(document(), cluster)) == []
    (problem,) = problems(fake_run(document(namespace="other"), cluster))
    assert "namespaces" in problem.what


def test_a_host_cluster_that_does_not_answer_is_one_problem_and_no_traceback() -> None:
    cluster = host()
    cluster.dead = True
    found = checks.all_problems(fake_run(document(), cluster))
    assert [problem.where for problem in found] == ["host cluster"]


@pytest.mark.parametrize(
    ("first", "second"), [("x", "x-kube"), ("x-kube", "x"), ("x", "x-aggregated"), ("x-aggregated", "x")]
)
def test_instances_whose_names_meet_are_refused(first: str, second: str) -> None:
    there = rendered(name=first)
    found = problems(fake_run(document(name=second), host(*there.objects), stored=state(owner="another")))
    assert found
    assert all("is not of this control plane" in problem.what for problem in found)
    assert all(f"as a part of control plane {first})" in problem.what for problem in found)


def test_what_another_tool_made_under_our_name_is_refused_and_the_tool_is_named() -> None:
    theirs = rendered().one("Deployment", "prod-webhook")
    theirs["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "a control plane that Helm made (Deployment prod-webhook)" in problem.what
    assert "helm uninstall" in problem.remedy
    theirs = rendered().one("Service", "prod-webhook")
    theirs["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "Service karmada/prod-webhook exists" in problem.what
    assert "(managed by Helm)" in problem.what


@pytest.mark.parametrize(
    ("later", "path"),
    [
        (etcd(replicas=3), "spec.components.etcd.local.replicas"),
        (etcd(volumeData={"emptyDir": {}}), "spec.components.etcd.local.volumeData"),
        (
            {"components": {"karmadaAPIServer": {"serviceSubnet": "10.112.0.0/16"}}},
            "spec.components.karmadaAPIServer.serviceSubnet",
        ),
        (
            {"components": {"karmadaAPIServer": {"serviceSubnet": "10.96.0.0/12,fd00::/112"}}},
            "spec.components.karmadaAPIServer.serviceSubnet",
        ),
        ({"encryption": {"provider": "identity"}}, "spec.encryption.provider"),
        ({"hostCluster": {"domain": "cluster.example"}}, "spec.hostCluster.domain"),
        ({"version": "v1.18.1"}, "spec.version"),
    ],
)
def test_what_data_or_addresses_hang_on_cannot_be_changed(later: dict[str, Any], path: str) -> None:
    (problem,) = problems(installed(None, later))
    assert problem.where == path


@pytest.mark.parametrize(
    "later",
    [
        {"endpoint": {"type": "NodePort"}},
        {"deletion": {"policy": "Retain"}},
        {"installCRD": False},
        {"certificates": {"validity": "4380h"}},
        {"components": {"karmadaWebhook": {"replicas": 3}}},
        {"components": OPTIONAL},
        {"components": {"etcd": {"local": SETTINGS}}},
    ],
)
def test_everything_else_can_be_changed(later: dict[str, Any]) -> None:
    assert problems(installed(None, later)) == []


def test_crds_can_be_taken_over_later() -> None:
    assert problems(installed({"installCRD": False}, {})) == []


def test_a_node_port_of_somebody_else_is_refused_and_ones_own_is_not() -> None:
    spec = {"endpoint": {"type": "NodePort", "port": 32001}}
    assert problems(installed(spec, spec)) == []
    theirs = rendered(spec, name="other", namespace="elsewhere").one("Service", "other-apiserver")
    (problem,) = problems(fake_run(document(spec), host(theirs)))
    assert problem.where == "spec.endpoint.port"
    assert "elsewhere/other-apiserver" in problem.what


INGRESS: dict[str, Any] = {"type": "Ingress", "host": "karmada.example.com"}
ROUTE: dict[str, Any] = {"type": "Route", "host": "karmada.example.com"}
NGINX = ingress_class("nginx", "k8s.io/ingress-nginx", default=True)


def test_an_ingress_needs_its_class() -> None:
    assert problems(fake_run(document({"endpoint": INGRESS}), host(NGINX))) == []
    (problem,) = problems(fake_run(document({"endpoint": INGRESS}), host()))
    assert problem.what == "there is no default IngressClass (there are: none)"
    inner = {"endpoint": {**INGRESS, "ingress": {"className": "inner"}}}
    (problem,) = problems(fake_run(document(inner), host(NGINX)))
    assert problem.what == "there is no IngressClass inner (there are: nginx)"
    assert problem.where == "spec.endpoint.ingress.className"


def test_an_ingress_controller_that_cannot_pass_tls_through_is_refused() -> None:
    traefik = ingress_class("traefik", "traefik.io/ingress-controller", default=True)
    (problem,) = problems(fake_run(document({"endpoint": INGRESS}), host(traefik)))
    assert "traefik.io/ingress-controller, which cannot pass TLS through" in problem.what
    assert "IngressRouteTCP" in problem.remedy
    openshift = ingress_class("openshift-default", "openshift.io/ingress-to-route", default=True)
    (problem,) = problems(fake_run(document({"endpoint": INGRESS}), host(openshift)))
    assert "type: Route" in problem.remedy


def test_an_unknown_ingress_controller_is_told_of_unless_the_document_speaks_to_it() -> None:
    unknown = ingress_class("ours", "example.com/proxy", default=True)
    for ingress, told in (({}, True), ({"annotations": {"example.com/pass": "yes"}}, False)):
        run = fake_run(document({"endpoint": {**INGRESS, "ingress": ingress}}), host(unknown))
        said: list[str] = []
        run.say = said.append
        assert problems(run) == []
        assert any("example.com/proxy, which is not known here" in line for line in said) == told


def test_the_name_of_somebody_elses_ingress_is_refused_and_ones_own_is_not() -> None:
    spec = {"endpoint": INGRESS}
    theirs = passage(spec, namespace="elsewhere")
    (problem,) = problems(fake_run(document(spec), host(NGINX, theirs)))
    assert problem.where == "spec.endpoint.host"
    assert problem.what == "the name karmada.example.com belongs to Ingress elsewhere/prod-apiserver"
    assert problems(fake_run(document(spec), host(NGINX, passage(spec)), stored=state())) == []
    inner = {**theirs, "spec": {**theirs["spec"], "ingressClassName": "inner"}}
    assert problems(fake_run(document(spec), host(NGINX, inner))) == [], "another proxy, another name space"
    cluster = host(NGINX, theirs)
    cluster.denied = {("list", "ingresses")}
    assert [problem.what.partition(":")[0] for problem in problems(fake_run(document(spec), cluster))] == [
        "the account may not"
    ]


def test_an_ingress_under_our_name_that_is_not_ours_is_refused() -> None:
    theirs = passage({"endpoint": INGRESS})
    theirs["metadata"]["labels"] = {}
    (problem,) = problems(fake_run(document({"endpoint": INGRESS}), host(NGINX, theirs)))
    assert "Ingress karmada/prod-apiserver exists and is not of this control plane" in problem.what


def test_a_route_needs_openshift_and_a_free_name() -> None:
    spec = {"endpoint": ROUTE}
    (problem,) = problems(fake_run(document(spec), host()))
    assert problem.where == "spec.endpoint.type"
    cluster = host(passage(spec, namespace="elsewhere"))
    cluster.has_routes = True
    (problem,) = problems(fake_run(document(spec), cluster))
    assert problem.what == "the name karmada.example.com belongs to Route elsewhere/prod-apiserver"
    assert problems(fake_run(document({"endpoint": {"type": "Route"}}), cluster)) == []


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        ({"type": "ClusterIP"}, set()),
        ({"type": "NodePort"}, {"nodes"}),
        ({"type": "NodePort", "host": "karmada.example.com"}, set()),
        (INGRESS, {"ingresses", "ingressclasses"}),
        ({"type": "Route"}, {"routes"}),
        (ROUTE, {"routes", "routes/custom-host"}),
    ],
)
def test_rights_for_an_endpoint_are_asked_only_where_it_needs_them(endpoint: dict[str, Any], asked: set[str]) -> None:
    cluster = host()
    optional = {"nodes", "ingresses", "ingressclasses", "routes"}
    cluster.denied = {(verb, each) for verb in ("list", "create", "update") for each in optional}
    told = " ".join(
        problem.what for problem in host_rights.problems(fake_run(document({"endpoint": endpoint}), cluster))
    )
    words = {word.partition(".")[0] for word in told.replace(";", " ").split()}
    assert words & {*optional, "routes/custom-host"} == asked


def test_a_state_that_cannot_be_used_stops_everything() -> None:
    broken = replace(state(), authorities={})
    found = problems(fake_run(document(), host(), stored=broken))
    assert len([problem for problem in found if "authority" in problem.what]) == 4


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)
def test_a_priority_class_that_is_not_there_is_refused_where_it_is_named(component: Component) -> None:
    def spec(name: str) -> dict[str, Any]:
        return {"components": {component.field: settings_in(component, priorityClassName=name)}}

    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    assert problems(fake_run(document(spec("high")), host(high))) == []
    assert problems(fake_run(document(spec("")), host())) == []
    (problem,) = problems(fake_run(document(spec("high")), host()))
    assert problem.what == "there is no PriorityClass high"
    assert problem.where.endswith(f"{component.field}{'.local' if component.field == 'etcd' else ''}.priorityClassName")


def test_an_audit_policy_that_is_not_there_is_refused_and_is_not_missed_by_an_uninstall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Run, "config_maps", {})
    run = fake_run(document({"audit": {"configMapRef": {"name": "own"}}}), host())
    (problem,) = problems(run)
    assert (problem.what, problem.where) == ("there is no ConfigMap own", "spec.audit.configMapRef")
    assert run.instance.object_name("karmada-webhook") == "prod-webhook"


GATES = [component for component in COMPONENTS if component.takes_feature_gates]


@pytest.mark.parametrize("component", GATES, ids=lambda each: each.name)
def test_a_gate_that_the_component_does_not_have_is_refused_with_the_nearest(component: Component) -> None:
    known = program_flags.feature_gates(component, releases.newest())
    fine = {"components": {component.field: {"featureGates": {known[0]: True, known[-1]: False}}}}
    assert problems(fake_run(document(fine), host())) == []
    misspelt = {"components": {component.field: {"featureGates": {known[0]: True, known[-1].lower()[:-1]: True}}}}
    (problem,) = problems(fake_run(document(misspelt), host()))
    assert problem.where == f"spec.components.{component.field}.featureGates.{known[-1].lower()[:-1]}"
    assert f"{component.name} of Karmada v1.18.2 has no feature gate" in problem.what
    assert f"did you mean {known[-1]}?" in problem.remedy
    assert "it has" in problem.remedy
    assert known[0] in problem.remedy


def test_every_unknown_gate_is_told_and_gates_of_other_components_are_unknown() -> None:
    spec = {
        "components": {
            "karmadaScheduler": {"featureGates": {"WatchList": True, "Nonsense": False}},
            "karmadaWebhook": {"featureGates": {"WatchList": True}},
        }
    }
    places = {problem.where.removeprefix("spec.components.") for problem in problems(fake_run(document(spec), host()))}
    assert places == {
        "karmadaScheduler.featureGates.WatchList",
        "karmadaScheduler.featureGates.Nonsense",
        "karmadaWebhook.featureGates.WatchList",
    }


def test_flags_and_gates_are_known_of_every_release_and_component() -> None:
    for release in releases.RELEASES:
        for component in COMPONENTS:
            gates, flags = program_flags.feature_gates(component, release), program_flags.flags(component, release)
            assert bool(gates) == component.takes_feature_gates
            assert len(flags) > 20
            assert list(gates) == sorted(set(gates))
            assert list(flags) == sorted(set(flags))
    unknown = replace(releases.newest(), karmada="v0.0.1")
    assert program_flags.flags(BY_NAME["karmada-scheduler"], unknown) == ()


@pytest.mark.parametrize("release", releases.RELEASES, ids=lambda each: each.karmada)
@pytest.mark.parametrize("spec", [*SPECS.values(), {"components": OPTIONAL}], ids=[*SPECS, "optional"])
def test_every_flag_that_is_rendered_is_known_to_the_programs_of_every_release(
    release: releases.Release, spec: dict[str, Any]
) -> None:
    found = rendered({**spec, "version": release.karmada})
    for component in COMPONENTS:
        if component is not ETCD and component.is_wanted(found.spec):
            flags = {argument[2:].partition("=")[0] for argument in component.flags(found.spec, found.layout)}
            assert flags - set(program_flags.flags(component, release)) == set(), component.name


def test_the_settings_of_etcd_that_are_rendered_are_known() -> None:
    found = rendered()
    configuration = etcd_configuration.of_member(
        found.layout.etcd_members[0], found.layout, token="t", existing=False, generation=1, extra={}
    )
    sections = {"client-transport-security", "peer-transport-security"}
    for release in releases.RELEASES:
        assert set(configuration) - sections - set(program_flags.flags(ETCD, release)) == set()
        assert not {"cert-file", "peer-key-file", "client-cert-auth", "config-file"} & set(
            program_flags.flags(ETCD, release)
        )


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda each: each.name)
def test_a_flag_that_the_program_does_not_have_is_refused_with_the_nearest(component: Component) -> None:
    known = program_flags.flags(component, releases.newest())
    wrong = next(flag for flag in known if flag + "s" not in known and len(flag) > 12) + "s"

    def spec(**settings: Any) -> dict[str, Any]:
        return {"components": {component.field: {"local": settings} if component is ETCD else settings}}

    (problem,) = problems(fake_run(document(spec(extraArgs={wrong: "1", known[0]: "x"})), host()))
    assert problem.where == f"{settings_path(component)}.extraArgs.{wrong}"
    assert f"has no {'setting' if component is ETCD else 'flag'} {wrong}" in problem.what
    assert f"did you mean {wrong[:-1]}?" in problem.remedy
    assert problems(fake_run(document(spec(extraArgs={wrong: "1"}, imageTag="own-build")), host())) == []


@pytest.mark.parametrize("component", [each for each in COMPONENTS if each.optional], ids=lambda each: each.name)
def test_a_name_matters_only_when_the_component_is_wanted(component: Component) -> None:
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"prod-{component.name.removeprefix('karmada-')}", "namespace": "karmada"},
        "spec": {"template": {"spec": {"containers": [{"name": "x", "image": "example.com/x"}]}}},
    }
    assert problems(fake_run(document(), host(theirs))) == []
    (problem,) = problems(fake_run(document({"components": {component.field: {}}}), host(theirs)))
    assert "is not of this control plane" in problem.what


# -- the namespace, and who lives there --------------------------------------------------------------------------------


def in_namespace(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    version = "apps/v1" if kind in ("Deployment", "StatefulSet") else fields.pop("version", "v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "karmada"}, **fields}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Secret", "prod-admin-etcd"), ("ConfigMap", "prod-etcd-config"), ("PodDisruptionBudget", "prod-etcd")],
)
def test_every_object_that_will_be_made_has_its_name_asked_for(kind: str, name: str) -> None:
    spec = etcd(replicas=3)
    ours = {(each["kind"], each["metadata"]["name"]): each["apiVersion"] for each in rendered(spec).objects}
    if kind == "Secret":
        name = next(name for found, name in ours if found == "Secret")
    theirs = in_namespace(kind, name)
    theirs["apiVersion"] = ours[kind, name]
    (problem,) = problems(fake_run(document(spec), host(theirs)))
    assert problem.what == f"{kind} karmada/{name} exists and is not of this control plane"


def test_a_control_plane_of_another_tool_in_the_namespace_is_refused_and_beside_ours_it_is_not() -> None:
    theirs = in_namespace("Deployment", "karmada-webhook")
    theirs["metadata"]["labels"] = {"karmada.io/bootstrapping": "app-defaults"}
    theirs["spec"] = {"template": {"spec": {"containers": [{"name": "x", "image": "karmada/karmada-webhook:v1"}]}}}
    (problem,) = problems(fake_run(document(), host(theirs)))
    assert "karmadactl init made (Deployment karmada-webhook); it is not touched" in problem.what
    run = installed()
    run.host.put(theirs)  # type: ignore[attr-defined]
    assert problems(run) == []


def test_a_karmada_object_of_the_operator_is_recognised_as_far_as_we_may_look() -> None:
    cluster = host(in_namespace("Karmada", "demo", version="operator.karmada.io/v1alpha1"))
    (problem,) = problems(fake_run(document(), cluster))
    assert "Karmada's operator made (Karmada demo)" in problem.what
    cluster.denied = {("list", "karmadas")}
    assert problems(fake_run(document(), cluster)) == []


def test_a_quota_that_is_too_small_is_told() -> None:
    small = in_namespace("ResourceQuota", "team", spec={"hard": {"pods": "3", "limits.memory": "1Gi"}})
    found = [problem.what for problem in problems(fake_run(document(), host(small)))]
    assert len(found) == 2
    assert "allows 3 pods" in found[0] + found[1]
    assert "counts limits.memory, so every container has to state it" in found[0] + found[1]


def test_a_quota_that_ours_fill_themselves_is_no_problem() -> None:
    run = installed()
    count = len([each for each in Rendered(document()).objects if each["kind"] == "Secret"])
    run.host.put(  # type: ignore[attr-defined]
        in_namespace(
            "ResourceQuota", "team", spec={"hard": {"secrets": str(count)}}, status={"used": {"secrets": count}}
        )
    )
    assert problems(run) == []


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pods_that_the_namespace_does_not_admit_are_told(level: str) -> None:
    volumes = {"extraVolumes": [{"name": "host", "hostPath": {"path": "/srv"}}]}
    spec = {"components": {"karmadaScheduler": volumes}}
    cluster = host()
    cluster.put({**NAMESPACE, "metadata": {"name": "karmada", "labels": {"pod-security.kubernetes.io/enforce": level}}})
    (problem,) = problems(fake_run(document(spec), cluster))
    assert f"the Pod Security level {level}, and the pods of karmada-scheduler break it: volume host" in problem.what
    assert "spec.components.karmadaScheduler" in problem.remedy
    assert problems(fake_run(document(), cluster)) == []


def test_without_a_level_it_is_said_that_what_the_api_server_enforces_cannot_be_seen() -> None:
    spec = {"components": {"karmadaScheduler": {"extraVolumes": [{"name": "h", "hostPath": {"path": "/srv"}}]}}}
    said: list[str] = []
    run = fake_run(document(spec), host())
    run.say = said.append
    assert problems(run) == []
    (told,) = said
    assert "cannot be seen from here" in told


@pytest.mark.parametrize(("seconds", "what"), [(31, "31 s ahead of"), (-95, "95 s behind")])
def test_clocks_that_are_far_apart_are_told(seconds: int, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = host()
    cluster.ahead = timedelta(seconds=seconds)
    (problem,) = problems(fake_run(document(), cluster))
    assert (problem.where, f"its clock is {what} the clock of this machine") == ("host cluster", problem.what)
    slow = member("m2")
    slow.ahead = timedelta(seconds=seconds)
    (problem,) = problems(with_members(monkeypatch, m1=member("m1"), m2=slow))
    assert problem.where == "member m2"
    slow.ahead = timedelta(seconds=29)
    assert problems(with_members(monkeypatch, m1=member("m1"), m2=slow)) == []


def test_a_host_cluster_newer_than_any_that_was_tried_is_said() -> None:
    cluster, said = host(), []
    cluster.minor = "99"
    run = fake_run(document(), cluster)
    run.say = said.append
    assert problems(run) == []
    assert "newest that was tried" in said[0]


# -- members -----------------------------------------------------------------------------------------------------------

SPEC = {"members": [{"name": "m1", "secretRef": {"name": "m1"}}, {"name": "m2", "secretRef": {"name": "m2"}}]}


def with_members(monkeypatch: pytest.MonkeyPatch, **clusters: FakeCluster) -> Run:
    class connected:  # noqa: N801 - stands for the function of that name
        def __init__(self, _run: Run, entry: Any) -> None:
            self.found = clusters[entry["name"]]

        def __enter__(self) -> FakeCluster:
            return self.found

        def __exit__(self, *_: object) -> None:
            self.found.close()

    monkeypatch.setattr(member_join, "connected", connected)
    return fake_run(document(SPEC), host())


def member(name: str, **more: Any) -> FakeCluster:
    return FakeCluster(f"member {name}", SYSTEM, **more)


def test_a_member_that_does_not_answer_is_told_and_the_others_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    dead, loopback = member("m1"), member("m2", server="https://127.0.0.1:6443")
    dead.dead = True
    found = problems(with_members(monkeypatch, m1=dead, m2=loopback))
    assert [problem.where for problem in found] == ["spec.members[m1].secretRef", "spec.members[m2].secretRef"]
    assert "another machine" in found[1].what


def test_rights_on_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = member("m1")
    weak.denied = {("patch", "clusterroles")}
    (problem,) = problems(with_members(monkeypatch, m1=weak, m2=member("m2")))
    assert problem.where == "member m1"


def test_a_member_of_another_control_plane_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = member("m1")
    taken.put(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "karmada-controller-manager:karmada-m1"},
        }
    )
    (problem,) = problems(with_members(monkeypatch, m1=taken, m2=member("m2")))
    assert "another control plane" in problem.what


@pytest.mark.parametrize("name", ["m1", "here-it-is-called-otherwise"])
def test_the_control_plane_that_holds_a_member_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    taken = member("m1")
    for each in members.objects_on_member(name, "somebody-else", "tenant-a/prod"):
        taken.put(each)
    (problem,) = problems(with_members(monkeypatch, m1=taken, m2=member("m2")))
    assert problem.where == "member m1"
    assert "which control plane tenant-a/prod has put there" in problem.what


def test_our_own_member_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = member("m1")
    for each in members.objects_on_member("m1", state().owner, "karmada/prod"):
        ours.put(each)
    run = with_members(monkeypatch, m1=ours, m2=member("m2"))
    run.__dict__["stored_state"] = state()
    assert problems(run) == []


# -- uninstall ---------------------------------------------------------------------------------------------------------


def test_an_uninstall_asks_for_the_host_cluster_and_the_rights_there() -> None:
    cluster = host()
    cluster.denied = {("delete", "secrets"), ("patch", "clusterroles"), ("list", "storageclasses")}
    (problem,) = checks.uninstall_problems(fake_run(document(), cluster))
    assert problem.what == "the account may not: delete secrets in namespace karmada"


def test_an_uninstall_of_what_is_there_or_not_has_no_problem() -> None:
    assert checks.uninstall_problems(fake_run(document(), host())) == []
    assert checks.uninstall_problems(installed()) == []


def test_an_uninstall_fails_at_once_where_the_host_cluster_does_not_answer_in_the_words_of_an_install() -> None:
    cluster = host()
    cluster.dead = True
    run = fake_run(document(), cluster)
    assert checks.uninstall_problems(run) == checks.all_problems(run) != []
    assert cluster.patience == [5, 5]


def test_an_uninstall_refuses_a_state_that_it_cannot_read() -> None:
    run = installed()
    secret = run.host.objects["v1", "Secret", "karmada", "prod-installer-state"]
    del secret["data"]["owned.json"]
    (problem,) = checks.uninstall_problems(run)
    assert "state cannot be read" in problem.what


def test_a_document_from_before_a_field_existed_counts_with_its_default() -> None:
    """Else an update of the collection would refuse every control plane that it finds."""
    was = document()
    del was["spec"]["encryption"]
    found = Rendered(document(), state=state(document=was))
    assert problems(fake_run(document(), host(*found.objects), stored=found.remembered)) == []
