# SPDX-License-Identifier: Apache-2.0
"""A snapshot lies on its host only until it was fetched, for one user, and never half a one."""

from __future__ import annotations

import base64
import getpass
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, host_lock, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _host_state as host_state_module
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock import ANNA
from ansible_collections.karmada.installer.tests.unit.support import web_server
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host
from ansible_collections.karmada.installer.tests.unit.support.web_server import Request, Response, WebServer

CONTENT = bytes(range(256)) * 300
FOLDER = "/etc/karmada/prod/etcd/pki/server"
USER = getpass.getuser()


def part(content: bytes, left: int) -> bytes:
    found = {"blob": base64.b64encode(content).decode(), "remaining_bytes": str(left), "version": "3.6"}
    return json.dumps({"result": found}).encode() + b"\n"


class Etcd:
    """A member that sends its database in two parts."""

    def __init__(self) -> None:
        half = len(CONTENT) // 2
        self.sent = part(CONTENT[:half], len(CONTENT) - half) + part(CONTENT[half:], 0)
        self.status, self.size = 200, len(CONTENT)
        self.asked: list[str] = []

    def answer(self, request: Request) -> Response:
        self.asked.append(request.path)
        if request.path == "/v3/maintenance/snapshot":
            return Response(self.status, self.sent)
        answers: dict[str, Any] = {
            "/v3/maintenance/status": {"dbSize": str(self.size)},
            "/v3/kv/range": {"header": {"revision": "40"}},
        }
        return Response(200, json.dumps(answers[request.path]).encode())


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


@pytest.fixture
def url(etcd: Etcd, host: Host) -> Iterator[str]:
    now = datetime.now(UTC)
    own = x509.new_authority(x509.Authority("etcd", "etcd"), "ECDSA-P256", now)
    wanted = x509.Certificate("member", "etcd", "member", client=True)
    pair = x509.issue(wanted, own, "ECDSA-P256", now, timedelta(days=1))
    folder = host.path(FOLDER)
    folder.mkdir(parents=True)
    files = {"ca.crt": web_server.authority().encode(), "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    host.path("/var/lib").mkdir(parents=True)
    with WebServer(etcd.answer) as server:
        yield server.url


def test_it_is_a_file_for_the_user_who_fetches_it(host: Host, url: str, etcd: Etcd) -> None:
    found = host_snapshot.take(host, "prod", url, FOLDER, USER)
    path = host.path("/var/lib/karmada-installer-snapshots/prod.db")
    assert found == {"size": len(CONTENT), "acknowledged": 40}
    assert path.read_bytes() == CONTENT
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, os.getuid())
    # nobody lists what is there, and whom it is for can reach it
    assert path.parent.stat().st_mode & 0o777 == 0o711
    # it has caught up with the others before it sends
    assert etcd.asked.index("/v3/kv/range") < etcd.asked.index("/v3/maintenance/snapshot")
    assert host_snapshot.remove(host, "prod")
    assert not path.parent.exists()
    assert not host_snapshot.remove(host, "prod")


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (part(CONTENT, 5), 200, f"the snapshot breaks off after {len(CONTENT)} bytes"),
        (b'{"error": "no"}\n', 503, "HTTP 503"),
        (b"<html>", 200, "is no snapshot"),
    ],
)
def test_of_half_a_one_nothing_stays(host: Host, url: str, etcd: Etcd, sent: bytes, status: int, said: str) -> None:
    etcd.sent, etcd.status = sent, status
    with pytest.raises(HostError, match=said):
        host_snapshot.take(host, "prod", url, FOLDER, USER)
    assert not host.path(host_snapshot.FOLDER).exists()


def test_a_connection_that_breaks_is_no_error_of_the_disk() -> None:
    class Broken:
        def readline(self, _limit: int = -1) -> bytes:
            raise ConnectionResetError(104, "Connection reset by peer")

    with pytest.raises(etcd_member.MemberError, match=r"the connection breaks: .*reset"):
        etcd_member._Lines(Broken(), "https://h1:2379").readline()  # type: ignore[arg-type]


def test_no_room_is_told_before_anything_is_sent(host: Host, url: str, etcd: Etcd) -> None:
    etcd.size = 1 << 60
    with pytest.raises(
        HostError, match=r"a snapshot needs \d+ MiB in /var/lib/karmada-installer-snapshots, and \d+ MiB"
    ):
        host_snapshot.take(host, "prod", url, FOLDER, USER)
    assert "/v3/maintenance/snapshot" not in etcd.asked
    assert not host.path(host_snapshot.FOLDER).exists()


def test_what_etcd_may_write_meanwhile_is_not_taken_from_it(
    host: Host, url: str, etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data may be on the same disk."""
    etcd.size = 100 << 20
    monkeypatch.setattr(host_snapshot.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=350, f_frsize=1 << 20))
    with pytest.raises(HostError, match=r"a snapshot needs 366 MiB in \S+, and 350 MiB are free"):
        host_snapshot.take(host, "prod", url, FOLDER, USER)
    monkeypatch.setattr(host_snapshot.os, "statvfs", lambda _path: SimpleNamespace(f_bavail=367, f_frsize=1 << 20))
    assert host_snapshot.take(host, "prod", url, FOLDER, USER)["size"] == len(CONTENT)


def test_somebody_who_is_not_there_cannot_fetch_it(host: Host, url: str, etcd: Etcd) -> None:
    with pytest.raises(HostError, match="there is no user nobody-at-all to fetch the snapshot"):
        host_snapshot.take(host, "prod", url, FOLDER, "nobody-at-all")
    assert etcd.asked == []


def test_what_a_killed_run_has_left_goes_with_the_next_that_locks_the_host(host: Host, url: str) -> None:
    host_snapshot.take(host, "prod", url, FOLDER, USER)
    host_snapshot.take(host, "stage", url, FOLDER, USER)
    asked = {"state": "locked", "holder": ANNA, "dead_holder": "", "address": "", "folders": [], "virtual_ip": ""}
    host_state_module._perform(host, {"name": "prod", **asked}, True)
    assert host.path(host_snapshot.path_of("prod")).exists()
    host_state_module._perform(host, {"name": "prod", **asked}, False)
    left = [each.name for each in host.path(host_snapshot.FOLDER).iterdir()]
    assert left == ["stage.db"]
    host_lock.release(host, "prod", ANNA)
