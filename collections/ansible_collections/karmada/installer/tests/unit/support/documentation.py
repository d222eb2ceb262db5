# SPDX-License-Identifier: Apache-2.0
"""Markdown pages of the repository: their headings, links and blocks of code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[7]
COLLECTION = REPOSITORY / "collections/ansible_collections/karmada/installer"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<file>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of code; ``line`` is that of its fence, counted from 1."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def pages() -> list[Path]:
    """Every Markdown page that is part of the repository; what targets of the Makefile leave behind is none."""
    return sorted(
        path
        for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/**/*.md"))
        if not any(part.startswith(".") or part == "build" for part in path.relative_to(REPOSITORY).parts)
    )


def blocks(page: Path) -> Iterator[Block]:
    """Blocks of a page from top to bottom, without the indentation of their fences."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        code = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        yield Block(page, text.count("\n", 0, found.start()) + 1, found["language"], code)


def prose(page: Path) -> str:
    """Text of a page without code, which may look like a link or a heading."""
    return re.sub(r"`[^`\n]*`", "", _without_blocks(page))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Each link to a page of the repository: file, empty for the page itself, and anchor, empty for its beginning."""
    yield from ((found["file"], found["anchor"] or "") for found in _LINK.finditer(prose(page)))


def anchors(page: Path) -> set[str]:
    """Anchors of a page as GitHub makes them from headings; one that two headings share is that of the first."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_without_blocks(page)):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def slug(heading: str) -> str:
    """Anchor that GitHub makes from the text of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def _without_blocks(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))
