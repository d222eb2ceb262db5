# SPDX-License-Identifier: Apache-2.0
"""The measurement of an idle operator measures one that is there, and says when it takes too much."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import operator_idle
import pytest


def test_an_operator_is_measured_once_it_has_told_of_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_idle, "SETTLES", 0.0)
    found = operator_idle.measure(2, 0.2)
    assert 10 < found.mib < 200
    assert found.share >= 0


def test_what_is_beyond_the_figure_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    taken = {10: operator_idle.Taken(49.6, 0.3), 100: operator_idle.Taken(97, 0.3)}
    monkeypatch.setattr(operator_idle, "measure", lambda number, _: taken[number])
    figures = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["operator_idle.py", "--objects=10", f"--figures={figures}"])
    assert operator_idle.main() == 0
    assert json.loads(figures.read_text()) == {"idle, 10 paused objects": "50 MiB, 0.30 % of a core"}
    monkeypatch.setattr(sys, "argv", ["operator_idle.py", "--objects=10", "--objects=100"])
    assert operator_idle.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == "that is more than 96 MiB, or than 3.0 %"
