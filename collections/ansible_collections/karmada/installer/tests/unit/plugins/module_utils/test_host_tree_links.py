# SPDX-License-Identifier: Apache-2.0
"""Root on a host follows no link that a component may have put there; what components read belongs to root.

Root itself may have data on another disk: what is there goes with the control plane.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.tests.unit.support.host_tree import FOLDER, USER, Host, file, said, tree


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


def test_a_link_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_stays_and_is_not_shown(
    host: Host, tmp_path: Path
) -> None:
    outside = tmp_path / "shadow"
    outside.write_text("secret of the machine")
    outside.chmod(0o644)
    host_tree.converge(host, tree(config="a"))
    path = host.path(f"{FOLDER}/config")
    for content in ("other", "a"):
        # Also where it leads to exactly what is wanted.
        outside.write_text(content)
        path.unlink()
        path.symlink_to(outside)
        (change,) = host_tree.converge(host, tree(config="a"))
        assert (change.what, change.before) == (f"create {FOLDER}/config", "")
        assert not path.is_symlink()
        assert path.read_text() == "a"
        assert (outside.read_text(), outside.stat().st_mode & 0o777) == (content, 0o644)


def test_a_link_of_others_in_the_place_of_a_directory_is_refused_and_one_of_root_is_followed(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may have put data on another disk; the user of a component may not say where root goes."""
    outside = tmp_path / "elsewhere"
    outside.mkdir(mode=0o755)
    host.path("/etc/karmada/prod").mkdir(parents=True)
    host.path(FOLDER).symlink_to(outside)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    owner = os.lstat(host.path(FOLDER)).st_uid
    if owner:
        with pytest.raises(HostError, match="a link that is not root's"):
            host_tree.converge(host, tree(config="a"))
    else:
        os.chown(host.path(FOLDER), 65534, 65534, follow_symlinks=False)
        with pytest.raises(HostError, match="a link that is not root's"):
            host_tree.converge(host, tree(config="a"))
        os.chown(host.path(FOLDER), 0, 0, follow_symlinks=False)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert list(outside.iterdir()) == []
    monkeypatch.undo()
    host_tree.converge(host, tree(config="a"))
    assert outside.stat().st_mode & 0o777 == 0o700
    assert (outside / "config").read_text() == "a"


def test_a_file_may_belong_to_root_and_be_read_by_a_group(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _descriptor, user, group: given.append((user, group)))
    monkeypatch.setattr(host, "user_ids", {"root": [0, 0], USER: [990, 991]}.get)
    wanted = tree()
    wanted["directories"] = [{"path": "/etc/a", "user": "root", "group": USER, "mode": 0o750}]
    wanted["files"] = [{**file("/etc/a/b", "b", mode=0o640), "group": USER}]
    host_tree._directories(host, wanted, False)
    host_tree._files(host, wanted, False)
    assert given == [(0, 991), (0, 991)]
    modes = [host.path(path).stat().st_mode & 0o777 for path in ("/etc/a", "/etc/a/b")]
    assert modes == [0o750, 0o640]
    wanted["files"][0]["group"] = "nobody-there"
    with pytest.raises(HostError, match="there is no user nobody-there"):
        host_tree._files(host, wanted, False)


DATA = "/var/lib/karmada/prod"
ETCD = f"{DATA}/etcd"
#: A user of the machine that is none of ours.
OTHERS = 4711


def with_data(host: Host, folder: Path) -> Path:
    """A generation of etcd's data in a folder, with a link to somewhere else in it."""
    host_tree.converge(host, tree(config="a"))
    elsewhere = Path(host.root).with_name("elsewhere")
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (folder / "gen-1/member/snap").mkdir(parents=True)
    (folder / "gen-1/member/snap/db").write_bytes(b"keys")
    (folder / "gen-1/member/wal").symlink_to(elsewhere)
    return elsewhere / "kept"


def removed(host: Host, *, check: bool = False) -> list[str]:
    """Paths of what goes when a control plane goes with its data."""
    wanted = {**tree(config="a"), "folders": ["/etc/karmada/prod", DATA, ETCD]}
    told = said(host_tree.remove(host, wanted, check))
    return [each.removeprefix("remove ") for each in told if each.startswith("remove /")]


@pytest.mark.parametrize("at", [DATA, ETCD])
def test_data_behind_a_link_of_root_goes_and_what_others_have_there_stays(host: Host, tmp_path: Path, at: str) -> None:
    disk = tmp_path / "disk"
    host.path(at).parent.mkdir(parents=True)
    host.path(at).symlink_to(disk)
    kept = with_data(host, disk if at == ETCD else disk / "etcd")
    ours = "gen-1" if at == ETCD else "etcd"
    # Only root can give files away.
    others = [] if os.getuid() else ["lost+found", "of-others"]
    for name in others:
        (disk / name).mkdir()
        (disk / name / "kept").touch()
        os.chown(disk / name, OTHERS, OTHERS)
    expected = [f"{disk}/{ours}", at, *([DATA] if at == ETCD else [])]
    for check in (True, False):
        paths = [path for path in removed(host, check=check) if not path.startswith("/etc")]
        assert sorted(paths) == sorted(expected)
        assert (disk / ours).exists() == check
    assert sorted(each.name for each in disk.iterdir()) == others
    assert all((disk / name / "kept").exists() for name in others)
    assert not host.path("/var/lib/karmada").exists()
    assert kept.exists()
    assert removed(host) == []


def test_data_behind_a_link_in_a_folder_behind_a_link_goes(host: Host, tmp_path: Path) -> None:
    disk, faster = tmp_path / "disk", tmp_path / "faster"
    disk.mkdir()
    host.path(DATA).parent.mkdir(parents=True)
    host.path(DATA).symlink_to(disk)
    (disk / "etcd").symlink_to(faster)
    with_data(host, faster)
    removed(host)
    assert list(faster.iterdir()) == []
    assert not host.path(DATA).is_symlink()


def test_a_link_of_others_in_the_place_of_a_folder_goes_as_a_link(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    host.path(DATA).mkdir(parents=True)
    host.path(ETCD).symlink_to(disk)
    with_data(host, disk)
    if not os.getuid():
        os.chown(host.path(ETCD), OTHERS, OTHERS, follow_symlinks=False)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    removed(host)
    assert not host.path(DATA).exists()
    assert (disk / "gen-1/member/snap/db").exists()


def refusing(path: Path, number: int, real: Callable[..., None]) -> Callable[..., None]:
    """System call that cannot remove one path, and removes all others."""
    status = path.stat()

    def call(name: Any, *, dir_fd: int | None = None) -> None:
        if os.path.samestat(os.stat(name, dir_fd=dir_fd, follow_symlinks=False), status):
            raise OSError(number, os.strerror(number))
        real(name, dir_fd=dir_fd)

    return call


@pytest.mark.parametrize("at", [DATA, ETCD])
def test_a_disk_that_is_mounted_is_emptied_and_stays_mounted(
    host: Host, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    kept = with_data(host, host.path(ETCD))
    monkeypatch.setattr(os, "rmdir", refusing(host.path(at), errno.EBUSY, os.rmdir))
    assert removed(host) == ["/etc/karmada/prod", DATA]
    assert list(host.path(at).iterdir()) == []
    assert kept.exists()
    assert USER not in host.users
    # A run that was killed before it had removed the state comes here again.
    removed(host)
    monkeypatch.undo()
    removed(host)
    assert not host.path("/var/lib/karmada").exists()


@pytest.mark.parametrize(("number", "call"), [(errno.EROFS, "unlink"), (errno.ENOTEMPTY, "rmdir")])
def test_a_disk_that_does_not_let_go_is_named_and_nothing_is_said_to_be_gone(
    host: Host, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    with_data(host, host.path(ETCD))
    at = host.path(f"{ETCD}/gen-1/member/snap" + ("/db" if call == "unlink" else ""))
    monkeypatch.setattr(os, call, refusing(at, number, getattr(os, call)))
    with pytest.raises(HostError, match=f"{DATA} cannot be written: {os.strerror(number)}"):
        removed(host)
    assert USER in host.users
    monkeypatch.undo()
    removed(host)
    assert not host.path("/var/lib/karmada").exists()
