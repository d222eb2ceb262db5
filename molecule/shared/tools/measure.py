# SPDX-License-Identifier: Apache-2.0
"""Run a command as a user would, keep its output, and note how long it took and how much memory.

    measure.py run [--log FILE] [--times FILE --scenario NAME --step WHAT] [--memory FILE] [--set NAME=VALUE...]
        -- COMMAND...
    measure.py show FILE [--scenario NAME]

A user's environment has nothing of the Ansible and molecule that run the scenario. Output goes to the log while it is
made: `tail -f` shows how far a long step is. Memory is the most that any one process of the command had at any moment
(MiB of RSS), as the kernel has kept it of every process that its parent has waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

FOREIGN = ("ANSIBLE_", "MOLECULE_", "KUBECONFIG", "K8S_AUTH_")


def users_environment(environment: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Environment that a user has in their shell, and what this run is given."""
    return {name: value for name, value in environment.items() if not name.startswith(FOREIGN)} | dict(given)


def run(command: list[str], log: Path | None, environment: Mapping[str, str]) -> int:
    """Run it with its output passed on and kept."""
    if log:
        log.parent.mkdir(parents=True, exist_ok=True)
    with (log or Path(os.devnull)).open("w", encoding="utf-8") as kept:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", env=dict(environment),
        )  # fmt: skip
        for line in process.stdout or ():
            for stream in (sys.stdout, kept):
                stream.write(line)
                stream.flush()
        return process.wait()


def most_memory() -> int:
    """MiB that the largest process had of all that have ended below this one."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024


def table(lines: list[str], scenario: str | None) -> list[str]:
    """The measured times, one line each; of the latest run where a step was run before."""
    newest = {}
    for line in lines:
        one = json.loads(line)
        if scenario in (None, one["scenario"]):
            newest[one["scenario"], one["step"]] = one["seconds"]
    return [f"{name:20} {step:40} {seconds:7.1f} s" for (name, step), seconds in newest.items()]


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="action", required=True)
    one = commands.add_parser("run")
    one.add_argument("--log", type=Path)
    one.add_argument("--times", type=Path)
    one.add_argument("--scenario", default="")
    one.add_argument("--step", default="")
    one.add_argument("--memory", type=Path)
    one.add_argument("--set", action="append", type=_pair, default=[], metavar="NAME=VALUE")
    one.add_argument("command", nargs="+")
    one = commands.add_parser("show")
    one.add_argument("times", type=Path)
    one.add_argument("--scenario")
    options = parser.parse_args()
    if options.action == "show":
        lines = options.times.read_text().splitlines() if options.times.exists() else []
        print("\n".join(table(lines, options.scenario)))
        return 0
    started, when = time.monotonic(), datetime.now(UTC)
    code = run(options.command, options.log, users_environment(os.environ, dict(options.set)))
    seconds = round(time.monotonic() - started, 2)
    if options.memory:
        options.memory.write_text(f"{most_memory()}\n", encoding="utf-8")
    if options.times and code == 0:
        options.times.parent.mkdir(parents=True, exist_ok=True)
        entry = {
            "scenario": options.scenario, "step": options.step, "seconds": seconds,
            "when": when.isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1), "mib": most_memory(),
        }  # fmt: skip
        with options.times.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
