# Copyright the karmada.installer authors
# SPDX-License-Identifier: Apache-2.0
"""Run a command and kill it, with everything that it started, as a power cut would.

    interrupt.py (--after SECONDS | --at-line PATTERN) [--report FILE] -- COMMAND...

Processes are found by their parents, as /proc has them, never by name. This program is the reaper of what its command
leaves behind, so a process that made a session of its own, or whose parent is gone, is still found. Exit code 137 when
the command was killed, else its own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_KILLED = 137


def become_reaper() -> None:
    """Orphans among our descendants become our children, instead of those of process 1."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel lets no process adopt orphans")


def parents() -> dict[int, int]:
    """Process → its parent, of all that are alive."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The second field is the command in parentheses and may hold anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in ("Z", "X"):
            found[int(entry.name)] = int(fields[1])
    return found


def descendants(parent_of: Mapping[int, int], ancestor: int) -> list[int]:
    """Everything that descends from a process, the nearest first."""
    found, generation = [], [ancestor]
    while generation:
        generation = [process for process, parent in parent_of.items() if parent in generation]
        found += generation
    return found


def kill_all() -> int:
    """Kill everything that descends from us, until nothing is left; returns how many processes it were."""
    killed: set[int] = set()
    while alive := descendants(parents(), os.getpid()):
        # Stopped first, so that none starts another one while the rest is being killed.
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for process in alive:
                try:
                    os.kill(process, sign)
                except ProcessLookupError:
                    continue
        killed.update(alive)
        _reap()
        time.sleep(0.01)
    _reap()
    return len(killed)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def run(command: list[str], after: float | None, at_line: str | None) -> dict[str, object]:
    """Run it with its output passed on, until its end or until it is to be killed."""
    become_reaper()
    started = time.monotonic()
    due = threading.Event()
    last = [""]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip

    def follow() -> None:
        for line in child.stdout or ():
            sys.stdout.write(line)
            sys.stdout.flush()
            last[0] = line.strip() or last[0]
            if at_line and re.search(at_line, line):
                due.set()

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    while child.poll() is None and not due.wait(0.02):
        if after is not None and time.monotonic() - started >= after:
            due.set()
    seconds = round(time.monotonic() - started, 2)
    finished = child.returncode
    # What it left running in the background when it ended by itself is not ours to keep either.
    killed = kill_all()
    reader.join(5)
    if finished is not None:
        return {"killed": False, "seconds": seconds, "rc": finished, "left_running": killed}
    return {"killed": True, "seconds": seconds, "rc": _KILLED, "processes": killed, "last_line": last[0]}


def main() -> int:
    """Run, kill, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--after", type=float, metavar="SECONDS")
    when.add_argument("--at-line", metavar="PATTERN", help="when a line of its output matches this")
    parser.add_argument("--report", type=Path, metavar="FILE", help="what happened, as JSON")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    found = run(options.command, options.after, options.at_line)
    if found["killed"]:
        print(f"Killed {found['processes']} processes after {found['seconds']} s, at: {found['last_line']}")
    else:
        print(f"It had ended by itself after {found['seconds']} s, with exit code {found['rc']}.")
    if options.report:
        options.report.write_text(json.dumps(found) + "\n")
    return int(str(found["rc"]))


if __name__ == "__main__":
    sys.exit(main())
