# SPDX-License-Identifier: Apache-2.0
"""Programs out of a real registry (docker-registry), with TLS, and with each of the two ways it asks who comes."""

from __future__ import annotations

import base64
import ctypes
import ctypes.util
import hashlib
import json
import secrets
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import programs
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.https import Https
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Access, Program
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.registry import Logins, Reference, Registry
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import image_pins, releases, table
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509 as pki
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.handover import Handover
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_observation import HostFacts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Kept, Stored
from ansible_collections.karmada.installer.tests.contract.conftest import binary, free_ports, started, wait_until
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.web_server import (
    RegistryFiles,
    Request,
    Response,
    WebServer,
    authority,
    certificate,
    docker_config,
    link,
    program,
    tar,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

RELEASE = releases.newest()
USER, PASSWORD = "puller", secrets.token_hex(16)
TWO = (table.ETCD, table.KARMADA_SCHEDULER)
#: What hosts have already, where it is only the scheduler that they lack.
OTHER_PROGRAMS = {
    f"{units.PROGRAMS}/{getattr(RELEASE, each.image.release)}/{each.binary.rpartition('/')[2]}": ""
    for each in table.COMPONENTS
    if each is not table.KARMADA_SCHEDULER
}


@dataclass(frozen=True)
class Registries:
    """Two processes that serve the same images: one wants a login, the other a token that costs one."""

    basic: str
    token: str


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registries]:
    directory = tmp_path_factory.mktemp("registry")
    pair = certificate()
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    (directory / "htpasswd").write_text(f"{USER}:{_bcrypt(PASSWORD)}\n")
    signer = pki.new_authority(pki.Authority("tokens", "tokens"), "ECDSA-P256", datetime.now(UTC))
    (directory / "tokens.crt").write_bytes(signer.certificate)
    basic, token = free_ports(2)
    with ExitStack() as running:
        issuer = running.enter_context(WebServer(lambda request: _issue(request, signer)))
        ways = {
            basic: {"htpasswd": {"realm": "registry", "path": str(directory / "htpasswd")}},
            token: {
                "token": {
                    "realm": f"{issuer.url}/token",
                    "service": "registry",
                    "issuer": "test",
                    "rootcertbundle": str(directory / "tokens.crt"),
                }
            },
        }
        for port, auth in ways.items():
            _serve(running, directory, port, auth)
        found = Registries(f"127.0.0.1:{basic}", f"127.0.0.1:{token}")
        _fill(found.basic)
        yield found


def _serve(running: ExitStack, directory: Path, port: int, auth: dict[str, Any]) -> None:
    configuration = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
        "auth": auth,
        "http": {
            "addr": f"127.0.0.1:{port}",
            "secret": secrets.token_hex(16),
            "tls": {"certificate": str(directory / "tls.crt"), "key": str(directory / "tls.key")},
        },
    }
    # JSON is YAML, too.
    file = directory / f"{port}.yml"
    file.write_text(json.dumps(configuration))
    process = started(running, directory / f"{port}.log", [_docker_registry(directory), "serve", str(file)])
    wait_until(lambda: _answers(port), (process,), directory)


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"https://127.0.0.1:{port}/v2/", timeout=30, context=_trusting())
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 401
    except OSError:
        return False
    return True


def _docker_registry(directory: Path) -> str:
    """The program: installed, or unpacked from Debian's package, which takes no more than its download."""
    found = shutil.which("docker-registry")
    unpacked = directory / "package" / "usr/bin/docker-registry"
    if found or unpacked.exists():
        return found or str(unpacked)
    commands = (["apt-get", "download", "docker-registry"], ["sh", "-c", "dpkg-deb -x docker-registry_*.deb package"])
    for command in commands:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"docker-registry is not installed, and Debian's package cannot be had: {done.stderr}")
    return str(unpacked)


def _bcrypt(password: str) -> str:
    """The one kind of hash that the registry's login file may have, made by the system's library."""
    library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    found = library.crypt(password.encode(), f"$2b$05${secrets.token_hex(11)}".encode())
    if not found or not found.startswith(b"$2b$05$"):
        raise RuntimeError("the system's crypt library knows no bcrypt")
    return str(found.decode())


def _issue(request: Request, signer: KeyPair) -> Response:
    """What a registry's token server does: a signed statement of what the bearer may do, for those with a login."""
    if request.headers.get("Authorization") != _basic():
        return Response(401)
    kind, name, actions = request.query["scope"].split(":")
    now = int(time.time())
    access = [{"type": kind, "name": name, "actions": actions.split(",")}]
    claims = {"iss": "test", "sub": USER, "aud": request.query["service"], "access": access}
    claims |= {"exp": now + 300, "nbf": now - 60, "iat": now, "jti": secrets.token_hex(8)}
    der = x509.load_pem_x509_certificate(signer.certificate).public_bytes(serialization.Encoding.DER)
    header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(der).decode()]}
    signed = b".".join(_base64url(json.dumps(each).encode()) for each in (header, claims))
    key = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    numbers = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    signature = b"".join(number.to_bytes(32, "big") for number in numbers)
    token = b".".join((signed, _base64url(signature))).decode()
    return Response(content=json.dumps({"token": token}).encode())


def _base64url(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _basic() -> str:
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def _trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority())


def _fill(host: str) -> None:
    """etcd's real program in an image like a distribution's, with links and a whiteout; and a made-up scheduler."""
    etcd = Path(binary("etcd", "TEST_ETCD")).read_bytes()
    images = RegistryFiles()
    layers = [
        tar(link("usr/local", "../opt"), ("opt/bin/etcd-old", b"#!/bin/sh\n"), link("opt/bin/etcd", "etcd-old")),
        tar(("opt/bin/.wh.etcd-old", b""), ("opt/etcd/bin/etcd", etcd), link("opt/bin/etcd", "/opt/etcd/bin/etcd")),
        tar(("etc/motd", b"last"), compressed=False),
    ]
    images.image("coreos/etcd", RELEASE.etcd, {"amd64": layers, "arm64": [tar(("usr/local/bin/etcd", program()))]})
    scheduler = tar(("bin/karmada-scheduler", program("scheduler", 183)))
    images.image("karmada/karmada-scheduler", RELEASE.karmada, {"arm64": [scheduler]}, index=False)
    _push(host, images)


def _push(host: str, images: RegistryFiles) -> None:
    # What a manifest names has to be there before it: blobs, then manifests by digest, then tags.
    order = sorted(images.paths.items(), key=lambda each: ("/manifests/" in each[0], _is_index(each[1][1]), each[0]))
    for path, (content, kind) in order:
        if "/blobs/" in path:
            repository, digest = path.removeprefix("/v2/").split("/blobs/")
            upload = _send(f"https://{host}/v2/{repository}/blobs/uploads/", "POST", b"", "")
            separator = "&" if urlsplit(upload).query else "?"
            _send(f"{upload}{separator}digest={digest}", "PUT", content, "application/octet-stream")
        else:
            _send(f"https://{host}{path}", "PUT", content, kind)


def _is_index(kind: str) -> bool:
    return kind.endswith("index.v1+json")


def _send(url: str, method: str, content: bytes, kind: str) -> str:
    """One write; returns the Location that is answered."""
    headers = {"Authorization": _basic(), **({"Content-Type": kind} if kind else {})}
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310 - the address is our own
    with urllib.request.urlopen(request, timeout=300, context=_trusting()) as answer:  # noqa: S310
        return str(answer.headers["Location"])


def bring(
    host: str, cache: Path, login: str = f"{USER}:{PASSWORD}", architecture: str = "amd64", trusted: str = ""
) -> dict[str, Program]:
    registries = {"karmadaRegistry": f"{host}/karmada", "etcdRegistry": f"{host}/coreos", "kubeRegistry": host}
    spec = samples.spec_of({"images": registries})
    access = _access(host, login, trusted)
    wanted = TWO[:1] if architecture == "amd64" else TWO[1:]
    return programs.programs(RELEASE, architecture, wanted, spec, Source("Image"), cache, access)


def _access(host: str, login: str = f"{USER}:{PASSWORD}", trusted: str = "") -> Access:
    return Access(Https(trusted or authority()), Logins.read({"pull": docker_config({host: login})}))


class Hosts:
    """Plain hosts that need the program of the scheduler, and the steps of the runs that bring it there."""

    def __init__(self, folder: Path, registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.image = f"{registry}/moving/karmada-scheduler"
        self.name = f"{self.image}:v1"
        self.stored = Stored()
        self._runs = 0
        monkeypatch.setattr(programs, "access_to", lambda _source: _access(registry))
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def run(self, *machines: str, tag: str = "v1", confirmed: str = "") -> Run:
        """A run of its own, on hosts of these machines. What an earlier run has written is on them."""
        self._runs += 1
        scheduler = {"imageRepository": self.image, "imageTag": tag}
        hosts = [{"name": "cp1", "address": "192.0.2.1", "roles": ["etcd", "controlPlane"]}]
        hosts += [{"name": f"cp{each}", "address": f"192.0.2.{each}", "roles": ["controlPlane"]} for each in (2, 3)]
        document = samples.document(
            {
                "mode": "Binary",
                "hosts": hosts[: len(machines)],
                "endpoint": {"type": "External", "host": "karmada.example.com"},
                "components": {"karmadaScheduler": scheduler},
            }
        )
        handover = Handover(self.folder / f"run{self._runs}")
        common: dict[str, Any] = {"operation": "install", "holder": "me", "check": False, "say": print}
        for host, machine in zip(hosts, machines, strict=False):
            facts = HostFacts(machine)
            handover.note(
                host["name"], stored=Kept.of(self.stored.plain), files={}, facts=facts, programs=OTHER_PROGRAMS
            )
        found = Run(
            document,
            Connection(),
            **common,
            place=partial(OnHosts, handover=handover),
        )
        found.confirmed_images = image_pins.confirmed({"karmada_confirm_images": confirmed})
        return found

    def install(self, *machines: str, tag: str = "v1", confirmed: str = "") -> set[bytes]:
        """Preflight, then what the steps before the first change of a host do; returns what hosts would be sent."""
        run = self.run(*machines, tag=tag, confirmed=confirmed)
        if found := host_programs.problems(run, run.hosts):
            raise ProblemsError(found)
        run.save(run.state)
        lacking = host_programs.fetch(run)
        run.begin()
        self.stored = run.store.stored
        assert set(lacking) == set(run.hosts)
        return {Path(each.file).read_bytes() for paths in lacking.values() for each in paths.values()}

    def push(self, word: str) -> str:
        """Have the tag lead to an image with this in its programs; returns its digest."""
        images = RegistryFiles()
        layers = {
            name: [tar(("bin/karmada-scheduler", program(word, machine)))]
            for name, machine in programs.MACHINES.items()
        }
        host, _, repository = self.image.partition("/")
        images.image(repository, "v1", layers)
        _push(host, images)
        return images.digest(repository, "v1")


@pytest.mark.parametrize("way", ["basic", "token"])
def test_the_program_comes_out_and_runs(registries: Registries, tmp_path: Path, way: str) -> None:
    found = bring(getattr(registries, way), tmp_path)["etcd"]
    original = Path(binary("etcd", "TEST_ETCD")).read_bytes()
    assert found.sha256 == hashlib.sha256(original).hexdigest()
    runnable = tmp_path / "etcd"
    shutil.copyfile(found.path, runnable)
    runnable.chmod(0o755)
    answer = subprocess.run([runnable, "--version"], capture_output=True, text=True, check=True)
    assert f"etcd Version: {RELEASE.etcd.removeprefix('v')}" in answer.stdout
    assert bring(getattr(registries, way), tmp_path)["etcd"] == found


def test_an_image_for_one_architecture(registries: Registries, tmp_path: Path) -> None:
    found = bring(registries.basic, tmp_path, architecture="arm64")["karmada-scheduler"]
    assert found.path.read_bytes() == program("scheduler", 183)


@pytest.mark.parametrize("way", ["basic", "token"])
def test_a_wrong_login_is_told(registries: Registries, tmp_path: Path, way: str) -> None:
    with pytest.raises(ProblemsError, match=r"401 Unauthorized. Log in to this registry where Ansible runs"):
        bring(getattr(registries, way), tmp_path, login=f"{USER}:wrong")


def test_a_tag_that_is_not_there(registries: Registries, tmp_path: Path) -> None:
    spec = samples.spec_of({"images": {"karmadaRegistry": f"{registries.basic}/nowhere"}})
    logins = Logins.read({"pull": docker_config({registries.basic: f"{USER}:{PASSWORD}"})})
    found = programs.check(
        RELEASE, "amd64", TWO[1:], spec, Source("Image"), tmp_path, Access(Https(authority()), logins)
    )
    (problem,) = found
    assert "404" in problem.what
    assert problem.where == f"{registries.basic}/nowhere/karmada-scheduler:{RELEASE.karmada}"


def test_a_registry_with_another_authority(registries: Registries, tmp_path: Path) -> None:
    other = pki.new_authority(pki.Authority("other", "other"), "ECDSA-P256", datetime.now(UTC), timedelta(days=1))
    with pytest.raises(ProblemsError, match="certificate verify failed"):
        bring(registries.basic, tmp_path, trusted=other.certificate.decode())


def test_a_tag_is_held_to_what_it_led_to_first_until_another_is_accepted_by_name(
    registries: Registries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path, registries.basic, monkeypatch)
    first = hosts.push("first")
    assert hosts.install("x86_64", "aarch64") == {program("first", each) for each in programs.MACHINES.values()}
    recorded = hosts.stored.state()
    assert recorded
    assert recorded.digests == {hosts.name: first}, "one for both architectures: that of the index"
    # A host that comes later gets what the others have, and needs no second look at the record.
    assert hosts.install("x86_64", "aarch64", "x86_64") == {
        program("first", each) for each in programs.MACHINES.values()
    }

    second = hosts.push("second")
    before = hosts.stored
    with pytest.raises(ProblemsError) as refused:
        hosts.install("x86_64", "aarch64", "x86_64")
    (problem,) = set(refused.value.problems)
    assert problem.where == hosts.name
    assert problem.what == f"its tag leads to {second} now, and led to {first} when it was first used here"
    assert hosts.stored == before
    # Who wants the former one gets it by its digest, which the registry still has.
    assert hosts.install("x86_64", tag=f"v1@{first}") == {program("first", 62)}

    confirmed = problem.remedy.partition("karmada_confirm_images=")[2].split()[0]
    assert hosts.install("x86_64", confirmed=confirmed) == {program("second", 62)}
    accepted = hosts.stored.state()
    assert accepted
    assert accepted.digests == {hosts.name: second}
    assert hosts.install("aarch64") == {program("second", 183)}


def test_a_tag_leads_to_the_digest_of_the_index_which_is_one_for_all_architectures(
    registries: Registries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hosts = Hosts(tmp_path, registries.token, monkeypatch)
    writer = Hosts(tmp_path, registries.basic, monkeypatch)
    digest = writer.push("published")
    registry = Registry(Https(authority()), _access(registries.token).logins)
    assert registry.digest(Reference.parse(hosts.name)) == digest
    pinned = replace(Reference.parse(hosts.name), digest=digest)
    each = {registry.manifest(pinned, architecture).digest for architecture in programs.MACHINES}
    assert len(each) == 2
    assert digest not in each
