# SPDX-License-Identifier: Apache-2.0
"""Hooks of the site: titles of pages."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Hooks, without the packages that only the site is built with."""
    monkeypatch.setitem(sys.modules, "pymdownx", SimpleNamespace(slugs=None))
    monkeypatch.delitem(sys.modules, "collection_docs.site", raising=False)
    return importlib.import_module("collection_docs.site")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("<!-- SPDX-License-Identifier: Apache-2.0 -->\n\n# AWX\n\nText.\n\n```shell\n# In a shell\n```\n", "AWX"),
        ("# The `report`\n\n# Another\n", "The report"),
        ("No heading\n\n## Below one\n", None),
    ],
)
def test_title_of_a_page_is_its_first_heading(text: str, title: str | None, site: ModuleType) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guides/awx.md"), meta={})
    assert site.on_page_markdown(text, page) == text
    assert page.meta.get("title") == title
    assert page.meta["search"] == {"boost": 4}
