# SPDX-License-Identifier: Apache-2.0
"""The changelog that people write, in the form that programs read."""

from __future__ import annotations

from datetime import date

import changelog
import pytest

TODAY = date(2031, 5, 4)
TEXT = """\
# Changelog

Something about it.

## [Unreleased]

### Added

- One thing, which is
  told in `two` lines.
- **Another**, of ``three``.

### Fixed

- A bug.

## [0.0.9] - 2031-01-02

### Security

- A hole.
"""


def test_every_entry_has_its_release_and_section() -> None:
    assert changelog.releases(TEXT, "0.1.0", TODAY) == {
        "0.1.0": {
            "changes": {
                "minor_changes": ["One thing, which is told in ``two`` lines.", "**Another**, of ``three``."],
                "bugfixes": ["A bug."],
            },
            "release_date": "2031-05-04",
        },
        "0.0.9": {"changes": {"security_fixes": ["A hole."]}, "release_date": "2031-01-02"},
    }


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("### Fixed", "### Mended", "line 13: 'Mended' is none of Added"),
        ("- A bug.", "A bug.", "line 15: neither a heading, nor an entry"),
        ("## [Unreleased]", "## Unreleased", "line 7: 'Added' is none of"),
    ],
)
def test_a_line_that_would_be_lost_is_refused(before: str, after: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        changelog.releases(TEXT.replace(before, after), "0.1.0", TODAY)


def test_all_that_is_written_today_can_be_read() -> None:
    text = changelog.SOURCE.read_text(encoding="utf-8")
    found = changelog.releases(text, "0.1.0", TODAY)
    entries = [each for release in found.values() for texts in release["changes"].values() for each in texts]
    assert len(entries) == sum(line.startswith("- ") for line in text.splitlines())
