# SPDX-License-Identifier: Apache-2.0
"""What sanity passes over is in the collection, is told once, and has a reason."""

from __future__ import annotations

import pytest
from sanity_ignores import COLLECTION, PYTHONS, lines


@pytest.mark.parametrize("core", PYTHONS)
def test_each_line_is_about_a_file_that_is_there_and_says_why(core: str) -> None:
    found = lines(COLLECTION, core)
    told = [line.partition(" # ") for line in found]
    assert all(why for _, _, why in told)
    assert [line for line in found if not (COLLECTION / line.split()[0]).is_file()] == []
    assert len({what for what, _, _ in told}) == len(found)


def test_files_without_an_import_of_the_engine_are_looked_at() -> None:
    passed_over = {line.split()[0] for line in lines(COLLECTION, "2.19") if " import-" in line}
    assert "plugins/modules/report.py" not in passed_over
    assert "plugins/action/report.py" in passed_over
