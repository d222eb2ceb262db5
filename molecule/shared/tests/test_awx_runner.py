# SPDX-License-Identifier: Apache-2.0
"""What the harness of AWX says of a job, and the figures that a scenario keeps of jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from awx_runner import Done

sys.path.append(str(Path(__file__).parents[2] / "awx"))

import jobs

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(lasting: float, told: Sequence[float]) -> Done:
    """Job of so many seconds, with a line at each of these."""
    times = [(BEGAN + timedelta(seconds=second)).isoformat() for second in told]
    events = [{"created": each, "stdout": "ok"} for each in times]
    # Events without text are no output, and time zones may be missing.
    events += [{"created": BEGAN.isoformat(), "stdout": ""}]
    events[0]["created"] = events[0]["created"].removesuffix("+00:00")
    return Done("successful", 0, events, Path("41"), Path("/"), BEGAN, BEGAN + timedelta(seconds=lasting), lasting)


@pytest.mark.parametrize(
    ("lasting", "told", "silence"),
    [(100, [40, 60, 90], 40), (100, [10, 35, 50], 50), (100, [10, 70, 95], 60), (7, [], 7)],
    ids=["before the first line", "after the last one", "between two", "no line"],
)
def test_silence_counts_from_the_start_to_the_end(lasting: float, told: Sequence[float], silence: float) -> None:
    assert job(lasting, told).silence == silence


@pytest.mark.parametrize(
    ("pairs", "longer"),
    [
        ([(61.6, 69.6), (30.8, 29.9), (30.0, 32.0)], 2.0),
        # One run by hand that something held up says nothing.
        ([(90.0, 40.0), (30.0, 41.0), (30.0, 42.0), (30.0, 43.0), (30.0, 44.0)], 12.0),
    ],
)
def test_a_job_is_compared_by_the_middle_of_the_rounds(pairs: Sequence[tuple[float, float]], longer: float) -> None:
    told = jobs.comparison(pairs)
    assert f"{longer:.1f} s longer (median of {len(pairs)}" in told


def test_how_much_longer_a_job_takes_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checkout").mkdir()
    clock = [0.0]

    def by_hand(*_given: Any, **_more: Any) -> None:
        clock[0] += 30.0

    monkeypatch.setattr(jobs.subprocess, "run", by_hand)
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock[0])
    site: Any = SimpleNamespace(
        root=tmp_path,
        figures=tmp_path / "figures.json",
        credential=lambda: SimpleNamespace(inject=lambda *_: ({}, [])),
        succeeded=lambda _verb: SimpleNamespace(seconds=32.0),
    )
    jobs.compare(site, 3)
    (told,) = json.loads(site.figures.read_text()).values()
    assert told.startswith("by hand and as a job 30.0 s and 32.0 s")
    assert "2.0 s longer" in told
