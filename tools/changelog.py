# SPDX-License-Identifier: Apache-2.0
"""Makes the changelog that programs read (``changelogs/changelog.yaml``) of the one that people write.

Galaxy and ``ansible-test sanity`` know the form of antsibull-changelog, whose texts are reStructuredText. The file is
made for an artifact and is not kept in the repository: what people write is the only source.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import yaml

COLLECTION = Path(__file__).resolve().parents[1] / "collections/ansible_collections/karmada/installer"
SOURCE, TARGET = COLLECTION / "CHANGELOG.md", COLLECTION / "changelogs/changelog.yaml"
#: Heading of people → section of programs.
SECTIONS = {
    "Added": "minor_changes",
    "Changed": "breaking_changes",
    "Deprecated": "deprecated_features",
    "Removed": "removed_features",
    "Fixed": "bugfixes",
    "Security": "security_fixes",
}
UNRELEASED = "Unreleased"
_RELEASE = re.compile(r"## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?")
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def releases(text: str, version: str, today: date) -> dict[str, Any]:
    """Releases by their version. What is not released yet is the version that galaxy.yml has, of today.

    Raises ValueError for a line that is no part of any of them.
    """
    found: dict[str, Any] = {}
    changes: dict[str, list[str]] = {}
    entries: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if release := _RELEASE.fullmatch(line):
            named = version if release["version"] == UNRELEASED else release["version"]
            changes, entries = {}, None
            found[named] = {"changes": changes, "release_date": release["date"] or today.isoformat()}
        elif line.startswith("### "):
            heading = line.removeprefix("### ")
            if heading not in SECTIONS or not found:
                raise ValueError(f"line {number}: {heading!r} is none of {', '.join(SECTIONS)}")
            entries = changes.setdefault(SECTIONS[heading], [])
        elif line.startswith("- ") and entries is not None:
            entries.append(line.removeprefix("- "))
        elif line.startswith("  ") and entries:
            entries[-1] += f" {line.strip()}"
        elif line and found:
            raise ValueError(f"line {number}: neither a heading, nor an entry, nor its continuation")
    for release in found.values():
        release["changes"] = {
            section: [_CODE.sub(r"``\1``", each) for each in texts] for section, texts in release["changes"].items()
        }
    return found


def last_commit() -> date:
    """Day of the last commit, so that an artifact does not depend on when it was built."""
    command = ["git", "-C", str(COLLECTION), "log", "-1", "--format=%cs"]
    return date.fromisoformat(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def main() -> int:
    """Write the file."""
    version = yaml.safe_load((COLLECTION / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    made = {"ancestor": None, "releases": releases(SOURCE.read_text(encoding="utf-8"), version, last_commit())}
    TARGET.write_text("---\n" + yaml.safe_dump(made, width=120, allow_unicode=True), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
