# SPDX-License-Identifier: Apache-2.0
"""Decisions by kind: which rules an object has, and what stands beside it. The rules themselves are pure, elsewhere.

What belongs to a control plane is decided upon with that in view, and what holds a control plane is told by its own
status, so that a restore that somebody else has started counts, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object

from . import backups, reconcile, restores, watch
from .actions import Action
from .health import Instance
from .kinds import Key, Kind, Lane
from .orders import Around, Beside, Seen
from .reconcile import Memory
from .watch import Watcher


def keeper(kind: Kind) -> Callable[[Object], Seen]:
    """Function that makes of an object of a kind what decides of it."""
    if kind.lane is Lane.BACKUPS:
        return backups.seen_of
    if kind.lane is Lane.RESTORES:
        return restores.seen_of
    return lambda obj: watch.seen_of(obj, kind.finalizer)


class Decider:
    """Looks at what watches know. ``clock`` gives the time in UTC."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        watchers: Callable[[], Sequence[Watcher[Seen]]],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._kinds, self._watchers, self._clock = kinds, watchers, clock
        self._guard = threading.Lock()
        #: Control planes of restores that were under way when they were looked at last.
        self._held: dict[Key, Key] = {}
        #: Group of each object that was seen, for the time after it.
        self._groups: dict[Key, Instance] = {}

    def seen(self, key: Key) -> Seen | None:
        """Knowledge of an object; None if it is not there."""
        return next((found for each in self._watchers() if (found := each.get(key)) is not None), None)

    def decide(self, key: Key, memory: Memory, around: Around) -> Action:
        """Next action for an object."""
        kind, seen, now = self._kinds[key.kind], self.seen(key), time.monotonic()
        if not kind.belongs:
            return reconcile.decide(seen, memory, now, around)
        beside = self._beside(key, seen)
        if kind.lane is Lane.BACKUPS:
            return backups.decide(seen, memory, now, self._clock(), beside, around)
        return restores.decide(seen, memory, now, beside, around)

    def instance(self, key: Key) -> Instance:
        """Control plane that an object is, or belongs to; that of one that is gone as it was seen last."""
        if not self._kinds[key.kind].belongs:
            return Instance(key.namespace, key.name)
        seen = self.seen(key)
        with self._guard:
            if seen is not None:
                self._groups[key] = Instance(key.namespace, seen.deployment)
            # One that nobody has seen yet is alone; no control plane has such a name.
            return self._groups.get(key, Instance(key.namespace, f"{key.kind}/{key.name}"))

    def owner(self, key: Key) -> Key | None:
        """Object that an object is, or belongs to; None if there is none of this name."""
        if not self._kinds[key.kind].belongs:
            return key
        found = (Key(kind.kind, *self.instance(key)) for kind in self._kinds.values() if not kind.belongs)
        return next((each for each in found if self.seen(each) is not None), None)

    def belongings(self, key: Key) -> Iterable[Key]:
        """Objects that belong to the control plane that an object is or belongs to, itself excepted."""
        instance = self.instance(key)
        for watcher in self._watchers():
            for each in watcher.known():
                if each != key and self._kinds[each.kind].belongs and self.instance(each) == instance:
                    yield each

    def adopt(self, key: Key, deployment: str) -> None:
        """Note to which control plane an object belongs that was gone before anybody saw it, and whose run goes on."""
        kind = self._kinds[key.kind]
        if not kind.belongs:
            return
        with self._guard:
            self._groups[key] = Instance(key.namespace, deployment)
        owner = self.owner(key)
        if owner is not None and kind.lane is Lane.RESTORES:
            with self._guard:
                self._held[key] = owner

    def forget(self, key: Key) -> Key | None:
        """Drop an object that is gone; returns the control plane that it has left held, None if there is none."""
        owner = self.owner(key)
        with self._guard:
            self._groups.pop(key, None)
            was_held = self._held.pop(key, None)
        return owner if was_held else None

    def _beside(self, key: Key, seen: Seen | None) -> Beside:
        owner = self.owner(key)
        if seen is not None and seen.restore is not None and owner is not None:
            with self._guard:
                if seen.restore.phase in restores.UNDER_WAY:
                    self._held[key] = owner
                else:
                    self._held.pop(key, None)
        return Beside(self.seen(owner) if owner else None, self._other_restore(key))

    def _other_restore(self, key: Key) -> str:
        """Name of another restore of the same control plane that is under way."""
        if self._kinds[key.kind].lane is not Lane.RESTORES:
            return ""
        for each in self.belongings(key):
            found = self.seen(each)
            if found is not None and found.restore is not None and found.restore.phase in restores.UNDER_WAY:
                return each.name
        return ""
