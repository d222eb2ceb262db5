# SPDX-License-Identifier: Apache-2.0
"""Runs of an operator that have written, one after the other, by the audit logs of all clusters that they write to.

    turns.py LOG=MARK... [--figures FILE --step WHAT] [--most-runs N]

A run names itself in each request. Its turn lasts from the first to the last of its writes, the lock of the instance
included, in whichever cluster; refused writes have changed nothing. There has to be one instance only. Exit code 1: two
turns overlap, so two have written at a time; no run has asked anything; or more runs than N have.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from audit import is_write, lines_since

_RUN = re.compile(r"karmada-installer \(run ([^)]+)\)")
#: First status that refuses a request.
_REFUSED = 400


@dataclass(frozen=True)
class Request:
    """Request of a run that was answered. Times are seconds since 1970; ``what`` is resource and name.

    ``wrote``: it was to change something, and was not refused. ``lease``: it is about a lock.
    """

    run: str
    asked: float
    answered: float
    what: str
    namespace: str
    wrote: bool
    lease: bool


@dataclass
class Turn:
    """Requests of one run: when it began, and from when to when it wrote (0: never), in ``writes`` requests."""

    run: str
    began: float
    first: float = 0.0
    last: float = 0.0
    writes: int = 0


def moment_of(text: str) -> float:
    """Seconds since 1970 of a time as the audit log has it."""
    return datetime.fromisoformat(text).timestamp()


def clock_of(moment: float) -> str:
    """Time of day of a moment, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")


def request_of(event: dict[str, Any]) -> Request | None:
    """Request of a run; None for one of anybody else."""
    named = _RUN.match(event.get("userAgent", ""))
    if named is None or event.get("stage") not in ("ResponseComplete", "Panic"):
        return None
    target = event.get("objectRef") or {}
    code = int((event.get("responseStatus") or {}).get("code") or 0)
    parts = (target.get("resource", ""), target.get("name", ""), target.get("subresource", ""))
    return Request(
        run=named[1],
        asked=moment_of(event["requestReceivedTimestamp"]),
        answered=moment_of(event.get("stageTimestamp") or event["requestReceivedTimestamp"]),
        what="/".join(filter(None, parts)),
        namespace=target.get("namespace", ""),
        wrote=is_write(event) and 0 < code < _REFUSED,
        lease=target.get("resource") == "leases",
    )


def requests_in(lines: Iterable[str]) -> Iterator[Request]:
    """Requests of runs; a line that is being written at this moment is left out."""
    for line in lines:
        # Most lines are of others, and reading them as JSON takes longest.
        if line.endswith("\n") and "karmada-installer (run " in line:
            found = request_of(json.loads(line))
            if found is not None:
                yield found


def turns_of(requests: Iterable[Request]) -> list[Turn]:
    """Turn of each run, in the order in which they began to write; those that never wrote come last."""
    turns: dict[str, Turn] = {}
    for each in requests:
        turn = turns.setdefault(each.run, Turn(each.run, each.asked))
        turn.began = min(turn.began, each.asked)
        if each.wrote:
            turn.first = min(turn.first or each.asked, each.asked)
            turn.last = max(turn.last, each.answered)
            turn.writes += 1
    return sorted(turns.values(), key=lambda turn: (turn.first == 0.0, turn.first or turn.began))


def at_once(turns: Iterable[Turn]) -> list[str]:
    """Pairs of turns that overlap, in words."""
    wrote = [each for each in turns if each.writes]
    return [
        f"run {after.run} began to write {before.last - after.first:.3f} s before run {before.run} had ended"
        for number, after in enumerate(wrote)
        for before in wrote[:number]
        if after.first < before.last
    ]


def keep(file: Path, step: str, figure: str) -> None:
    """Add a figure to those of a record."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figures = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**figures, step: figure}, indent=1) + "\n")


def _log(text: str) -> tuple[Path, str]:
    log, _, mark = text.rpartition("=")
    return Path(log), mark


def main() -> int:
    """Look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", type=_log, metavar="LOG=MARK")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--step", default="runs")
    parser.add_argument("--most-runs", type=int, metavar="N")
    options = parser.parse_args()
    turns = turns_of(each for log, mark in options.logs for each in requests_in(lines_since(log, mark)))
    for each in turns:
        written = f"{each.writes} writes within {each.last - each.first:.1f} s" if each.writes else "no write"
        print(f"{clock_of(each.began)} run {each.run}: {written}")
    both = at_once(turns)
    print("".join(f"two at a time: {line}\n" for line in both), end="")
    many = options.most_runs is not None and len(turns) > options.most_runs
    print(f"{len(turns)} runs, of which {sum(each.writes > 0 for each in turns)} wrote")
    if many:
        print(f"these are more than {options.most_runs}")
    if options.figures:
        keep(options.figures, options.step, f"{len(turns)} runs")
    return 1 if both or many or not turns else 0


if __name__ == "__main__":
    sys.exit(main())
