# SPDX-License-Identifier: Apache-2.0
"""Endpoints that cannot be had: ports and names of others, no controller, no rights."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import account_rights
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run, ingress_class
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import host, installed, problems
from ansible_collections.karmada.installer.tests.unit.support.samples import document, passage, rendered, state


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
    assert "kubernetesIngressNGINX" in problem.remedy
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
        problem.what for problem in account_rights.problems(fake_run(document({"endpoint": endpoint}), cluster))
    )
    words = {word.partition(".")[0] for word in told.replace(";", " ").split()}
    assert words & {*optional, "routes/custom-host"} == asked
