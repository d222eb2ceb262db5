# SPDX-License-Identifier: Apache-2.0
"""Records of a control plane that moves to another place: what it claims of members, and how far both places are.

The claim grows with each move, and members have it on record (``members.epoch``). The place with the highest one is the
only one that they follow. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Step of a hand-over after which nothing writes to etcd any more, so that a backup from then on is the final one.
SILENT = "StopServers"
#: Last step of a hand-over.
HANDED_OVER = "HandedOver"


@dataclass(frozen=True, order=True)
class Claim:
    """Claim of a place to the members. ``epoch`` counts moves; ``id`` tells two places apart that moved there at once.

    A control plane that was never moved has none, and members have none of it on record.
    """

    epoch: int = 0
    id: str = ""

    def __str__(self) -> str:
        return f"{self.epoch}.{self.id}" if self.epoch else ""

    def raised(self, claim_id: str) -> Claim:
        """Claim of the next place, or of this one when it goes on although it was left."""
        return Claim(self.epoch + 1, claim_id)

    @classmethod
    def of(cls, text: str) -> Claim:
        """Claim in the form that members have on record. Raises ValueError for anything else."""
        if not text:
            return cls()
        epoch, dot, found = text.partition(".")
        if not dot or not epoch.isdecimal() or len(epoch) > 9 or not found.isalnum() or len(found) > 32:
            raise ValueError("it is no record of a move")
        return cls(int(epoch), found)


@dataclass(frozen=True)
class HandOverState:
    """A hand-over, from its decision on, at the place that is left. It is gone when it was taken back.

    ``series`` is the EtcdBackup in whose target the final backup lies, ``backup`` its name. ``step`` is the last one
    that has come to its end, ``undoing`` whether it is taken back. ``held`` and ``closed`` are as in a restore.
    """

    series: str
    started: str
    step: str = ""
    backup: str = ""
    held: tuple[str, ...] = ()
    closed: bool = False
    undoing: bool = False

    @property
    def is_over(self) -> bool:
        """True if this place was left."""
        return self.step == HANDED_OVER and not self.undoing

    @property
    def may_be_taken_over(self) -> bool:
        """True if there may be a final backup, by which another place takes over without being asked twice.

        None is taken before API servers are closed. Later there may be one that is not on record: its run was killed,
        or something has written since, so that another one was to be taken.
        """
        return bool(self.backup) or self.step == SILENT or self.closed

    @property
    def is_silent(self) -> bool:
        """True if nothing has written since: a backup with this record in its state is the final one."""
        return self.step == SILENT and not self.undoing


@dataclass(frozen=True)
class TakeOverState:
    """A move to here, from the moment on when the keys of a backup became the state of this place.

    ``source`` is the place that was left, as ``namespace/name``, ``planned`` whether it had been handed over.
    ``epoch`` is that of the claim with which this place began; 0 if an earlier version did not note it.
    ``revision`` is what clients there may have come to by a restore that the backup has nothing of; 0 if by none, or if
    that was not noted.
    ``fenced``: every member has our claim on record, except the ``unfenced`` ones, which were out of reach and named.
    """

    series: str
    backup: str
    source: str
    planned: bool = False
    fenced: bool = False
    unfenced: tuple[str, ...] = ()
    epoch: int = 0
    revision: int = 0


def hand_over_of(found: Mapping[str, Any]) -> HandOverState:
    """Record in its stored form. Raises TypeError for fields that it cannot have."""
    return HandOverState(**{**found, "held": tuple(found["held"])})


def take_over_of(found: Mapping[str, Any]) -> TakeOverState:
    """Record in its stored form. Raises TypeError for fields that it cannot have."""
    return TakeOverState(**{**found, "unfenced": tuple(found["unfenced"])})
