# SPDX-License-Identifier: Apache-2.0
"""Run a command and kill it, with everything that it started, as a power cut would.

    interrupt.py --record COURSE -- COMMAND...
    interrupt.py (--after SECONDS | --at-line PATTERN | --when WITNESS | --course COURSE --at SHARE) [--report FILE]
        [--first-alone [--signal NAME] [--but PATTERN]] -- COMMAND...

Processes are found by their parents, as /proc has them, never by name. This program is the reaper of what its command
leaves behind, so a process that made a session of its own, or whose parent is gone, is still found. Exit code 137 when
the command was killed, else its own.

--first-alone kills only the first process, as the kernel does that runs out of memory, and whoever cancels a job by its
process group. The others are given a while to end by themselves; exit code 98 when one does not. --signal sends it
another signal than KILL, such as TERM or HUP, which it may act upon; the exit code is then 128 and the number of the
signal. Commands that match --but need not end by themselves: an SSH connection persists, and a step at its other end
goes on.

A playbook that goes on where another was killed is faster there, so time alone says little about how far it is.
--record notes when an undisturbed run came to each of its tasks. --course and --at then find which task it was in
after that share of its time (0 to 1) and for how long, and kill in the same task: after as long, or when it ends
earlier, then.

--when names a program that waits for something, such as `kubectl wait`. It is started with the command, and anew when
it fails; when it ends with 0, the command is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALLED = 128
_SURVIVED = 98
#: How long what is left may take to notice that the first process is gone.
_NOTICE_SECONDS = 20.0
#: How often a witness that failed is started anew.
_ASK_SECONDS = 0.2


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


def kill_all() -> set[int]:
    """Kill everything that descends from us, until nothing is left; returns which processes it were."""
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
    return killed


def kill_first(
    first: int, sign: signal.Signals = signal.SIGKILL, but: str = "", seconds: float = _NOTICE_SECONDS
) -> tuple[set[int], list[str]]:
    """Signal one process; it and its descendants, and the commands of those that outlive it, except those that match
    ``but``.
    """
    there = [first, *descendants(parents(), first)]
    os.kill(first, sign)
    deadline = time.monotonic() + seconds
    while (left := _others(but)) and time.monotonic() < deadline:
        _reap()
        time.sleep(0.05)
    return set(there), left


def _others(but: str) -> list[str]:
    """Commands of all that descends from us, except those that match this."""
    commands = map(_command_of, descendants(parents(), os.getpid()))
    return [each for each in commands if not (but and re.search(but, each))]


def _command_of(process: int) -> str:
    try:
        return (Path("/proc") / str(process) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return str(process)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


_MARK = re.compile(r"^(TASK|PLAY) ")
Course = list[tuple[float, str]]


class Trigger:
    """When to kill: told of each line of the output, and asked again and again."""

    def __init__(
        self,
        *,
        after: float | None = None,
        at_line: str | None = None,
        task: str | None = None,
        when: Sequence[str] = (),
    ) -> None:
        self.after, self.at_line, self.task, self.when = after, at_line, task, when
        self._witness: subprocess.Popen[bytes] | None = None
        self._asked = 0.0
        self.since = None if task else time.monotonic()
        self.now = threading.Event()

    def see(self, line: str) -> None:
        """One more line of output."""
        if self.at_line and re.search(self.at_line, line):
            self.now.set()
        if self.task is not None and _MARK.match(line):
            if self.since is not None:
                self.now.set()
            elif line.strip() == self.task:
                self.since = time.monotonic()

    def due(self) -> bool:
        """Return whether it is time."""
        if self.after is not None and self.since is not None and time.monotonic() - self.since >= self.after:
            self.now.set()
        if self.when and not self.now.is_set():
            self._ask()
        return self.now.is_set()

    def _ask(self) -> None:
        ended = self._witness.poll() if self._witness else 1
        if ended == 0:
            self.now.set()
        elif ended is not None and time.monotonic() - self._asked > _ASK_SECONDS:
            self._asked = time.monotonic()
            self._witness = subprocess.Popen(
                self.when, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

    def close(self) -> None:
        """Ask no more."""
        if self._witness and self._witness.poll() is None:
            self._witness.kill()
            self._witness.wait()


def within_course(course: Course, share: float) -> tuple[str, float]:
    """The mark after which an undisturbed run was at that share of its time, and for how long it had been.

    What comes after the mark of the last task is no work any more, and is not counted.
    """
    tasks = [index for index, (_, line) in enumerate(course) if line.startswith("TASK")]
    at = course[tasks[-1]][0] * share
    passed = [(seconds, line) for seconds, line in course if seconds <= at] or [(0.0, course[0][1])]
    seconds, line = passed[-1]
    return line, round(max(0.0, at - seconds), 2)


def run(
    command: list[str],
    trigger: Trigger,
    *,
    first_alone: bool = False,
    sign: signal.Signals = signal.SIGKILL,
    but: str = "",
) -> tuple[dict[str, object], Course]:
    """Run it with its output passed on, until its end or until it is to be killed, with all it started or alone."""
    become_reaper()
    started = time.monotonic()
    course: Course = []
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
            if _MARK.match(line):
                course.append((round(time.monotonic() - started, 2), line.strip()))
            trigger.see(line)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    while child.poll() is None and not trigger.due():
        time.sleep(0.02)
    seconds = round(time.monotonic() - started, 2)
    finished = child.returncode
    trigger.close()
    there, survivors = kill_first(child.pid, sign, but) if first_alone and finished is None else (set(), [])
    # What it left running in the background when it ended by itself is not ours to keep either.
    killed = len(kill_all() | there)
    reader.join(5)
    if finished is not None:
        return {"killed": False, "seconds": seconds, "rc": finished, "left_running": killed}, course
    code = _SURVIVED if survivors else _SIGNALLED + sign
    found = {
        "killed": True,
        "first": child.pid,
        "seconds": seconds,
        "rc": code,
        "processes": killed,
        "last_line": last[0],
    }
    found |= {"survivors": survivors} if first_alone else {}
    return found | {"last_mark": course[-1][1] if course else ""}, course


def main() -> int:
    """Run, kill, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--after", type=float, metavar="SECONDS")
    when.add_argument("--at-line", metavar="PATTERN", help="when a line of its output matches this")
    when.add_argument("--when", type=shlex.split, metavar="WITNESS", help="when this program has ended with 0")
    when.add_argument("--course", type=Path, metavar="COURSE", help="a course that --record wrote")
    when.add_argument("--record", type=Path, metavar="COURSE", help="kill nothing, write when each task was come to")
    parser.add_argument("--at", type=float, default=0.5, metavar="SHARE", help="of the course, from 0 to 1")
    parser.add_argument("--report", type=Path, metavar="FILE", help="what happened, as JSON")
    parser.add_argument("--first-alone", action="store_true", help="kill the first process of the command only")
    parser.add_argument(
        "--signal", type=lambda name: signal.Signals[f"SIG{name}"], default=signal.SIGKILL, metavar="NAME"
    )
    parser.add_argument("--but", default="", metavar="PATTERN", help="commands that may outlive the first process")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if options.signal != signal.SIGKILL and not options.first_alone:
        parser.error("--signal is for --first-alone: what everything is killed with is KILL")
    if options.signal != signal.SIGKILL:
        # What this program was told to ignore, as by nohup, its command would ignore as well.
        signal.signal(options.signal, signal.SIG_DFL)
    trigger = Trigger(after=options.after, at_line=options.at_line, when=options.when or ())
    if options.course:
        task, after = within_course([(at, line) for at, line in json.loads(options.course.read_text())], options.at)
        trigger = Trigger(task=task, after=after)
        print(f"To be killed {after} s after: {task}", flush=True)
    found, course = run(options.command, trigger, first_alone=options.first_alone, sign=options.signal, but=options.but)
    if options.record:
        options.record.write_text(json.dumps(course) + "\n")
    if found["killed"]:
        print(f"Killed {found['processes']} processes after {found['seconds']} s, after: {found['last_mark']}")
        for survivor in found.get("survivors") or ():  # type: ignore[attr-defined]
            print(f"It went on when its first process was gone: {survivor}")
    else:
        print(f"It had ended by itself after {found['seconds']} s, with exit code {found['rc']}.")
    if options.report:
        options.report.write_text(json.dumps(found) + "\n")
    return int(str(found["rc"]))


if __name__ == "__main__":
    sys.exit(main())
