# SPDX-License-Identifier: Apache-2.0
"""Programs on a host: whole or not at all, known by their checksum, kept as long as a unit names their version."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_lock, host_program_files
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System
from ansible_collections.karmada.installer.plugins.modules import _host_state

FOLDER = "/usr/local/lib/karmada"
OLD, NEW = f"{FOLDER}/v1.18.1", f"{FOLDER}/v1.18.2"


@pytest.fixture
def system(tmp_path: Path) -> System:
    root = tmp_path / "root"
    (root / "etc/systemd/system").mkdir(parents=True)
    return System(str(root))


@pytest.fixture(autouse=True)
def _owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root may give files to root."""
    if os.getuid():
        monkeypatch.setattr(os, "chown", lambda *_arguments: None)


def install(system: System, arrived_in: Path, *paths: str, damaged: bool = False) -> None:
    """Let programs arrive at these paths, each with its path as content, or with another one."""
    programs: list[dict[str, Any]] = []
    arrived = {}
    for path in paths:
        checksum = hashlib.sha256(path.encode()).hexdigest()
        programs.append({"path": path, "sha256": checksum})
        file = arrived_in / checksum
        file.write_text("half of" if damaged else path)
        arrived[checksum] = str(file)
    host_program_files.install(system, programs, arrived)


def names(system: System, *paths: str) -> None:
    """One unit for each of these programs."""
    for number, path in enumerate(paths):
        system.path(f"/etc/systemd/system/karmada-{number}.service").write_text(f'[Service]\nExecStart="{path}" "-v"\n')


def test_programs_are_where_they_belong_and_can_be_run_by_every_user(system: System, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        install(system, tmp_path, f"{NEW}/karmada-scheduler", f"{NEW}/karmada-webhook")
    finally:
        os.umask(before)
    assert system.path(f"{NEW}/karmada-scheduler").read_text() == f"{NEW}/karmada-scheduler"
    assert host_program_files.intact(system, FOLDER) == {
        path: hashlib.sha256(path.encode()).hexdigest()
        for path in (f"{NEW}/karmada-scheduler", f"{NEW}/karmada-webhook")
    }
    modes = {each: system.path(each).stat().st_mode & 0o777 for each in ("/usr", FOLDER, NEW, f"{NEW}/karmada-webhook")}
    assert set(modes.values()) == {0o755}, modes


def test_a_program_that_arrived_damaged_is_refused_and_the_one_before_stays(system: System, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"what arrived for .*karmada-scheduler is damaged"):
        install(system, tmp_path, f"{NEW}/karmada-scheduler", damaged=True)
    assert not system.path(FOLDER).exists()
    assert [*host_program_files.intact(system, FOLDER)] == []
    install(system, tmp_path, f"{NEW}/karmada-scheduler")
    with pytest.raises(HostError):
        install(system, tmp_path, f"{NEW}/karmada-scheduler", damaged=True)
    assert [*host_program_files.intact(system, FOLDER)] == [f"{NEW}/karmada-scheduler"]


def test_a_program_that_runs_keeps_its_file_while_the_new_one_takes_the_name(system: System, tmp_path: Path) -> None:
    install(system, tmp_path, f"{NEW}/karmada-scheduler")
    with system.path(f"{NEW}/karmada-scheduler").open() as running:
        install(system, tmp_path, f"{NEW}/karmada-scheduler")
        inode = os.fstat(running.fileno()).st_ino
    assert system.path(f"{NEW}/karmada-scheduler").stat().st_ino != inode
    assert [*host_program_files.intact(system, FOLDER)] == [f"{NEW}/karmada-scheduler"]


@pytest.mark.parametrize("touch", ["written", "replaced", "mode", "gone", "record gone", "record damaged"])
def test_a_file_that_somebody_touched_is_not_ours_any_more(system: System, tmp_path: Path, touch: str) -> None:
    program, other = f"{NEW}/karmada-scheduler", f"{OLD}/karmada-scheduler"
    install(system, tmp_path, program, other)
    path = system.path(program)
    if touch == "written":
        path.write_text("x" * path.stat().st_size)
    elif touch == "replaced":
        same = path.with_name("same")
        same.write_text(path.read_text())
        same.rename(path)
    elif touch == "mode":
        path.chmod(0o777)
    elif touch == "gone":
        path.unlink()
    elif touch == "record gone":
        (path.parent / host_program_files.RECORD).unlink()
    else:
        (path.parent / host_program_files.RECORD).write_text("{")
    assert [*host_program_files.intact(system, FOLDER)] == [other]


@pytest.mark.parametrize(
    ("used", "gone"),
    [
        ([OLD, NEW], []),
        ([NEW], [OLD]),
        ([], [OLD, NEW]),
        # A longer version that begins with the shorter one does not name it.
        ([f"{OLD}0"], [OLD, NEW]),
    ],
)
def test_versions_that_no_unit_names_go(system: System, tmp_path: Path, used: list[str], gone: list[str]) -> None:
    install(system, tmp_path, *(f"{version}/karmada-scheduler" for version in (OLD, NEW)))
    names(system, *(f"{version}/karmada-scheduler" for version in used))
    assert host_program_files.remove_unused(system, FOLDER, "prod", check=True) == gone
    assert len(host_program_files.intact(system, FOLDER)) == 2
    assert host_program_files.remove_unused(system, FOLDER, "prod") == gone
    kept = {path.name for path in system.path(FOLDER).glob("*")}
    assert kept == {each.rsplit("/", 1)[-1] for each in {OLD, NEW} - set(gone)}
    assert host_program_files.remove_unused(system, FOLDER, "prod") == []


def test_what_we_did_not_install_stays(system: System, tmp_path: Path) -> None:
    install(system, tmp_path, f"{OLD}/karmada-scheduler")
    system.path(f"{FOLDER}/mine").mkdir()
    assert host_program_files.remove_unused(system, FOLDER, "prod") == [OLD]
    assert [path.name for path in system.path(FOLDER).iterdir()] == ["mine"]


@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_told_with_the_path_and_leaves_no_half(system: System, tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"v1\.18\.2/karmada-scheduler cannot be written: No space left on device"):
        install(system, tmp_path, f"{NEW}/karmada-scheduler")
    assert not system.path(FOLDER).exists()
    assert [*host_program_files.intact(system, FOLDER)] == []


def test_what_a_host_that_lost_power_has_of_its_first_program_goes(system: System) -> None:
    system.path(NEW).mkdir(parents=True)
    system.path(f"{NEW}/.karmada-scheduler.new").touch()
    assert host_program_files.remove_unused(system, FOLDER, "prod") == [NEW]
    assert not system.path(FOLDER).exists()
    assert system.path(FOLDER).parent.exists()


# -- several control planes on one host --------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [True, False])
def test_versions_stay_while_a_run_works_on_another_control_plane(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    """It has found or sent them, and writes the units that name them next."""
    install(system, tmp_path, f"{NEW}/karmada-scheduler")
    host_lock.take(system, "prod", "me")
    host_lock.take(system, "stage", "another run")
    assert host_program_files.remove_unused(system, FOLDER, "prod", check) == []
    assert [*host_program_files.intact(system, FOLDER)] == [f"{NEW}/karmada-scheduler"]
    # Its run was killed, and has been silent for long.
    later = host_lock.clock() + host_lock.LOCK_SILENCE
    monkeypatch.setattr(host_lock, "clock", lambda: later)
    assert host_program_files.remove_unused(system, FOLDER, "prod", check) == [NEW]


def test_versions_go_when_the_other_run_is_over(system: System, tmp_path: Path) -> None:
    install(system, tmp_path, f"{NEW}/karmada-scheduler")
    host_lock.take(system, "stage", "another run")
    host_lock.release(system, "stage", "another run")
    assert host_program_files.remove_unused(system, FOLDER, "prod") == [NEW]


def admitted(system: System, how: int) -> bool:
    """Whether another run may do this with what control planes share, now."""
    descriptor = os.open(system.path(host_lock.LOCK_FOLDER), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def asking(system: System, found: list[tuple[bool, bool]], work: Callable[..., Any]) -> Callable[..., Any]:
    """Work that notes whether other runs may look, and whether they may change something, while it lasts."""

    def asked(*arguments: Any, **more: Any) -> Any:
        found.append((admitted(system, fcntl.LOCK_SH), admitted(system, fcntl.LOCK_EX)))
        return work(*arguments, **more)

    return asked


def test_one_run_at_a_time_changes_programs_and_nobody_looks_meanwhile(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_lock.take(system, "prod", "me")
    found: list[tuple[bool, bool]] = []
    monkeypatch.setattr(host_program_files, "_install_one", asking(system, found, host_program_files._install_one))
    monkeypatch.setattr(host_program_files.shutil, "rmtree", asking(system, found, host_program_files.shutil.rmtree))
    install(system, tmp_path, f"{NEW}/karmada-scheduler", f"{NEW}/karmada-webhook")
    host_program_files.remove_unused(system, FOLDER, "prod")
    assert found == [(False, False)] * 3
    assert admitted(system, fcntl.LOCK_EX)


def test_nobody_removes_programs_while_a_run_looks_which_there_are(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[bool, bool]] = []
    monkeypatch.setattr(host_program_files, "intact", asking(system, found, lambda *_: {}))
    monkeypatch.setattr(_host_state.host_state, "facts", lambda *_: {})
    wanted = {"dead_holder": "", "address": "", "folders": [], "virtual_ip": ""}
    _host_state._perform(system, {"name": "prod", "holder": "me", "state": "locked", **wanted}, False)
    assert found == [(True, False)]
