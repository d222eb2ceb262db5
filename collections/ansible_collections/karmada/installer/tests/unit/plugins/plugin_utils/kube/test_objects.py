# SPDX-License-Identifier: Apache-2.0
"""Desired against live, hashes, diffs and ownership."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import (
    HASH_ANNOTATION,
    Ref,
    applied_hash,
    covers,
    diff,
    drift,
    owned_by,
    recorded_hash,
    with_applied_hash,
)
from hypothesis import given
from hypothesis import strategies as st

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "prod-apiserver", "namespace": "ns", "labels": {"a": "b"}},
    "spec": {
        "replicas": 2,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "server",
                        "image": "x:1",
                        "args": ["--a=1", "--b=2"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
                        "ports": [{"containerPort": 5443}, {"containerPort": 5443, "protocol": "UDP"}],
                        "resources": {"requests": {"cpu": "0.5", "memory": "1Gi"}},
                        "volumeMounts": [{"name": "certs", "mountPath": "/a"}, {"name": "certs", "mountPath": "/b"}],
                    }
                ],
                "tolerations": [{"key": "x", "operator": "Exists"}],
                "volumes": [{"name": "certs", "secret": {"secretName": "s"}}, {"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}


def live() -> dict[str, Any]:
    """What an API server makes of DEPLOYMENT: defaults, its own ways of writing, and a sidecar from a webhook."""
    found = copy.deepcopy(DEPLOYMENT)
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = found["spec"]["template"]["spec"]
    server = spec["containers"][0]
    server["env"][1] = {"name": "B"}
    server["ports"][0]["protocol"] = "TCP"
    server["resources"]["requests"] = {"cpu": "500m", "memory": "1073741824"}
    server["imagePullPolicy"] = "IfNotPresent"
    server["volumeMounts"].reverse()
    spec["containers"].insert(0, {"name": "sidecar", "image": "y"})
    spec["volumes"][0]["secret"]["defaultMode"] = 420
    return found


def test_what_the_server_does_to_an_object_is_no_drift() -> None:
    assert drift(live(), DEPLOYMENT) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("replicas",), 3, "spec.replicas"),
        (("template", "spec", "containers", 1, "image"), "x:2", "spec.template.spec.containers[name=server].image"),
        (("template", "spec", "containers", 1, "args"), ["--a=1"], "args"),
        (("template", "spec", "containers", 1, "args"), ["--b=2", "--a=1"], "args[0]"),
        (("template", "spec", "containers", 1, "resources", "requests", "cpu"), "501m", "requests.cpu"),
        (("template", "spec", "containers", 1, "env", 0, "value"), "2", "env[name=A].value"),
        (("template", "spec", "containers", 1, "volumeMounts", 0, "mountPath"), "/c", "volumeMounts[mountPath=/b]"),
        (
            ("template", "spec", "tolerations"),
            [{"key": "x", "operator": "Exists"}, {"operator": "Exists"}],
            "tolerations",
        ),
        (("template", "spec", "volumes", 1), {"name": "tmp", "hostPath": {"path": "/"}}, "emptyDir"),
    ],
)
def test_drift_is_seen_and_named(path: tuple[Any, ...], value: Any, told: str) -> None:
    changed = live()
    place = changed["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    found = drift(changed, DEPLOYMENT)
    assert any(told in one for one in found), found


def test_a_quantity_is_one_only_where_quantities_are() -> None:
    def config(value: str) -> dict[str, Any]:
        return {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"requests": value, "cpu": value}}

    assert not covers(config("1024"), config("1Ki"))
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "x"},
        "spec": {"resources": {"requests": {"storage": "1Ti"}}},
    }
    other = copy.deepcopy(claim)
    other["spec"]["resources"]["requests"]["storage"] = "1024Gi"
    assert covers(other, claim)


@pytest.mark.parametrize(("left", "right"), [("1", 1), (True, 1), ("true", True), (0, False)])
def test_values_of_other_types_differ(left: Any, right: Any) -> None:
    assert not covers({"metadata": {}, "spec": {"a": left}}, {"metadata": {}, "spec": {"a": right}})


def test_string_data_is_compared_as_the_data_it_becomes() -> None:
    desired = {"kind": "Secret", "metadata": {"name": "s", "creationTimestamp": None}, "stringData": {"k": "v"}}
    stored = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"k": base64.b64encode(b"v").decode()}}
    assert covers(stored, desired)
    assert not covers({**stored, "data": {"k": "AAAA"}}, desired)
    assert not covers({**stored, "data": {}}, desired)


def test_a_port_added_to_a_network_policy_is_drift() -> None:
    policy = {
        "kind": "NetworkPolicy",
        "metadata": {"name": "p"},
        "spec": {"ingress": [{"ports": [{"port": 2379, "protocol": "TCP"}]}]},
    }
    wider = copy.deepcopy(policy)
    wider["spec"]["ingress"][0]["ports"].append({"port": 22, "protocol": "TCP"})
    assert not covers(wider, policy)


@pytest.mark.parametrize(
    ("of", "more"),
    [
        (lambda entries: {"dnsConfig": {"options": entries}}, {"name": "ndots", "value": "1"}),
        (lambda entries: {"securityContext": {"sysctls": entries}}, {"name": "net.core.somaxconn", "value": "1"}),
        (lambda entries: {"volumes": [{"name": "v", "secret": {"items": entries}}]}, {"key": "a", "path": "a"}),
    ],
    ids=["options", "sysctls", "items"],
)
def test_an_entry_more_in_a_list_that_is_one_value_is_drift(of: Any, more: dict[str, str]) -> None:
    """Their entries have a name or a key, and still the API server does not merge them by it."""
    first = dict.fromkeys(more, "first")
    desired = {"kind": "Pod", "metadata": {"name": "p"}, "spec": of([first])}
    assert covers({**desired, "spec": of([first])}, desired)
    assert not covers({**desired, "spec": of([first, more])}, desired)


LEAVES = st.one_of(st.booleans(), st.integers(), st.text(min_size=1, max_size=8))
KEYS = st.text("abcdefgh", min_size=1, max_size=4)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3), st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.builds(
    lambda spec: {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec},
    st.dictionaries(KEYS, VALUES, min_size=1, max_size=4),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path


@given(OBJECTS)
def test_an_object_covers_itself(obj: dict[str, Any]) -> None:
    assert drift(copy.deepcopy(obj), obj) == []


@given(OBJECTS, st.data())
def test_a_change_of_any_leaf_is_seen(obj: dict[str, Any], data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(leaves(obj["spec"]))))
    changed = copy.deepcopy(obj)
    place = changed["spec"]
    for step in path[:-1]:
        place = place[step]
    old = place[path[-1]]
    place[path[-1]] = data.draw(LEAVES.filter(lambda new: new != old or type(new) is not type(old)))
    assert not covers(changed, obj)
    assert applied_hash(changed) != applied_hash(obj)


@given(OBJECTS)
def test_the_hash_does_not_count_itself_nor_the_order_of_keys(obj: dict[str, Any]) -> None:
    marked = with_applied_hash(obj)
    assert recorded_hash(marked) == applied_hash(obj) == applied_hash(marked)
    assert with_applied_hash(marked) == marked
    turned = dict(reversed(list(obj.items())))
    assert applied_hash(turned) == applied_hash(obj)
    assert HASH_ANNOTATION not in (obj["metadata"].get("annotations") or {})
    assert covers(obj, marked)


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "\u2028", "- [", "long " * 60 + "\n"])
def test_diffs_show_any_text_that_json_can_hold(text: str) -> None:
    shown = diff(None, {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": text}})
    assert shown["before"] == ""
    assert yaml.safe_load(shown["after"].replace("\\uD800", "half")) == {
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "data": {"k": text.replace("\ud800", "half")},
    }


def test_diffs_show_change_without_the_content_of_secrets() -> None:
    before = {
        "kind": "Secret",
        "metadata": {"name": "s", "resourceVersion": "1", "managedFields": []},
        "data": {"same": "czNjcmV0", "other": "b2xk"},
    }
    after = {**before, "stringData": {"other": "new", "more": "fresh"}}
    shown = diff(before, after)
    text = shown["before"] + shown["after"]
    for secret in ("czNjcmV0", "b2xk", "new", "bmV3", "fresh", "resourceVersion", "managedFields"):
        assert secret not in text.replace("<redacted, changed>", "")
    assert "other: <redacted>" in shown["before"]
    assert "other: <redacted, changed>" in shown["after"]
    assert "same: <redacted>" in shown["after"]
    assert diff(None, before)["before"] == ""
    assert "b2xk" not in diff(None, before)["after"]


def test_a_crd_is_one_line_of_a_diff() -> None:
    schema = {"openAPIV3Schema": {"properties": {f"field{number}": {"type": "string"} for number in range(500)}}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "works.work.karmada.io", "uid": "1"},
        "spec": {"versions": [{"name": "v1alpha1", "schema": schema}, {"name": "v1alpha2", "schema": schema}]},
        "status": {"conditions": []},
    }
    created, deleted = diff(None, crd), diff(crd, None)
    assert created["before"] == deleted["after"] == ""
    assert created["after"] == deleted["before"]
    assert created["after"].startswith("CustomResourceDefinition works.work.karmada.io: v1alpha1, v1alpha2 (sha256 ")
    assert created["after"].count("\n") == 1
    # What the server adds is no difference, a field of the schema is one.
    assert diff(crd, with_applied_hash({**crd, "status": {}}))["before"] == created["after"]
    changed = diff(crd, {**crd, "spec": {"versions": crd["spec"]["versions"], "scope": "Cluster"}})
    assert changed["before"] != changed["after"]


def test_references_read_as_people_write_them() -> None:
    assert str(Ref.of(DEPLOYMENT)) == "Deployment ns/prod-apiserver"
    assert str(Ref("v1", "Namespace", "ns")) == "Namespace ns"


def entry(manager: str, operation: str, time: str, subresource: str = "") -> dict[str, str]:
    return {"manager": manager, "operation": operation, "time": time, "subresource": subresource}


@pytest.mark.parametrize(
    ("owner", "uid", "entries", "ours"),
    [
        ("me", "known", [], True),
        ("other", "known", [], False),
        ("me", "new", [], False),
        ("me", "new", [entry("karmada-installer", "Apply", "T1")], True),
        ("me", "new", [entry("karmada-installer", "Update", "T1")], False),
        ("me", "new", [entry("kubectl", "Update", "T0"), entry("karmada-installer", "Apply", "T1")], False),
        ("me", "new", [entry("kubectl", "Update", "T2"), entry("karmada-installer", "Apply", "T1")], True),
        ("me", "new", [entry("manager", "Update", "T0", "status"), entry("karmada-installer", "Apply", "T1")], True),
    ],
)
def test_a_label_alone_does_not_make_an_object_ours(
    owner: str, uid: str, entries: list[dict[str, str]], ours: bool
) -> None:
    obj = {"metadata": {"uid": uid, "labels": {"installer.karmada.io/owner": owner}, "managedFields": entries}}
    assert owned_by(obj, "me", {"known"}) is ours
