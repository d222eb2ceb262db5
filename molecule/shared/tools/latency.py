# SPDX-License-Identifier: Apache-2.0
"""Latency of writes while a command runs, beside that without it.

    latency.py --kubeconfig FILE [--rate 100] [--without 30] [--figures FILE --step TEXT] -- COMMAND...

Writes begin at a steady rate, whatever became of the ones before, and each counts from the moment at which it was to
begin: so a server that stalls is not measured by the few requests that wait for it. Exit code: that of the command, or
98 if a write failed.
"""

from __future__ import annotations

import argparse
import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from faulty_proxy import upstream_of
from figures import keep_figure
from steady_client import BROKEN_PROMISE, CONFIG_MAPS, NAMESPACE, Api, Record

#: Objects that are changed in turn, by so many writers.
OBJECTS = WRITERS = 32


@dataclass
class Times:
    """Seconds that each write took, and those that failed, in words."""

    took: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Seconds within which this share of all writes was answered; 0 if there were none."""
        ordered = sorted(self.took)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def written(write: Callable[[int], None], rate: float, over: Callable[[], bool]) -> Times:
    """Begin writes at this rate until it is over, and wait for the last answer."""
    times, number, start = Times(), 0, time.monotonic()

    def one(number: int, due: float) -> None:
        try:
            write(number)
        except (OSError, http.client.HTTPException, ValueError) as error:
            times.failed.append(f"{type(error).__name__} {error}")
        else:
            times.took.append(time.monotonic() - due)

    with ThreadPoolExecutor(WRITERS) as pool:
        while not over():
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            pool.submit(one, number, due)
            number += 1
    return times


def writer(api: Api) -> Callable[[int], None]:
    """Write to one of a few objects, which are there then. Raises ValueError if a write is refused."""
    labels = {"namespace.karmada.io/skip-auto-propagation": "true"}
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
    for number in range(OBJECTS):
        api.request("POST", CONFIG_MAPS, {"metadata": {"name": f"latency-{number}"}})

    def write(number: int) -> None:
        path = f"{CONFIG_MAPS}/latency-{number % OBJECTS}"
        status, content = api.request("PATCH", path, {"data": {"number": str(number)}})
        if status != http.client.OK:
            raise ValueError(f"{status} {content.get('message', '')[:150]}")

    return write


def figure_of(without: Times, during: Times, rate: float) -> str:
    """Figure in words: medians, and what 99 of 100 writes took at most."""
    ratio = during.percentile(0.99) / (without.percentile(0.99) or 1)
    return (
        f"{rate:.0f} writes a second, of 100 the slowest but one {1000 * during.percentile(0.99):.0f} ms, without it "
        f"{1000 * without.percentile(0.99):.0f} ms ({ratio:.2f} x); median {1000 * during.percentile(0.5):.0f} and "
        f"{1000 * without.percentile(0.5):.0f} ms; {len(during.took)} and {len(without.took)} writes"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True, type=Path)
    parser.add_argument("--rate", type=float, default=100, metavar="PER_SECOND")
    parser.add_argument("--without", type=float, default=30, metavar="SECONDS")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--step", default="")
    parser.add_argument("command", nargs="+")
    wanted = parser.parse_args(arguments)
    write = writer(Api(upstream_of(yaml.safe_load(wanted.kubeconfig.read_text())), Record()))
    ends = time.monotonic() + wanted.without
    without = written(write, wanted.rate, lambda: time.monotonic() > ends)
    over, found = threading.Event(), list[Times]()
    writing = threading.Thread(target=lambda: found.append(written(write, wanted.rate, over.is_set)))
    writing.start()
    try:
        code = subprocess.run(wanted.command, check=False).returncode
    finally:
        over.set()
        writing.join()
    (during,) = found
    figure = figure_of(without, during, wanted.rate)
    print(figure)
    if wanted.figures:
        keep_figure(wanted.figures, wanted.step, figure)
    failed = [*without.failed, *during.failed]
    print("".join(f"failed: {each}\n" for each in failed[:10]), end="", flush=True)
    return BROKEN_PROMISE if failed or not during.took else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
