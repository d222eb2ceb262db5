# SPDX-License-Identifier: Apache-2.0
"""Course of many objects at once in an operator: the order of its runs, by its log, and the memory it took.

    together.py order LOG --object NAMESPACE/NAME... --most RUNS --last NAMESPACE/NAME [--figures FILE]
                            each object had one run, which succeeded; never more than RUNS at once, and so many at some
                            time; the one that asks for a second turn of its namespace began last
    together.py memory --lab LAB --process PID --most MIB [--figures FILE] -- COMMAND...
                            memory of the container of this process of the host cluster's node, while COMMAND runs

LOG has the JSON lines of the pod that led. Memory is what the kubelet calls the working set: all that the container's
processes and its folders in memory take, without files that the kernel would drop. Exit code 1: it is otherwise; of
`memory`, that of COMMAND if it failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared" / "tools"))
from figures import keep_figure

LOOK_SECONDS = 1
#: Other playbooks look only, and have turns of their own.
INSTALL = "karmada.installer.install"


class Run(NamedTuple):
    """A run of an object, in seconds since 1970; without an end and an outcome if it goes on."""

    began: float
    ended: float
    object: str
    outcome: str


def runs_of(lines: Iterable[str]) -> list[Run]:
    """Installations in the log of an operator, by their beginning."""
    found: dict[str, Run] = {}
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue  # what is no line of the operator's
        if "run" not in said:
            continue
        at, run, message = datetime.fromisoformat(said["time"]).timestamp(), said["run"], said["message"]
        if message.startswith(f"starts {INSTALL}:"):
            found[run] = Run(at, float("inf"), said["object"].rpartition(" ")[2], "")
        elif message.startswith("run ended: ") and run in found:
            found[run] = found[run]._replace(ended=at, outcome=message.split(": ")[1].split(",")[0])
    return sorted(found.values())


def most_at_once(runs: Sequence[Run]) -> int:
    """Largest number of runs that were under way at one moment."""
    return max((sum(each.began <= run.began < each.ended for each in runs) for run in runs), default=0)


def broken(runs: Sequence[Run], objects: Sequence[str], most: int, last: str) -> Iterator[str]:
    """Promises that are not kept, a line each."""
    for each in objects:
        outcomes = [run.outcome for run in runs if run.object == each]
        if outcomes != ["succeeded"]:
            yield f"{each} had other runs than one that succeeded: {', '.join(outcomes) or 'none'}"
    if (found := most_at_once(runs)) != most:
        yield f"{found} runs at once, not {most}"
    first = list(dict.fromkeys(run.object for run in runs))
    if first[-1:] != [last]:
        yield f"{last} did not begin last, though its namespace had had a turn: {', '.join(first)}"


def working_set(text: str) -> int:
    """MiB in what the kernel says of a control group: its usage in the first line, then its statistics."""
    usage, _, statistics = text.partition("\n")
    fields = dict(line.split() for line in statistics.splitlines() if len(line.split()) == 2)
    return (int(usage) - int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))) // 2**20


def group_files(text: str) -> tuple[str, str]:
    """Files with usage and statistics of memory, from ``/proc/PID/cgroup``, of control groups of version 1 or 2."""
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in text.splitlines())}
    for controllers, path in paths.items():
        if "memory" in controllers.split(","):
            folder = f"/sys/fs/cgroup/memory{path}"
            return f"{folder}/memory.usage_in_bytes", f"{folder}/memory.stat"
    folder = f"/sys/fs/cgroup{paths['']}"
    return f"{folder}/memory.current", f"{folder}/memory.stat"


def _order(options: argparse.Namespace) -> int:
    runs = runs_of(options.log.read_text().splitlines())
    start = runs[0].began if runs else 0.0
    for run in runs:
        print(f"{run.object}: {run.began - start:.1f} to {run.ended - start:.1f} s, {run.outcome}")
    found = list(broken(runs, options.object, options.most, options.last))
    print("".join(f"broken: {each}\n" for each in found), end="")
    if options.figures and runs:
        whole = max(run.ended for run in runs) - start
        figure = f"{len(options.object)} installed in {whole:.0f} s, {most_at_once(runs)} runs at once, none lost"
        keep_figure(options.figures, "objects at once", figure if not found else "; ".join(found))
    return 1 if found else 0


def _memory(options: argparse.Namespace) -> int:
    node = [options.lab, "exec", "host", "--"]
    groups = subprocess.run(
        [*node, "cat", f"/proc/{options.process}/cgroup"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    usage, statistics = group_files(groups)
    # What runs in the node outlives the program that brought it there; it ends with its input.
    ends = "exec 3<&0; (cat <&3 >/dev/null; kill $$) &"
    loop = f"{ends} while cat {usage} {statistics}; do echo; sleep {LOOK_SECONDS}; done"
    seen: list[int] = []
    with subprocess.Popen(
        [*node, "sh", "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as looking:

        def look() -> None:
            text = ""
            for line in looking.stdout or ():
                if line.strip():
                    text += line
                elif text:
                    seen.append(working_set(text))
                    text = ""

        thread = threading.Thread(target=look)
        thread.start()
        code = subprocess.run(options.command, check=False).returncode
        if looking.stdin:
            looking.stdin.close()
        thread.join()
    if not seen:
        print("broken: nothing was seen of its memory")
        return code or 1
    told = f"{seen[0]} MiB before, {max(seen)} MiB at most ({len(seen)} looks)"
    print(told)
    if options.figures:
        keep_figure(options.figures, "memory of the operator with its runs", told)
    return code or int(max(seen) > options.most)


def main() -> int:
    """Judge one of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="judged", required=True)
    one = commands.add_parser("order")
    one.set_defaults(judge=_order)
    one.add_argument("log", type=Path)
    one.add_argument("--object", action="append", required=True, metavar="NAMESPACE/NAME")
    one.add_argument("--most", type=int, required=True, metavar="RUNS")
    one.add_argument("--last", required=True, metavar="NAMESPACE/NAME")
    one.add_argument("--figures", type=Path, metavar="FILE")
    one = commands.add_parser("memory")
    one.set_defaults(judge=_memory)
    one.add_argument("--lab", required=True)
    one.add_argument("--process", required=True, metavar="PID")
    one.add_argument("--most", type=int, required=True, metavar="MIB")
    one.add_argument("--figures", type=Path, metavar="FILE")
    one.add_argument("command", nargs="+")
    options = parser.parse_args()
    return int(options.judge(options))


if __name__ == "__main__":
    sys.exit(main())
