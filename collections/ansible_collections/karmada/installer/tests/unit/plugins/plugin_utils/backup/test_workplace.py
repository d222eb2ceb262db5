# SPDX-License-Identifier: Apache-2.0
"""Folders of runs: what a dead one has left goes, what a living one has stays."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import workplace
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_folders_of_dead_runs_go(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = workplace.made()
    assert workplace.sweep() == []
    monkeypatch.setattr(run_process, "holder_is_dead", lambda _holder: True)
    assert workplace.sweep() == [ours]
    assert not ours.exists()


def test_a_folder_of_a_run_that_was_killed_before_it_was_named_goes_in_time() -> None:
    ours = workplace.made()
    unnamed = workplace.folder() / "run-unnamed"
    unnamed.mkdir()
    assert workplace.sweep() == [], "its run may be about to name it"
    before = time.time() - 3600
    os.utime(unnamed, (before, before))
    assert workplace.sweep() == [unnamed]
    assert ours.exists()


def silent(place: Path, seconds: float) -> None:
    """Have everything in a folder written so long ago."""
    then = time.time() - seconds
    for each in (*place.rglob("*"), place):
        os.utime(each, (then, then))


@pytest.mark.parametrize(
    ("host", "boot", "after"),
    [("", "an-earlier-boot.1.1", 601), ("elsewhere", "", 86_401), ("elsewhere", "another-boot.1.1", 86_401)],
    ids=["before this machine was started", "in another container", "on another machine"],
)
def test_what_a_run_has_left_that_cannot_be_judged_from_here_goes_when_nobody_has_written_there_for_long(
    host: str, boot: str, after: int
) -> None:
    ours = workplace.made()
    here = (ours / "holder").read_text().split("/")
    (ours / "holder").write_text("/".join([host or here[0], boot or here[1], "1", "1"]))
    (ours / "trial/data").mkdir(parents=True)
    (ours / "trial/data/db").touch()
    silent(ours, after + 60)
    os.utime(ours / "trial/data/db")
    assert workplace.sweep() == [], "somebody writes there"
    silent(ours, after - 60)
    assert workplace.sweep() == []
    silent(ours, after)
    assert workplace.sweep() == [ours]
    assert not ours.exists()


def test_what_is_handed_on_stays_until_the_next_step_removes_it() -> None:
    with workplace.handed_on() as ours:
        (ours / "snapshot.db").touch()
    assert (ours / "snapshot.db").exists()
    workplace.remove(ours)
    assert not ours.exists()


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(errno.ENOSPC, "No space left on device"), ProblemsError), (ValueError(), ValueError)]
)
def test_nothing_is_handed_on_by_a_step_that_fails(error: Exception, told: type[Exception]) -> None:
    def step() -> None:
        with workplace.handed_on() as ours:
            (ours / "snapshot.db").touch()
            raise error

    with pytest.raises(told):
        step()
    assert not list(workplace.folder().glob("run-*"))
