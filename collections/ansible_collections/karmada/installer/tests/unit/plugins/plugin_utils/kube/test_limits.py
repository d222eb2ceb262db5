# SPDX-License-Identifier: Apache-2.0
"""Limits that many share stand in one file: a number that is written down twice is changed in one place only."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.karmada.installer.plugins.plugin_utils.kube import limits

ENGINE = Path(limits.__file__).parents[1]
#: Constants of a single task, which no other shares.
OF_ONE_TASK = {"artifacts/programs.py": ["PROGRAMS_AT_ONCE"]}


def test_how_much_happens_at_the_same_time_is_said_in_one_place() -> None:
    found = {
        path.relative_to(ENGINE).as_posix(): names
        for path in ENGINE.rglob("*.py")
        if (names := re.findall(r"^(\w*AT_ONCE)\b.* = ", path.read_text(encoding="utf-8"), re.MULTILINE))
    }
    assert found.pop("kube/limits.py") == ["AT_ONCE", "CLUSTERS_AT_ONCE"]
    assert found == OF_ONE_TASK
