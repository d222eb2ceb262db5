# SPDX-License-Identifier: Apache-2.0
"""Of the data of etcd on a host only that goes which was put aside, wherever its owner has laid a link to."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_old_data
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _host_restore as module
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_answer
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host

DATA = "/var/lib/karmada/prod/etcd"
USED = f"{DATA}/gen-2"
OLD = f"{DATA}/gen-1"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path / "host")
    for name in ("gen-1", "gen-2", "gen-10"):
        for folder in ("member/snap", "member/wal"):
            found.path(f"{DATA}/{name}/{folder}").mkdir(parents=True)
        found.path(f"{DATA}/{name}/member/snap/db").write_bytes(b"keys")
        found.path(f"{DATA}/{name}/member/wal/0.wal").write_bytes(b"log")
    return found


def remove(host: Host, *names: str, check: bool = False, place: str = DATA, used: str = "gen-2") -> list[str]:
    return host_old_data.remove(host, place, used, names, check=check)


def left(host: Host) -> list[str]:
    return sorted(each.name for each in host.path(DATA).iterdir())


def test_what_was_put_aside_goes_and_nothing_else_and_a_second_time_nothing(host: Host) -> None:
    assert remove(host, "gen-1") == [OLD]
    assert left(host) == ["gen-10", "gen-2"]
    assert host.path(f"{USED}/member/snap/db").read_bytes() == b"keys"
    assert remove(host, "gen-1") == []


def test_a_check_tells_it_and_removes_nothing(host: Host) -> None:
    assert remove(host, "gen-1", "gen-7", check=True) == [OLD]
    assert left(host) == ["gen-1", "gen-10", "gen-2"]


def test_where_there_is_no_data_there_is_nothing_to_remove(host: Host) -> None:
    assert remove(host, "gen-1", place="/var/lib/karmada/other/etcd") == []


@pytest.mark.parametrize(
    "name", ["", ".", "..", "gen-", "gen-1/", "gen-1/..", "../etcd/gen-1", "/etc", "gen-1-XY", "gen-1\n", "member", "*"]
)
def test_a_name_that_no_generation_has_is_refused(host: Host, name: str) -> None:
    with pytest.raises(HostError, match="is no name of a folder with data of etcd"):
        remove(host, "gen-1", name)
    assert left(host) == ["gen-1", "gen-10", "gen-2"], "and nothing of it has gone"


def test_the_data_that_the_member_has_is_refused(host: Host) -> None:
    with pytest.raises(HostError, match="is the data that its member has"):
        remove(host, "gen-1", "gen-2")
    assert left(host) == ["gen-1", "gen-10", "gen-2"]


def test_data_whose_database_a_process_has_locked_is_refused_whatever_the_state_says(host: Host) -> None:
    with host.path(f"{DATA}/gen-10/member/snap/db").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(HostError, match="gen-10 is used: a process has locked its database"):
            remove(host, "gen-1", "gen-10")
        assert left(host) == ["gen-1", "gen-10", "gen-2"]
    assert remove(host, "gen-1", "gen-10") == [OLD, f"{DATA}/gen-10"]


def as_link(path: Path, elsewhere: Path) -> None:
    path.rename(path.with_name("away"))
    path.symlink_to(elsewhere)


def as_file(path: Path, _elsewhere: Path) -> None:
    path.rename(path.with_name("away"))
    path.write_bytes(b"")


@pytest.mark.parametrize("laid", [as_link, as_file])
def test_what_is_in_its_place_and_no_folder_is_refused(
    host: Host, tmp_path: Path, laid: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"")
    laid(host.path(OLD), elsewhere)
    with pytest.raises(HostError, match="gen-1 is no folder"):
        remove(host, "gen-1")
    assert (elsewhere / "kept").exists()
    assert host.path(OLD).exists()


@pytest.mark.parametrize("at", ["member", "member/snap", "member/snap/db", "member/wal", "link"])
def test_links_in_it_go_as_links(host: Host, tmp_path: Path, at: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "snap").mkdir(parents=True)
    for name in ("kept", "snap/db"):
        (elsewhere / name).write_bytes(b"")
    link = host.path(f"{OLD}/{at}")
    if link.exists():
        link.rename(host.path(f"{OLD}/away"))
    link.symlink_to(elsewhere / "snap/db" if at.endswith("db") else elsewhere)
    assert remove(host, "gen-1") == [OLD]
    assert not host.path(OLD).exists()
    assert sorted(each.name for each in elsewhere.rglob("*")) == ["db", "kept", "snap"]


def test_a_link_that_is_laid_while_it_is_removed_is_not_followed(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_bytes(b"")
    opened = os.open

    def swapped(path: Any, flags: int, *more: Any, **at: Any) -> int:
        if path == "wal" and host.path(f"{OLD}/member/wal").is_dir() and not (host.path(OLD) / "away").exists():
            as_link(host.path(f"{OLD}/member/wal"), elsewhere)
            host.path(f"{OLD}/member/away").rename(host.path(f"{OLD}/away"))
        return opened(path, flags, *more, **at)

    monkeypatch.setattr(host_old_data.os, "open", swapped)
    with pytest.raises(HostError, match="gen-1 cannot be removed, and may be half there"):
        remove(host, "gen-1")
    assert (elsewhere / "kept").exists()
    # By the next run it is a link like any other.
    assert remove(host, "gen-1") == [OLD]
    assert (elsewhere / "kept").exists()


def test_a_mount_in_it_stays(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted, fstat = host.path(f"{OLD}/member/wal").stat().st_ino, os.fstat

    def on_another_disk(descriptor: int) -> Any:
        found = fstat(descriptor)
        return SimpleNamespace(st_mode=found.st_mode, st_dev=-1) if found.st_ino == mounted else found

    monkeypatch.setattr(host_old_data.os, "fstat", on_another_disk)
    with pytest.raises(HostError, match="gen-1/member/wal is on a disk of its own"):
        remove(host, "gen-1")
    assert host.path(f"{OLD}/member/wal/0.wal").exists()


def test_one_that_was_removed_by_half_is_removed_whole(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(host_old_data.os, "rmdir", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(host, "gen-1")
    assert remove(host, "gen-1") == [OLD]
    assert left(host) == ["gen-10", "gen-2"]


def test_a_disk_that_refuses_is_named(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(host_old_data.os, "unlink", refuse)
    with pytest.raises(HostError, match="gen-1 cannot be removed, and may be half there: Read-only file system"):
        remove(host, "gen-1")


def test_every_folder_with_data_is_told_with_the_room_that_it_takes_on_the_disk(host: Host) -> None:
    host.path(f"{DATA}/gen-1-8e9e/member").mkdir(parents=True)
    host.path(f"{OLD}/member/snap/db").write_bytes(b"k" * (3 << 20))
    with host.path(f"{DATA}/gen-10/member/wal/0.wal").open("wb") as sparse:
        sparse.truncate(1 << 30)
    for name in ("member", "gen-", "gen-12345678901", "gen-1-XY"):
        host.path(f"{DATA}/{name}").mkdir()
    host.path(f"{DATA}/gen-3").write_bytes(b"")
    host.path(f"{DATA}/gen-4").symlink_to(host.path(OLD))
    found = host_old_data.look(host, DATA)
    assert [each["name"] for each in found] == ["gen-1", "gen-1-8e9e", "gen-10", "gen-2"]
    sizes = {each["name"]: each["size"] for each in found}
    assert 3 << 20 <= sizes["gen-1"] < 4 << 20
    assert sizes["gen-10"] < 1 << 20, "of a file with holes, what is there"
    assert host_answer.of_module("_host_restore", {}, {"changed": False, "folders": found}).refusal == ""


def test_what_is_more_than_a_member_makes_is_told_without_its_size(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_old_data, "_MOST_ENTRIES", 6)
    host.path(f"{OLD}/member/more").mkdir()
    host.path(f"{OLD}/member/most").symlink_to(host.path(USED))
    found = {each["name"]: each.get("size") for each in host_old_data.look(host, DATA)}
    assert found["gen-1"] is None
    assert found["gen-2"]


def test_what_a_link_in_it_leads_to_is_not_counted(host: Host, tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(b"k" * (3 << 20))
    host.path(f"{OLD}/member/away").symlink_to(tmp_path / "large")
    assert {each["name"]: each["size"] for each in host_old_data.look(host, DATA)}["gen-1"] < 1 << 20


@pytest.mark.parametrize("check", [True, False])
def test_the_module_lists_them_and_changes_nothing(host: Host, monkeypatch: pytest.MonkeyPatch, check: bool) -> None:
    monkeypatch.setattr(module.host_module, "working", lambda *_: contextlib.nullcontext())
    found = module._perform(host, {"name": "prod", "holder": "me", "state": "listed", "folder": DATA}, check)
    assert [each["name"] for each in found["folders"]] == ["gen-1", "gen-10", "gen-2"]
    assert not module.wanted_change("listed", check, found)
    assert module._perform(host, {"name": "prod", "holder": "me", "state": "listed", "folder": "/none"}, check) == {
        "folders": []
    }


def test_on_a_host_without_a_member_all_that_is_named_goes(host: Host) -> None:
    assert remove(host, "gen-1", "gen-2", used="") == [OLD, USED]
    assert left(host) == ["gen-10"]


def test_the_module_says_what_has_gone_and_whether_that_is_a_change(host: Host) -> None:
    wanted = {"name": "prod", "holder": "me", "state": "removed", "folder": DATA, "used": "gen-2", "aside": ["gen-1"]}
    found = module._perform(host, wanted, True)
    assert (found, module.wanted_change("removed", True, found)) == ({"removed": [OLD]}, True)
    assert host.path(OLD).exists()
    assert not module.wanted_change("removed", False, {"removed": []})
