# SPDX-License-Identifier: Apache-2.0
"""Processes below one of ours: who they are, what memory they take, and their end. Linux only.

A process that detaches itself is re-parented to the nearest subreaper above it, so below a subreaper nothing gets lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl
_DEAD = frozenset("ZX")


def become_subreaper() -> None:
    """Have orphans below this process become its children. Raises OSError."""
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def end_with_parent(parent: int) -> bool:
    """Have the kernel send SIGTERM when the thread ends that started this process. False if ``parent`` has ended."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    return os.getppid() == parent


def living(root: int) -> list[int]:
    """Processes below ``root`` that live, parents before children."""
    return [pid for pid, state in _below(root) if state not in _DEAD]


def _below(root: int) -> list[tuple[int, str]]:
    children: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (found := _stat(int(entry.name))):
            children[found[0]].append((int(entry.name), found[1]))
    found_below: list[tuple[int, str]] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found_below += below
        waiting += [pid for pid, _ in below]
    return found_below


def _stat(pid: int) -> tuple[int, str] | None:
    """Parent and state of a process; None if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def memory_mib(pids: Iterable[int]) -> int:
    """Memory of these processes in MiB, with what they share counted once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(rollup.partition("\nPss:")[2].split()[0])
    return total // 1024


def end(below: Callable[[], list[int]], grace: float) -> None:
    """End every process of ``below``: SIGTERM, after ``grace`` seconds SIGKILL, until there is none.

    Whatever they start meanwhile is ended, too.
    """
    asked: set[int] = set()
    until = time.monotonic() + grace
    while alive := below():
        late = time.monotonic() >= until
        for pid in alive:
            if late or pid not in asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked.update(alive)
        time.sleep(0.05)


def reap(pids: Iterable[int]) -> None:
    """Take the exit statuses of children that have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def dead_children(parent: int) -> list[int]:
    """Children that have ended, and whose exit status nobody took."""
    return [pid for pid, state in _below(parent) if state in _DEAD and (_stat(pid) or (0, ""))[0] == parent]
