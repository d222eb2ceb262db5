# SPDX-License-Identifier: Apache-2.0
"""Queue of keys: whose turn it is, and when. Thread-safe.

A key is worked on by one worker at a time. Whatever is added meanwhile is one entry for afterwards. Each lane has a
bound of its own, so deletions do not wait behind installs. Within a lane the namespace has its turn that was served
least recently, so that one with a hundred objects does not keep another one waiting.

A key that waits for a run keeps its place while it is looked at in between (lane ``quick``), as often as that may be.

Keys of one group, a control plane with what belongs to it, are worked on one after the other: a restore comes before an
install, and a backup last. A restore or a deletion holds what comes after it also while its lane is full; any other
does while there is room for it, so that no backup waits for hundreds of installs. Looks (lane ``quick``) are for all at
any time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .kinds import Key, Lane

#: Default bounds: at most 4 installs at once take about 1 GiB, and all 11 runs that there may be 2.4 GiB.
BOUNDS: Mapping[Lane, int] = {
    Lane.QUICK: 8,
    Lane.CHANGES: 4,
    Lane.DELETIONS: 2,
    Lane.ROUTINE: 1,
    Lane.RESTORES: 2,
    Lane.BACKUPS: 2,
}
#: Order in which keys of one group have their turn.
RANK = (Lane.RESTORES, Lane.DELETIONS, Lane.CHANGES, Lane.ROUTINE, Lane.BACKUPS)
#: Lanes that keep the turn of their group also while they are full.
_KEEP = (Lane.RESTORES, Lane.DELETIONS)


@dataclass
class _Entry:
    """Turn that a key waits for: not before ``due``, in the order of ``turn``; ``placed``: that one is for a run."""

    lane: Lane
    due: float
    turn: int
    group: Hashable
    placed: bool


class Turn(NamedTuple):
    """A key that a worker shall work on now, and for how long it had waited since it was due, in seconds."""

    key: Key
    lane: Lane
    waited: float


class WorkQueue:
    """Waiting keys by lane. ``clock`` gives monotonic seconds, ``group_of`` the group of a key when it is added."""

    def __init__(
        self,
        bounds: Mapping[Lane, int] = BOUNDS,
        clock: Callable[[], float] = time.monotonic,
        group_of: Callable[[Key], Hashable] = lambda key: key,
    ) -> None:
        self.bounds = dict(bounds)
        self._clock, self._group_of = clock, group_of
        self._changed = threading.Condition()
        self._waiting: dict[Key, _Entry] = {}
        self._active: dict[Key, _Entry] = {}
        #: Turns of keys that are looked at while they wait for a run.
        self._places: dict[Key, int] = {}
        self._served: Counter[tuple[Lane, str]] = Counter()  # turn at which a namespace was served last
        self._turns = 0
        self._closed = False

    def add(self, key: Key, lane: Lane, delay: float = 0.0) -> None:
        """Queue a key, ``delay`` seconds from now. The new lane holds, and the earlier time."""
        group = self._group_of(key)
        with self._changed:
            due = self._clock() + delay
            known = self._waiting.get(key)
            if known is None:
                self._turns += 1
                place = self._places.pop(key, None)
                placed = place is not None or lane is not Lane.QUICK
                self._waiting[key] = _Entry(lane, due, self._turns if place is None else place, group, placed)
            else:
                known.lane, known.due, known.group = lane, min(known.due, due), group
                known.placed |= lane is not Lane.QUICK
            self._changed.notify_all()

    def postpone(self, key: Key, lane: Lane, delay: float) -> None:
        """Queue a key ``delay`` seconds from now unless it waits already, as one does that was added meanwhile."""
        with self._changed:
            if key not in self._waiting:
                self.add(key, lane, delay)

    def take(self, timeout: float) -> Turn | None:
        """Next key whose turn it is; None after ``timeout`` seconds without one, or when the queue is closed."""
        end = self._clock() + timeout
        with self._changed:
            while not self._closed:
                now = self._clock()
                if (found := self._next(now)) is not None:
                    return found
                if now >= end:
                    return None
                due = min((each.due for each in self._waiting.values() if each.due > now), default=end)
                self._changed.wait(max(0.001, min(due, end) - now))
            return None

    def done(self, key: Key) -> None:
        """Say that nobody works on this key any more."""
        with self._changed:
            del self._active[key]
            # Unless it waits again by now, the look has found nothing to run.
            self._places.pop(key, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Hand out nothing any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def waiting(self, seconds: float) -> set[Key]:
        """Keys that have been due for a run for so many seconds and are not worked on; those of a look left out."""
        with self._changed:
            return {key for key in self._waiting if self._waits(key, seconds)}

    def waits(self, key: Key) -> bool:
        """Return whether a key is due for a run, and neither is worked on nor was handed out for it."""
        with self._changed:
            return self._waits(key, 0.0)

    def _waits(self, key: Key, seconds: float) -> bool:
        entry = self._waiting.get(key)
        if entry is None or key in self._active or entry.lane in (Lane.QUICK, Lane.ROUTINE):
            return False
        return entry.due + seconds <= self._clock()

    def depth(self) -> Counter[Lane]:
        """Number of keys by lane that are due and wait."""
        now = self._clock()
        with self._changed:
            return Counter(each.lane for each in self._waiting.values() if each.due <= now)

    def active(self) -> Counter[Lane]:
        """Number of keys by lane that are worked on."""
        with self._changed:
            return Counter(each.lane for each in self._active.values())

    def _next(self, now: float) -> Turn | None:
        busy = Counter(each.lane for each in self._active.values())
        taken = {each.group for each in self._active.values() if each.lane is not Lane.QUICK}
        due = {key: each for key, each in self._waiting.items() if each.due <= now}
        room = {lane for lane in Lane if busy[lane] < self.bounds[lane]}
        first: dict[Hashable, int] = {}
        for each in due.values():
            if each.lane in _KEEP or (each.lane in room and each.lane is not Lane.QUICK):
                rank = RANK.index(each.lane)
                first[each.group] = min(rank, first.get(each.group, rank))
        ready = [
            (self._served[each.lane, key.namespace], each.turn, key)
            for key, each in due.items()
            if key not in self._active
            and each.lane in room
            and (each.lane is Lane.QUICK or (each.group not in taken and RANK.index(each.lane) == first[each.group]))
        ]
        if not ready:
            return None
        key = min(ready)[2]
        entry = self._waiting.pop(key)
        self._active[key] = entry
        if entry.lane is Lane.QUICK and entry.placed:
            self._places[key] = entry.turn
        self._turns += 1
        self._served[entry.lane, key.namespace] = self._turns
        return Turn(key, entry.lane, now - entry.due)
