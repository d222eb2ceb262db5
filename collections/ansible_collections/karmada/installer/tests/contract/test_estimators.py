# SPDX-License-Identifier: Apache-2.0
"""The estimator itself: with the flags that we render and the account that joining makes for it, it sees its member and
serves, and only those who prove themselves.
"""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import Component, Names
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import files as pki_files
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.contract.conftest import ApiServer
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    EVERYTHING,
    OWNER,
    RUNNING,
    Rendered,
    rendered,
)

(ESTIMATOR,) = (component for component in RUNNING if component.member)
MEMBER = ESTIMATOR.member
SCHEDULER = BY_NAME["karmada-scheduler"]
#: What a client of HTTP/2 says first: the preface, and empty settings. A server answers with its own.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_ACCOUNTS = "/api/v1/namespaces/karmada-cluster/serviceaccounts"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": _ACCOUNTS,
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def token_on_member(server: ApiServer) -> str:
    """Of the account of the estimator, asked for by hand: there is no controller here that fills its Secret."""
    for each in (
        registration.namespace_on_member(OWNER),
        *registration.estimator_objects(MEMBER, OWNER, "karmada/prod"),
    ):
        if each["kind"] in _PATHS:
            status, answer = server.request("POST", _PATHS[each["kind"]], each)
            assert status in (201, 409), answer
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    status, answer = server.request("POST", f"{_ACCOUNTS}/{registration.estimator_account(MEMBER)}/token", request)
    assert status == 201, answer
    return str(answer["status"]["token"])


def access(server: ApiServer, token: str) -> bytes:
    """The kubeconfig that we make of what the control plane knows of the member."""
    cluster = {"metadata": {"name": MEMBER}, "spec": {"apiEndpoint": server.url}}
    data = {"caBundle": base64.b64encode(server.ca.read_bytes()), "token": base64.b64encode(token.encode())}
    return registration.estimator_access(cluster, {"data": {key: value.decode() for key, value in data.items()}})


class Serving:
    """An estimator with our files, and with ports that are free here."""

    def __init__(self, server: ApiServer, folder: Path, processes: ExitStack) -> None:
        self.found = rendered(EVERYTHING)
        self.found.now = datetime.now(UTC)
        self.found.layout = replace(
            self.found.layout,
            base=str(folder),
            bind_address="127.0.0.1",
            server_names={
                name: Names(dns=("localhost",), ips=("127.0.0.1",)) for name in self.found.layout.server_names
            },
        )
        ports = conftest.free_ports(len(ESTIMATOR.ports))
        component = replace(ESTIMATOR, ports=dict(zip(ESTIMATOR.ports, ports, strict=True)))
        self.port = component.ports["grpc"]
        material = replace(self.found.material, member_access={MEMBER: access(server, token_on_member(server))})
        self._write(folder, component, material)
        self._write(folder / "scheduler", SCHEDULER, material)
        command = [conftest.binary("karmada-scheduler-estimator", "TEST_KARMADA_SCHEDULER_ESTIMATOR")]
        command += component.flags(self.found.spec, self.found.layout)
        process = conftest.started(processes, folder / "estimator.log", command)
        conftest.wait_until(self.is_open, (process,), folder)

    def _write(self, folder: Path, component: Component, material: pki_files.Material) -> None:
        for files in component.file_sets:
            where = folder / files.directory
            where.mkdir(parents=True)
            for name, content in pki_files.contents(files, material, self.found.layout).items():
                (where / name).write_bytes(content)
        self.scheduler = folder / "config"

    def is_open(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30):
                return True
        except OSError:
            return False

    def answer(self, identity: Path | None, name: str = "localhost") -> bytes:
        """What it says to who greets it with this identity, and wants to talk to somebody of this name."""
        tls = ssl.create_default_context(cafile=self.scheduler / "ca.crt")
        tls.set_alpn_protocols(["h2"])
        if identity:
            tls.load_cert_chain(identity / "tls.crt", identity / "tls.key")
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=300) as plain,
            tls.wrap_socket(plain, server_hostname=name) as connection,
        ):
            connection.sendall(HELLO)
            return connection.recv(9)


@pytest.fixture(scope="module")
def serving(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with ExitStack() as processes:
        yield Serving(api_server, tmp_path_factory.mktemp("estimator"), processes)


def test_it_sees_its_member_and_serves_the_scheduler(serving: Serving) -> None:
    """Its port opens only when it has listed everything that it watches, so its rights are enough."""
    settings = serving.answer(serving.scheduler)
    assert settings[3] == 4, "a frame with the settings of HTTP/2"


def is_refused(serving: Serving, identity: Path | None) -> bool:
    """In TLS 1.3 who is not let in learns of it when it reads."""
    try:
        return serving.answer(identity) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_who_does_not_prove_itself_is_not_served(serving: Serving, tmp_path: Path) -> None:
    assert is_refused(serving, None)
    for name, content in pki_files.certificate_files("karmada-scheduler-identity", other(rendered())).items():
        (tmp_path / name).write_bytes(content)
    assert is_refused(serving, tmp_path)
    assert not is_refused(serving, serving.scheduler)


def other(found: Rendered) -> pki_files.Material:
    """The identities of another control plane: the leaf of the front proxy, which another authority has issued."""
    leaves = found.material.leaves
    return replace(found.material, leaves={**leaves, "karmada-scheduler-identity": leaves["front-proxy-client"]})


def test_another_name_than_that_of_its_certificate_is_refused_by_who_asks(serving: Serving) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        serving.answer(serving.scheduler, "estimator.example.com")


def test_its_account_may_look_at_pods_and_nodes_and_at_no_secret(api_server: ApiServer) -> None:
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    user = f"system:serviceaccount:karmada-cluster:{registration.estimator_account(MEMBER)}"
    token_on_member(api_server)

    def may(verb: str, resource: str) -> bool:
        body = {**review, "spec": {"user": user, "resourceAttributes": {"verb": verb, "resource": resource}}}
        status, answer = api_server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    assert may("watch", "nodes")
    assert may("list", "pods")
    assert not may("get", "secrets")
    assert not may("delete", "pods")
