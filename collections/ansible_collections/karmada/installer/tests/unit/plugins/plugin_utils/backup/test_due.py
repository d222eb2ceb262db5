# SPDX-License-Identifier: Apache-2.0
"""Backups that are due, missed and too old: by samples, and by what holds for every history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.due import Due, due, health, in_words
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Directory, Retention, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)


def wanted(*, cron: str = "", interval: str = "", suspended: bool = False) -> Wanted:
    return Wanted(
        name="nightly",
        recipients=(),
        schedule=schedule_of(cron, interval),
        suspended=suspended,
        target=Directory(""),
        retention=Retention(24, 7, 4),
    )


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-{text}").replace(tzinfo=UTC)


HOURLY, NIGHTLY = wanted(), wanted(cron="0 2 * * *")
WANTED = st.sampled_from([HOURLY, NIGHTLY, wanted(interval="15m"), wanted(cron="30 3 * * 1-5"), wanted(interval="7h")])
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
HISTORIES = st.lists(MOMENTS, max_size=30)


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([], Due(since=at("25 12:00"), next=at("25 13:00"))),
        (["25 12:00"], Due(next=at("25 13:00"))),
        (["25 12:29"], Due(next=at("25 13:00"))),
        (["25 11:59"], Due(since=at("25 12:00"), next=at("25 13:00"))),
        (["25 09:30"], Due(since=at("25 12:00"), missed=2, next=at("25 13:00"))),
        (["25 12:10", "24 09:30"], Due(next=at("25 13:00"))),
        # of a clock that is right for somebody, and one that is wrong
        (["25 12:39"], Due(next=at("25 13:00"))),
        (["26 12:00"], Due(since=at("25 12:00"), next=at("25 13:00"))),
    ],
)
def test_what_is_due_each_hour(starts: list[str], found: Due) -> None:
    assert due(HOURLY, map(at, starts), NOW) == found


def test_nothing_is_due_while_suspended() -> None:
    assert due(wanted(suspended=True), [], NOW) == Due()


def test_the_missed_are_counted_up_to_a_bound() -> None:
    assert due(wanted(interval="5m"), [NOW - timedelta(days=300)], NOW).missed == 1000


@given(WANTED, HISTORIES, MOMENTS)
def test_a_success_is_what_it_takes(series: Wanted, starts: list[datetime], now: datetime) -> None:
    """Whoever is called as often as one likes takes one backup for each moment of the schedule."""
    found = due(series, starts, now)
    assert found.next is not None
    assert found.next > now
    assert due(series, [*starts, now], now) == Due(next=found.next)
    later = found.next - timedelta(microseconds=1)
    assert due(series, [*starts, now], later).since is None
    assert due(series, [*starts, now], found.next).since == found.next
    if found.since is not None:
        assert found.since <= now
        assert all(not found.since <= start <= now for start in starts)


@given(WANTED, HISTORIES, MOMENTS, st.randoms())
def test_the_order_of_a_list_does_not_matter(
    series: Wanted, starts: list[datetime], now: datetime, random: object
) -> None:
    mixed = list(starts)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert due(series, mixed, now) == due(series, starts, now)


@pytest.mark.parametrize(
    ("series", "start", "healthy", "reason", "part"),
    [
        (HOURLY, "25 10:30", True, "Recent", "is 2 h old"),
        (HOURLY, "25 10:29", False, "TooOld", "is 2 h 1 min old, more than the 2 h that its schedule allows"),
        (NIGHTLY, "23 12:30", True, "Recent", "is 2 d old"),
        (NIGHTLY, "23 12:29", False, "TooOld", "more than the 2 d"),
        # over a weekend as well
        (wanted(cron="0 2 * * 1-5"), "20 02:00", True, "Recent", "is 5 d 10 h old"),
        (wanted(suspended=True), "24 12:00", False, "Suspended", "and it is suspended"),
        (HOURLY, "25 12:35", True, "Recent", "is 0 s old"),
    ],
)
def test_the_condition(series: Wanted, start: str, healthy: bool, reason: str, part: str) -> None:
    found = health(series, [at(start)], NOW)
    assert (found.healthy, found.reason) == (healthy, reason)
    assert part in found.message
    assert "EtcdBackup nightly" in found.message


def test_a_series_without_a_backup_is_not_healthy() -> None:
    assert health(HOURLY, [], NOW).reason == "NoBackup"


@given(WANTED, HISTORIES, MOMENTS)
def test_with_the_latest_there_it_is_healthy_and_with_time_it_is_not(
    series: Wanted, starts: list[datetime], now: datetime
) -> None:
    assert health(series, [*starts, now], now).healthy
    past = [each for each in starts if each <= now]
    assert not health(series, past, now + timedelta(days=60)).healthy


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (86400 + 59, "1 d"), (5405, "1 h 30 min")],
)
def test_durations_in_words(seconds: int, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words
