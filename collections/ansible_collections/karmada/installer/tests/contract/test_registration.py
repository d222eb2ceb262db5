# SPDX-License-Identifier: Apache-2.0
"""What a bootstrap token is worth, asked of a real kube-apiserver; and how members in mode Pull do without one."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import bootstrap, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all, delete_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden, Unauthorized
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, agent_join
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

Object = dict[str, Any]
CSR = "CertificateSigningRequest"
TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
AGENTS = ["system:karmada:agents", "system:authenticated"]
TOKENS = [bootstrap.BOOTSTRAP_TOKEN_GROUP, "system:bootstrappers", "system:authenticated"]
GENERATOR = "system:karmada:agent:rbac-generator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One of our own, with what its rights are when nothing but ours is there."""
    with running_api_server(tmp_path_factory.mktemp("registration"), "--enable-bootstrap-token-auth=true") as found:
        yield found


@pytest.fixture(scope="module")
def admin(server: ApiServer) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="control plane") as found:
        yield found


@pytest.fixture(scope="module")
def bearer(server: ApiServer, admin: Cluster) -> Iterator[Cluster]:
    """Whoever has a token as ``karmadactl token create`` makes it."""
    content = {
        "token-id": TOKEN_ID,
        "token-secret": TOKEN_SECRET,
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": bootstrap.BOOTSTRAP_TOKEN_GROUP,
    }
    admin.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": f"bootstrap-token-{TOKEN_ID}", "namespace": "kube-system"},
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in content.items()},
        }
    )
    token = f"{TOKEN_ID}.{TOKEN_SECRET}"
    with Cluster(from_parts(server.url, ca_pem=server.ca.read_text(), token=token), "control plane") as found:
        while True:
            try:
                found.can_i([("get", "", "pods")])
            except Unauthorized:
                time.sleep(0.1)
            else:
                break
        yield found


def with_registration(admin: Cluster, *, on: bool) -> None:
    """Bring the rights to what a document says, as the step for them does."""
    run = fake_run(document({"registration": {"karmadactl": on}}), FakeCluster("host"), stored=state())
    run.__dict__["control_plane"] = admin
    apply_all(admin, stages.objects(run, "rights"))
    delete_all(admin, run.ours_in_control_plane(stages.switched_off(run, ["rights"])))


def may(admin: Cluster, user: str, groups: list[str], **what: str) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": what},
    }
    answer = admin._json("review", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=review)
    allowed: bool = answer["status"]["allowed"]
    return allowed


def settled(admin: Cluster, *, on: bool) -> None:
    """An API server sees new rights a moment after they were written."""
    deadline = time.monotonic() + 60
    while may(admin, GENERATOR, AGENTS, verb="*", group="*", resource="*") is not on:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def request_for(user: str) -> Object:
    pem, _ = x509.certificate_request(user, (bootstrap.AGENT_GROUP,), "ECDSA-P256")
    return agent.signing_request("m1", OWNER, pem, timedelta(days=1))


def is_approved_by_karmada(admin: Cluster, user: str, groups: list[str], kind: str) -> bool:
    """What Karmada asks before it approves a request of this user (AgentCSRApprovingController of v1.16 to v1.18)."""
    csr = {"group": "certificates.k8s.io", "resource": "certificatesigningrequests", "version": "*"}
    return may(admin, user, groups, verb="create", subresource=kind, **csr)


def test_a_token_gets_no_certificate_whosever_unless_registration_is_on(admin: Cluster, bearer: Cluster) -> None:
    with_registration(admin, on=False)
    settled(admin, on=False)
    for user in (GENERATOR, agent.user("m1"), agent.user("m2")):
        with pytest.raises(Forbidden, match="cannot create resource") as refused:
            bearer.create(request_for(user))
        assert "certificatesigningrequests" in refused.value.message
    assert admin.list(agent.CSR_API, CSR) == []
    assert not is_approved_by_karmada(admin, f"system:bootstrap:{TOKEN_ID}", TOKENS, "clusteragent")


def test_on_it_registers_as_karmadactl_does_and_off_again_it_does_not(admin: Cluster, bearer: Cluster) -> None:
    """Switched on, whoever has a token has everything: that is what the field says, and why it is off."""
    with_registration(admin, on=True)
    settled(admin, on=True)
    made = bearer.create(request_for(GENERATOR))
    assert {*TOKENS} <= {*made["spec"]["groups"]}
    assert is_approved_by_karmada(admin, made["spec"]["username"], made["spec"]["groups"], "clusteragent")

    with_registration(admin, on=False)
    settled(admin, on=False)
    with pytest.raises(Forbidden):
        bearer.create(request_for(GENERATOR))
    # One who got that certificate before may do nothing any more but renew it, as agents may.
    everything = [("*", "*", "*"), ("get", "", "secrets"), ("create", "rbac.authorization.k8s.io", "clusterroles")]
    for verb, group, resource in everything:
        assert not may(admin, GENERATOR, AGENTS, verb=verb, group=group, resource=resource)
    delete_all(admin, [(agent_join.Ref.of(made), made["metadata"]["uid"])])


@pytest.mark.parametrize("on", [False, True])
def test_an_agent_renews_its_own_certificate_and_gets_no_other(on: bool, admin: Cluster) -> None:
    """Karmada takes the first right for requests with the applicant's own name only."""
    with_registration(admin, on=on)
    settled(admin, on=on)
    assert is_approved_by_karmada(admin, agent.user("m1"), AGENTS, "selfclusteragent")
    assert not is_approved_by_karmada(admin, agent.user("m1"), AGENTS, "clusteragent")


@pytest.mark.parametrize("on", [False, True])
def test_an_agent_that_has_joined_approves_no_request_and_signs_none(on: bool, admin: Cluster) -> None:
    """Else it would give itself the certificate of another one, past Karmada's controller."""
    with_registration(admin, on=on)
    settled(admin, on=on)
    apply_all(admin, [agent.namespace("m1", OWNER)])
    apply_all(admin, agent.rights("m1", OWNER))

    def agent_may(verb: str, resource: str, **more: str) -> bool:
        what = {"verb": verb, "group": "certificates.k8s.io", "resource": resource, **more}
        assert may(admin, "root", ["system:masters"], **what)
        return may(admin, agent.user("m1"), AGENTS, **what)

    deadline = time.monotonic() + 60
    while not agent_may("create", "certificatesigningrequests"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for verb in ("update", "patch"):
        for part in ("approval", "status"):
            assert not agent_may(verb, "certificatesigningrequests", subresource=part)
    signer = request_for(agent.user("m1"))["spec"]["signerName"]
    for verb in ("approve", "sign"):
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            assert not agent_may(verb, "signers", name=name)
        assert not agent_may(verb, "signers")
    assert not is_approved_by_karmada(admin, agent.user("m1"), AGENTS, "clusteragent")


def a_run(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    run = fake_run(document(), FakeCluster("host"), stored=state())
    run.__dict__["control_plane"] = admin
    monkeypatch.setattr(type(run), "writing", lambda *_: nullcontext())
    monkeypatch.setattr(type(run), "public_url", "https://192.0.2.1:6443")
    return run


def sign_when_approved(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[Object]:
    """What kube-controller-manager does: requests that are approved, and no others. Returns those that it signed."""
    signed: list[Object] = []
    get = Cluster.get

    def got(self: Cluster, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        live = get(self, api_version, kind, name, namespace)
        conditions = {each["type"] for each in ((live or {}).get("status") or {}).get("conditions") or []}
        if kind == CSR and live and "Approved" in conditions and not live["status"].get("certificate"):
            ours = x509.new_authority(x509.Authority("a", "a"), "ECDSA-P256", agent_now())
            certificate = base64.b64encode(ours.certificate).decode()
            status = {**live["status"], "certificate": certificate}
            live = self.replace({**live, "status": status}, "status")
            signed.append(live)
        return live

    monkeypatch.setattr(Cluster, "get", got)
    return signed


def agent_now() -> Any:
    return fake_run(document(), FakeCluster("host")).now


def test_a_member_in_mode_pull_gets_its_certificate_from_the_administrator(
    admin: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_registration(admin, on=False)
    signed = sign_when_approved(admin, monkeypatch)
    identity = agent_join._new_identity(a_run(admin, monkeypatch), "m1")
    (request,) = signed
    assert identity.pair.certificate == base64.b64decode(request["status"]["certificate"])
    (condition,) = request["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("Approved", "ListedMember")
    assert "lists member m1" in condition["message"]
    assert admin.list(agent.CSR_API, CSR) == []
    assert admin.list("v1", "Secret", "kube-system", labels=agent.selector("m1", OWNER)) == []


def test_karmada_may_approve_it_first(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = sign_when_approved(admin, monkeypatch)
    replace = Cluster.replace

    def after_karmada(self: Cluster, obj: Object, subresource: str | None = None, **more: Any) -> Object:
        if subresource == "approval":
            replace(self, agent.approved({**obj, "status": {}}, "Auto approving karmada agent certificate"), "approval")
        return replace(self, obj, subresource, **more)

    monkeypatch.setattr(Cluster, "replace", after_karmada)
    assert agent_join._new_identity(a_run(admin, monkeypatch), "m1")
    assert [each["message"] for each in signed[0]["status"]["conditions"]] == [
        "Auto approving karmada agent certificate"
    ]


def test_one_that_is_not_signed_is_told_and_taken_back(admin: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_join, "CERTIFICATE_SECONDS", 0.5)
    with pytest.raises(ProblemsError, match="was not signed within"):
        agent_join._new_identity(a_run(admin, monkeypatch), "m1")
    assert admin.list(agent.CSR_API, CSR) == []


def test_nobody_gets_a_certificate_of_the_group_that_may_everything(admin: Cluster, bearer: Cluster) -> None:
    """Not even where registration is on: the API server itself refuses the group."""
    with_registration(admin, on=True)
    settled(admin, on=True)
    pem, _ = x509.certificate_request("x", ("system:masters",), "ECDSA-P256")
    with pytest.raises(ApiError, match="system:masters"):
        bearer.create(agent.signing_request("m1", OWNER, pem, timedelta(days=1)))
