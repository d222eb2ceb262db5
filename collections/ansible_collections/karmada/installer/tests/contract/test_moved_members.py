# SPDX-License-Identifier: Apache-2.0
"""A member of a control plane that moved, at a real API server: who was left is refused, and who came is not."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import Claim
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unauthorized
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import from_parts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.members import epoch, join, registration, service_types
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer, running_api_server
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

#: An API server remembers for ten seconds that a token was good.
SECONDS = 40.0
ANNOTATION = "kubernetes.io/service-account.name"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_api_server(tmp_path_factory.mktemp("moved")) as found:
        yield found


@pytest.fixture
def member(server: ApiServer) -> Iterator[Cluster]:
    """The member with an administrator's rights, and with tokens in the Secrets of accounts, as clusters have them."""
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="member m1") as found:
        ended = threading.Event()
        filling = threading.Thread(target=_fill, args=(server, ended))
        filling.start()
        yield found
        ended.set()
        filling.join()


def _fill(server: ApiServer, ended: threading.Event) -> None:
    with Cluster.from_kubeconfig(str(server.kubeconfig), name="token controller") as cluster:
        while not ended.wait(0.1):
            for each in cluster.list("v1", "Secret", MEMBER_NAMESPACE):
                name = (each["metadata"].get("annotations") or {}).get(ANNOTATION)
                account = cluster.get("v1", "ServiceAccount", name, MEMBER_NAMESPACE) if name else None
                if account and not (each.get("data") or {}).get("token"):
                    data = {"token": _token(server, each, account).encode(), "ca.crt": server.ca.read_bytes()}
                    patch = {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}}
                    cluster.patch_merge("v1", "Secret", each["metadata"]["name"], MEMBER_NAMESPACE, patch)


def _token(server: ApiServer, secret: Any, account: Any) -> str:
    """Token as kube-controller-manager makes it for a Secret: good as long as that and the account are there."""
    name = account["metadata"]["name"]
    claims = {
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": MEMBER_NAMESPACE,
        "kubernetes.io/serviceaccount/secret.name": secret["metadata"]["name"],
        "kubernetes.io/serviceaccount/service-account.name": name,
        "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
        "sub": f"system:serviceaccount:{MEMBER_NAMESPACE}:{name}",
        # Of which no two are the same.
        "jti": secret["metadata"]["uid"],
    }
    signed = ".".join(_encoded(json.dumps(each).encode()) for each in ({"alg": "ES256", "typ": "JWT"}, claims))
    key = serialization.load_pem_private_key((server.directory / "server.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    pair = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_encoded(b''.join(number.to_bytes(32, 'big') for number in pair))}"


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Place:
    """One place of the control plane, with what it has inside and knows of the member."""

    def __init__(self, state: State, monkeypatch: pytest.MonkeyPatch, member: Cluster, namespace: str) -> None:
        @contextmanager
        def connected(*_: Any) -> Iterator[Cluster]:
            yield member

        monkeypatch.setattr(join, "connected", connected)
        monkeypatch.setattr(service_types, "step", lambda *_: Step())
        document = samples.document({"members": [{"name": "m1", "secretRef": {"name": "m1"}}]}, namespace=namespace)
        self.run = fake_run(document, FakeCluster("host cluster"), stored=state)
        self.inside = FakeCluster("control plane")
        self.run.__dict__["control_plane"] = self.inside

    def join(self) -> join.Outcome:
        (entry,) = self.run.spec.members
        outcome = join.Outcome("m1")
        live = self.inside.get(registration.CLUSTER_API, "Cluster", "m1")
        join.register_member(self.run, entry, Clusters({"m1": live} if live else {}), outcome)
        return outcome

    @property
    def token(self) -> str:
        secret = self.inside.get("v1", "Secret", "m1", MEMBER_NAMESPACE)
        assert secret is not None
        return base64.b64decode(secret["data"]["token"]).decode()


def is_refused(server: ApiServer, token: str) -> bool:
    """Return whether a write with this token is refused, as one that nobody knows any more."""
    with Cluster(from_parts(server.url, ca_pem=server.ca.read_text(), token=token), "member m1") as found:
        try:
            metadata = {"generateName": "written-", "namespace": "default"}
            found.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        except Unauthorized:
            return True
    return False


def test_whoever_was_left_is_refused_from_then_on(
    server: ApiServer, member: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Place(samples.state(), monkeypatch, member, "karmada-prod")
    left.join()
    before = left.token
    assert not is_refused(server, before)

    came = Place(replace(samples.state(), claim=Claim(1, "aa")), monkeypatch, member, "karmada-next")
    came.join()
    assert came.token != before
    assert not is_refused(server, came.token)
    deadline = time.monotonic() + SECONDS
    while not is_refused(server, before):
        assert time.monotonic() < deadline, "what was left can still write"
        time.sleep(0.5)

    # Its runs see the mark, and write nothing.
    with pytest.raises(ProblemsError, match="karmada-next/prod") as moved:
        left.join()
    assert moved.value.problems[0].reason is Reason.MOVED
    assert not is_refused(server, came.token)

    # Once more there is nothing to do, and the token is the same one.
    known = came.token
    assert [each.action for each in came.join().on_member if each.action != "unchanged"] == []
    assert came.token == known

    # A second place that took over the same backup comes too late.
    with pytest.raises(ProblemsError, match="this place took it over as well"):
        Place(replace(samples.state(), claim=Claim(1, "bb")), monkeypatch, member, "karmada-third").join()


def test_a_run_that_was_killed_when_the_tokens_were_gone_is_gone_on_with(
    server: ApiServer, member: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = Place(replace(samples.state(), claim=Claim(2, "cc")), monkeypatch, member, "karmada-next")
    steps = list(epoch.fence(came.run.state, "m1", member))
    for ref, uid in steps[0].delete:
        member.delete(*ref, uid=uid)
    came.join()
    assert not is_refused(server, came.token)
    account = member.get(*epoch.account("m1"))
    assert account is not None
    assert account["metadata"]["annotations"][registration.CLAIM_ANNOTATION] == "2.cc"
