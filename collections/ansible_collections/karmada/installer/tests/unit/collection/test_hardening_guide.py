# SPDX-License-Identifier: Apache-2.0
"""The guide to hardening names, for each threat, a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
REPOSITORY = TESTS.parents[4]
_GUIDE = (REPOSITORY / "docs/guides/hardening.md").read_text()
_TABLES = re.split(r"\n## ", _GUIDE.split("\n## What holds against whom\n")[1])[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for table in _TABLES.split("\n\n| threat | what holds it | test |\n|---|---|---|\n")[1:]
    for line in table.split("\n\n")[0].splitlines()
]


def test_rows_are_found() -> None:
    assert len(ROWS) > 40
    assert len(ROWS) == len(re.findall(r"^\| (?!threat \|)[^|]+\|[^|]+\|[^|]+\|$", _TABLES, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:60] for row in ROWS])
def test_what_a_row_cites_is_there(row: list[str]) -> None:
    _threat, _holds, cited = row
    missing = []
    names = re.findall(r"`([^`]+)`", cited)
    proofs = [name for name in names if name.endswith((".py", ".yaml")) or (REPOSITORY / "molecule" / name).is_dir()]
    for name in names:
        if name.endswith(".py"):
            found = (REPOSITORY / name if name.startswith("molecule/") else TESTS / name).is_file()
        elif name.endswith(".yaml"):
            found = bool(list(TESTS.rglob(name)))
        elif re.fullmatch(r"[a-z]+_[a-z_]+", name):
            found = (REPOSITORY / "molecule" / name / "molecule.yml").is_file()
        else:
            found = True  # a command or an option
        if not found:
            missing.append(name)
    assert missing == []
    assert proofs, "it cites no test"
