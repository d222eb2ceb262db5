# SPDX-License-Identifier: Apache-2.0
"""Run a command and tell how long it took, and how much time of processors it and all that it started have used.

    python spend.py REPORT COMMAND...

REPORT gets, as JSON, ``seconds`` (from start to end) and ``cpu_seconds`` (user and system). A child counts when it
ends, whoever waits for it: what loses its parent becomes a child of this program. What outlives the command, as a
master of SSH connections does, counts with what it has used until then, and is left alone. The exit code is that of
the command.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


def run(command: list[str]) -> tuple[int, float, float]:
    """Exit code, seconds from start to end, and seconds of processors."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    started = time.monotonic()
    first = os.posix_spawnp(command[0], command, os.environ)
    code, spent = None, 0.0
    while code is None:
        ended, status, usage = os.wait4(-1, 0)
        spent += usage.ru_utime + usage.ru_stime
        if ended == first:
            code = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - started
    return code if code >= 0 else 128 - code, seconds, spent + _of_ended() + _of_living(os.getpid())


def _of_ended() -> float:
    """Time of children that have ended beside the command and nobody has waited for."""
    spent = 0.0
    while True:
        try:
            ended, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return spent
        if not ended:
            return spent
        spent += usage.ru_utime + usage.ru_stime


def _of_living(parent: int) -> float:
    """Time of all below a process: each with what it has used itself, and with its own children that have ended."""
    spent: dict[int, float] = {}
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        below.setdefault(int(fields[1]), []).append(int(folder.name))
        spent[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS
    total, todo = 0.0, list(below.get(parent, []))
    while todo:
        one = todo.pop()
        total += spent[one]
        todo += below.get(one, [])
    return total


def main() -> int:
    """Run one command."""
    report, *command = sys.argv[1:]
    code, seconds, spent = run(command)
    Path(report).write_text(json.dumps({"seconds": seconds, "cpu_seconds": spent}))
    return code


if __name__ == "__main__":
    sys.exit(main())
