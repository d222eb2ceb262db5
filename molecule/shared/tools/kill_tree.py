# SPDX-License-Identifier: Apache-2.0
"""Run a command and kill it with all that it started, SIGKILL to each, at some moment.

    kill_tree.py --after TEXT [--seconds SECONDS] COMMAND...

The moment is SECONDS after the command printed TEXT. Exit code 0: it was killed; 1: it ended before.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """All processes below this one, whatever session they are in."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue  # it has ended
        children.setdefault(parent, []).append(int(folder.name))
    found, todo = [], [pid]
    while todo:
        todo += (below := children.get(todo.pop(), []))
        found += below
    return found


def kill(pid: int) -> int:
    """Stop the first so that it starts nothing more, then kill all; how many there were."""
    os.kill(pid, signal.SIGSTOP)
    every = [pid, *descendants(pid)]
    for each in every:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(every)


def main() -> int:
    """Run and kill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--after", required=True, metavar="TEXT")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    running = subprocess.Popen(options.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = threading.Event()

    def read() -> None:
        for line in running.stdout or ():
            print(line, end="", flush=True)
            if options.after in line:
                said.set()

    threading.Thread(target=read, daemon=True).start()
    while not said.wait(0.05):
        if running.poll() is not None:
            print(f"ended with {running.returncode} and did not say: {options.after}")
            return 1
    time.sleep(options.seconds)
    if running.poll() is not None:
        print(f"ended with {running.returncode} before it was killed")
        return 1
    count = kill(running.pid)
    running.wait()
    print(f"killed {count} processes {options.seconds:.1f} s after: {options.after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
