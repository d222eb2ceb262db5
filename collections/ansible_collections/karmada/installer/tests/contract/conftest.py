# SPDX-License-Identifier: Apache-2.0
"""A real kube-apiserver with a real etcd, for as long as the tests run.

Both listen on loopback only, keep everything in a temporary directory, and die with the test process however that ends.
Their binaries are the lab's (``lab/lab artifacts path NAME``); TEST_ETCD and TEST_KUBE_APISERVER name others.
"""

from __future__ import annotations

import base64
import ctypes
import datetime
import functools
import ipaddress
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CHECKOUT = Path(__file__).resolve().parents[6]
#: Much longer than anything takes to start on a busy machine.
START_SECONDS = 600
#: Below those that the kernel gives to connections, which come and go while something starts.
PORTS = range(10_000, 30_000)
PR_SET_PDEATHSIG = 1

_handed_out: set[int] = set()
_libc = ctypes.CDLL(None, use_errno=True)


@functools.cache
def environment_of(requirements: str) -> Path:
    """Virtual environment with what this file of the checkout names, which is made when it is first needed."""
    asked = {**os.environ, "REQUIREMENTS": requirements}
    done = subprocess.run([CHECKOUT / ".ci/venv"], env=asked, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class ApiServer:
    """Where the server is and how to come in, as cluster administrator."""

    url: str
    directory: Path
    kubeconfig: Path
    ca: Path
    client_certificate: Path
    client_key: Path
    etcd_url: str
    _tls: ssl.SSLContext = field(repr=False)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        timeout: float = 300,
        accept: str = "application/json",
    ) -> tuple[int, Any]:
        """Status code and decoded answer. Made of the standard library only: our own client is what tests are about."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - the address is our own
            self.url + path, data, {"Content-Type": content_type, "Accept": accept}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self._tls) as response:  # noqa: S310
                return response.status, _decoded(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def kubeconfig_for_secret(self) -> str:
        """Its kubeconfig with the content of its files inside: what a Secret holds reaches no file of this machine."""
        config = _kubeconfig(self)
        for each in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
            for field_name in ("certificate-authority", "client-certificate", "client-key"):
                if field_name in each:
                    content = Path(each.pop(field_name)).read_bytes()
                    each[f"{field_name}-data"] = base64.b64encode(content).decode()
        return yaml.safe_dump(config)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    directory = tmp_path_factory.mktemp("api-server")
    with running_api_server(directory) as server:
        yield server


@pytest.fixture
def empty_api_server(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server of one test with nothing in it: what is there afterwards, the test has made."""
    directory = tmp_path / "server"
    directory.mkdir()
    with running_api_server(directory) as server:
        yield server


@pytest.fixture
def cluster(api_server: Any) -> Iterator[Cluster]:
    """Our own client of it."""
    with Cluster.from_kubeconfig(str(api_server.kubeconfig), name="host cluster") as found:
        yield found


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """Name of a namespace in which there is nothing yet."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@contextmanager
def running_api_server(directory: Path, *flags: str, client_authority: Path | None = None) -> Iterator[ApiServer]:
    """The pair of processes; for tests that need one of their own, to stop it or to fill it, or with more flags.

    Clients with a certificate of ``client_authority`` are let in, too.
    """
    certificates = Certificates(directory)
    clients = directory / "clients.crt"
    clients.write_bytes(
        certificates.file("ca.crt").read_bytes() + (client_authority.read_bytes() if client_authority else b"")
    )
    etcd_client, etcd_peer, port = free_ports(3)
    etcd_url = f"http://127.0.0.1:{etcd_client}"
    url = f"https://127.0.0.1:{port}"
    with ExitStack() as processes:
        etcd = started(
            processes,
            directory / "etcd.log",
            [
                binary("etcd", "TEST_ETCD"),
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls=http://127.0.0.1:{etcd_peer}",
                # nothing here has to survive a power cut
                "--unsafe-no-fsync",
            ],
        )
        apiserver = started(
            processes,
            directory / "kube-apiserver.log",
            [
                binary("kube-apiserver", "TEST_KUBE_APISERVER"),
                f"--etcd-servers={etcd_url}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={directory}",
                f"--tls-cert-file={certificates.file('server.crt')}",
                f"--tls-private-key-file={certificates.file('server.key')}",
                f"--client-ca-file={clients}",
                f"--service-account-key-file={certificates.file('server.key')}",
                f"--service-account-signing-key-file={certificates.file('server.key')}",
                f"--service-account-issuer={url}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                # as everywhere: who may run what is for admission to say
                "--allow-privileged=true",
                # there is no controller manager that would make service accounts
                "--disable-admission-plugins=ServiceAccount",
                *flags,
            ],
        )
        tls = ssl.create_default_context(cafile=certificates.file("ca.crt"))
        tls.load_cert_chain(certificates.file("admin.crt"), certificates.file("admin.key"))
        server = ApiServer(
            url=url,
            directory=directory,
            kubeconfig=directory / "kubeconfig",
            ca=certificates.file("ca.crt"),
            client_certificate=certificates.file("admin.crt"),
            client_key=certificates.file("admin.key"),
            etcd_url=etcd_url,
            _tls=tls,
        )
        server.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server)), encoding="utf-8")
        server.kubeconfig.chmod(0o600)
        wait_until(lambda: _is_ready(server), (etcd, apiserver), directory)
        yield server


def _kubeconfig(server: ApiServer) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": {"server": server.url, "certificate-authority": str(server.ca)}}],
        "users": [
            {
                "name": "admin",
                "user": {
                    "client-certificate": str(server.client_certificate),
                    "client-key": str(server.client_key),
                },
            }
        ],
    }


def _is_ready(server: ApiServer) -> bool:
    try:
        return (
            server.request("GET", "/readyz")[0] == 200 and server.request("GET", "/api/v1/namespaces/default")[0] == 200
        )
    except OSError:
        return False


def wait_until(ready: Callable[[], bool], processes: tuple[subprocess.Popen[bytes], ...], directory: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        dead = [process for process in processes if process.poll() is not None]
        if dead or time.monotonic() > deadline:
            tails = "\n".join(f"--- {log}\n{log.read_text()[-3000:]}" for log in sorted(directory.glob("*.log")))
            reason = f"{dead[0].args!r:.60} ended: {dead[0].returncode}" if dead else f"no answer in {START_SECONDS} s"
            raise RuntimeError(f"it did not start: {reason}\n{tails}")
        time.sleep(0.1)


def started(stack: ExitStack, log: Path, command: list[str]) -> subprocess.Popen[bytes]:
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - the one call it makes is safe after fork
        # what proxies or kubeconfigs the developer has must not matter
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(log.parent)},
    )
    stack.callback(_stop, process)
    return process


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, each handed out once: whoever got one may not have begun to listen yet."""
    with ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            port = random.choice(PORTS)
            listener = sockets.enter_context(socket.socket())
            with suppress(OSError):
                listener.bind(("127.0.0.1", port))
                if port not in _handed_out:
                    _handed_out.add(port)
                    ports.append(port)
        return ports


def binary(name: str, variable: str, *options: str) -> str:
    """Path of a program of the lab, or the one that the environment names; ``options`` choose its version."""
    if named := os.environ.get(variable):
        return named
    answer = subprocess.run(
        [sys.executable, CHECKOUT / "lab" / "lab", "artifacts", "path", name, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(f"the lab has no {name}; name one with {variable}. It said:\n{answer.stderr[-3000:]}")
    return answer.stdout.strip().splitlines()[-1]


class Certificates:
    """An authority, a server certificate for loopback and one of a cluster administrator."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
        ca = (
            self._builder(self._ca_name, self._ca_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._ca_key, hashes.SHA256())
        )
        self.file("ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        loopback = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        self._issue("server", "kube-apiserver", ExtendedKeyUsageOID.SERVER_AUTH, loopback)
        self._issue("admin", "admin", ExtendedKeyUsageOID.CLIENT_AUTH, organization="system:masters")

    def file(self, name: str) -> Path:
        return self._directory / name

    def _issue(
        self,
        file: str,
        common_name: str,
        usage: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
        organization: str | None = None,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = self._builder(x509.Name(attributes), key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if names:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._ca_key, hashes.SHA256())
        self.file(f"{file}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file = self.file(f"{file}.key")
        key_file.touch(0o600)
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                # the form that kube-apiserver takes for its service account key, too
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=12))
        )
