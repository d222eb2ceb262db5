# SPDX-License-Identifier: Apache-2.0
"""What the harness of AWX says of a job, and the figures that a scenario keeps of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from awx_runner import Done

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
