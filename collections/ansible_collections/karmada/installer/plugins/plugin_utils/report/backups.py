# SPDX-License-Identifier: Apache-2.0
"""Backups in a report: what is wrong with each series, and what is shown of its newest verified one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ..components.state import LastBackup

#: Series of backups that the schema of the status allows.
MOST_BACKUPS = 64


class Fault(NamedTuple):
    """Reason why a series is no help in an emergency, as a word for programs and for people, and what to do."""

    reason: str
    what: str
    remedy: str = ""


def faults(backups: Mapping[str, LastBackup | None], only_here: frozenset[str], now: datetime) -> list[Fault]:
    """Faults of the series: without a backup, with one that is too old, or with one that no other place can use.

    ``backups`` is series → newest verified backup, None where there is none; ``only_here`` are names of backups that
    another place could not take over.
    """
    found = []
    for series, last in backups.items():
        if last is None:
            found.append(Fault("NoBackup", f"EtcdBackup {series} has no verified backup yet"))
            continue
        old = now - datetime.fromisoformat(last.started)
        if last.allowed and old > timedelta(seconds=last.allowed):
            told = f"the newest verified backup of EtcdBackup {series} is {age(last.started, now)} old"
            found.append(Fault("TooOld", told))
        if last.name in only_here:
            told = (
                f"{last.name} and what is older of EtcdBackup {series} can be restored here, and be taken over "
                "nowhere: members have noted a hand-over or move since"
            )
            found.append(Fault("OnlyHere", told, f"karmada.installer.backup -e backup_now={series}"))
    return found


def age(since: str, now: datetime) -> str:
    """Time since then in the notation of kubectl: 45s, 12m, 5h, 3d."""
    if not since:
        return "-"
    seconds = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def rows(backups: Mapping[str, LastBackup | None]) -> list[dict[str, Any]]:
    """``status.backups``: a row for each series."""
    return [
        {
            "series": series,
            **(
                {
                    "name": last.name,
                    "startTime": last.started.replace("+00:00", "Z"),
                    "sizeBytes": last.size,
                    "revision": last.revision,
                    "durationSeconds": last.duration,
                }
                if last
                else {}
            ),
        }
        for series, last in list(backups.items())[:MOST_BACKUPS]
    ]
