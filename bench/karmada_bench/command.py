# SPDX-License-Identifier: Apache-2.0
"""Runs one command, measures it, and makes sure that nothing of it goes on when we do not."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import kill_tree

from karmada_bench import spend

#: Each look at all processes costs some milliseconds of processor, on both sides alike.
SAMPLE_SECONDS = 0.2
#: A machine rests when less than this share of its processors is busy for a second.
BUSY_SHARE = 0.25
REST_SECONDS = 30.0
_PAGE = os.sysconf("SC_PAGE_SIZE")


class BenchError(Exception):
    """The benchmark cannot go on; the text is for the person who started it."""


@dataclass(frozen=True)
class Ran:
    """Outcome of a command: seconds from start to end, exit code, output, and most memory of its processes together.

    cpu_seconds: user and system, of all its processes on this machine (see ``spend``).
    """

    seconds: float
    code: int
    output: str
    mebibytes: float
    cpu_seconds: float

    def then(self, other: Ran) -> Ran:
        """Both as one: this one, and the other after it."""
        return Ran(
            self.seconds + other.seconds,
            self.code or other.code,
            self.output + other.output,
            max(self.mebibytes, other.mebibytes),
            self.cpu_seconds + other.cpu_seconds,
        )


class Runner:
    """Runs commands one after the other. ``note`` is a file that says which process is running."""

    def __init__(self, note: Path, logs: Path, environment: Mapping[str, str]) -> None:
        self.note, self.logs, self.environment = note, logs, dict(environment)

    def run(
        self,
        name: str,
        command: Sequence[str],
        *,
        timeout: float = 900,
        codes: Sequence[int] | None = (0,),
        settings: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run it to its end; its output goes to the log ``name``. Raises BenchError for another exit code.

        ``codes`` None takes any. ``settings`` are variables of the environment for this command.
        """
        log, spent = self.logs / f"{name}.log", self.logs / f"{name}.spent.json"
        log.parent.mkdir(parents=True, exist_ok=True)
        spent.unlink(missing_ok=True)
        with log.open("wb") as stream:
            process = subprocess.Popen(
                spending(spent, command), stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT,
                env=self.environment | dict(settings or {}),
            )  # fmt: skip
            self.note.write_text(json.dumps({"pid": process.pid, "started": start_time(process.pid)}))
            memory = _Memory(process.pid)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise BenchError(f"{name} did not end within {timeout:.0f} s; see {log}") from None
            finally:
                memory.stop()
                if process.poll() is None:
                    kill_tree.kill(process.pid)
                    process.wait()
                self.note.unlink()
        if codes is not None and code not in codes:
            raise BenchError(f"{name} ended with {code}; see {log}")
        found = json.loads(spent.read_text())
        output = log.read_text(errors="replace")
        return Ran(found["seconds"], code, output, memory.most / 2**20, found["cpu_seconds"])


def spending(report: Path, command: Sequence[str]) -> list[str]:
    """The command, run by the program that measures it; what it finds is in ``report`` then."""
    # Without site-packages and settings of Python: it is there after some milliseconds, which it does not count.
    return [sys.executable, "-I", "-S", spend.__file__, str(report), *command]


def stop_left_over(note: Path) -> bool:
    """Kill what a run of the benchmark was running when it was killed itself; whether there was anything."""
    try:
        left = json.loads(note.read_text())
    except (OSError, ValueError):
        return False
    note.unlink()
    # A process that began at another time has only got the same number.
    if left["started"] is None or start_time(left["pid"]) != left["started"]:
        return False
    kill_tree.kill(left["pid"])
    return True


def rest(limit: float = REST_SECONDS) -> bool:
    """Wait until the machine is at rest, so that nothing pays for what was done before it; whether it came to rest."""
    deadline = time.monotonic() + limit
    before = _processor_time()
    while time.monotonic() < deadline:
        time.sleep(1)
        now = _processor_time()
        if busy_share(before, now) < BUSY_SHARE:
            return True
        before = now
    return False


def busy_share(before: tuple[int, int], now: tuple[int, int]) -> float:
    """Share of the processors' time that was not idle between two looks (idle, all)."""
    return 1 - (now[0] - before[0]) / max(1, now[1] - before[1])


def _processor_time() -> tuple[int, int]:
    ticks = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def start_time(pid: int) -> int | None:
    """When a process began, in ticks since the start of the machine; None when it is not there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def resident(pid: int) -> int:
    """Bytes of memory that all processes below this one have; what they share counts for each."""
    total = 0
    for each in kill_tree.descendants(pid):
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * _PAGE
    return total


class _Memory:
    """Looks at the memory of all below a process again and again."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while True:
            self.most = max(self.most, resident(self._pid))
            if self._over.wait(SAMPLE_SECONDS):
                return

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
