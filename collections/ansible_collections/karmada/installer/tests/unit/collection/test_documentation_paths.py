# SPDX-License-Identifier: Apache-2.0
"""Files that pages name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[7]
TESTS = Path(__file__).parents[2]
PAGES = [
    path
    for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/**/*.md"))
    if not any(part.startswith(".") or part == "build" for part in path.relative_to(REPOSITORY).parts)
]

_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
_TEST = re.compile(r"`((?:unit|contract)/[\w/]*test_\w+\.py)`")


def named(page: Path) -> Iterator[tuple[str, Path]]:
    """Each file that a page links, and each test that it names: as it is written, and where that is."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", "", text)  # a pattern of a field looks like a link
    yield from ((link, page.parent / link) for link in _LINK.findall(prose))
    yield from ((name, TESTS / name) for name in _TEST.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [name for name, path in named(page) if not path.exists()] == []


def test_pages_name_something() -> None:
    assert sum(1 for page in PAGES for _ in named(page)) > 100
