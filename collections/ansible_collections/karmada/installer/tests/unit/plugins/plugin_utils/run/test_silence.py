# SPDX-License-Identifier: Apache-2.0
"""A step that takes long says that it goes on, whatever it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.limits import SAY_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.progress import COLUMNS
from ansible_collections.karmada.installer.plugins.plugin_utils.run import silence
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.said import Kind, Said
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs
from ansible_collections.karmada.installer.tests.unit.support.tasks import task


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds after which a step breaks its silence here."""
    monkeypatch.setattr(silence, "STILL_SECONDS", 0.2)
    return 0.2


def lines(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Run], None], name: str) -> list[str]:
    """Lines of a step on the host cp1 that works like this; with each the time after the one before it."""
    run, said = Runs(folder).step(), []
    run.say = said.append

    class Slow(HostAction):
        def _make_run(self, arguments: dict[str, Any]) -> Run:
            del arguments
            return run

        def validate_argument_spec(self, argument_spec: Any = None, **_: Any) -> Any:
            del argument_spec
            return None, {}

        def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
            del arguments
            work(run)
            return {"changed": False}

    monkeypatch.setattr(ActionBase, "run", lambda *_: {})
    step: Any = Slow.__new__(Slow)
    step._task = task("slow", name=name)
    assert not step.run(task_vars={"inventory_hostname": "cp1"}).get("failed")
    return said


def test_a_host_that_answers_late_is_told_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lines(tmp_path, monkeypatch, lambda _: time.sleep(0.9), "Install HAProxy and keepalived")
    assert set(found) <= {f"[{second} s] host cp1: still at Install HAProxy and keepalived" for second in (0, 1)}
    assert 2 <= len(found) <= 4
    # It makes what was said before out of date, like every line of a wait.
    assert Said.by_step(found[0]).kind is Kind.PROGRESS


def test_many_short_answers_are_one_long_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(lines(tmp_path, monkeypatch, lambda _: [time.sleep(0.03) for _ in range(20)] and None, "Look")) >= 2


def test_a_step_that_is_done_soon_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(tmp_path, monkeypatch, lambda _: time.sleep(0.02), "Look") == []


def test_a_wait_that_tells_what_it_waits_for_is_not_talked_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: float
) -> None:
    when: list[float] = []

    def work(run: Run) -> None:
        for number in range(12):
            run.say(f"[{number}/300 s] waiting")
            when.append(time.monotonic())
            time.sleep(still / 4)

    found = lines(tmp_path, monkeypatch, work, "Wait")
    # A machine that is busy may let it wait for longer, which is then told.
    if max(after - before for before, after in pairwise(when)) < still:
        assert found == [f"[{number}/300 s] waiting" for number in range(12)]


def test_a_line_fits_into_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line, *_) = lines(tmp_path, monkeypatch, lambda _: time.sleep(0.4), "Start what differs " * 9)
    assert COLUMNS - 20 < len(line) <= COLUMNS
    assert line.endswith("…")


def test_nobody_waits_half_a_minute_for_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert SAY_SECONDS < silence.STILL_SECONDS < 30
