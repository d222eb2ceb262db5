# SPDX-License-Identifier: Apache-2.0
"""Means against tests that hang on a clock: events that are waited for, clocks of their own, ports nobody else gets."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Much longer than anything takes on a busy machine: who waits that long waits in vain.
IN_VAIN_SECONDS = 300.0


def until(done: Callable[[], object], what: str = "it") -> None:
    """Wait until something has happened."""
    deadline = time.monotonic() + IN_VAIN_SECONDS
    while not done():
        assert time.monotonic() < deadline, f"{what} did not happen in {IN_VAIN_SECONDS:.0f} s"
        time.sleep(0.02)


@contextmanager
def closed_port() -> Iterator[int]:
    """A port of loopback that refuses connections, and that nobody else can get meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


class Clock:
    """In the place of the module ``time``: time passes only while somebody sleeps, and as much as a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        #: what happens while somebody sleeps
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        # However short, it ends a loop that waits for a deadline.
        self.now += max(seconds, 0.01)
        self.meanwhile()


class FastClock:
    """In the place of the module ``time``: the real one, so many times as fast, plus ``ahead`` seconds."""

    def __init__(self, speed: float) -> None:
        self.speed, self.ahead = speed, 0.0

    def monotonic(self) -> float:
        return time.monotonic() * self.speed + self.ahead
