# SPDX-License-Identifier: Apache-2.0
"""Files that only their owner may read."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import private_file


def test_a_file_is_written_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    assert private_file.write(path, "a")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a", 0o600)
    assert not private_file.write(path, "a")
    path.chmod(0o644)
    assert private_file.write(path, "a")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_home_that_nobody_knows_stays_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert [str(private_file.expanded(each)) for each in ("~/a", "b", "/c")] == ["/home/me/a", "b", "/c"]
    assert str(private_file.expanded("~nobody-of-this-name/a")) == "~nobody-of-this-name/a"


def test_a_check_only_looks(tmp_path: Path) -> None:
    assert private_file.write(tmp_path / "file", "a", check=True)
    assert not (tmp_path / "file").exists()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    private_file.write(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        private_file.write(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
