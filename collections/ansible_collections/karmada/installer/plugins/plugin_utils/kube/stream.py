# SPDX-License-Identifier: Apache-2.0
"""An answer that is read line by line while it arrives: events of a watch, or the log of a container."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import urllib3

from .answer import MIB, TooMuchError, lines


class Lines(Iterator[bytes]):
    """Lines of an answer until the server ends it, the connection breaks, or one is longer than ``longest`` bytes.

    Why it ended is not told: callers go on from what they have. ``close`` may be called from another thread and ends a
    blocked iteration.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, longest: int = 64 * MIB) -> None:
        self._response, self._longest = response, longest
        self._socket = getattr(getattr(response, "connection", None), "sock", None)
        self._closed = False
        self._lines = self._read()

    def __next__(self) -> bytes:
        return next(self._lines)

    def _read(self) -> Iterator[bytes]:
        try:
            yield from lines(self._response, self._longest)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, TooMuchError):
            # Broken, silent for too long, or closed by us (urllib3 then fails on its own closed file).
            return
        finally:
            self.release()

    def release(self) -> None:
        """Give the connection back; for the thread that reads, when it reads no more."""
        self._response.close()
        self._response.release_conn()

    def close(self) -> None:
        """End it; safe from any thread, and repeatable."""
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
