# SPDX-License-Identifier: Apache-2.0
"""The state on a host: written whole or not at all, never by an older one; one holder of the lock."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_state
from ansible_collections.karmada.installer.plugins.module_utils.host_tree import HostError, System


def files(**contents: str) -> dict[str, str]:
    return {name: base64.b64encode(content.encode()).decode() for name, content in contents.items()}


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(str(tmp_path))


def test_what_was_written_is_read_and_only_root_can_read_it(system: System) -> None:
    assert host_state.read_state(system, "prod") == {"serial": 0, "files": {}}
    assert host_state.write_state(system, "prod", 1, files(key="secret")) is True
    assert host_state.read_state(system, "prod") == {"serial": 1, "files": files(key="secret")}
    folder = system.path("/var/lib/karmada-installer/prod")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert host_state.write_state(system, "prod", 1, files(key="secret")) is False


def test_a_newer_state_replaces_all_of_an_older_one_and_never_the_other_way_round(system: System) -> None:
    host_state.write_state(system, "prod", 3, files(a="1", b="2"))
    with pytest.raises(HostError, match="serial 3, and 2 was to be written"):
        host_state.write_state(system, "prod", 2, files(a="older"))
    with pytest.raises(HostError, match="serial 3, and 3 was to be written"):
        host_state.write_state(system, "prod", 3, files(a="other"))
    host_state.write_state(system, "prod", 4, files(a="3"))
    assert host_state.read_state(system, "prod") == {"serial": 4, "files": files(a="3")}


def test_a_check_run_writes_nothing(system: System) -> None:
    assert host_state.write_state(system, "prod", 1, files(a="1"), check=True) is True
    assert host_state.read_state(system, "prod")["serial"] == 0


@pytest.mark.parametrize("moment", ["new one half written", "old one aside", "new one in place, old one not yet gone"])
def test_a_kill_at_any_moment_leaves_one_whole_state(system: System, moment: str) -> None:
    host_state.write_state(system, "prod", 1, files(a="1"))
    parent = system.path("/var/lib/karmada-installer")
    if moment == "new one half written":
        (parent / ".prod.x1").mkdir()
        (parent / ".prod.x1" / "a").write_text("2")
    elif moment == "old one aside":
        (parent / ".prod.x1").mkdir()
        (parent / "prod").rename(parent / ".prod.before")
    else:
        (parent / ".prod.before").mkdir()
    host_state.recover(system, "prod")
    assert host_state.read_state(system, "prod") == {"serial": 1, "files": files(a="1")}
    assert [path.name for path in parent.iterdir()] == ["prod"]


def test_a_state_without_its_serial_is_an_error_and_not_a_reason_to_begin_anew(system: System) -> None:
    host_state.write_state(system, "prod", 1, files(a="1"))
    system.path("/var/lib/karmada-installer/prod/serial").unlink()
    with pytest.raises(HostError, match="is damaged"):
        host_state.read_state(system, "prod")


def test_removing_one_instance_leaves_the_other(system: System) -> None:
    host_state.write_state(system, "prod", 1, files(a="1"))
    host_state.write_state(system, "test", 1, files(a="1"))
    assert host_state.remove_state(system, "prod", check=True) is True
    assert host_state.remove_state(system, "prod") is True
    assert host_state.remove_state(system, "prod") is False
    assert host_state.read_state(system, "test")["serial"] == 1
    host_state.remove_state(system, "test")
    assert not system.path("/var/lib/karmada-installer").exists()


def test_one_holder_at_a_time_until_it_lets_go_or_falls_silent(system: System) -> None:
    host_state.take_lock(system, "prod", "anna@one", now=1000)
    host_state.take_lock(system, "prod", "anna@one", now=1500)
    with pytest.raises(HostError, match=r"anna@one is working on prod \(last seen 100 s ago\)"):
        host_state.take_lock(system, "prod", "ben@two", now=1600)
    host_state.take_lock(system, "test", "ben@two", now=1600)
    host_state.release_lock(system, "prod", "ben@two")
    with pytest.raises(HostError):
        host_state.take_lock(system, "prod", "ben@two", now=1600)
    host_state.take_lock(system, "prod", "ben@two", now=1500 + host_state.LOCK_SILENCE)
    host_state.release_lock(system, "prod", "ben@two")
    host_state.take_lock(system, "prod", "anna@one", now=3000)


def test_facts_know_who_listens_and_which_addresses_are_ours(system: System) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        found = host_state.facts(system, "127.0.0.1", ["/var/lib/karmada"])
    assert port in found["listening"]
    assert port not in host_state.facts(system, "127.0.0.1", [])["listening"]
    assert found["has_address"] is True
    assert host_state.facts(system, "192.0.2.1", [])["has_address"] is False
    assert found["architecture"] == os.uname().machine
    assert found["free"]["/var/lib/karmada"] > 0
    assert found["systemd"] == 0
