# SPDX-License-Identifier: Apache-2.0
"""The agent of a member in mode Pull: who it is, what it may do, and when it gets another certificate."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import known_flags, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import CLIENT_SIGNING_CA, KARMADA_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.bootstrap import AGENT_GROUP
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    NOW,
    OWNER,
    Rendered,
    document,
    rendered,
    state,
)
from hypothesis import given
from hypothesis import strategies as st

PULL = {"endpoint": {"type": "NodePort"}, "members": [{"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}}]}
SIGNER = state().authorities[CLIENT_SIGNING_CA]
YEAR = timedelta(days=365)
MEMBER_SERVER = "https://192.0.2.7:6443"


def certificate(*, name: str = "m1", when: datetime = NOW, signer: KeyPair = SIGNER) -> KeyPair:
    wanted = x509.Certificate("agent", "", agent.user(name), (AGENT_GROUP,), client=True)
    return x509.issue(wanted, signer, "ECDSA-P256", when, YEAR)


def identity(**more: Any) -> agent.Identity:
    pair = certificate(**more)
    return agent.Identity(pair, "https://192.0.2.1:32443", b"ca", x509.fingerprint(pair.certificate))


def found(spec: dict[str, Any] | None = None) -> Rendered:
    return rendered({**PULL, **(spec or {})})


def deployment(spec: dict[str, Any] | None = None, who: agent.Identity | None = None) -> dict[str, Any]:
    objects = agent.objects_on_member(found(spec).instance, "m1", MEMBER_SERVER, who)
    return next(each for each in objects if each["kind"] == "Deployment")


# -- in the control plane --------------------------------------------------------------------------------------------


def rules(kind: str) -> list[dict[str, Any]]:
    return [rule for each in agent.rights("m1", OWNER) if each["kind"] == kind for rule in each["rules"]]


def test_it_reads_no_secret_and_changes_no_cluster() -> None:
    every = [*rules("ClusterRole"), *rules("Role")]
    assert not [rule for rule in every if "secrets" in rule["resources"] or "*" in rule["resources"] + rule["verbs"]]
    clusters = [rule for rule in every if "clusters" in rule["resources"]]
    assert {verb for rule in clusters for verb in rule["verbs"]} == {"get", "list", "watch"}
    (status,) = [rule for rule in every if "clusters/status" in rule["resources"]]
    assert status["resourceNames"] == ["m1"]


def test_it_has_works_of_its_own_member_only() -> None:
    roles = [each for each in agent.rights("m1", OWNER) if each["kind"] == "Role"]
    assert not [rule for rule in rules("ClusterRole") if "works" in rule["resources"]]
    homes = {
        each["metadata"]["namespace"] for each in roles if any("works" in rule["resources"] for rule in each["rules"])
    }
    assert homes == {"karmada-es-m1"}


def test_every_role_is_bound_to_the_agent_of_this_member() -> None:
    objects = agent.rights("m1", OWNER)
    roles = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in objects
        if "rules" in each
    }
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"], each["metadata"].get("namespace"))
        for each in objects
        if "roleRef" in each
    }
    assert roles == bound
    subjects = {subject["name"] for each in objects if "subjects" in each for subject in each["subjects"]}
    assert subjects == {"system:karmada:agent:m1"}


@pytest.mark.parametrize(
    ("validity", "seconds"), [("8760h", 31536000), ("1m", 600), ("876000h", 2**31 - 1)], ids=["usual", "short", "long"]
)
def test_a_request_is_one_that_is_approved_and_signed(validity: str, seconds: int) -> None:
    request, key = x509.certificate_request(agent.user("m1"), (AGENT_GROUP,), "ECDSA-P256")
    made = agent.signing_request("m1", OWNER, request, x509.parse_duration(validity))
    assert made["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client"
    assert made["spec"]["expirationSeconds"] == seconds
    assert sorted(made["spec"]["usages"]) == ["client auth", "digital signature", "key encipherment"]
    assert base64.b64decode(made["spec"]["request"]) == request
    assert b"PRIVATE KEY" in key


def test_who_asks_for_a_certificate_says_that_it_may_be_signed_and_takes_nothing_back() -> None:
    refusal = {"type": "Failed", "status": "True"}
    live = {"metadata": {"resourceVersion": "7"}, "spec": {}, "status": {"conditions": [refusal]}}
    said = agent.approved(live, "because")
    assert said["metadata"] == {"resourceVersion": "7"}
    assert said["status"]["conditions"] == [
        refusal,
        {"type": "Approved", "status": "True", "reason": "ListedMember", "message": "because"},
    ]
    assert live["status"]["conditions"] == [refusal]


# -- its identity ----------------------------------------------------------------------------------------------------


def test_the_secret_says_what_it_was_made_of() -> None:
    who = identity()
    secret = agent.identity_secret("m1", OWNER, "karmada/prod", who)
    assert agent.identity_of(secret) == who
    assert agent.strange(secret) == ""
    config = yaml.safe_load(base64.b64decode(secret["data"]["karmada-kubeconfig"]))
    # The agent takes the name of its user for that of its cluster when it renews the certificate.
    assert config["users"][0]["name"] == config["contexts"][0]["context"]["user"] == "m1"


@pytest.mark.parametrize(
    "content", [b"{}", b":", b"a: 2001-99-99", b"a: " + b"1" * 5000, b"[" * 200_000, b"\xff", b""], ids=range(7)
)
def test_what_neither_agent_nor_installer_writes_is_no_identity(content: bytes) -> None:
    secret = {"metadata": {}, "data": {"karmada-kubeconfig": base64.b64encode(content).decode()}}
    assert agent.identity_of(secret) is None
    assert agent.strange(secret)


@pytest.mark.parametrize("data", [None, {}, {"karmada-kubeconfig": "!"}, {"karmada-kubeconfig": "\xe4"}])
def test_a_secret_that_cannot_be_read_is_no_identity(data: dict[str, str] | None) -> None:
    assert agent.identity_of({"metadata": {}, "data": data}) is None
    assert agent.strange({"metadata": {}, "data": data})
    assert agent.identity_of(None) is None


@pytest.mark.parametrize(
    "content",
    [
        b"a: 2001-99-99",
        b"a: " + b"9" * 5000,
        b"[" * 200_000,
        b"{a: " * 200_000,
        b"&a [" + b"*a," * 10 + b"]",
        b"a: &a [x,x]\n" + b"".join(b"%c: &%c [*%c,*%c]\n" % (c, c, c - 1, c - 1) for c in range(98, 122)),
        b"\xff\xfe\xfd",
        b"!!python/object/apply:os.system [id]",
        b"clusters: [{cluster: 3}]\nusers: [{user: 3}]",
        b"clusters: []\n---\nclusters: []",
    ],
    ids=["date", "digits", "brackets", "braces", "alias", "aliases", "not-utf8", "program", "types", "two"],
)
def test_a_secret_that_somebody_filled_to_do_harm_is_no_identity(content: bytes) -> None:
    data = {"karmada-kubeconfig": base64.b64encode(content).decode()}
    assert agent.identity_of({"metadata": {}, "data": data}) is None


@pytest.mark.parametrize("data", [{"karmada-kubeconfig": "ä"}, {"karmada-kubeconfig": 3}, "text", [1]])
def test_a_secret_of_other_types_is_no_identity(data: Any) -> None:
    assert agent.identity_of({"metadata": {}, "data": data}) is None


@given(st.binary(max_size=300))
def test_no_secret_whatever_is_in_it_ends_a_run(content: bytes) -> None:
    agent.identity_of({"metadata": {}, "data": {"karmada-kubeconfig": base64.b64encode(content).decode()}})


@pytest.mark.parametrize("token", [b"\xff\xfe", b"a\nb", "ü".encode()])
def test_a_token_that_is_none_gives_an_agent_on_a_host_nothing(token: bytes) -> None:
    data = {"token": base64.b64encode(token).decode(), "ca.crt": "Y2E="}
    with pytest.raises(ProblemsError, match=r"member m1, Secret .*its key token.* holds no token"):
        agent.host_access("m1", MEMBER_SERVER, {"data": data})


def reasons(who: agent.Identity | None, now: datetime = NOW) -> list[str]:
    return agent.reasons_for_a_new_certificate("m1", who, SIGNER.certificate, now, YEAR)


def test_a_good_certificate_is_kept_until_its_agent_has_not_renewed_it_for_long() -> None:
    assert reasons(identity()) == []
    assert reasons(identity(), NOW + YEAR * 0.85) == []
    assert reasons(identity(), NOW + YEAR * 0.95) != []


def test_one_that_the_agent_has_renewed_with_a_key_of_its_choice_is_kept() -> None:
    wanted = x509.Certificate("agent", "", agent.user("m1"), (AGENT_GROUP,), client=True)
    renewed = x509.issue(wanted, SIGNER, "RSA-3072", NOW, YEAR)
    assert reasons(replace(identity(), pair=renewed)) == []


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (None, "missing"),
        (identity(name="m2"), "subject differs"),
        (identity(signer=state().authorities[KARMADA_CA]), "not signed by the current CA"),
        (replace(identity(), pair=KeyPair(b"x", b"y")), "cannot be read"),
    ],
    ids=["none", "of another member", "of another authority", "damaged"],
)
def test_one_that_is_not_good_is_made_anew(who: agent.Identity | None, told: str) -> None:
    assert told in " ".join(reasons(who))


# -- on the member ---------------------------------------------------------------------------------------------------


def test_its_pods_restart_for_what_the_installer_writes_and_not_when_it_renews_its_certificate() -> None:
    who = identity()
    renewed = replace(who, pair=certificate())
    assert deployment(who=who) == deployment(who=renewed)
    for other in (replace(who, server="https://192.0.2.9"), replace(who, ca_pem=b"new"), replace(who, issued="other")):
        assert deployment(who=who) != deployment(who=other)


def test_it_is_told_nothing_that_the_document_may_change() -> None:
    """Or it would be started again for it, and would want to change its Cluster, which it may not."""
    one, other = (
        found({"members": [{**PULL["members"][0], **more}]}) for more in ({}, {"region": "eu", "zones": ["a"]})
    )
    first, second = (agent.objects_on_member(each.instance, "m1", MEMBER_SERVER, None) for each in (one, other))
    assert first == second


def test_it_acts_as_its_account_and_reads_its_identity() -> None:
    spec = deployment()["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("karmada-agent-sa", True)
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (flag,) = [each for each in container["command"] if each.startswith("--karmada-kubeconfig=")]
    assert flag == f"--karmada-kubeconfig={mounts['kubeconfig']}/karmada-kubeconfig"
    assert {"name": "kubeconfig", "secret": {"secretName": "karmada-kubeconfig", "defaultMode": 0o440}} in spec[
        "volumes"
    ]
    assert container["image"].startswith("docker.io/karmada/karmada-agent:v")


def test_settings_of_the_document_are_honoured() -> None:
    images = {"karmadaRegistry": "registry.example.com", "pullSecrets": [{"name": "login"}], "pullPolicy": "Always"}
    settings = {"replicas": 2, "extraArgs": {"v": "4"}, "featureGates": {"MultiClusterService": True}}
    made = deployment({"images": images, "components": {"karmadaAgent": settings}})
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert made["spec"]["replicas"] == 2
    assert container["image"].startswith("registry.example.com/karmada-agent:")
    assert (container["imagePullPolicy"], spec["imagePullSecrets"]) == ("Always", [{"name": "login"}])
    assert {"--v=4", "--feature-gates=MultiClusterService=true", "--cluster-name=m1"} <= set(container["command"])


def test_certificates_are_renewed() -> None:
    flags = agent.flags(found().instance, "m1", MEMBER_SERVER)
    assert "--controllers=*,certRotation" in flags
    assert "--karmada-kubeconfig-namespace=karmada-cluster" in flags


@pytest.mark.parametrize("release", releases.RELEASES, ids=lambda each: each.karmada)
def test_the_program_of_each_release_knows_the_flags(release: releases.Release) -> None:
    known = set(known_flags.flags(agent.ROW, release))
    used = {each.removeprefix("--").partition("=")[0] for each in agent.flags(found().instance, "m1", MEMBER_SERVER)}
    assert used <= known


def test_everything_of_it_is_among_what_is_taken_away() -> None:
    instance = found().instance
    objects = [
        each
        for on_hosts in (False, True)
        for each in agent.objects_on_member(instance, "m1", MEMBER_SERVER, None, on_hosts=on_hosts)
    ]
    secret = agent.identity_secret("m1", OWNER, instance.full_name, identity())
    assert {Ref.of(each) for each in (*objects, secret)} == set(agent.references())


def test_on_hosts_there_is_a_token_of_its_account_in_the_place_of_pods() -> None:
    pods, hosts = (
        [Ref.of(each) for each in agent.objects_on_member(found().instance, "m1", MEMBER_SERVER, None, on_hosts=on)]
        for on in (False, True)
    )
    assert (set(pods) - set(hosts), set(hosts) - set(pods)) == ({agent.DEPLOYMENT}, {agent.TOKEN})
    assert (agent.other_form(on_hosts=True), agent.other_form(on_hosts=False)) == (agent.DEPLOYMENT, agent.TOKEN)


def test_a_token_that_the_member_has_not_filled_is_no_access() -> None:
    assert agent.host_access("m1", MEMBER_SERVER, None) is None
    assert agent.host_access("m1", MEMBER_SERVER, {"data": {"token": "dA=="}}) is None
    access = agent.host_access("m1", MEMBER_SERVER, {"data": {"token": "dA==", "ca.crt": "Y2E="}})
    assert access
    config = json.loads(access)
    assert config["clusters"][0]["cluster"] == {"server": MEMBER_SERVER, "certificate-authority-data": "Y2E="}
    assert config["users"][0]["user"] == {"token": "t"}


def test_a_document_with_a_member_in_mode_pull_has_an_endpoint() -> None:
    assert document(PULL)["spec"]["members"][0]["mode"] == "Pull"
