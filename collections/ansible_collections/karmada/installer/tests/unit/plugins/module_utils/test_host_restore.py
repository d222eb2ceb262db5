# SPDX-License-Identifier: Apache-2.0
"""New data is made of the snapshot that was sent and of no other, beside what is there; the snapshot never stays."""

from __future__ import annotations

import getpass
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock, host_restore, host_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _host_restore as module
from ansible_collections.karmada.installer.tests.unit.plugins.module_utils.test_host_lock import ANNA
from ansible_collections.karmada.installer.tests.unit.support.host_tree import UNIT, Host, tree
from ansible_collections.karmada.installer.tests.unit.support.web_server import Request, Response, WebServer, authority

PAGES = bytes(range(256)) * 32
SNAPSHOT = PAGES + hashlib.sha256(PAGES).digest()
DIGEST = hashlib.sha256(SNAPSHOT).hexdigest()
FOLDER = "/var/lib/karmada/prod/etcd/gen-2"
PROGRAM = "/usr/local/lib/karmada/v3.6.5/etcdutl"
USER = getpass.getuser()
#: In the place of etcdutl: makes a folder, and says with what.
ETCDUTL = """#!/bin/sh
test "$1 $2" = "snapshot restore" || exit 1
folder=${4#--data-dir=}
mkdir -p "$folder/member/wal"
cat "$3" >"$folder/member/wal/0"
echo "$@" >"$folder/said"
"""


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path / "host")
    found.users[USER] = ""
    for folder in ("/var/lib/karmada/prod/etcd/gen-1", str(Path(PROGRAM).parent)):
        found.path(folder).mkdir(parents=True)
    found.path(PROGRAM).write_text(ETCDUTL)
    found.path(PROGRAM).chmod(0o755)
    return found


def expected(host: Host, size: int = len(SNAPSHOT), room: int = 1) -> Path:
    host_restore.expect(host, "prod", USER, size, FOLDER, room)
    return host.path(host_snapshot.path_of("prod"))


def make(host: Host, digest: str = DIGEST) -> None:
    host_restore.make(host, "prod", USER, digest, PROGRAM, FOLDER, ["--name=cp1", "--mark-compacted"])


def nothing_lies_there(host: Host) -> bool:
    return not host.path(host_snapshot.FOLDER).exists()


def test_data_is_made_beside_what_is_there(host: Host) -> None:
    path = expected(host)
    assert (path.stat().st_mode & 0o777, path.stat().st_uid) == (0o600, os.getuid())
    assert path.parent.stat().st_mode & 0o777 == 0o711
    path.write_bytes(SNAPSHOT)
    make(host)
    made = host.path(FOLDER)
    assert (made / "member/wal/0").read_bytes() == SNAPSHOT
    assert (made / "said").read_text().endswith("--name=cp1 --mark-compacted\n")
    # nobody else may read it, whatever the umask of this session is
    assert {each.stat().st_mode & 0o077 for each in (made, *made.rglob("*"))} == {0}
    assert nothing_lies_there(host)
    assert host.path("/var/lib/karmada/prod/etcd/gen-1").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SNAPSHOT[:-512], "is damaged"),
        (PAGES[:-1] + b"x" + SNAPSHOT[len(PAGES) :], "is damaged"),
        (b"", "is damaged"),
        (PAGES * 2 + hashlib.sha256(PAGES * 2).digest(), "is another one than was sent"),
    ],
)
def test_nothing_is_made_of_what_was_not_sent(host: Host, content: bytes, said: str) -> None:
    expected(host).write_bytes(content)
    with pytest.raises(HostError, match=said):
        make(host)
    assert not host.path(FOLDER).exists()
    assert nothing_lies_there(host)


def test_a_folder_that_is_there_is_not_touched(host: Host) -> None:
    expected(host).write_bytes(SNAPSHOT)
    host.path(FOLDER).mkdir()
    with pytest.raises(HostError, match="gen-2 is there already"):
        make(host)
    with pytest.raises(HostError, match="gen-2 is there already"):
        expected(host)
    assert list(host.path(FOLDER).iterdir()) == []
    assert nothing_lies_there(host)


def test_a_link_in_the_place_of_the_snapshot_is_not_followed(host: Host) -> None:
    path = expected(host)
    path.unlink()
    path.symlink_to(host.path(PROGRAM))
    with pytest.raises(HostError, match="the snapshot has not come"):
        make(host)
    assert host.path(PROGRAM).exists()


def test_room_is_needed_for_both(host: Host) -> None:
    with pytest.raises(HostError, match="MiB are needed; free space there"):
        expected(host, room=1 << 60)
    with pytest.raises(HostError, match="MiB are needed; free space there"):
        expected(host, size=1 << 60)
    assert nothing_lies_there(host)


def test_a_program_that_fails_is_told_in_its_own_words(host: Host) -> None:
    host.path(PROGRAM).write_text("#!/bin/sh\necho expected sha256 >&2; exit 5\n")
    expected(host).write_bytes(SNAPSHOT)
    with pytest.raises(HostError, match=f"{PROGRAM} failed: expected sha256"):
        make(host)
    host.path(PROGRAM).write_text("#!/bin/sh\nexit 0\n")
    expected(host).write_bytes(SNAPSHOT)
    with pytest.raises(HostError, match="has made no data"):
        make(host)
    host.path(PROGRAM).unlink()
    expected(host).write_bytes(SNAPSHOT)
    with pytest.raises(HostError, match="cannot be run"):
        make(host)
    assert nothing_lies_there(host)


@pytest.mark.parametrize("who", ["nobody-here"])
def test_without_its_user_nothing_is_written(host: Host, who: str) -> None:
    with pytest.raises(HostError, match=f"there is no user {who}"):
        host_restore.expect(host, "prod", who, 1, FOLDER, 1)
    with pytest.raises(HostError, match=f"there is no user {who}"):
        host_restore.make(host, "prod", who, DIGEST, PROGRAM, FOLDER, [])
    assert nothing_lies_there(host)


def test_what_runs_or_stops_is_seen(host: Host) -> None:
    host.loaded[UNIT] = host.running[UNIT] = "x"
    assert host_restore.look(host, [UNIT, "other.service"], FOLDER) == {"running": [UNIT], "there": False}
    host.running.clear()
    host.looks_in_transition = 1
    assert host_restore.look(host, [UNIT], "/var/lib/karmada/prod/etcd/gen-1") == {"running": [UNIT], "there": True}
    assert host_restore.look(host, [UNIT], "") == {"running": [], "there": False}
    host.loaded.clear()
    assert tree()["units"][0]["name"] == UNIT


@pytest.mark.parametrize("status", [200, 401, 403])
def test_the_api_server_of_the_host_is_asked(host: Host, status: int, identity: tuple[str, str]) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return Response(status, b"{}")

    with WebServer(answer) as server:
        assert host_restore.ask(f"{server.url}/version", authority(), *identity) == status
    assert [each.path for each in asked] == ["/version"]
    assert host_restore.ask(f"{server.url}/version", authority(), *identity) == 0, "it does not answer any more"


def test_what_is_posted_to_the_api_server_of_the_host_is_answered_one_by_one(
    host: Host, identity: tuple[str, str]
) -> None:
    refusal = b'{"kind": "Status", "message": "denied by\\na policy"}'
    told = {"/held?dryRun=All": Response(403, refusal), "/free?dryRun=All": Response(201, b'{"kind": "Work"}')}
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return told.get(request.path + "?dryRun=All", Response(500, b"no JSON"))

    requests = {name: {"path": f"/{name}?dryRun=All", "body": {"kind": "Work"}} for name in ("held", "free", "ill")}
    with WebServer(answer) as server:
        assert host_restore.answers(server.url, authority(), *identity, requests) == {
            "held": {"status": 403, "message": "denied by a policy"},
            "free": {"status": 201, "message": ""},
            "ill": {"status": 500, "message": ""},
        }
        assert [(each.method, each.query) for each in asked] == [("POST", {"dryRun": "All"})] * 3
    found = host_restore.answers(server.url, authority(), *identity, requests)
    assert {each["status"] for each in found.values()} == {0}
    assert all(each["message"] for each in found.values()), "why it keeps silent"
    wanted = {"url": server.url, "authority": authority(), "certificate": identity[0], "key": identity[1]}
    seen = {"state": "seen", "units": [], "folder": "", "url": "", "member": None}
    seen["admission"] = {**wanted, "requests": requests}
    assert module._looked(host, seen)["admission"] == found


def test_what_runs_is_restarted_and_what_is_held_stays_away(host: Host) -> None:
    host.loaded[UNIT] = host.running[UNIT] = "x"
    assert host_restore.restart(host, [UNIT, "other.service"], check=True) == [UNIT]
    assert not [each for each in host.commands if "restart" in each]
    assert host_restore.restart(host, [UNIT, "other.service"], check=False) == [UNIT]
    assert [each for each in host.commands if "restart" in each] == [f"systemctl try-restart --no-block -- {UNIT}"]
    assert module.wanted_change("restarted", False, {"restarted": [UNIT]})
    host.running.clear()
    assert host_restore.restart(host, [UNIT], check=False) == []
    assert not module.wanted_change("restarted", False, {"restarted": []})


@pytest.fixture
def identity() -> tuple[str, str]:
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415 - of this alone

    from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509  # noqa: PLC0415

    now = datetime.now(UTC)
    own = x509.new_authority(x509.Authority("any", "any"), "ECDSA-P256", now)
    pair = x509.issue(x509.Certificate("who", "any", "who", client=True), own, "ECDSA-P256", now, timedelta(hours=1))
    return pair.certificate.decode(), pair.key.decode()


def test_each_state_asks_the_lock_and_a_check_makes_nothing(host: Host) -> None:
    wanted: dict[str, Any] = {"name": "prod", "holder": ANNA, "units": [], "folder": FOLDER, "url": "", "member": {}}
    wanted["admission"] = {}
    for state in ("seen", "expected", "made", "absent", "counted"):
        with pytest.raises(host_lock.LockedError):
            module._perform(host, {**wanted, "state": state}, False)
    host_lock.take(host, "prod", ANNA)
    wanted |= {"reader": USER, "size": len(SNAPSHOT), "room": 1, "user": USER, "digest": DIGEST, "program": PROGRAM}
    assert module._perform(host, {**wanted, "state": "expected"}, True) == {}
    assert nothing_lies_there(host)
    module._perform(host, {**wanted, "state": "expected"}, False)
    assert not nothing_lies_there(host)
    module._perform(host, {**wanted, "state": "absent"}, False)
    assert nothing_lies_there(host)
    module._perform(host, {**wanted, "state": "expected"}, False)
    host.path(host_snapshot.path_of("prod")).write_bytes(SNAPSHOT)
    module._perform(host, {**wanted, "state": "made", "flags": []}, False)
    assert module._perform(host, {**wanted, "state": "seen"}, True) == {"running": [], "there": True}
