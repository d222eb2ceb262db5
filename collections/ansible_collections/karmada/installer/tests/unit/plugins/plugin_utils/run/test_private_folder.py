# SPDX-License-Identifier: Apache-2.0
"""The private folder of a run is in memory where that can be, nobody else's, and gone when its run is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import private_folder

DAY = 24 * 3600


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What is in memory on this machine, and of this test alone."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    monkeypatch.setattr(private_folder, "places", lambda: iter([folder]))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ansible's own folder for temporary files."""
    folder = tmp_path / f"ansible-local-{os.getpid()}abcd_123"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(private_folder.constants, "DEFAULT_LOCAL_TMP", str(folder))
    monkeypatch.setattr(private_folder, "SESSIONS", tmp_path / "sessions")
    return folder


@pytest.fixture
def gone() -> str:
    """The identity of a process that is no more."""
    process = subprocess.Popen(["sleep", "600"])
    identity = run_process.holder_identity(process.pid)
    process.kill()
    process.wait()
    return identity


def left(place: Path, identity: str) -> Path:
    folder = place / private_folder._name_of(identity)
    folder.mkdir(mode=0o700, parents=True)
    (folder / "state.json").write_text("keys")
    return folder


def test_it_is_in_memory_and_only_its_owner_gets_into_it(memory: Path, disk: Path) -> None:
    before = os.umask(0)
    private_folder.make(private_folder.of_this_run() / "ssh")
    os.umask(before)
    assert private_folder.of_this_run().parent == memory
    for each in (private_folder.of_this_run(), private_folder.of_this_run() / "ssh"):
        assert each.stat().st_mode & 0o777 == 0o700
    private_folder.remove()
    assert list(memory.iterdir()) == []


def test_the_session_s_own_place_comes_before_the_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    places = private_folder.places
    monkeypatch.undo()
    assert private_folder.places is not places
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert list(private_folder.places()) == [Path("/run/user/1000"), Path("/dev/shm")]
    for unfit in ("", "relative"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", unfit)
        assert list(private_folder.places()) == [Path("/dev/shm")]


def test_without_a_fit_place_in_memory_it_is_in_ansible_s_own_folder(
    memory: Path, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk = tmp_path / "on-disk"
    on_disk.mkdir(mode=0o700)
    monkeypatch.setattr(private_folder, "places", lambda: iter([tmp_path / "missing", memory]))
    memory.chmod(0o777)
    assert private_folder.of_this_run().parent == disk, "anybody could put something else in its place"
    memory.chmod(0o1777)
    assert private_folder.of_this_run().parent == memory
    monkeypatch.setattr(private_folder, "_is_in_memory", lambda _device: False)
    assert private_folder.of_this_run().parent == disk


def test_what_is_in_memory_is_told_by_the_kernel(memory: Path) -> None:
    assert private_folder._is_in_memory(memory.stat().st_dev)
    assert not private_folder._is_in_memory(Path("/proc").stat().st_dev)


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_what_somebody_else_put_in_its_place_is_not_used(how: str, memory: Path, disk: Path, tmp_path: Path) -> None:
    folder = private_folder.of_this_run()
    if how == "open to others":
        folder.mkdir()
        folder.chmod(0o750)
    elif how == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.touch(0o600)
    with pytest.raises((ProblemsError, FileExistsError)):
        private_folder.make(folder)
    assert not (tmp_path / "theirs").exists() or list((tmp_path / "theirs").iterdir()) == []


def test_what_dead_runs_left_is_swept_and_nothing_else(memory: Path, disk: Path, gone: str) -> None:
    host, boot, pid, _start = gone.split("/")
    elsewhere = f"{host}/another-boot.1.2/{pid}/5"
    of_session = left(disk.parent / "sessions" / str(os.geteuid()), gone)
    alive = left(memory, run_process.holder_identity())
    unknown = left(memory, elsewhere)
    dead, dead_on_disk = left(memory, gone), left(disk.parent / "ansible-local-1abcdefgh", gone)
    theirs = memory / "karmada-installer-notes"
    theirs.mkdir(mode=0o700)
    assert sorted(private_folder.sweep()) == sorted([dead, dead_on_disk, of_session])
    assert sorted(memory.iterdir()) == sorted([alive, unknown, theirs])
    assert not dead_on_disk.parent.exists(), "it was empty then"
    assert private_folder.sweep() == []
    assert boot in alive.name


def test_a_link_is_not_followed_and_others_folders_are_left_alone(
    memory: Path, disk: Path, gone: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "mine" / "file").touch()
    link = memory / private_folder._name_of(gone)
    link.symlink_to(tmp_path / "mine")
    assert private_folder.sweep() == []
    link.unlink()
    left(memory, gone).chmod(0o755)
    assert private_folder.sweep() == []
    assert (tmp_path / "mine" / "file").exists()


@pytest.mark.parametrize(("dead", "age", "swept"), [(True, 2 * DAY, True), (True, 60, False), (False, 2 * DAY, False)])
def test_what_an_earlier_version_left_is_swept_when_its_run_is_over(
    dead: bool, age: int, swept: bool, disk: Path, gone: str
) -> None:
    pid = gone.split("/")[2] if dead else str(os.getpid())
    folder = disk.parent / f"ansible-local-{pid}0a1b2c3d" / "karmada-installer"
    (folder / "ssh").mkdir(mode=0o700, parents=True)
    folder.chmod(0o700)
    (folder / "ssh" / "ssh-privatekey").write_text("key")
    other = folder.parent / "of-ansible"
    other.touch()
    for each in (folder / "ssh" / "ssh-privatekey", folder / "ssh", folder):
        os.utime(each, (time.time() - age, time.time() - age))
    assert private_folder.sweep() == ([folder] if swept else [])
    assert folder.exists() is not swept
    assert other.exists(), "what else is there is Ansible's"
