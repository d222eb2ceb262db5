# SPDX-License-Identifier: Apache-2.0
"""What we render against the programs themselves: every flag is known, and etcd starts with our file."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    etcd_configuration,
    known_flags,
    releases,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD, PROGRAMS
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import (
    Component,
    EtcdMember,
    KeyPair,
    Layout,
    Names,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import files as pki_files
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.unit.support.samples import Rendered, rendered, state

BINARIES = {component.name: known_flags.program(component) for component in PROGRAMS}


def binary(name: str) -> str:
    return conftest.binary(name, f"TEST_{name.upper().replace('-', '_')}")


_SPEC = importlib.util.spec_from_file_location("record", conftest.CHECKOUT / "tools" / "record_program_flags.py")
assert _SPEC
assert _SPEC.loader
record = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(record)

#: The programs of older releases take minutes to build: `make test-full` asks for them.
JUDGED = releases.RELEASES if os.environ.get("TEST_ALL_RELEASES") else (releases.newest(),)


@pytest.mark.parametrize("component", PROGRAMS, ids=lambda each: each.name)
@pytest.mark.parametrize("release", JUDGED, ids=lambda each: each.karmada)
def test_the_record_is_what_the_program_says(release: releases.Release, component: Component) -> None:
    """Unit tests judge by the record, for every release, what is rendered and what users write."""
    name = BINARIES[component.name]
    program = binary(name) if release == releases.newest() else record.program_of(name, release)
    version = getattr(release, component.image.release)
    assert record.record_of(program) == json.loads(known_flags.FILE.read_text())[name][version], "make flags"


def test_a_program_refuses_a_flag_that_is_not_on_record() -> None:
    release, component = releases.newest(), BY_NAME["karmada-controller-manager"]
    assert "cluster-lease-duration" not in known_flags.flags(component, release)
    command = [binary(BINARIES[component.name]), "--cluster-lease-duration=40s"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "unknown flag: --cluster-lease-duration" in answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("name", "stops", "after"),
    [
        # without the addresses of etcd it gives up as soon as it has looked at the gates
        ("kube-apiserver", "--cert-dir=.", "--etcd-servers must be specified"),
        ("karmada-scheduler", "--not-a-flag", "unknown flag: --not-a-flag"),
    ],
)
def test_a_program_refuses_a_gate_that_is_not_on_record(name: str, stops: str, after: str, tmp_path: Path) -> None:
    """So it is right to refuse it before the first change. One that is on record gets past the flags."""

    def says(gate: str) -> str:
        command = [binary(name), f"--feature-gates={gate}=true", stops]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
        return answer.stdout + answer.stderr

    assert "unrecognized feature gate: Nonsense" in says("Nonsense")
    assert after in says("AllBeta")


@pytest.mark.parametrize("component", [each for each in PROGRAMS if each.stops_with], ids=lambda each: each.name)
def test_a_program_that_is_told_to_stop_ends_as_its_unit_is_told(component: Component, tmp_path: Path) -> None:
    """Before it leads as well as after that: systemd would call it failed."""
    nobody, health, metrics = conftest.free_ports(3)
    cluster = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{nobody}"}}
    context = {"name": "x", "context": {"cluster": "x", "user": ""}}
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "program.log"
    kubeconfig.write_text(yaml.safe_dump({"clusters": [cluster], "contexts": [context], "current-context": "x"}))
    command = [
        binary(BINARIES[component.name]),
        f"--kubeconfig={kubeconfig}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
    ]
    with ExitStack() as processes:
        process = conftest.started(processes, log, command)
        conftest.wait_until(lambda: b"acquire leader lease" in log.read_bytes(), (process,), tmp_path)
        process.terminate()
        assert process.wait(60) == component.stops_with


# -- etcd --------------------------------------------------------------------------------------------------------------


class Etcd:
    """One etcd started with the file that we render, moved to loopback."""

    def __init__(self, directory: Path, processes: ExitStack, extra: dict[str, str] | None = None) -> None:
        self.directory = directory
        ports = dict(zip(("client", "peer", "metrics"), conftest.free_ports(3), strict=True))
        self.client, self.peer, self.metrics = (f"127.0.0.1:{ports[name]}" for name in ("client", "peer", "metrics"))
        member = EtcdMember("prod-etcd-0", f"https://{self.client}", f"https://{self.peer}")
        layout = Layout(
            base=str(directory),
            data=str(directory / "data"),
            bind_address="127.0.0.1",
            apiserver_url="https://localhost",
            etcd_members=(member,),
            service_account_issuer="https://localhost",
            service_subnet="10.96.0.0/12",
            server_names={
                leaf: Names(dns=("localhost",), ips=("127.0.0.1",))
                for leaf in pki_files.AUTHORITY_OF
                if leaf != "admin"
            },
        )
        self.found = Rendered(rendered().deployment, state=state(), now=datetime.now(UTC))
        self.found.layout = layout
        self.authority = state().authorities["etcd-ca"]
        for component in (ETCD, BY_NAME["karmada-apiserver"]):
            for files in component.file_sets:
                folder = directory / files.directory if component is ETCD else directory / "client" / files.directory
                folder.mkdir(parents=True, exist_ok=True)
                for name, content in pki_files.contents(files, self.found.material, layout).items():
                    (folder / name).write_bytes(content)
        configuration = etcd_configuration.of_member(
            member,
            layout,
            token="t",
            existing=False,
            generation=1,
            extra=extra or {},
            record=EtcdMemberState(member.name, "a1"),
        )
        # All at once: a free port may begin with the digits of one of etcd's own.
        free = {str(port): ports[name] for name, port in ETCD.ports.items()}
        own = re.compile(rf"127\.0\.0\.1:({'|'.join(free)})\b")
        text = own.sub(lambda found: f"127.0.0.1:{free[found[1]]}", yaml.safe_dump(configuration))
        (directory / "etcd.yaml").write_text(text)
        self.process = conftest.started(
            processes, directory / "etcd.log", [binary("etcd"), f"--config-file={directory / 'etcd.yaml'}"]
        )

    def log(self) -> str:
        return (self.directory / "etcd.log").read_text(errors="replace")[-3000:]

    def wait(self) -> None:
        conftest.wait_until(self._is_ready, (self.process,), self.directory)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.metrics}/readyz", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def tls(self, certificate: KeyPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.certificate.decode())
        if certificate:
            file = self.directory / f"{abs(hash(certificate.certificate))}.pem"
            file.write_bytes(certificate.certificate + certificate.key)
            context.load_cert_chain(file)
        return context

    def status(self, address: str, path: str, certificate: KeyPair | None) -> int:
        """HTTP status with this client certificate; 0 when the connection is refused in TLS."""
        try:
            with urllib.request.urlopen(
                f"https://{address}{path}", timeout=300, context=self.tls(certificate)
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except (ssl.SSLError, urllib.error.URLError, ConnectionError, TimeoutError):
            return 0

    def leaf(self, name: str) -> KeyPair:
        return self.found.material.leaves[name]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with ExitStack() as processes:
        found = Etcd(tmp_path_factory.mktemp("etcd"), processes)
        found.wait()
        yield found


def test_etcd_starts_with_our_file_and_is_healthy(etcd: Etcd) -> None:
    assert etcd.status(etcd.client, "/health", etcd.leaf("karmada-apiserver-etcd-client")) == 200
    assert (etcd.directory / "data" / "gen-1" / "member").is_dir()
    assert "unknown" not in etcd.log().lower()


def test_etcd_checks_its_data_when_it_starts_and_compacts(etcd: Etcd) -> None:
    """etcd says nothing about keys that it does not know, so what it made of them is looked at."""
    with urllib.request.urlopen(f"http://{etcd.metrics}/metrics", timeout=300) as answer:
        enabled = re.findall(r'^etcd_server_feature_enabled\{name="(\w+)".*\} 1$', answer.read().decode(), re.MULTILINE)
    assert {"CompactHashCheck", "InitialCorruptCheck"} <= set(enabled)


@pytest.mark.parametrize("port", ["client", "peer"])
def test_plain_http_is_refused(etcd: Etcd, port: str) -> None:
    host, number = getattr(etcd, port).split(":")
    with socket.create_connection((host, int(number)), 300) as connection:
        connection.sendall(b"GET /version HTTP/1.0\r\n\r\n")
        answer = connection.recv(1000)
    assert not re.match(rb"HTTP/1\.\d 200", answer), answer


@pytest.mark.parametrize("port", ["client", "peer"])
def test_a_caller_without_a_certificate_is_refused(etcd: Etcd, port: str) -> None:
    assert etcd.status(getattr(etcd, port), "/version", None) == 0


def test_a_client_is_no_peer(etcd: Etcd) -> None:
    """The peer port admits one common name only, though the authority is the same."""
    assert etcd.status(etcd.peer, "/members", etcd.leaf("etcd-peer-client")) == 200
    for name in ("karmada-apiserver-etcd-client", "karmada-aggregated-apiserver-etcd-client", "etcd-server"):
        assert etcd.status(etcd.peer, "/members", etcd.leaf(name)) == 0, name


def test_a_certificate_of_another_authority_is_refused(etcd: Etcd) -> None:
    want = x509.Certificate(name="x", authority="x", common_name="system:karmada:etcd-peer", client=True)
    now = datetime.now(UTC)
    stranger = x509.new_authority(x509.Authority("x", "karmada-etcd-ca"), "ECDSA-P256", now)
    pair = x509.issue(want, stranger, "ECDSA-P256", now, x509.parse_duration("87600h"))
    for address in (etcd.client, etcd.peer):
        assert etcd.status(address, "/version", pair) == 0
    other = state().authorities["karmada-ca"]
    ours = x509.issue(want, other, "ECDSA-P256", now, x509.parse_duration("8760h"))
    assert etcd.status(etcd.peer, "/members", ours) == 0


def test_health_shows_no_keys(etcd: Etcd) -> None:
    for path in ("/v3/kv/range", "/v2/keys", "/members"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{etcd.metrics}{path}", timeout=300)


@pytest.mark.parametrize(
    "extra",
    [
        {"quota-backend-bytes": "8589934592", "auto-compaction-retention": "1", "auto-compaction-mode": "periodic"},
        {"log-level": "warn", "snapshot-count": "5000", "heartbeat-interval": "200", "election-timeout": "2000"},
        {"cipher-suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
        {"log-outputs": "stderr"},
    ],
    ids=["numbers", "times", "list", "outputs"],
)
def test_etcd_starts_with_what_users_set(tmp_path: Path, extra: dict[str, str]) -> None:
    with ExitStack() as processes:
        Etcd(tmp_path, processes, extra).wait()
