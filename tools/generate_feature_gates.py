#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record which feature gates each component of each known release has, by asking the programs (``--help``).

`make gates` runs it. The programs are the lab's (``molecule/lab/lab artifacts``), which builds those it does not have.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils import feature_gates, releases
from ansible_collections.karmada.installer.plugins.plugin_utils.components import COMPONENTS, Component

ROOT = Path(__file__).resolve().parents[1]
#: Kubernetes' own programs name the part of the program first (kube:Gate=...); a gate without it means that part, too.
_GATE = re.compile(r"^\s+(?:kube:)?([A-Za-z][A-Za-z0-9]*)=true\|false \((?:ALPHA|BETA|GA|DEPRECATED)\b", re.MULTILINE)


def program_of(component: Component, release: releases.Release) -> str:
    """Path of the program that this component runs in this release."""
    name = component.binary.rpartition("/")[2]
    lab = [sys.executable, str(ROOT / "molecule/lab/lab"), "artifacts"]
    versions = ["--karmada", release.karmada, "--kubernetes", release.kubernetes, "--etcd", release.etcd]
    subprocess.run([*lab, *versions, "--only", name], check=True, stdout=sys.stderr)
    answer = subprocess.run([*lab, *versions, "path", name], check=True, stdout=subprocess.PIPE, text=True)
    return answer.stdout.strip().splitlines()[-1]


def gates_of(program: str) -> list[str]:
    """The gates that a program says it has."""
    answer = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=120, check=False)
    _, flag, rest = (answer.stdout + answer.stderr).partition("--feature-gates ")
    # the section ends where the next flag begins
    section = re.split(r"^\s+(?:-\w, )?--\w", rest, maxsplit=1, flags=re.MULTILINE)[0]
    found = sorted(set(_GATE.findall(section)))
    if not flag or not found:
        raise SystemExit(f"{program} --help names no feature gates")
    return found


def gates_of_release(release: releases.Release) -> dict[str, list[str]]:
    """Component to its gates, for those that take any."""
    return {each.name: gates_of(program_of(each, release)) for each in COMPONENTS if each.takes_feature_gates}


def main() -> None:
    """Write the file."""
    found = {release.karmada: gates_of_release(release) for release in releases.RELEASES}
    feature_gates.FILE.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for release, components in found.items():
        print(release, ", ".join(f"{name}: {len(gates)}" for name, gates in components.items()))


if __name__ == "__main__":
    main()
