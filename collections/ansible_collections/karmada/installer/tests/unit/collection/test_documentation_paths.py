# SPDX-License-Identifier: Apache-2.0
"""Files and sections that pages name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support import documentation

REPOSITORY = documentation.REPOSITORY
TESTS = Path(__file__).parents[2]
PAGES = documentation.pages()
ARCHITECTURE = REPOSITORY / "docs/architecture.md"
COLLECTION = TESTS.parent
#: Where the page of the architecture says that its paths begin; a name alone is in the package whose row it stands in.
BEGINNINGS = ("plugins/plugin_utils", "plugins/plugin_utils/*", "plugins", "roles", "playbooks", ".")

_TEST = re.compile(r"`((?:unit|contract)/[\w/]*test_\w+\.py)`")
_CODE = re.compile(r"`([\w/.]+\.(?:py|ya?ml))(?::(\w+))?`")
_SCENARIO = re.compile(r"\bscenario\s+`(\w+)`")


def named(page: Path) -> Iterator[tuple[str, Path]]:
    """Each file that a page links, and each test and scenario that it names: as it is written, and where that is."""
    text = page.read_text(encoding="utf-8")
    yield from ((file, page.parent / file) for file, _ in documentation.links(page) if file)
    yield from ((name, TESTS / name) for name in _TEST.findall(text))
    yield from ((name, REPOSITORY / "molecule" / name / "molecule.yml") for name in _SCENARIO.findall(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [name for name, path in named(page) if not path.exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_sections_that_a_page_links_are_there(page: Path) -> None:
    lacking = [
        f"{file}#{anchor}"
        for file, anchor in documentation.links(page)
        if anchor and anchor not in documentation.anchors((page.parent / file) if file else page)
    ]
    assert lacking == []


def lacking_code(text: str) -> list[str]:
    """Files, and functions in them, that a page of the architecture names and that are not there."""
    lacking = []
    for name, function in _CODE.findall(text):
        files = [file for each in BEGINNINGS for file in COLLECTION.glob(f"{each}/{name}")]
        files += [REPOSITORY / name] if (REPOSITORY / name).exists() else []
        if not any(f"def {function}(" in file.read_text(encoding="utf-8") if function else True for file in files):
            lacking.append(f"{name}:{function}" if function else name)
    return lacking


def test_code_that_the_architecture_names_is_there() -> None:
    """Somebody who opens the page for the first time finds by it, in two minutes each, where things live."""
    text = ARCHITECTURE.read_text(encoding="utf-8").replace("`site.karmada.yml`", "a file of the user's")
    assert len(_CODE.findall(text)) > 30
    assert lacking_code(text) == []
    assert lacking_code("`members/gone.py`, `members/leave.py:went`") == ["members/gone.py", "members/leave.py:went"]


def test_pages_name_something() -> None:
    assert sum(1 for page in PAGES for _ in named(page)) > 100
    assert sum(1 for page in PAGES for _, anchor in documentation.links(page) if anchor) > 100


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("2. Say how hosts are reached", "2-say-how-hosts-are-reached"),
        ("`spec.members[]`", "specmembers"),
        ("`deletion.policy`", "deletionpolicy"),
        ("An address: VirtualIP, or [yours](endpoint.md)", "an-address-virtualip-or-yours"),
    ],
)
def test_anchors_are_those_of_github(heading: str, anchor: str) -> None:
    assert documentation.slug(heading) == anchor
