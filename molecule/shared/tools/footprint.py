# SPDX-License-Identifier: Apache-2.0
"""Footprint of a lab on this machine: links, network namespaces, mounts, nftables tables, control groups, processes.

    footprint.py take FILE
    footprint.py same FILE [--within SECONDS]

The lab is the one of KARMADA_LAB_STATE. What belongs to other labs is left out, because they come and go beside it. Of
processes only those are taken that are the lab's by control group, environment or command line. Exit code 1: something
is there that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "lab"))
from karmada_lab.state import Lab

_LAB = re.compile(r"\bklab[0-9a-f]*")


def footprint(lab: Lab) -> list[str]:
    """One line for each thing that is there."""
    found = [
        *(f"link {each['ifname']}" for each in json.loads(_output("ip", "-json", "link"))),
        *(f"network namespace {line.split()[0]}" for line in _output("ip", "netns").splitlines() if line),
        *(f"rules {line}" for line in _output("nft", "list", "tables").splitlines()),
        *(f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        *(f"control group {path}" for path in Path("/sys/fs/cgroup").glob("**/klab*") if path.is_dir()),
        *(f"route {line.strip()}" for line in _output("ip", "route").splitlines()),
        *_processes(lab),
    ]
    if lab.state.exists():
        found.append(f"folder {lab.state}")
    return sorted({each for each in found if not _of_another(lab, each)})


def _of_another(lab: Lab, each: str) -> bool:
    names = set(_LAB.findall(each))
    return bool(names) and lab.id not in names


def _processes(lab: Lab) -> Iterator[str]:
    mine = {os.getpid(), os.getppid()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            groups, command = (folder / "cgroup").read_text(), (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended
        ours = f"/{lab.id}" in groups or str(lab.state).encode() in command
        # The playbook that asks has the same environment; what was started in a session of its own is not below it.
        ours = ours or (f"KARMADA_LAB_STATE={lab.state}".encode() in environment.split(b"\0") and _is_alone(folder))
        if ours and int(folder.name) not in mine:
            yield f"process {command.replace(bytes(1), b' ').decode(errors='replace')[:200]}"


def _is_alone(folder: Path) -> bool:
    """Return whether its parent is the first process of this machine, because the one that started it has ended."""
    return (folder / "stat").read_text().rpartition(")")[2].split()[1] == "1"


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    """Take, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["take", "same"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--within", type=float, default=10, metavar="SECONDS")
    options = parser.parse_args()
    lab = Lab.from_environment()
    if options.command == "take":
        options.file.write_text(json.dumps(footprint(lab), indent=1) + "\n")
        return 0
    before = set(json.loads(options.file.read_text()))
    deadline = time.monotonic() + options.within
    while (more := sorted(set(footprint(lab)) - before)) and time.monotonic() < deadline:
        time.sleep(0.5)
    print("\n".join(f"left: {each}" for each in more) if more else "Nothing is left.")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
