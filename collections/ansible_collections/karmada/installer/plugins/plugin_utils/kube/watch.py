# SPDX-License-Identifier: Apache-2.0
"""A watch: events of an API server until the server, the caller or the network ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import urllib3

from ..api_object import Object
from .answer import MIB, TooMuchError, parsed
from .errors import ApiError
from .stream import Lines

#: JSON values in one event.
MAX_VALUES = 300_000


class Watch(Iterator[Object]):
    """Events (``{"type": "ADDED"|"MODIFIED"|"DELETED"|"BOOKMARK", "object": …}``) until the server ends the watch.

    Also ended by a broken connection, by anything that is no event, and by one longer than ``longest`` bytes; callers
    continue from the last resource version they saw. Raises Expired when that is too old. ``close`` may be called from
    another thread and ends a blocked iteration.
    """

    def __init__(
        self, response: urllib3.BaseHTTPResponse, error: Callable[[Object], ApiError], longest: int = 64 * MIB
    ) -> None:
        self._lines, self._error = Lines(response, longest), error
        self._events = self._read()

    def __next__(self) -> Object:
        return next(self._events)

    def _read(self) -> Iterator[Object]:
        try:
            for line in self._lines:
                event: Object = parsed(line, MAX_VALUES)
                if event["type"] == "ERROR":
                    raise self._error(event["object"])
                yield event
        except (ValueError, TypeError, KeyError, TooMuchError):
            # No event.
            return
        finally:
            self._lines.release()

    def close(self) -> None:
        """End the watch; safe from any thread, and repeatable."""
        self._lines.close()
