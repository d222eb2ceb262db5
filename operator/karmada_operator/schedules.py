# SPDX-License-Identifier: Apache-2.0
"""Parts of an EtcdBackup that decide, and what its schedule says now. Pure; the collection has the rules of schedules.

All is told from the status of the object and from the clock, so a restart of the operator forgets nothing, and a clock
that jumps is wrong until the next look only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import due
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.due import Due
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted


@dataclass(frozen=True)
class Backups:
    """Parts of an EtcdBackup that decide. ``wanted`` is None if its spec cannot be used.

    ``newest`` is the start of the newest verified backup by its status, ``requested`` the word of run-now that was
    carried out last, ``carried_out`` the generation that the status speaks of.
    """

    wanted: Wanted | None
    newest: datetime | None = None
    requested: str = ""
    carried_out: int = 0


@dataclass(frozen=True)
class Age:
    """Condition BackupHealthy, and the moment of the next backup."""

    healthy: bool
    reason: str
    message: str
    following: datetime | None


def verdict(backups: Backups, clock: datetime, met: str = "") -> Due:
    """Verdict on the schedule now. ``met`` is a moment that a run has met, of which the status may not tell yet."""
    if backups.wanted is None:
        return Due()
    starts = [each for each in (backups.newest, moment_of(met)) if each is not None]
    return due.due(backups.wanted, starts, clock)


def age(backups: Backups, clock: datetime) -> Age | None:
    """Condition of a series now, in words that do not change as long as it does not; None without a schedule."""
    wanted = backups.wanted
    if wanted is None:
        return None
    starts: Iterable[datetime] = [backups.newest] if backups.newest else []
    found = due.health(wanted, starts, clock)
    message = f"the newest verified backup was begun at {text_of(backups.newest)}" if backups.newest else found.message
    if backups.newest and not found.healthy:
        message += ", longer ago than its schedule allows"
    return Age(found.healthy, found.reason, message, due.due(wanted, starts, clock).next)


def moment_of(text: object) -> datetime | None:
    """Moment in UTC of a text of a status or an order; None if it is none."""
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except ValueError:
        return None


def text_of(moment: datetime) -> str:
    """Moment as a status has it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
