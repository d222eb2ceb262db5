# SPDX-License-Identifier: Apache-2.0
"""Pages of a list, and when there are too many of them."""

from __future__ import annotations

import time

from .answer import MIB, Limits


class Pages:
    """Guard against a list without a last page: a server that ignores ``continue`` repeats its pages for ever."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._asked: set[str] = set()
        self._bytes = 0
        self._until = time.monotonic() + limits.list_seconds

    def wrong(self, following: object, items: int, size: int) -> str:
        """Reason to stop after a page of ``size`` bytes; empty if the page ``following`` may be requested."""
        limits = self._limits
        self._bytes += size
        if not isinstance(following, str) or following in self._asked:
            return "it is a list that goes on where it has been already"
        self._asked.add(following)
        if items > limits.list_items:
            return f"it is a list of more than {limits.list_items} objects"
        if self._bytes > limits.list_bytes:
            return f"it is a list of more than {limits.list_bytes // MIB} MiB"
        if time.monotonic() > self._until:
            return f"it is a list that does not come to an end within {limits.list_seconds:.0f} s"
        return ""
