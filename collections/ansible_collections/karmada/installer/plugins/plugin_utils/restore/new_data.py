# SPDX-License-Identifier: Apache-2.0
"""The new data of the members of etcd, wherever they run: who gets it, and how far its revision is ahead. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..components.etcd_configuration import folder_of
from ..components.etcd_state import EtcdState
from ..components.state import State

#: Least that is added to the revision, and what is added for each second since the backup: more than etcd can do.
LEAST_BUMP, BUMP_PER_SECOND = 10**9, 50_000
#: Room for the new data beside the old, in sizes of the snapshot: the database, its log, and some growth.
COPIES = 1.5
#: A piece of etcd's log (``SegmentSizeBytes`` of its package wal), for which the disk is taken before it is written.
_PIECE = 64 << 20
#: Most that the log of a member takes: five pieces are kept (``--max-wals``), and the next one is made beforehand.
MOST_LOG = 6 * _PIECE
#: What the log of new data takes at once.
NEW_LOG = 2 * _PIECE


def bump(age: timedelta) -> int:
    """Number that takes the revision of a backup of this age above any that a client has seen; needs no record of it.

    That is so unless there was a restore meanwhile: one adds more than etcd counts (``beginning``).
    """
    return max(LEAST_BUMP, int(age.total_seconds()) * BUMP_PER_SECOND)


def bump_beyond(revision: int, seen: Iterable[tuple[int, timedelta]]) -> int:
    """Number that takes this revision above any that a client has seen, by those that etcd had, each with its age."""
    return max(each + bump(age) for each, age in seen) - revision


def folders(etcd: EtcdState) -> set[str]:
    """Folders of data of the members of etcd as it was; of one that never started, those of its beginning."""
    return {folder_of(etcd.generation, each) for each in etcd.members} or {folder_of(etcd.generation)}


def old_folders(state: State) -> set[str]:
    """Folders in the volume of a member that no member uses, or will use no more once another restore begins."""
    restore = state.restore
    if restore is None:
        return set()
    found = set(restore.aside)
    if not restore.is_over:
        found |= folders(restore.former) | {folder_of(restore.generation)}
    return found - folders(state.etcd)


def members(state: State) -> tuple[str, ...]:
    """Names of the members that get the data: those on record, but one that is only to come."""
    return tuple(each.name for each in state.etcd.members if not each.coming)
