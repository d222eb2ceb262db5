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
