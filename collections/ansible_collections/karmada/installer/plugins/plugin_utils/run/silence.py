# SPDX-License-Identifier: Apache-2.0
"""Line that a step says when it has said nothing for a while: ``[22 s] host cp1: still at Write and start units``.

A wait tells what it waits for. A package manager, a host that is slow, a download or a long answer tell nothing, and
whoever ends a run that is silent (an idle timeout of AWX) would kill a healthy one, whose lock then holds up the next.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ..kube.limits import SAY_SECONDS
from ..kube.progress import COLUMNS, fitted

#: Seconds without a line after which a step says that it goes on: a wait that is to tell something by then says it
#: better, and looks at what it waits for every second or two.
STILL_SECONDS = SAY_SECONDS + 2.0


class Silence:
    """Silence of one step. ``say`` shows a line, and counts as one."""

    def __init__(self, say: Callable[[str], None], where: str, step: str) -> None:
        self._say, self._where, self._step = say, where, step
        self._began = self._said_at = time.monotonic()
        self._over = threading.Event()

    def say(self, message: str) -> None:
        """Show a line of the step."""
        self._said_at = time.monotonic()
        self._say(message)

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        """Break it again and again in this context."""
        thread = threading.Thread(target=self._look, name="silence", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        while not self._over.wait(max(0.0, self._said_at + STILL_SECONDS - time.monotonic())):
            now = time.monotonic()
            if now - self._said_at >= STILL_SECONDS:
                head = f"[{now - self._began:.0f} s] {self._where and f'{self._where}: '}"
                self.say(head + fitted(f"still at {self._step}", COLUMNS - len(head)))
