# SPDX-License-Identifier: Apache-2.0
"""Moments at which something is due: by five fields of cron, or at each multiple of an interval. In UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

#: Moments from which an interval is told: of a schedule for working days the longest gap is among these.
_MOMENTS = 8
#: No two 29ths of February are further apart.
_MOST_DAYS = 8 * 366 + 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: One of the parts between commas: all of it before the step, first and last number, step.
_PART = re.compile(r"(\*|(\d+)(?:-(\d+))?)(?:/(\d+))?")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?")
#: Bounds of minute, hour, day of the month, month, day of the week; in the last, 0 and 7 are Sunday.
_BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


@dataclass(frozen=True)
class Interval:
    """Each multiple of a length, counted from the beginning of 1970."""

    length: timedelta

    def latest(self, now: datetime) -> datetime | None:
        """Newest moment that is not after ``now``."""
        return _EPOCH + (now - _EPOCH) // self.length * self.length

    def after(self, moment: datetime) -> datetime | None:
        """First moment after this one."""
        return _EPOCH + ((moment - _EPOCH) // self.length + 1) * self.length


@dataclass(frozen=True)
class Cron:
    """Moments of five fields of cron, as sets of numbers; days of the week are those of Python (Monday is 0).

    As in cron, a day fits if it is one of ``days`` or one of ``weekdays`` where both are restricted, else both.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @classmethod
    def of(cls, text: str) -> Cron:
        """Schedule of a text that the schema of the document lets through."""
        fields = text.split(" ")
        minutes, hours, days, months, weekdays = (
            _numbers(field, *bounds) for field, bounds in zip(fields, _BOUNDS, strict=True)
        )
        return cls(
            minutes=tuple(sorted(minutes)),
            hours=tuple(sorted(hours)),
            days=days,
            months=months,
            weekdays=frozenset((day + 6) % 7 for day in weekdays),
            either=not fields[2].startswith("*") and not fields[4].startswith("*"),
        )

    def latest(self, now: datetime) -> datetime | None:
        """Newest moment that is not after ``now``; None if there is none in the eight years before."""
        return next((each for each in self._moments(now, back=True) if each <= now), None)

    def after(self, moment: datetime) -> datetime | None:
        """First moment after this one; None if there is none in the eight years after."""
        return next((each for each in self._moments(moment, back=False) if each > moment), None)

    def _moments(self, start: datetime, *, back: bool) -> Iterator[datetime]:
        """Moments from the day of ``start`` on, in the order of time, or against it."""
        order = -1 if back else 1
        for number in range(_MOST_DAYS):
            day = start.astimezone(UTC).date() + timedelta(days=order * number)
            fits = (day.day in self.days, day.weekday() in self.weekdays)
            if day.month in self.months and (any(fits) if self.either else all(fits)):
                for hour in self.hours[::order]:
                    for minute in self.minutes[::order]:
                        yield datetime.combine(day, time(hour, minute), UTC)


Schedule = Interval | Cron


def schedule_of(cron: str, interval: str) -> Schedule:
    """Schedule by one of the two texts, whichever is not empty; each hour if both are."""
    if cron:
        return Cron.of(cron)
    hours, minutes = _DURATION.findall(interval or "1h")[0]
    return Interval(timedelta(hours=int(hours or 0), minutes=int(minutes or 0)))


def longest_gap(schedule: Schedule, now: datetime) -> timedelta:
    """Longest time between two moments that follow each other, of the last few before ``now`` and the next one.

    Zero if there are no two.
    """
    moments = [schedule.after(now)]
    while len(moments) <= _MOMENTS:
        before = moments[-1] or now
        moments.append(schedule.latest(before - timedelta(microseconds=1)))
        if moments[-1] is None:
            break
    known = [each for each in moments if each is not None]
    return max((late - early for late, early in pairwise(known)), default=timedelta())


def _numbers(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for whole, begin, end, step in _PART.findall(field):
        first = low if whole == "*" else int(begin)
        # As in cron, a step after a single number counts up to the end.
        last = int(end) if end else high if whole == "*" or step else first
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)
