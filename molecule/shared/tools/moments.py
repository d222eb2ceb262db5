# SPDX-License-Identifier: Apache-2.0
"""Moments of an installation by an operator, by the audit log of its host cluster.

    moments.py course COURSE LOG --since MARK --namespace NAMESPACE
    moments.py wait COURSE LOG --since MARK --namespace NAMESPACE --at SHARE [--after TIME] [--within SECONDS]
    moments.py told KILLS LOG --since MARK [--figures FILE]

``course`` notes when the one run since MARK, which nobody has disturbed, wrote each object for the first time. ``wait``
comes back at the moment of that course after this share of its time (0 to 1), in another installation that began after
MARK: what had been written last is there by whichever run, a run that began after TIME (seconds since 1970) is at work,
and then it waits for as long, or until the next object of the course is written. A run that goes on where another one
was killed is faster there, so time alone says little about how far it is.

KILLS has a line for each kill: TIME, and in words what it was; ``told`` says after how many seconds a run asked
something for the first time after each, and wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from audit import lines_since
from audit_requests import OF_RUNS, Request, clock_of, requests_in
from figures import keep_figure

#: What the course begins with: the first request of its run.
BEGIN = "the run"
#: Seconds for which a run may ask for the lock of the instance before it counts as one that has nothing to write.
PATIENCE = 75.0
_LOOK = 0.1

#: Seconds since the first request, and what was written then for the first time.
Course = list[tuple[float, str]]


def course_of(requests: Iterable[Request], namespace: str) -> tuple[Course, float]:
    """Course of a run and how long it took. Raises ValueError unless exactly one run has written."""
    found = sorted(requests, key=lambda each: each.asked)
    writers = {each.run for each in found if each.wrote}
    if len(writers) != 1:
        raise ValueError(f"{len(writers)} runs have written: {', '.join(sorted(writers))}")
    of_it = [each for each in found if each.run in writers]
    began, known = of_it[0].asked, {BEGIN}
    course: Course = [(0.0, BEGIN)]
    for each in of_it:
        if each.wrote and not each.lease and each.namespace == namespace and each.what not in known:
            known.add(each.what)
            course.append((round(each.asked - began, 3), each.what))
    return course, round(max(each.answered for each in of_it if each.wrote) - began, 3)


@dataclass
class Progress:
    """Progress of an installation: when each object was written first, and when each run asked and wrote first."""

    written: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    wrote: dict[str, float] = field(default_factory=dict)

    def add(self, request: Request) -> None:
        """Take note of a request."""
        self.asked.setdefault(request.run, request.asked)
        if request.wrote:
            self.wrote.setdefault(request.run, request.asked)
            if not request.lease:
                self.written.setdefault(request.what, request.answered)


class Moment:
    """Moment after ``share`` of a course that took ``seconds``. ``after``: the run at work has begun after that."""

    def __init__(self, course: Course, seconds: float, share: float, after: float) -> None:
        wanted = share * seconds
        number = max(index for index, (at, _) in enumerate(course) if at <= wanted)
        self.what, self.offset = course[number][1], wanted - course[number][0]
        self.following = course[number + 1][1] if number + 1 < len(course) else ""
        self._after = after

    def __str__(self) -> str:
        return f"{self.offset:.1f} s after {self.what}"

    def has_come(self, progress: Progress, now: float) -> str:
        """Return the run that is at work at this moment; empty if the moment has not come."""
        begun = {run: at for run, at in progress.asked.items() if at > self._after}
        if not begun:
            return ""
        run = max(begun, key=lambda each: begun[each])
        since = begun[run]
        if self.what != BEGIN:
            if self.what not in progress.written:
                return ""
            # Until then it may be waiting for the lock of the one that was killed.
            at_work = progress.wrote.get(run, since + PATIENCE)
            since = max(progress.written[self.what], at_work)
        if now >= since + self.offset or (now >= since and progress.written.get(self.following, 0.0) >= since):
            return run
        return ""


def new_lines(stream: TextIO) -> Iterator[str]:
    """Lines that have come since the last call; one that is being written stays for the next."""
    while True:
        position = stream.tell()
        line = stream.readline()
        if not line.endswith("\n"):
            stream.seek(position)
            return
        yield line


def wait(moment: Moment, log: Path, mark: str, namespace: str, within: float) -> str:
    """Wait for a moment; returns the run that is at work. Raises SystemExit if it does not come in time."""
    progress, end = Progress(), time.monotonic() + within
    with log.open(encoding="utf-8") as stream:
        inode, _, offset = mark.partition(":")
        # A log that was begun anew since is read from its start.
        if log.stat().st_ino == int(inode):
            stream.seek(int(offset))
        while time.monotonic() < end:
            for each in requests_in(new_lines(stream), OF_RUNS):
                if each.lease or not each.wrote or each.namespace == namespace:
                    progress.add(each)
            if run := moment.has_come(progress, time.time()):
                return run
            time.sleep(_LOOK)
    raise SystemExit(f"not come within {within:.0f} s: {moment}; written: {', '.join(progress.written)}")


def told(kills: Iterable[tuple[float, str]], requests: Iterable[Request]) -> Iterator[tuple[str, str]]:
    """Text of what each kill was, and in how many seconds another run asked something, and wrote."""
    found = sorted(requests, key=lambda each: each.asked)
    for moment, words in kills:
        before = {each.run for each in found if each.asked <= moment}
        later = [each for each in found if each.asked > moment and each.run not in before]
        asked = next((each.asked for each in later), None)
        wrote = next((each.asked for each in later if each.wrote), None)
        yield words, f"the next run after {_seconds(asked, moment)}, which wrote after {_seconds(wrote, moment)}"


def _seconds(at: float | None, since: float) -> str:
    return "- s" if at is None else f"{at - since:.0f} s"


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("course", "wait", "told"):
        one = commands.add_parser(name)
        one.add_argument("kills" if name == "told" else "course", type=Path)
        one.add_argument("log", type=Path)
        one.add_argument("--since", required=True, metavar="MARK")
        if name == "told":
            one.add_argument("--figures", type=Path)
            continue
        one.add_argument("--namespace", required=True)
        if name == "wait":
            one.add_argument("--at", type=float, required=True, metavar="SHARE")
            one.add_argument("--after", type=float, default=0.0, metavar="TIME")
            one.add_argument("--within", type=float, default=300.0, metavar="SECONDS")
    options = parser.parse_args()
    if options.command == "course":
        course, seconds = course_of(requests_in(lines_since(options.log, options.since), OF_RUNS), options.namespace)
        options.course.write_text(json.dumps({"course": course, "seconds": seconds}, indent=1) + "\n")
        print(f"{len(course)} moments within {seconds:.1f} s")
        return 0
    if options.command == "wait":
        found = json.loads(options.course.read_text())
        course = [(float(at), str(what)) for at, what in found["course"]]
        moment = Moment(course, found["seconds"], options.at, options.after)
        print(f"{moment}, in run {wait(moment, options.log, options.since, options.namespace, options.within)}")
        return 0
    lines = [line.partition(" ") for line in options.kills.read_text().splitlines()]
    kills = [(float(at), words) for at, _, words in lines]
    for words, figure in told(kills, list(requests_in(lines_since(options.log, options.since), OF_RUNS))):
        print(f"{words}: {figure}")
        if options.figures:
            keep_figure(options.figures, words, figure)
    print(f"{len(kills)} kills, the last at {clock_of(kills[-1][0]) if kills else '-'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
