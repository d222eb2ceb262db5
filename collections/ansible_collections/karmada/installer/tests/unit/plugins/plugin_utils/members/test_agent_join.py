# SPDX-License-Identifier: Apache-2.0
"""Joining in mode Pull: the agent gets one certificate, by a request that is gone afterwards, wherever a run ends."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import CLIENT_SIGNING_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.members import (
    account_tokens,
    agent,
    agent_join,
    registration,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.works import NO_NEW_WORKS_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import kubeconfig as pki_kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, count_requests, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

M1 = {"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}}
Object = dict[str, Any]
CSR = "CertificateSigningRequest"


class Killed(Exception):  # noqa: N818 - what happens to a run
    """The run ends here."""


class Api(FakeCluster):
    """Ends the run instead of carrying out the write that is left when it is 0, and signs what was approved."""

    writes_left: list[int]
    #: from a request for a certificate to its status
    judge: Callable[[bytes], Object]
    #: whether somebody else approves requests, and is faster
    others_approve = False

    def _write(self) -> None:
        if self.writes_left[0] == 0:
            raise Killed
        self.writes_left[0] -= 1

    def apply(self, obj: Object, *, dry_run: bool = False, **more: Any) -> Any:
        if not dry_run:
            self._write()
        return super().apply(obj, dry_run=dry_run, **more)

    def create(self, obj: Object, **more: Any) -> Object:
        self._write()
        return super().create(obj, **more)

    def delete(self, *where: Any, **more: Any) -> bool:
        self._write()
        return super().delete(*where, **more)

    def replace(self, obj: Object, subresource: str | None = None, **_: Any) -> Object:
        assert (obj["kind"], subresource) == (CSR, "approval")
        self._write()
        live = self.objects[self._key(obj)]
        approved = [each["type"] for each in obj["status"]["conditions"]] == ["Approved"]
        assert approved
        live["status"] = {"conditions": obj["status"]["conditions"]}
        for key, value in self.judge(base64.b64decode(obj["spec"]["request"])).items():
            live["status"].setdefault(key, value)
            if key == "conditions":
                live["status"][key] = [*obj["status"]["conditions"], *value]
        self.log.append(f"approve {obj['metadata']['name']}")
        if self.others_approve:
            raise Conflict(self.name, "PUT", "/", 409, "Conflict", "somebody wrote it")
        return live

    def patch_merge(self, *where: Any, **more: Any) -> Object:
        self._write()
        return super().patch_merge(*where, **more)


class Site:
    """A control plane that signs what it is asked for, and a member, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-1"}}
        self.writes_left = [-1]
        self.member, self.inside = Api("member m1", system), Api("control plane")
        for each in (self.member, self.inside):
            each.writes_left = self.writes_left
        self.state = state()
        self.said: list[str] = []
        self.outcomes: list[member_join.Outcome] = []
        #: what becomes of a request that is approved: its status
        self.judge: Any = self._sign
        monkeypatch.setattr(member_join, "_credentials", lambda *_: registration.Credentials("t", "t", b"c"))
        monkeypatch.setattr(member_join, "connected", self._connected)
        self.inside.judge = self._judged
        monkeypatch.setattr(Run, "public_url", "https://192.0.2.1:32443")
        monkeypatch.setattr(agent_join, "_PAUSE", 0)

    @contextlib.contextmanager
    def _connected(self, _run: Run, _entry: Any) -> Any:
        yield self.member

    def _judged(self, request_pem: bytes) -> Object:
        status: Object = self.judge(request_pem)
        return status

    def _sign(self, request_pem: bytes) -> Object:
        request = x509.load_pem_x509_csr(request_pem)
        signer = self.state.authorities[CLIENT_SIGNING_CA]
        issuer = x509.load_pem_x509_certificate(signer.certificate)
        key: Any = serialization.load_pem_private_key(signer.key, None)
        start, end = self.now - timedelta(minutes=5), self.now + timedelta(days=365)
        builder = x509.CertificateBuilder(issuer.subject, request.subject, request.public_key(), 1, start, end)
        signed = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False).sign(
            key, hashes.SHA256()
        )
        return {"certificate": base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()}

    @property
    def asked(self) -> int:
        """How many certificates were asked for and approved."""
        return sum(line.startswith("approve ") for line in self.inside.log)

    @property
    def now(self) -> Any:
        return fake_run(document(), FakeCluster("host cluster")).now

    def run(self, entry: Object = M1) -> list[str]:
        """What one run of the step changes, on the member and in the control plane."""
        deployment = document({"endpoint": {"type": "NodePort"}, "members": [M1]})
        deployment["spec"]["members"] = [{**deployment["spec"]["members"][0], **entry}]
        run = fake_run(deployment, FakeCluster("host"), stored=self.state)
        run.say = self.said.append
        run.__dict__["control_plane"] = self.inside
        registered = member_join.registered_clusters(run)
        survey, outcome = member_join.Outcome("m1"), member_join.Outcome("m1")
        self.outcomes.append(survey)
        member_join.survey_member(run, MemberEntry(entry), registered, survey)
        if not member_join.needs_work(MemberEntry(entry), survey, self.state):
            return []
        self.outcomes.append(outcome)
        try:
            member_join.register_member(run, MemberEntry(entry), registered, outcome)
        finally:
            self.state = member_join.recorded(self.state, MemberEntry(entry), outcome.on_member)
        return sorted(f"{change.action} {change.ref}" for change in outcome.changes)

    @property
    def secret(self) -> Object:
        found = self.member.get("v1", "Secret", agent.SECRET, "karmada-cluster")
        assert found
        return found

    def assert_joined(self) -> None:
        who = agent.identity_of(self.secret)
        assert who
        assert (
            agent.reasons_for_a_new_certificate(
                "m1", who, self.state.authorities[CLIENT_SIGNING_CA].certificate, self.now, timedelta(days=365)
            )
            == []
        )
        assert self.inside.names(CSR) == set()
        cluster = self.inside.get(registration.CLUSTER_API, "Cluster", "m1")
        assert cluster
        assert cluster["spec"]["syncMode"] == "Pull"
        assert self.member.names("Deployment") == {"karmada-agent"}
        assert {"karmada-agent", "karmada-controller-manager:karmada-m1"} <= self.member.names("ClusterRoleBinding")


def test_a_second_run_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    assert "created Deployment karmada-cluster/karmada-agent" in site.run()
    site.assert_joined()
    assert site.asked == 1
    assert site.run() == []
    assert site.asked == 1


def test_requests_do_not_grow_with_what_an_agent_has(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    asked = count_requests(monkeypatch)
    assert site.run() == []
    # On top of those for one in mode Push: its two rights and its pods; its namespace, requests and eight rights.
    assert asked.items() >= {"member m1": 9, "control plane": 12}.items()
    asked.clear()
    assert site.run({**M1, "region": "eu"}) == ["changed Cluster m1"]
    # Whoever writes asks once more whom the member follows.
    assert asked.items() >= {"member m1": 9 + 14, "control plane": 12 + 14}.items()


def test_the_key_of_the_administrator_is_not_on_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    who = agent.identity_of(site.secret)
    assert who
    assert pki.describe(who.pair.certificate)[
        "subject"
    ] == "CN=system:karmada:agent:m1,O=system:karmada:agents".replace(",", ", ")


@pytest.mark.parametrize("writes", range(0, 44, 3))
def test_killed_at_any_write_and_run_again_it_comes_to_the_same_end(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    site.writes_left[0] = writes
    with contextlib.suppress(Killed):
        site.run()
    site.writes_left[0] = -1
    site.run()
    site.assert_joined()
    assert site.run() == []


def test_one_that_the_agent_has_renewed_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    who = agent.identity_of(site.secret)
    assert who
    wanted = pki.Certificate("x", "", agent.user("m1"), ("system:karmada:agents",), client=True)
    renewed = pki.issue(wanted, site.state.authorities[CLIENT_SIGNING_CA], "RSA-3072", site.now, timedelta(days=365))
    config = pki_kubeconfig.kubeconfig("other", who.server, who.ca_pem, "m1", renewed, context="other")
    live = site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    live["data"] = {agent.SECRET: base64.b64encode(yaml.safe_dump(config).encode()).decode()}
    assert site.run() == []


def test_a_secret_that_somebody_else_has_changed_is_told_and_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    before = agent.identity_of(site.secret)
    assert before
    live = site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    config = yaml.safe_load(base64.b64decode(live["data"][agent.SECRET]))
    config["users"][0]["user"]["exec"] = {"command": "/bin/sh"}
    live["data"] = {agent.SECRET: base64.b64encode(yaml.safe_dump(config).encode()).decode()}
    site.said.clear()
    assert "changed Secret karmada-cluster/karmada-kubeconfig" in site.run()
    (told,) = [each for each in site.said if "is written anew" in each]
    assert "member m1: its Secret karmada-cluster/karmada-kubeconfig" in told
    assert "has exec, which neither the agent nor the installer writes there" in told
    after = agent.identity_of(site.secret)
    assert after
    # Whoever could write it could read it, too.
    assert after.pair.key != before.pair.key
    assert site.run() == []


def test_another_endpoint_is_told_to_the_agent_that_keeps_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    before = agent.identity_of(site.secret)
    monkeypatch.setattr(Run, "public_url", "https://karmada.example.com")
    changed = site.run()
    assert changed == [
        "changed Deployment karmada-cluster/karmada-agent",
        "changed Secret karmada-cluster/karmada-kubeconfig",
    ]
    after = agent.identity_of(site.secret)
    assert before
    assert after
    assert (after.pair, after.server) == (before.pair, "https://karmada.example.com")
    assert site.asked == 1
    assert site.run() == []


def test_one_whose_identity_was_lost_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    del site.member.objects["v1", "Secret", "karmada-cluster", agent.SECRET]
    assert "created Secret karmada-cluster/karmada-kubeconfig" in site.run()
    site.assert_joined()
    assert site.asked == 2


def test_what_the_document_says_of_a_member_changes_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.run()
    assert site.run({**M1, "region": "eu", "labels": {"tier": "prod"}}) == ["changed Cluster m1"]


def test_one_that_karmada_has_approved_first_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.inside.others_approve = True
    site.run()
    site.assert_joined()
    assert site.asked == 1


@pytest.mark.parametrize(
    "theirs",
    [
        {"request": base64.b64encode(b"for another key").decode()},
        {"signerName": "kubernetes.io/kubelet-serving"},
        {"usages": ["server auth"]},
        {"expirationSeconds": 2**31 - 1},
    ],
    ids=lambda field: next(iter(field)),
)
def test_a_request_that_somebody_else_has_made_under_the_same_name_is_neither_approved_nor_deleted(
    theirs: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents may make requests: one whose name was guessed would get the certificate of another member."""
    site = Site(monkeypatch)
    create = site.inside.create

    def first(obj: Object, **more: Any) -> Object:
        if obj["kind"] != CSR:
            return create(obj, **more)
        spec = {**obj["spec"], **theirs, "username": "system:karmada:agent:m2"}
        site.inside.put({**obj, "spec": spec})
        raise Conflict("control plane", "POST", "/", 409, "AlreadyExists", "already exists")

    monkeypatch.setattr(site.inside, "create", first)
    with pytest.raises(ProblemsError, match=r"has made one of this name \(as system:karmada:agent:m2\)"):
        site.run()
    assert site.asked == 0
    assert len(site.inside.names(CSR)) == 1
    assert site.member.names("Secret") & {agent.SECRET} == set()


def test_nobody_but_the_installer_is_allowed_anything_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token is made by which somebody else could get a certificate."""
    site = Site(monkeypatch)
    site.run()
    assert [line for line in site.inside.log if line.split()[:2] == ["create", "Secret"]] == []


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, "was not signed within"),
        ({"conditions": [{"type": "Denied", "message": "never"}]}, "was refused: never"),
    ],
    ids=["not signed", "denied"],
)
def test_a_request_that_is_not_granted_is_told_and_taken_back(
    status: Object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    site.judge = lambda _request: status
    monkeypatch.setattr(agent_join, "CERTIFICATE_SECONDS", 0.1)
    with pytest.raises(ProblemsError, match=told):
        site.run()
    assert site.inside.names(CSR) == set()
    assert site.member.names("Deployment") == set()


def test_a_leave_that_did_not_come_to_its_end_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing new would be propagated to the member."""
    site = Site(monkeypatch)
    site.run()
    space = site.inside.objects["v1", "Namespace", None, "karmada-es-m1"]
    space["metadata"]["labels"][NO_NEW_WORKS_LABEL] = "true"
    assert site.run() == ["changed Namespace karmada-es-m1"]
    assert NO_NEW_WORKS_LABEL not in site.inside.objects["v1", "Namespace", None, "karmada-es-m1"]["metadata"]["labels"]


ON_HOSTS = {**M1, "agentHosts": ["gw1"]}


def fills_tokens(site: Site) -> None:
    """The member's API server fills the token of the account as soon as its Secret is there."""
    apply = site.member.apply

    def applied(obj: Object, **more: Any) -> Any:
        made = apply(obj, **more)
        if (obj["kind"], obj["metadata"]["name"]) == ("Secret", agent.ACCOUNT):
            site.member.objects["v1", "Secret", "karmada-cluster", agent.ACCOUNT]["data"] = {
                "token": "dA==",
                "ca.crt": "Y2E=",
            }
        return made

    site.member.apply = applied  # type: ignore[method-assign]


def test_an_agent_moves_from_its_pods_to_hosts_and_back_with_the_same_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.run()
    before = agent.identity_of(site.secret)
    moved = site.run(ON_HOSTS)
    assert moved == [
        "created Secret karmada-cluster/karmada-agent-sa",
        "deleted Deployment karmada-cluster/karmada-agent",
    ]
    assert (site.member.names("Deployment"), site.asked) == (set(), 1)
    assert site.state.members["m1"]["agentHosts"] == ["gw1"]
    assert site.run(ON_HOSTS) == []
    assert agent.identity_of(site.secret) == before
    assert site.run() == [
        "created Deployment karmada-cluster/karmada-agent",
        "deleted Secret karmada-cluster/karmada-agent-sa",
    ]
    site.assert_joined()
    assert "agentHosts" not in site.state.members["m1"]
    assert site.run() == []


@pytest.mark.parametrize("writes", range(0, 44, 5))
def test_killed_at_any_write_and_run_again_its_agent_is_one_of_hosts(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.writes_left[0] = writes
    with contextlib.suppress(Killed):
        site.run(ON_HOSTS)
    site.writes_left[0] = -1
    site.run(ON_HOSTS)
    assert site.run(ON_HOSTS) == []
    assert agent.identity_of(site.secret)
    assert (site.member.names("Deployment"), agent.ACCOUNT in site.member.names("Secret")) == (set(), True)


def test_what_hosts_need_of_a_member_is_known_when_it_is_joined_and_when_nothing_is_to_be_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site(monkeypatch)
    fills_tokens(site)
    site.run(ON_HOSTS)
    first, again = site.outcomes
    assert first.agent is None, "there is nothing to look at yet"
    assert again.agent
    assert json.loads(again.agent.kubeconfig)["users"][0]["user"] == {"token": "t"}
    site.outcomes.clear()
    site.run(ON_HOSTS)
    (looked,) = site.outcomes
    assert looked.agent
    assert (looked.agent.kubeconfig, looked.agent.identity) == (again.agent.kubeconfig, again.agent.identity)
    monkeypatch.setattr(Run, "public_url", "https://karmada.example.com")
    site.outcomes.clear()
    site.run(ON_HOSTS)
    assert site.outcomes[-1].agent
    assert site.outcomes[-1].agent.identity != again.agent.identity, "another endpoint takes a restart"


def test_a_token_that_stays_empty_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    monkeypatch.setattr(account_tokens, "FILLED_SECONDS", 0)
    with pytest.raises(ProblemsError, match="did not fill the token of its agent's account"):
        site.run(ON_HOSTS)


@pytest.mark.parametrize(("live", "told"), [("Push", "registered in mode Push"), ("Pull", "by another tool")])
def test_one_that_another_tool_has_registered_is_refused(live: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(monkeypatch)
    site.inside.put(
        {
            "apiVersion": registration.CLUSTER_API,
            "kind": "Cluster",
            "metadata": {"name": "m1"},
            "spec": {"id": "id-1", "syncMode": live},
        }
    )
    with pytest.raises(ProblemsError, match=told):
        site.run()
    assert site.member.log == []
