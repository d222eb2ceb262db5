# SPDX-License-Identifier: Apache-2.0
"""Root on a host follows no link that a component may have put there; what components read belongs to root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.tests.unit.support.host_tree import FOLDER, USER, Host, file, tree


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
