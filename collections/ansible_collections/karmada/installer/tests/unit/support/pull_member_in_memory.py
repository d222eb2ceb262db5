# SPDX-License-Identifier: Apache-2.0
"""A member in mode Pull and a control plane that signs what it is asked for, in memory.

A run ends at the write that a test names.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import CLIENT_SIGNING_CA
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent, agent_join, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
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
    def _connected(self, _run: Run, _entry: Any, _patience: Any = None) -> Any:
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
