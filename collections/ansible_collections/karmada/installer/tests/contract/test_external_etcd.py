# SPDX-License-Identifier: Apache-2.0
"""An etcd that is not ours, as a real one: what is found wrong with it, and whose a key prefix is."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import KeyPair
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import external as external_etcd
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import Cause, EtcdClient, EtcdError
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.contract import conftest
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import until

NOW = datetime.now(UTC)
PREFIX = "/karmada/prod"


def authority(name: str) -> KeyPair:
    return x509.new_authority(x509.Authority(name, name), "ECDSA-P256", NOW - timedelta(days=1))


def leaf(ca: KeyPair, *, server: bool = False, now: datetime = NOW, days: int = 1, ip: str = "127.0.0.1") -> KeyPair:
    wanted = x509.Certificate("leaf", "ca", "test", ip_addresses=(ip,) if server else (), server=server, client=True)
    return x509.issue(wanted, ca, "ECDSA-P256", now, timedelta(days=days))


@dataclass(frozen=True)
class Etcd:
    url: str
    ca: KeyPair
    directory: Path

    @property
    def files(self) -> dict[str, bytes]:
        pair = leaf(self.ca)
        return {"ca.crt": self.ca.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}

    @property
    def client(self) -> EtcdClient:
        return EtcdClient([self.url], self.files, "here")


def started(stack: ExitStack, directory: Path, ip: str = "127.0.0.1", **flags: str) -> Etcd:
    """An etcd that lets in whoever has a certificate of its authority."""
    directory.mkdir()
    ca = authority("etcd-ca")
    pair = leaf(ca, server=True, ip=ip)
    for name, content in (("ca.crt", ca.certificate), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (directory / name).write_bytes(content)
    client, peer = conftest.free_ports(2)
    etcd = Etcd(f"https://127.0.0.1:{client}", ca, directory)
    given = {
        "data-dir": str(directory / "data"),
        "listen-client-urls": etcd.url,
        "advertise-client-urls": etcd.url,
        "listen-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-cluster": f"default=http://127.0.0.1:{peer}",
        "cert-file": str(directory / "tls.crt"),
        "key-file": str(directory / "tls.key"),
        "trusted-ca-file": str(directory / "ca.crt"),
        "client-cert-auth": "true",
        "unsafe-no-fsync": "true",
        "listen-metrics-urls": f"http://127.0.0.1:{conftest.free_ports(1)[0]}",
        **{name.replace("_", "-"): value for name, value in flags.items()},
    }
    process = conftest.started(
        stack,
        directory / "etcd.log",
        [conftest.binary("etcd", "TEST_ETCD"), *(f"--{name}={value}" for name, value in given.items())],
    )
    conftest.wait_until(lambda: _healthy(given["listen-metrics-urls"]), (process,), directory)
    return etcd


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:  # noqa: S310 - the address is our own
            return bool(json.load(answer)["health"] == "true")
    except (OSError, urllib.error.HTTPError):
        return False


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with ExitStack() as stack:
        yield started(stack, tmp_path_factory.mktemp("external") / "etcd")


@pytest.fixture(autouse=True)
def empty(etcd: Etcd) -> None:
    etcd.client._ask("/v3/kv/deleterange", {"key": "AA==", "range_end": "AA=="})


def run_of(
    etcd: Etcd, stored: State | None = None, files: dict[str, bytes] | None = None, name: str = "prod", **settings: Any
) -> Run:
    spec = samples.external_etcd(**{"endpoints": [etcd.url], "keyPrefix": PREFIX, **settings})
    run = fake_run(samples.document(spec, name), FakeCluster("host cluster"), stored=stored)
    run.now = datetime.now(UTC)
    run.__dict__["external_etcd_files"] = files or etcd.files
    run.said = []  # type: ignore[attr-defined]
    run.say = run.said.append  # type: ignore[attr-defined]
    return run


def state(owner: str = samples.OWNER, **fields: Any) -> State:
    return samples.state(owner=owner, etcd=EtcdState(token="t", storage="external"), **fields)


def told(run: Run) -> list[Problem]:
    return list(external_etcd.problems(run))


def put(etcd: Etcd, key: str) -> None:
    assert etcd.client.put_if_absent(key.encode(), b"value")


def claimed(etcd: Etcd, owner: str = samples.OWNER, name: str = "prod", prefix: str = PREFIX) -> Run:
    """A run that has marked its prefix, as a role does it."""
    run = run_of(etcd, state(owner), name=name, keyPrefix=prefix)
    external_etcd._claim(run, external_etcd.connect(run))
    return run


def test_an_etcd_that_is_fit_is_not_spoken_of(etcd: Etcd) -> None:
    run = run_of(etcd)
    assert told(run) == []
    assert run.said == []  # type: ignore[attr-defined]
    (status,) = etcd.client.status()
    assert status.healthy
    assert status.version.startswith("3.")
    assert status.db_size > 0
    assert (status.alarms, status.message, status.cause) == ((), "", None)


def test_another_authority_for_its_server_certificate_is_told(etcd: Etcd) -> None:
    (problem,) = told(run_of(etcd, files={**etcd.files, "ca.crt": authority("other").certificate}))
    assert "is not signed by the CA" in problem.what
    assert problem.where == f"{external_etcd.FIELD}.endpoints[0]"
    assert "ca.crt" in problem.remedy


def test_a_client_certificate_of_another_authority_is_told(etcd: Etcd) -> None:
    stranger = leaf(authority("etcd-ca"))
    (problem,) = told(run_of(etcd, files={**etcd.files, "tls.crt": stranger.certificate, "tls.key": stranger.key}))
    assert "refuses our client certificate" in problem.what
    assert "tls.crt must be signed by" in problem.remedy


def test_an_expired_client_certificate_is_told(etcd: Etcd) -> None:
    old = leaf(etcd.ca, now=NOW - timedelta(hours=20), days=0.5)  # type: ignore[arg-type]
    files = {**etcd.files, "tls.crt": old.certificate, "tls.key": old.key}
    assert any(
        "the client certificate has expired" in problem.what and problem.where.endswith("secretRef")
        for problem in told(run_of(etcd, files=files))
    )


def test_a_key_of_another_certificate_is_told(etcd: Etcd) -> None:
    with pytest.raises(ProblemsError, match="client certificate and key cannot be used"):
        told(run_of(etcd, files={**etcd.files, "tls.key": leaf(etcd.ca).key}))


def test_a_name_that_its_certificate_does_not_have_is_told(etcd: Etcd) -> None:
    (problem,) = told(run_of(etcd, endpoints=[etcd.url.replace("127.0.0.1", "localhost")]))
    assert "not valid for this address" in problem.what


def test_a_closed_port_is_told(etcd: Etcd) -> None:
    (problem,) = told(run_of(etcd, endpoints=["https://127.0.0.1:1"]))
    assert "connection refused" in problem.what


def test_what_is_no_etcd_is_told(etcd: Etcd, api_server: conftest.ApiServer) -> None:
    files = {
        "ca.crt": api_server.ca.read_bytes(),
        "tls.crt": api_server.client_certificate.read_bytes(),
        "tls.key": api_server.client_key.read_bytes(),
    }
    (problem,) = told(run_of(etcd, files=files, endpoints=[api_server.url]))
    assert "etcd" in problem.what or "could not find" in problem.what


def test_an_endpoint_that_cannot_be_reached_from_here_is_a_warning(etcd: Etcd) -> None:
    run = run_of(etcd, endpoints=["https://etcd.invalid:2379"])
    assert told(run) == []
    (warning,) = run.said  # type: ignore[attr-defined]
    assert "cannot be asked from this machine" in warning
    assert external_etcd.claim(run) == []
    assert "is not marked" in run.said[-1]  # type: ignore[attr-defined]


def test_one_endpoint_of_several_that_cannot_be_reached_is_refused_before_the_first_install_only(etcd: Etcd) -> None:
    endpoints = [etcd.url, "https://etcd.invalid:2379"]
    (problem,) = told(run_of(etcd, endpoints=endpoints))
    assert "does not resolve" in problem.what
    assert problem.where.endswith("endpoints[1]")
    assert told(run_of(etcd, state(), endpoints=endpoints)) == []


def test_endpoints_of_two_clusters_are_told(etcd: Etcd, tmp_path: Path) -> None:
    with ExitStack() as stack:
        other = started(stack, tmp_path / "other")
        files = {**etcd.files, "ca.crt": etcd.ca.certificate + other.ca.certificate}
        run = run_of(etcd, files=files, endpoints=[etcd.url, other.url])
        assert any("refuses our client certificate" in problem.what for problem in told(run))
        one, two = etcd.client.status()[0], other.client.status()[0]
        found = list(external_etcd._endpoint_problems(run, [one, two]))
        assert ["different etcd clusters" in problem.what for problem in found] == [True]


def fill(etcd: Etcd) -> None:
    for number in range(1000):
        etcd.client.put_if_absent(f"/fill/{number}".encode(), b"x" * 10_000)


def test_an_alarm_is_told(tmp_path: Path) -> None:
    with ExitStack() as stack:
        full = started(stack, tmp_path / "full", quota_backend_bytes="40000")
        with pytest.raises(EtcdError, match="database space exceeded"):
            fill(full)
        (problem,) = told(run_of(full))
        assert "alarm NOSPACE" in problem.what
        (status,) = full.client.status()
        assert (status.alarms, status.healthy, status.leader) == (("NOSPACE",), False, True)


def test_a_member_without_a_leader_is_told(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lost = started(stack, tmp_path / "lost")
        # A second member that never comes: there is no majority from now on.
        lost.client._ask("/v3/cluster/member/add", {"peerURLs": ["http://127.0.0.1:1"]})
        until(lambda: not lost.client.status()[0].healthy, "its loss")
        (problem,) = told(run_of(lost))
        assert "leader" in problem.what
        assert not lost.client.status()[0].leader


def test_an_etcd_without_its_json_api_is_a_warning(tmp_path: Path) -> None:
    with ExitStack() as stack:
        mute = started(stack, tmp_path / "mute", enable_grpc_gateway="false")
        run = run_of(mute)
        assert told(run) == []
        assert "with its JSON API off" in run.said[0]  # type: ignore[attr-defined]
        assert mute.client.status()[0].cause is Cause.NOT_ASKABLE


def test_an_old_etcd_is_told(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_etcd.releases, "OLDEST_EXTERNAL_ETCD", (3, 99, 0))
    (problem,) = told(run_of(etcd))
    assert "3.99.0 is the oldest that is supported" in problem.what
    (status,) = etcd.client.status()
    (warning,) = external_etcd.warnings([dataclasses.replace(status, version="3.5.24")])
    assert "has known vulnerabilities" in warning.what


def test_keys_of_somebody_else_below_the_prefix_are_told(etcd: Etcd) -> None:
    put(etcd, f"{PREFIX}/pods/default/web")
    (problem,) = told(run_of(etcd))
    assert "1 key below /karmada/prod/" in problem.what
    with pytest.raises(ProblemsError, match="in use by somebody else"):
        claimed(etcd)
    assert etcd.client.count_below(PREFIX.encode() + b"/") == 1


def test_keys_beside_the_prefix_do_not_matter(etcd: Etcd) -> None:
    for key in ("/karmada/production/x", "/karmada/prod", "/karmada/proc", "/registry/pods/x"):
        put(etcd, key)
    assert told(run_of(etcd)) == []
    claimed(etcd)


def test_a_prefix_belongs_to_one_control_plane(etcd: Etcd) -> None:
    ours = claimed(etcd)
    put(etcd, f"{PREFIX}/secrets/a")
    assert told(ours) == []
    other = run_of(etcd, name="test")
    (problem,) = told(other)
    assert "belongs to the control plane karmada/prod" in problem.what
    with pytest.raises(ProblemsError, match="in use by the control plane karmada/prod"):
        external_etcd._claim(other, external_etcd.connect(other))


def test_a_prefix_inside_of_another_is_told(etcd: Etcd) -> None:
    claimed(etcd, prefix="/karmada")
    (problem,) = told(run_of(etcd))
    assert "/karmada above it belongs to" in problem.what


def test_a_claim_is_written_once(etcd: Etcd) -> None:
    run = claimed(etcd)
    external_etcd._claim(run, external_etcd.connect(run))
    assert etcd.client.count_below(PREFIX.encode() + b"/") == 1


def test_what_was_installed_unmarked_is_marked_later(etcd: Etcd) -> None:
    put(etcd, f"{PREFIX}/secrets/a")
    run = run_of(etcd, state(document={"spec": {}}))
    assert told(run) == []
    external_etcd._claim(run, external_etcd.connect(run))
    assert etcd.client.count_below(PREFIX.encode() + b"/") == 2


def removing(etcd: Etcd, policy: str = "Delete", owner: str = samples.OWNER, prefix: str = PREFIX) -> Run:
    stored = state(owner)
    run = run_of(etcd, dataclasses.replace(stored, etcd=dataclasses.replace(stored.etcd, prefix=prefix)))
    run.deployment["spec"]["deletion"]["policy"] = policy
    return run


def test_an_uninstall_deletes_the_keys_below_its_prefix_and_no_other(etcd: Etcd) -> None:
    claimed(etcd)
    for key in (f"{PREFIX}/secrets/a", "/karmada/production/x", "/karmada/prod"):
        put(etcd, key)
    assert external_etcd.release_problems(removing(etcd)) == []
    assert [(change.action, str(change.ref)) for change in external_etcd.release(removing(etcd))] == [
        ("deleted", f"KeyPrefix {PREFIX}")
    ]
    assert etcd.client.count_below(PREFIX.encode() + b"/") == 0
    assert etcd.client.count_below(b"/karmada/prod") == 2
    assert external_etcd.release(removing(etcd)) == []


@pytest.mark.parametrize(
    "run", [{"policy": "Retain"}, {"owner": "11111111-2222-3333-4444-555555555555"}, {"prefix": ""}]
)
def test_an_uninstall_leaves_what_is_to_stay_and_what_is_not_its_own(etcd: Etcd, run: dict[str, str]) -> None:
    claimed(etcd)
    put(etcd, f"{PREFIX}/secrets/a")
    assert external_etcd.release(removing(etcd, **run)) == []
    assert etcd.client.count_below(PREFIX.encode() + b"/") == 2


def test_an_uninstall_that_cannot_delete_the_keys_says_so_first(etcd: Etcd) -> None:
    run = removing(etcd)
    run.deployment["spec"]["components"]["etcd"]["external"]["endpoints"] = ["https://127.0.0.1:1"]
    (problem,) = external_etcd.release_problems(run)
    assert "would be left" in problem.what
    with pytest.raises(ProblemsError, match="are still there"):
        external_etcd.release(run)


def test_an_etcd_that_tells_its_users_apart_cannot_be_asked_and_that_is_a_warning(tmp_path: Path) -> None:
    with ExitStack() as stack:
        closed = started(stack, tmp_path / "closed")
        etcdctl = [
            conftest.binary("etcdctl", "TEST_ETCDCTL"),
            f"--endpoints={closed.url}",
            *(f"--{flag}={closed.directory / file}" for flag, file in _ETCDCTL_FILES),
        ]
        for command in ("user add root:secret", "user grant-role root root", "auth enable"):
            subprocess.run([*etcdctl, *command.split()], check=True, capture_output=True)
        run = run_of(closed)
        assert told(run) == []
        assert "etcd auth" in run.said[0]  # type: ignore[attr-defined]


_ETCDCTL_FILES = (("cacert", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key"))


def test_a_member_is_asked_through_a_connection_that_somebody_else_opens(etcd: Etcd) -> None:
    """As the report asks the members in pods, by port-forward."""
    port = int(etcd.url.rpartition(":")[2])
    dialled = []

    def dial(url: str, timeout: float) -> socket.socket:
        dialled.append(url)
        return socket.create_connection(("127.0.0.1", port), timeout)

    elsewhere = "https://127.0.0.1:1"
    (status,) = EtcdClient([elsewhere], etcd.files, "here", dial).status()
    assert (status.healthy, status.message, dialled) == (True, "", [elsewhere])
