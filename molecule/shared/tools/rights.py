# SPDX-License-Identifier: Apache-2.0
"""Rights that an account used, by the audit log of a cluster, and which it was refused.

    rights.py LOG --since MARK --user USER --rights FILE [--expect REFUSED]... [--unused-allowed FILE]

FILE holds the Roles and ClusterRoles of the account; what was not used of them is named. Where it has bindings, only
what these give to USER counts. Questions about rights are not counted. REFUSED is the beginning of a request that has
to be refused, such as `create /api/v1/pods`. The file of `--unused-allowed` is a list of reasons (`why`) with the
`rights` that may be there unused for each, in the words in which they are named here. Exit code 1: something else was
refused, or not all that was to be, or nothing was asked, or a right was not used that is in no such list.
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


def granted(objects: Iterable[dict[str, Any]], user: str) -> set[Right]:
    """Rights of the Roles and ClusterRoles among the objects; where there are bindings, those of this user's only."""
    found = [each for each in objects if each]
    bindings = [each for each in found if each["kind"].endswith("RoleBinding")]
    bound = {_role(each, each["roleRef"]) for each in bindings if user in map(_user, each["subjects"])}
    return {
        (group, resource, verb)
        for each in found
        if each["kind"] in ("Role", "ClusterRole") and (not bindings or _role(each, each | each["metadata"]) in bound)
        for rule in each["rules"]
        for group in rule.get("apiGroups", [])
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _role(holder: dict[str, Any], role: dict[str, Any]) -> tuple[str, str, str]:
    """Kind, name and namespace of a role. A Role is in the namespace of the object that has or binds it."""
    namespace = "" if role["kind"] == "ClusterRole" else holder["metadata"].get("namespace", "")
    return role["kind"], role["name"], namespace


def _user(subject: dict[str, str]) -> str:
    """Name by which the audit log knows the subject of a binding."""
    if subject["kind"] == "ServiceAccount":
        return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return subject["name"]


def words(right: Right) -> str:
    """Right in words."""
    group, resource, verb = right
    return f"{verb} {resource} ({group or 'core'})"


def allowed(file: Path) -> set[str]:
    """Rights that may be there unused, in words. Raises ValueError if one has no reason."""
    entries = yaml.safe_load(file.read_text())
    if without := [each["rights"] for each in entries if not each.get("why")]:
        raise ValueError(f"{file} does not say why {without} may be unused")
    return {right for each in entries for right in each["rights"]}


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    for name in ("since", "user"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rights", required=True, type=Path)
    parser.add_argument("--expect", action="append", default=[], metavar="REFUSED")
    parser.add_argument("--unused-allowed", type=Path, metavar="FILE")
    options = parser.parse_args()
    asked = list(requests_of(lines_since(options.log, options.since), options.user))
    refused = sorted({line for _right, code, line in asked if code == 403})
    used = {right for right, _code, _line in asked}
    unused = sorted(granted(yaml.safe_load_all(options.rights.read_text()), options.user) - used)
    print(f"{len(asked)} requests, {len(refused)} of them refused")
    print("".join(f"refused: {line}\n" for line in refused), end="")
    print("".join(f"not used in this run: {words(each)}\n" for each in unused), end="")
    unexpected = [line for line in refused if not line.startswith(tuple(options.expect))]
    missing = [each for each in options.expect if not any(line.startswith(each) for line in refused)]
    print("".join(f"not refused, though it has to be: {each}\n" for each in missing), end="")
    needless: list[str] = []
    if options.unused_allowed:
        known = allowed(options.unused_allowed)
        needless = [each for each in map(words, unused) if each not in known]
        print("".join(f"not used, and nothing says what it is for: {each}\n" for each in needless), end="")
    return 1 if unexpected or missing or needless or not asked else 0


if __name__ == "__main__":
    sys.exit(main())
