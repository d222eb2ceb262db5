# SPDX-License-Identifier: Apache-2.0
"""Writers of an instance, and when they wrote what, by the audit log of a cluster: runs of the operator, and its pods.

    writers.py alone LOG --since MARK --instance NAME... [--lease NAMESPACE/NAME] [--at-least RUNS]
                                    never two writers of one instance; with the operator's Lease, nor of its status
    writers.py takeover LOG --since MARK --at SECONDS --instance NAME --lease NAMESPACE/NAME
            [--restarts] [--patience SECONDS] [--figures FILE --step TEXT]
                                    how soon another pod led, acted, and wrote what belongs to the instance; with
                                    --restarts the one that led may be that, too: its process was killed by then, and
                                    the next one in its container waits for the Lease as every other pod does

A run is known by its id, which its requests carry; the id begins with the name of the object. A pod is known by its
token. Two runs write at once when one writes after another one had begun to, or before the other's last answer came:
whoever lost the lock of an instance may not write it any more. A pod that writes the status of an object without being
the last that wrote the operator's Lease is a second writer, too. Writes that were refused had no effect, and count as
none. SECONDS since 1970 is when the leader was disturbed; `takeover` waits until all has been seen, or its patience
ends.

Exit code 1: two writers, fewer runs than expected, or nothing to be seen.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from audit import lines_since
from audit_requests import Request, clock_of, requests_in
from figures import keep_figure

_clock = partial(clock_of, to="milliseconds")


def writes_of(lines: Iterable[str]) -> Iterator[Request]:
    """Writes of the installer that succeeded, runs and operator alike, in the order of the log."""
    return (each for each in requests_in(lines) if each.wrote)


def second_writers(writes: Iterable[Request]) -> Iterator[str]:
    """A line for each write of a run, of these of one instance, while another one wrote, or after that had begun to."""
    former: set[str] = set()
    current, answered = "", 0.0
    for each in sorted(writes):
        if each.run == current:
            answered = max(answered, each.answered)
            continue
        if each.run in former:
            yield f"{each}, after {current} had begun to write"
            continue
        if current and each.asked < answered:
            yield f"{each}, before the last write of {current} was answered at {_clock(answered)}"
        former.add(current)
        current, answered = each.run, each.answered


def second_leaders(writes: Iterable[Request], lease: str, instances: Sequence[str]) -> Iterator[str]:
    """A line for each write of an object's status by another pod than the one that wrote the operator's Lease last."""
    leader, since = "", 0.0
    for each in sorted(writes):
        if each.lease == lease and not each.run:
            if each.pod != leader:
                leader, since = each.pod, each.answered
            continue
        tells = each.resource == "karmadadeployments/status" and each.name in instances and not each.run
        if tells and leader and each.pod != leader and each.asked > since:
            yield f"{each}, while {leader} led since {_clock(since)}"


class Takeover(NamedTuple):
    """Seconds from a disturbance until each was seen; None if it was not."""

    leads: float | None
    acts: float | None
    goes_on: float | None


def takeover(writes: Iterable[Request], at: float, instance: str, lease: str, *, restarts: bool = False) -> Takeover:
    """Takeover from the pod that led when it was disturbed; to write a Lease is no act, but its beginning.

    With ``restarts`` that pod may take over itself: its process was dead at ``at``.
    """
    ordered = sorted(writes)
    before = [each for each in ordered if each.asked < at]
    former = next((each.pod for each in reversed(before) if each.lease == lease), "")
    earlier = {each.run for each in before}
    after = [each for each in ordered if each.asked >= at and (restarts or each.pod != former)] if former else []

    def first(found: Iterable[Request]) -> float | None:
        return next((round(each.asked - at, 1) for each in found), None)

    acts = [each for each in after if not each.lease]
    return Takeover(
        first(each for each in after if each.lease == lease),
        first(acts),
        first(each for each in acts if each.instance == instance and each.run not in earlier),
    )


def _alone(options: argparse.Namespace) -> int:
    found = list(writes_of(lines_since(options.log, options.since)))
    code = 0
    for instance in options.instance:
        own = [each for each in found if each.instance == instance]
        runs = list(dict.fromkeys(each.run for each in sorted(own)))
        for run in runs:
            its = [each for each in own if each.run == run]
            began, ended = min(each.asked for each in its), max(each.answered for each in its)
            print(f"{run} from {its[0].pod}: {len(its)} writes, {_clock(began)} to {_clock(ended)}")
        broken = list(second_writers(own))
        if len(runs) < options.at_least:
            broken.append(f"{len(runs)} runs wrote {instance}, and {options.at_least} were expected at least")
        print("".join(f"broken: {each}\n" for each in broken), end="")
        code = 1 if broken else code
    if options.lease:
        leaders = sum(each.lease == options.lease for each in found)
        broken = list(second_leaders(found, options.lease, options.instance))
        if not leaders:
            broken.append(f"nobody wrote {options.lease}")
        print("".join(f"broken: {each}\n" for each in broken), end="")
        code = 1 if broken else code
    return code


def _takeover(options: argparse.Namespace) -> int:
    until = time.monotonic() + options.patience
    while True:
        lines = lines_since(options.log, options.since)
        found = takeover(writes_of(lines), options.at, options.instance, options.lease, restarts=options.restarts)
        if None not in found or time.monotonic() >= until:
            break
        time.sleep(0.5)
    who = "another process" if options.restarts else "another pod"
    told = "{} leads after {} s, acts after {} s; the installation goes on after {} s".format(who, *found)
    print(told)
    if None in found:
        return 1
    if options.figures:
        keep_figure(options.figures, options.step, told)
    return 0


def main() -> int:
    """Look, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("alone")
    one.set_defaults(judge=_alone)
    one.add_argument("log", type=Path)
    one.add_argument("--since", required=True, metavar="MARK")
    one.add_argument("--instance", action="append", required=True, metavar="NAME")
    one.add_argument("--lease", default="", metavar="NAMESPACE/NAME")
    one.add_argument("--at-least", type=int, default=1, metavar="RUNS")
    one = commands.add_parser("takeover")
    one.set_defaults(judge=_takeover)
    one.add_argument("log", type=Path)
    one.add_argument("--since", required=True, metavar="MARK")
    one.add_argument("--at", type=float, required=True, metavar="SECONDS")
    one.add_argument("--instance", required=True, metavar="NAME")
    one.add_argument("--lease", required=True, metavar="NAMESPACE/NAME")
    one.add_argument("--restarts", action="store_true")
    one.add_argument("--patience", type=float, default=150.0, metavar="SECONDS")
    one.add_argument("--figures", type=Path, metavar="FILE")
    one.add_argument("--step", default="", metavar="TEXT")
    options = parser.parse_args()
    return int(options.judge(options))


if __name__ == "__main__":
    sys.exit(main())
