# SPDX-License-Identifier: Apache-2.0
"""Joining a member makes what ``karmadactl join`` makes (Karmada v1.18, pkg/util/credential.go)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ADMIN
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import Credentials, Registration
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

SYSTEM = {"karmada.io/system": "true"}
OURS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "me"}
CREDENTIALS = Credentials(token="the-token", impersonator_token="the-other", ca_bundle=b"authority")
REGISTRATION = Registration(cluster_id="1234", endpoint="https://192.0.2.1:6443")

# kind, name, labels beside our own, on the member called m1
ON_MEMBER = {
    ("ServiceAccount", "karmada-impersonator"): SYSTEM,
    ("ServiceAccount", "karmada-m1"): SYSTEM,
    ("Secret", "karmada-impersonator"): {},
    ("Secret", "karmada-m1"): {},
    ("ClusterRole", "karmada-controller-manager:karmada-m1"): SYSTEM,
    ("ClusterRoleBinding", "karmada-controller-manager:karmada-m1"): SYSTEM,
}


def labels(each: dict[str, Any]) -> dict[str, str]:
    found = dict(each["metadata"]["labels"])
    assert OURS.items() <= found.items()
    return {key: value for key, value in found.items() if key not in OURS}


def on_member() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (each["kind"], each["metadata"]["name"]): each
        for each in registration.objects_on_member("m1", "me", "karmada/prod")
    }


def test_objects_on_the_member_have_the_names_and_labels_of_karmadactl() -> None:
    assert {key: labels(each) for key, each in on_member().items()} == ON_MEMBER
    namespaced = {key: each["metadata"].get("namespace") for key, each in on_member().items()}
    for (kind, _), namespace in namespaced.items():
        assert namespace == (None if kind.startswith("Cluster") else "karmada-cluster")


def test_the_namespace_of_the_accounts_is_known_as_karmadas() -> None:
    namespace = registration.namespace_on_member("me")
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", "karmada-cluster")
    assert labels(namespace) == SYSTEM


def test_the_control_plane_may_do_everything_on_a_member_and_the_impersonator_nothing_yet() -> None:
    role = on_member()[("ClusterRole", "karmada-controller-manager:karmada-m1")]
    assert role["rules"] == [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]
    binding = on_member()[("ClusterRoleBinding", "karmada-controller-manager:karmada-m1")]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account, *others = binding["subjects"]
    assert account == {"kind": "ServiceAccount", "name": "karmada-m1", "namespace": "karmada-cluster"}
    # Who comes through the control plane as its administrator; upstream's are in system:masters, everywhere.
    assert [(each["kind"], each["name"]) for each in others] == [("Group", *ADMIN.organizations)]


def test_nobody_but_its_account_has_the_rights_of_an_estimator_or_an_agent() -> None:
    of_others = [
        *registration.estimator_objects("m1", "me", "karmada/prod"),
        *registration.role_with_all_rights("karmada-agent", "karmada-agent-sa"),
    ]
    bindings = [each for each in of_others if each["kind"] == "ClusterRoleBinding"]
    assert [[subject["kind"] for subject in each["subjects"]] for each in bindings] == [["ServiceAccount"]] * 2


def test_each_token_is_of_its_account() -> None:
    for name in ("karmada-m1", "karmada-impersonator"):
        token = on_member()[("Secret", name)]
        assert token["type"] == "kubernetes.io/service-account-token"
        assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
        assert "data" not in token, "the member's API server fills it"


def test_secrets_in_the_control_plane() -> None:
    main, impersonator = registration.secrets_in_control_plane("m1", "me", CREDENTIALS, "uid-1")
    assert (main["metadata"]["name"], impersonator["metadata"]["name"]) == ("m1", "m1-impersonator")
    assert {key: base64.b64decode(value) for key, value in main["data"].items()} == {
        "caBundle": b"authority",
        "token": b"the-token",
    }
    assert {key: base64.b64decode(value) for key, value in impersonator["data"].items()} == {"token": b"the-other"}
    for each in (main, impersonator):
        assert labels(each) == SYSTEM
        assert each["metadata"]["namespace"] == "karmada-cluster"
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("Cluster", "m1", "uid-1")
    first = registration.secrets_in_control_plane("m1", "me", CREDENTIALS, None)
    assert not [each for each in first if "ownerReferences" in each["metadata"]]


def test_the_cluster_object() -> None:
    entry = {
        "name": "m1",
        "mode": "Push",
        "secretRef": {"name": "x"},
        "provider": "example",
        "region": "eu",
        "zones": ["a", "b"],
        "labels": {"tier": "prod"},
    }
    found = registration.cluster(MemberEntry(entry), "me", REGISTRATION)
    assert (found["apiVersion"], found["kind"]) == ("cluster.karmada.io/v1alpha1", "Cluster")
    assert labels(found) == {"tier": "prod"}
    assert found["spec"] == {
        "id": "1234",
        "syncMode": "Push",
        "apiEndpoint": "https://192.0.2.1:6443",
        "secretRef": {"namespace": "karmada-cluster", "name": "m1"},
        "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1-impersonator"},
        "provider": "example",
        "region": "eu",
        "zones": ["a", "b"],
    }
    bare = registration.cluster(
        MemberEntry({"name": "m1", "mode": "Push", "secretRef": {"name": "x"}}), "me", REGISTRATION
    )
    assert not {"provider", "region", "zones"} & set(bare["spec"])


def test_labels_of_a_user_cannot_take_a_member_from_us() -> None:
    entry = {"name": "m1", "mode": "Push", "labels": {"installer.karmada.io/owner": "someone"}}
    assert (
        registration.cluster(MemberEntry(entry), "me", REGISTRATION)["metadata"]["labels"]["installer.karmada.io/owner"]
        == "me"
    )


def token_secret(**data: str) -> dict[str, Any]:
    return {"data": {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in data.items()}}


def test_credentials_are_those_of_both_accounts() -> None:
    secrets = {
        "karmada-m1": token_secret(token="the-token", ca_crt="authority"),
        "karmada-impersonator": token_secret(token="the-other", ca_crt="authority"),
    }
    assert registration.credentials_from(secrets, "m1") == CREDENTIALS


@pytest.mark.parametrize(
    "secrets",
    [
        {},
        {"karmada-m1": {"data": None}},
        {"karmada-m1": token_secret(token="t", ca_crt="c")},
        {"karmada-m1": token_secret(token="t"), "karmada-impersonator": token_secret(token="o")},
        {"karmada-m1": token_secret(token="t", ca_crt="c"), "karmada-impersonator": {}},
    ],
)
def test_half_filled_tokens_are_waited_for(secrets: dict[str, Any]) -> None:
    assert registration.credentials_from(secrets, "m1") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token", base64.b64encode(b"\xff\xfe").decode()),
        ("token", base64.b64encode(b"line\nbreak").decode()),
        ("token", base64.b64encode("ü".encode()).decode()),
        ("token", "not base64"),
        ("token", "ü"),
        ("token", 3),
        ("ca.crt", base64.b64encode(b"\xff\xfe").decode()),
        ("ca.crt", {"a": "b"}),
    ],
)
def test_what_is_no_token_is_told_of_the_member(key: str, value: Any) -> None:
    secrets = {
        "karmada-m1": token_secret(token="t", ca_crt="c"),
        "karmada-impersonator": token_secret(token="o", ca_crt="c"),
    }
    secrets["karmada-m1"]["data"][key] = value
    with pytest.raises(ProblemsError, match=rf"member m1, Secret karmada-cluster/karmada-m1: its key {key}"):
        registration.credentials_from(secrets, "m1")


def test_credentials_do_not_show_themselves() -> None:
    assert "the-token" not in repr(CREDENTIALS) + str(CREDENTIALS)


@pytest.mark.parametrize(
    ("labels", "annotations", "ours"),
    [
        ({"karmada.io/managed": "true"}, {"work.karmada.io/namespace": "karmada-es-m1"}, True),
        ({"karmada.io/managed": "true"}, {"work.karmada.io/namespace": "karmada-es-m11"}, False),
        ({}, {"work.karmada.io/namespace": "karmada-es-m1"}, False),
        (None, None, False),
    ],
)
def test_what_karmada_put_on_a_member_is_told_by_its_marks(labels: Any, annotations: Any, *, ours: bool) -> None:
    assert registration.made_by_karmada_for("m1", {"metadata": {"labels": labels, "annotations": annotations}}) is ours
