# SPDX-License-Identifier: Apache-2.0
"""Memory of this process of the runs of all objects. Thread-safe; the rules are those of ``reconcile``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from .kinds import Key
from .reconcile import Memory


class Memories:
    """Memory of each object; one that is not known has an empty one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._of: dict[Key, Memory] = {}

    def of(self, key: Key) -> Memory:
        """Memory of an object."""
        with self._guard:
            return self._of.get(key, Memory())

    def change(self, key: Key, change: Callable[[Memory], Memory]) -> Memory:
        """Change what is remembered, and return what it was before. ``change`` is pure, and may raise."""
        with self._guard:
            before = self._of.get(key, Memory())
            self._of[key] = change(before)
            return before

    def cancelled(self, key: Key, why: str) -> bool:
        """Remember that a run under way was cancelled; returns whether that is news."""
        with self._guard:
            memory = self._of.get(key, Memory())
            if memory.running is None or memory.cancelled:
                return False
            self._of[key] = replace(memory, cancelled=why)
            return True

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        with self._guard:
            self._of.pop(key, None)
