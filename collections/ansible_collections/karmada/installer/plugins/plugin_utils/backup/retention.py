# SPDX-License-Identifier: Apache-2.0
"""Backups that are kept, and those that are to be deleted. Pure.

Of each hour, day and week (from Monday on, in UTC) that has a backup the newest counts, for as many hours, days and
weeks as the document says, the latest first. Hours without a backup are not counted: after a week of failures the
backups before it are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from ..document.backups import Retention

_HOUR: Callable[[datetime], tuple[int, ...]] = lambda at: (at.year, at.month, at.day, at.hour)  # noqa: E731
_DAY: Callable[[datetime], tuple[int, ...]] = lambda at: (at.year, at.month, at.day)  # noqa: E731
_WEEK: Callable[[datetime], tuple[int, ...]] = lambda at: tuple(at.isocalendar())[:2]  # noqa: E731


def kept(starts: Mapping[str, datetime], retention: Retention, in_use: Collection[str] = ()) -> frozenset[str]:
    """Names of the backups that are kept, of verified ones (name → start).

    The newest of all is kept always, and so are those ``in_use``, such as by a restore that is running.
    """
    newest_first = sorted(starts, key=lambda name: (starts[name], name), reverse=True)
    found = {*newest_first[:1], *(name for name in in_use if name in starts)}
    for count, period in ((retention.hourly, _HOUR), (retention.daily, _DAY), (retention.weekly, _WEEK)):
        newest_of: dict[tuple[int, ...], str] = {}
        for name in newest_first:
            newest_of.setdefault(period(starts[name].astimezone(UTC)), name)
        found.update(list(newest_of.values())[:count])
    return frozenset(found)


def to_delete(starts: Mapping[str, datetime], retention: Retention, in_use: Collection[str] = ()) -> list[str]:
    """Names of the verified backups that are to be deleted after a success, the oldest first."""
    stay = kept(starts, retention, in_use)
    return sorted((name for name in starts if name not in stay), key=lambda name: (starts[name], name))
