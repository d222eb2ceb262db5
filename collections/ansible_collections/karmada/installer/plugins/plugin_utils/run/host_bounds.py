# SPDX-License-Identifier: Apache-2.0
"""Bounds of what a plain host answers: how much, and for how long.

Ansible reads what a host prints until the host ends it, all in memory. Root of a host decides what it prints; so
somebody has to look on from outside. A thread of the fork that talks to the host does: it looks at the memory of its
process and at the clock, and kills the program of the connection (such as ssh) when a bound is passed. Reading ends
then, and nothing of what was read is used.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.karmada.installer.plugins.module_utils import host_lock

#: Bytes of an answer, output and errors together. States, files and facts of a host are a small part of it.
MOST_BYTES = 32 << 20
#: Bytes by which the memory of this process may grow while it reads: Ansible has several copies of what it reads.
MOST_GROWTH = 8 * MOST_BYTES
#: Seconds for a step that only looks at a host or renews its lock: half of the silence after which another run may take
#: the hosts that wait for it.
LOOK_SECONDS = host_lock.LOCK_SILENCE // 2
#: Seconds for a step that changes a host, and for a file that is sent: as long as its lock may live in silence at most.
CHANGE_SECONDS = host_lock.LONGEST_SILENCE
#: Seconds between two looks; in a tenth of a second, a fast host sends some 100 MB.
_PAUSE = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ATTRIBUTE = "_karmada_bounds"
#: Methods of a connection that wait for the host, and the least time that each is given.
_WAITING = {"exec_command": 0, "put_file": CHANGE_SECONDS, "fetch_file": CHANGE_SECONDS}


class AnswerUnboundedError(AnsibleError):  # type: ignore[misc]  # ansible-core ships no types
    """The host did not end its answer within the bounds; nothing of it is used."""


class Bounds:
    """Bounds of a connection. ``seconds`` is for the next command, and may be changed between two."""

    def __init__(self, connection: Any) -> None:
        """Every command and file transfer of the connection has these bounds from now on."""
        self.seconds: float = LOOK_SECONDS
        for name, least in _WAITING.items():
            if method := getattr(connection, name, None):
                setattr(connection, name, self._bounded(method, least))

    @contextlib.contextmanager
    def lasting(self, seconds: float) -> Iterator[None]:
        """Allow this many seconds to each command in this context."""
        before, self.seconds = self.seconds, seconds
        try:
            yield
        finally:
            self.seconds = before

    def _bounded(self, method: Callable[..., Any], least: int) -> Callable[..., Any]:
        def bounded(*args: Any, **more: Any) -> Any:
            # A file may be sent by a command, which then has as much time.
            with self.lasting(max(self.seconds, least)), _Watch(self.seconds) as watch:
                try:
                    found = method(*args, **more)
                except Exception as error:
                    # A connection whose program was killed may say so in its own way.
                    if watch.refusal:
                        raise AnswerUnboundedError(watch.refusal) from error
                    raise
            if watch.refusal or _size(found) > MOST_BYTES:
                raise AnswerUnboundedError(watch.refusal or _too_much())
            return found

        return bounded


def of(connection: Any) -> Bounds:
    """Bounds of a connection, which has them from now on; for None, bounds of nothing."""
    known = getattr(connection, _ATTRIBUTE, None)
    if isinstance(known, Bounds):
        return known
    bounds = Bounds(connection)
    if connection is not None:
        setattr(connection, _ATTRIBUTE, bounds)
    return bounds


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file that this process, or a program that it starts, writes in this context becomes larger than ``size``.

    What fetches a file writes until the host ends it: the disk here would be full first.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    least = size if soft == resource.RLIM_INFINITY else min(size, soft)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class _Watch:
    """A look at this process from a thread of it. ``refusal`` says which bound was passed; empty if none was."""

    def __init__(self, seconds: float) -> None:
        self.refusal = ""
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="host bounds", daemon=True)

    def __enter__(self) -> _Watch:
        self._begun, self._memory, self._others = time.monotonic(), _memory(), _programs()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_PAUSE):
            if _memory() - self._memory > MOST_GROWTH:
                self.refusal = self.refusal or _too_much()
            elif time.monotonic() - self._begun > self._seconds:
                self.refusal = self.refusal or f"it did not end its answer within {self._seconds:.0f} s"
            if self.refusal:
                # Over and over: the connection may try again.
                for pid in _programs() - self._others:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)


def _too_much() -> str:
    return f"it answered more than {MOST_BYTES >> 20} MiB"


def _size(found: Any) -> int:
    """Bytes of output and errors in the result of a command, ``(exit code, output, errors)``; 0 of any other."""
    return sum(len(each) for each in found if isinstance(each, bytes | str)) if isinstance(found, tuple) else 0


def _memory() -> int:
    """Resident memory of this process in bytes; 0 where the kernel does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _programs() -> set[int]:
    """Process ids of the programs that this process has started, and of those that they have."""
    found: set[int] = set()
    asked = [os.getpid()]
    while asked:
        new = _children(asked.pop()) - found
        found |= new
        asked += new
    return found


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found |= {int(each) for each in (thread / "children").read_text().split()}
    return found
