# SPDX-License-Identifier: Apache-2.0
"""Due, missed and overdue backups of one series, by the starts of those that exist. Pure; all times are in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..document.backups import Wanted
from ..document.schedule import longest_gap
from ..redaction import shown

#: A start that is further ahead is of a machine whose clock was wrong, and must not keep others from their work.
MOST_AHEAD = timedelta(minutes=10)
#: More are not counted.
MOST_MISSED = 1000
#: A backup is too old when its age passes this many times the longest gap of the schedule.
INTERVALS = 2


@dataclass(frozen=True)
class Due:
    """Verdict on a series. ``since`` is the moment from which a backup is due; None if none is.

    ``missed`` is the number of moments before that one for which there is no backup. ``next`` is the following moment;
    None if there is none, or while the series is suspended.
    """

    since: datetime | None = None
    missed: int = 0
    next: datetime | None = None


@dataclass(frozen=True)
class Health:
    """Condition BackupHealthy of a series: whether it holds, its reason for programs, and a sentence for people."""

    healthy: bool
    reason: str
    message: str


def due(wanted: Wanted, starts: Iterable[datetime], now: datetime) -> Due:
    """Verdict on a series whose verified backups were begun at ``starts``.

    The first one is due at once. One that was begun at or after the newest moment of the schedule has met it.
    """
    if wanted.suspended:
        return Due()
    following = wanted.schedule.after(now)
    newest, latest = newest_of(starts, now), wanted.schedule.latest(now)
    if newest is None:
        return Due(since=latest or now, next=following)
    if latest is None or newest >= latest:
        return Due(next=following)
    missed, before = 0, wanted.schedule.latest(_just_before(latest))
    while before is not None and before > newest and missed < MOST_MISSED:
        missed, before = missed + 1, wanted.schedule.latest(_just_before(before))
    return Due(since=latest, missed=missed, next=following)


def health(wanted: Wanted, starts: Iterable[datetime], now: datetime) -> Health:
    """Condition of a series: True while its newest verified backup is younger than twice the interval.

    The interval of a schedule that is not even is its longest.
    """
    newest, allowed = newest_of(starts, now), INTERVALS * longest_gap(wanted.schedule, now)
    if newest is None:
        return Health(False, "NoBackup", f"{wanted.place} has no verified backup yet")
    age = max(now - newest, timedelta())
    told = f"the newest verified backup of {wanted.place} is {in_words(age)} old"
    if age <= allowed:
        return Health(True, "Recent", told)
    reason, why = ("Suspended", ", and it is suspended") if wanted.suspended else ("TooOld", "")
    return Health(False, reason, shown(f"{told}, more than the {in_words(allowed)} that its schedule allows{why}"))


def newest_of(starts: Iterable[datetime], now: datetime) -> datetime | None:
    """Newest start that a clock can have shown; None if there is none."""
    return max((each for each in starts if each <= now + MOST_AHEAD), default=None)


def in_words(duration: timedelta) -> str:
    """Duration for people in its two largest units, such as ``2 d 3 h``, ``5 min`` or ``0 s``."""
    seconds = int(duration.total_seconds())
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        parts.append((count, unit))
    first = next((number for number, (count, _) in enumerate(parts) if count), len(parts) - 1)
    told = [f"{count} {unit}" for count, unit in parts[first : first + 2] if count]
    return " ".join(told) or "0 s"


def _just_before(moment: datetime) -> datetime:
    return moment - timedelta(microseconds=1)
