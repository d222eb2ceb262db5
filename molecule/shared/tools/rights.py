# SPDX-License-Identifier: Apache-2.0
"""Rights that an account used, by the audit log of a cluster, and which it was refused.

    rights.py LOG --since MARK --user USER --rights FILE [--expect REFUSED]...

FILE holds the Roles and ClusterRoles of the account; what was not used of them is named. Questions about rights
are not counted. REFUSED is the beginning of a request that has to be refused, such as `create /api/v1/pods`. Exit
code 1: something else was refused, or not all that was to be, or nothing was asked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from audit import QUESTIONS, lines_since

#: API group, resource with its subresource, verb
Right = tuple[str, str, str]


def requests_of(lines: Iterable[str], user: str) -> Iterator[tuple[Right, int, str]]:
    """Requests of the user, the answer's code, and a line about each."""
    for line in lines:
        if not line.endswith("\n"):
            continue  # being written at this moment
        event = json.loads(line)
        target = event.get("objectRef") or {}
        if (event.get("user") or {}).get("username") != user or target.get("apiGroup") in QUESTIONS:
            continue
        code = int((event.get("responseStatus") or {}).get("code") or 0)
        resource = "/".join(part for part in (target.get("resource", ""), target.get("subresource", "")) if part)
        yield (target.get("apiGroup", ""), resource, event["verb"]), code, f"{event['verb']} {event['requestURI']}"


def granted(objects: Iterable[dict[str, Any]]) -> set[Right]:
    """Every right of the Roles and ClusterRoles among the objects."""
    return {
        (group, resource, verb)
        for each in objects
        if each and each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    for name in ("since", "user"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rights", required=True, type=Path)
    parser.add_argument("--expect", action="append", default=[], metavar="REFUSED")
    options = parser.parse_args()
    asked = list(requests_of(lines_since(options.log, options.since), options.user))
    refused = sorted({line for _right, code, line in asked if code == 403})
    used = {right for right, _code, _line in asked}
    unused = granted(yaml.safe_load_all(options.rights.read_text())) - used
    print(f"{len(asked)} requests, {len(refused)} of them refused")
    print("".join(f"refused: {line}\n" for line in refused), end="")
    print(
        "".join(
            f"not used in this run: {verb} {resource} ({group or 'core'})\n" for group, resource, verb in sorted(unused)
        ),
        end="",
    )
    unexpected = [line for line in refused if not line.startswith(tuple(options.expect))]
    missing = [each for each in options.expect if not any(line.startswith(each) for line in refused)]
    print("".join(f"not refused, though it has to be: {each}\n" for each in missing), end="")
    return 1 if unexpected or missing or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
