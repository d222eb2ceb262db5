# SPDX-License-Identifier: Apache-2.0
"""Thirty simulated days: whatever fails, is killed or has a wrong clock, the newest verified backup is always there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import due, retention
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Directory, Retention, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from hypothesis import given, settings
from hypothesis import strategies as st

BEGIN = datetime(2026, 11, 1, 0, 7, tzinfo=UTC)
HOURS = 30 * 24
#: Outcome of a run that finds a backup due: taken, failed, or killed after the record and before old ones went.
Outcome = Literal["taken", "failed", "killed"]
#: Few, so that what is counted wrongly costs the one that matters.
KEPT = st.builds(Retention, *(st.sampled_from([0, 1, 1, 4]) for _ in range(3)))
SCHEDULES = st.sampled_from([("", "1h"), ("", "6h"), ("0 2 * * *", ""), ("30 4 * * 1-5", "")])


@st.composite
def weather(draw: st.DrawFn) -> list[Outcome]:
    """Outcomes of 720 hours, in spells: a store that is away is away for days."""
    found: list[Outcome] = []
    while len(found) < HOURS:
        outcome: Outcome = draw(st.sampled_from(["taken", "failed", "failed", "killed"]))
        found += [outcome] * draw(st.integers(1, 200))
    return found[:HOURS]


@given(outcomes=weather(), kept=KEPT, schedule=SCHEDULES, ahead=st.none() | st.integers(0, HOURS - 1))
@settings(max_examples=20, deadline=None)
def test_the_newest_verified_one_is_always_there(
    outcomes: list[Outcome], kept: Retention, schedule: tuple[str, str], ahead: int | None
) -> None:
    """``ahead`` is the hour in which the clock of the machine shows another year."""
    wanted = Wanted("nightly", (), schedule_of(*schedule), False, Directory(""), kept)
    stored: dict[str, datetime] = {}
    newest = ""
    for hour, outcome in enumerate(outcomes):
        now = BEGIN + timedelta(hours=hour, days=900 if hour == ahead else 0)
        verdict = due.due(wanted, stored.values(), now)
        if verdict.since is not None and outcome != "failed":
            newest = f"prod-{hour:03d}"
            stored[newest] = now
            if outcome == "taken":
                for name in retention.to_delete(stored, kept, {newest}):
                    del stored[name]
        assert newest in stored or not newest


@given(kept=KEPT, last=st.integers(0, HOURS - 1))
@settings(max_examples=10, deadline=None)
def test_after_days_of_failures_the_one_before_them_is_told_as_too_old_and_is_there(kept: Retention, last: int) -> None:
    wanted = Wanted("nightly", (), schedule_of("", "1h"), False, Directory(""), kept)
    stored = {f"prod-{hour:03d}": BEGIN + timedelta(hours=hour) for hour in range(last + 1)}
    for name in retention.to_delete(stored, kept, {f"prod-{last:03d}"}):
        del stored[name]
    assert f"prod-{last:03d}" in stored
    later = BEGIN + timedelta(hours=last + 30 * 24)
    assert due.health(wanted, stored.values(), later).reason == "TooOld"
    assert due.due(wanted, stored.values(), later).missed == min(due.MOST_MISSED, 30 * 24 - 1)
