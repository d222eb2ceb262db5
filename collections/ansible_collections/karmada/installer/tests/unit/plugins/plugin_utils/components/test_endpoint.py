# SPDX-License-Identifier: Apache-2.0
"""What leads to the API server, type by type."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Endpoint
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import ingress_class
from ansible_collections.karmada.installer.tests.unit.support.samples import document, passage, rendered

INGRESS: dict[str, Any] = {"type": "Ingress", "host": "karmada.example.com"}


@pytest.mark.parametrize("kind", ["ClusterIP", "NodePort", "LoadBalancer", "External"])
def test_most_types_need_nothing_beside_the_service(kind: str) -> None:
    spec = {"endpoint": {"type": kind, "host": "karmada.example.com"}}
    assert workloads.passage(rendered(spec).instance, "k8s.io/ingress-nginx") == []


def test_an_ingress_leads_all_of_its_name_to_the_service() -> None:
    found = passage({"endpoint": INGRESS}, controller="k8s.io/ingress-nginx")
    assert found["spec"] == {
        "tls": [{"hosts": ["karmada.example.com"]}],
        "rules": [
            {
                "host": "karmada.example.com",
                "http": {
                    "paths": [
                        {
                            "path": "/",
                            "pathType": "Prefix",
                            "backend": {"service": {"name": "prod-apiserver", "port": {"number": 5443}}},
                        }
                    ]
                },
            }
        ],
    }
    service = rendered({"endpoint": INGRESS}).one("Service", "prod-apiserver")
    assert service["spec"]["type"] == "ClusterIP"
    assert [each["port"] for each in service["spec"]["ports"]] == [5443]


def test_the_class_is_left_to_the_host_cluster_unless_it_is_named() -> None:
    assert "ingressClassName" not in passage({"endpoint": INGRESS})["spec"]
    named = passage({"endpoint": {**INGRESS, "ingress": {"className": "inner"}}})
    assert named["spec"]["ingressClassName"] == "inner"


@pytest.mark.parametrize(
    ("controller", "annotations"),
    [
        ("k8s.io/ingress-nginx", {"nginx.ingress.kubernetes.io/ssl-passthrough": "true"}),
        ("haproxy-ingress.github.io/controller", {"haproxy-ingress.github.io/ssl-passthrough": "true"}),
        ("haproxy.org/ingress-controller/inner", {"haproxy.org/ssl-passthrough": "true"}),
        ("cilium.io/ingress-controller", {"ingress.cilium.io/tls-passthrough": "enabled"}),
        ("k8s.io/ingress-nginx-of-ours", {}),
        ("", {}),
    ],
)
def test_a_known_controller_is_told_to_pass_tls_through(controller: str, annotations: dict[str, str]) -> None:
    found = passage({"endpoint": INGRESS}, controller=controller)
    assert found["metadata"].get("annotations", {}) == annotations


def test_what_the_document_says_to_the_controller_wins() -> None:
    name = "nginx.ingress.kubernetes.io/ssl-passthrough"
    settings = {**INGRESS, "ingress": {"annotations": {name: "false", "example.com/a": "b"}}}
    found = passage({"endpoint": settings}, controller="k8s.io/ingress-nginx")
    assert found["metadata"]["annotations"] == {name: "false", "example.com/a": "b"}


def test_a_route_passes_tls_through_and_leaves_its_name_to_the_router() -> None:
    found = passage({"endpoint": {"type": "Route", "route": {"labels": {"router": "inner"}}}})
    assert found["spec"] == {
        "to": {"kind": "Service", "name": "prod-apiserver", "weight": 100},
        "port": {"targetPort": "https"},
        "tls": {"termination": "passthrough"},
        "wildcardPolicy": "None",
    }
    assert found["metadata"]["labels"]["router"] == "inner"
    assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "karmada-installer"
    chosen = passage({"endpoint": {"type": "Route", "host": "karmada.example.com"}})
    assert chosen["spec"]["host"] == "karmada.example.com"


def test_the_port_of_a_route_is_one_of_the_service() -> None:
    spec = {"endpoint": {"type": "Route"}}
    ports = rendered(spec).one("Service", "prod-apiserver")["spec"]["ports"]
    assert passage(spec)["spec"]["port"]["targetPort"] in {each["name"] for each in ports}


def test_the_class_of_an_ingress() -> None:
    inner, outer = ingress_class("inner", "a"), ingress_class("outer", "b", default=True)
    assert endpoint.ingress_class(Endpoint({}), [inner, outer]) == outer
    assert endpoint.ingress_class(Endpoint({"ingress": {"className": "inner"}}), [inner, outer]) == inner
    assert endpoint.ingress_class(Endpoint({"ingress": {"className": "none"}}), [inner, outer]) is None
    assert endpoint.ingress_class(Endpoint({"ingress": {}}), [inner]) is None


@pytest.mark.parametrize("controller", [*endpoint.WITHOUT_PASS_THROUGH, "projectcontour.io/contour"])
def test_a_controller_either_passes_tls_through_or_does_not(controller: str) -> None:
    assert endpoint.instead_of_ingress(controller)
    assert endpoint.pass_through(controller) == {}


def test_an_old_ingress_tells_its_class_by_annotation() -> None:
    live = passage({"endpoint": INGRESS})
    live["metadata"]["annotations"] = {"kubernetes.io/ingress.class": "inner"}
    assert endpoint.takes(live, "karmada.example.com", "inner")
    assert not endpoint.takes(live, "karmada.example.com", "outer")
    assert not endpoint.takes(live, "other.example.com", "inner")


GUIDE = Path(__file__).parents[9] / "docs/guides/endpoint.md"


def test_the_guide_has_a_valid_example_of_each_type() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    types = {document(yaml.safe_load(block)["spec"])["spec"]["endpoint"]["type"] for block in blocks}
    assert types == set(manifest.schema()["properties"]["spec"]["properties"]["endpoint"]["properties"]["type"]["enum"])


def test_the_guide_names_the_controllers_that_are_known() -> None:
    told = dict(re.findall(r"^\|[^|]+\| `([^`]+)` \| `([^`]+)` \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name: next(iter(yaml.safe_load(text).items())) for name, text in told.items()} == dict(
        endpoint.PASS_THROUGH_ANNOTATIONS
    )
