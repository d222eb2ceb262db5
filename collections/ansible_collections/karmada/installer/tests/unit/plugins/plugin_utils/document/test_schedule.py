# SPDX-License-Identifier: Apache-2.0
"""Moments of schedules, by samples and by what holds for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import (
    Cron,
    Interval,
    Schedule,
    longest_gap,
    schedule_of,
)
from hypothesis import given
from hypothesis import strategies as st

MOMENTS = st.datetimes(datetime(1999, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
CRONS = st.sampled_from(
    [
        "* * * * *",
        "30 2 * * *",
        "*/15 0-6 * * *",
        "0 0 1 * *",
        "5,10 */6 * * 1-5",
        "0 3 29 2 *",
        "0 0 13 * 5",
        "59 23 31 12 *",
    ]
)
INTERVALS = st.timedeltas(timedelta(minutes=5), timedelta(hours=744))
SCHEDULES: st.SearchStrategy[Schedule] = CRONS.map(Cron.of) | INTERVALS.map(Interval)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "now", "latest", "after"),
    [
        ("30 2 * * *", "2026-03-01 02:29:59", "2026-02-28 02:30", "2026-03-01 02:30"),
        ("30 2 * * *", "2026-03-01 02:30", "2026-03-01 02:30", "2026-03-02 02:30"),
        ("*/20 * * * *", "2026-03-01 02:45", "2026-03-01 02:40", "2026-03-01 03:00"),
        ("50/5 * * * *", "2026-03-01 02:45", "2026-03-01 01:55", "2026-03-01 02:50"),
        ("0 0 * * 0", "2026-11-25 12:00", "2026-11-22 00:00", "2026-11-29 00:00"),
        ("0 0 * * 7", "2026-11-25 12:00", "2026-11-22 00:00", "2026-11-29 00:00"),
        ("0 0 * * 5-7", "2026-11-25 12:00", "2026-11-22 00:00", "2026-11-27 00:00"),
        ("0 0 29 2 *", "2097-01-01 00:00", "2096-02-29 00:00", "2104-02-29 00:00"),
        # as in cron: the 13th, and each Friday
        ("0 0 13 * 5", "2026-11-25 12:00", "2026-11-20 00:00", "2026-11-27 00:00"),
        ("0 0 13 * 5", "2026-12-12 12:00", "2026-12-11 00:00", "2026-12-13 00:00"),
        ("0 0 */13 * 5", "2026-11-25 12:00", "2026-08-14 00:00", "2026-11-27 00:00"),
    ],
)
def test_moments_of_cron(cron: str, now: str, latest: str, after: str) -> None:
    schedule = Cron.of(cron)
    assert (schedule.latest(at(now)), schedule.after(at(now))) == (at(latest), at(after))


def test_an_interval_counts_from_midnight_and_not_from_the_last_run() -> None:
    schedule = schedule_of("", "15m")
    assert schedule.latest(at("2026-03-01 02:14:59")) == at("2026-03-01 02:00")
    assert schedule.after(at("2026-03-01 02:15")) == at("2026-03-01 02:30")
    assert schedule_of("", "1h30m") == Interval(timedelta(minutes=90))
    assert schedule_of("", "") == Interval(timedelta(hours=1))


@given(SCHEDULES, MOMENTS)
def test_no_moment_is_between_the_latest_and_the_next(schedule: Schedule, now: datetime) -> None:
    latest, after = schedule.latest(now), schedule.after(now)
    assert latest is not None
    assert after is not None
    assert latest <= now < after
    assert schedule.latest(after - timedelta(microseconds=1)) == latest
    assert schedule.after(latest) == after
    assert schedule.latest(latest) == latest


@pytest.mark.parametrize(
    ("cron", "now", "gap"),
    [
        ("0 * * * *", "2026-11-25 12:00", timedelta(hours=1)),
        # from Friday to Monday
        ("0 2 * * 1-5", "2026-11-25 12:00", timedelta(days=3)),
        ("0 2,4 * * *", "2026-11-25 12:00", timedelta(hours=22)),
        ("0 0 31 2 *", "2026-11-25 12:00", timedelta()),
    ],
)
def test_the_longest_gap(cron: str, now: str, gap: timedelta) -> None:
    assert longest_gap(Cron.of(cron), at(now)) == gap
