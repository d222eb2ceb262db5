# SPDX-License-Identifier: Apache-2.0
"""Runs of an operator that have written, one after the other, by the audit logs of all clusters that they write to.

    turns.py LOG=MARK... [--figures FILE --step WHAT] [--most-runs N]

A run names itself in each request. Its turn lasts from the first to the last of its writes, the lock of the instance
included, in whichever cluster; refused writes have changed nothing. There has to be one instance only. Exit code 1: two
turns overlap, so two have written at a time; no run has asked anything; or more runs than N have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from audit import lines_since
from audit_requests import OF_RUNS, Request, clock_of, requests_in
from figures import keep_figure


@dataclass
class Turn:
    """Requests of one run: when it began, and from when to when it wrote (0: never), in ``writes`` requests."""

    run: str
    began: float
    first: float = 0.0
    last: float = 0.0
    writes: int = 0


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
    turns = turns_of(each for log, mark in options.logs for each in requests_in(lines_since(log, mark), OF_RUNS))
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
        keep_figure(options.figures, options.step, f"{len(turns)} runs")
    return 1 if both or many or not turns else 0


if __name__ == "__main__":
    sys.exit(main())
