#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record which flags and feature gates the programs of each known release have, by asking them (``--help``).

`make flags` runs it. The programs are the lab's (``lab/lab artifacts``), which builds those it does not
have. A version that is on record already is not asked again; with ``--anew`` it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.components import known_flags, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]
Record = dict[str, list[str]]

_FLAG = re.compile(r"^\s+(?:-\w, )?--([\w.-]+)", re.MULTILINE)
#: Kubernetes' own programs name the part of the program first (kube:Gate=...); a gate without it means that part, too.
_GATE = re.compile(r"^\s+(?:kube:)?([A-Za-z][A-Za-z0-9]*)=true\|false \((?:ALPHA|BETA|GA|DEPRECATED)\b", re.MULTILINE)


def program_of(name: str, release: releases.Release) -> str:
    """Path of this program as this release has it."""
    lab = [sys.executable, str(ROOT / "lab/lab"), "artifacts"]
    versions = ["--karmada", release.karmada, "--kubernetes", release.kubernetes, "--etcd", release.etcd]
    subprocess.run([*lab, *versions, "--only", name], check=True, stdout=sys.stderr)
    answer = subprocess.run([*lab, *versions, "path", name], check=True, stdout=subprocess.PIPE, text=True)
    return answer.stdout.strip().splitlines()[-1]


def record_of(program: str) -> Record:
    """Record of what a program says it has; ``gates`` only where it takes any."""
    answer = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=120, check=False)
    text = answer.stdout + answer.stderr
    flags = sorted(set(_FLAG.findall(text)))
    if len(flags) < 20:
        raise SystemExit(f"{program} --help was not understood")
    _, _, rest = text.partition("--feature-gates ")
    # the section ends where the next flag begins
    section = re.split(r"^\s+(?:-\w, )?--\w", rest, maxsplit=1, flags=re.MULTILINE)[0]
    gates = sorted(set(_GATE.findall(section)))
    return {"flags": flags, **({"gates": gates} if gates else {})}


def main() -> None:
    """Write the file: every program of every release, and nothing else."""
    before = {} if "--anew" in sys.argv[1:] else json.loads(known_flags.FILE.read_text(encoding="utf-8"))
    found: dict[str, dict[str, Record]] = {}
    for release in releases.RELEASES:
        for component in PROGRAMS:
            name, version = known_flags.program(component), getattr(release, component.image.release)
            versions = found.setdefault(name, {})
            if version not in versions:
                versions[version] = before.get(name, {}).get(version) or record_of(program_of(name, release))
                told = ", ".join(f"{len(names)} {kind}" for kind, names in versions[version].items())
                print(f"{name} {version}: {told}")
    known_flags.FILE.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
