# SPDX-License-Identifier: Apache-2.0
"""What steps have changed, until the report tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.run import changes, private_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(private_folder, "of_this_run", lambda: tmp_path / "run")
    return tmp_path / "run"


def test_changes_come_back_in_the_order_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changes.of_this_run() == []
    for moment, name in ((5, "b"), (40, "a")):
        monkeypatch.setattr(changes.time, "time_ns", lambda moment=moment: moment)
        changes.note({"changed": True, "changes": [f"created Secret karmada/{name}"]}, "Issue", "karmada_control")
    assert changes.of_this_run() == ["created Secret karmada/b", "created Secret karmada/a"]


def test_hosts_that_change_at_the_same_moment_are_all_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes.time, "time_ns", lambda: 5)
    for pid, host in ((11, "cp1"), (12, "cp2")):
        monkeypatch.setattr(changes.os, "getpid", lambda pid=pid: pid)
        changes.note({"changed": True}, "Start etcd", host)
    assert changes.of_this_run() == ["changed Host cp1 (Start etcd)", "changed Host cp2 (Start etcd)"]


def test_a_step_that_changes_nothing_leaves_nothing(folder: Path) -> None:
    changes.note({"changed": False, "changes": []}, "Look", "karmada_control")
    assert not folder.exists()


def test_the_age_of_a_run_is_that_of_its_first_process() -> None:
    assert run_process.seconds_since_start(os.getpid()) >= 0
    assert run_process.seconds_since_start(1 << 30) is None
