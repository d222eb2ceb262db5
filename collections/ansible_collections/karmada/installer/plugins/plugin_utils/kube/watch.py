# SPDX-License-Identifier: Apache-2.0
"""A watch: events of an API server until the server, the caller or the network ends it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import urllib3

from ..api_object import Object
from .answer import MIB, TooMuchError, lines, parsed
from .errors import ApiError

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
        self._response, self._error, self._longest = response, error, longest
        self._socket = getattr(getattr(response, "connection", None), "sock", None)
        self._closed = False
        self._events = self._read()

    def __next__(self) -> Object:
        return next(self._events)

    def _read(self) -> Iterator[Object]:
        try:
            for line in lines(self._response, self._longest):
                event: Object = parsed(line, MAX_VALUES)
                if event["type"] == "ERROR":
                    raise self._error(event["object"])
                yield event
        except (urllib3.exceptions.HTTPError, OSError, ValueError, TypeError, KeyError, TooMuchError):
            # Broken, silent for too long, no event, or closed by us (urllib3 then fails on its own closed file).
            return
        finally:
            self._response.close()
            self._response.release_conn()

    def close(self) -> None:
        """End the watch; safe from any thread, and repeatable."""
        if self._closed:
            return
        self._closed = True
        if self._socket is not None:
            # Shutting down the raw socket wakes a reader blocked in another thread; closing the descriptor would not.
            inner = getattr(self._socket, "socket", self._socket)
            try:
                if isinstance(inner, socket.socket):
                    socket.socket.shutdown(inner, socket.SHUT_RDWR)
                else:
                    inner.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
