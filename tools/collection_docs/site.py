# SPDX-License-Identifier: Apache-2.0
"""Hooks of the site: the anchors that GitHub makes, titles of pages, and links to files that are no pages of it.

On GitHub such a link leads to the file. The site has no address of the repository to lead to, and a dead link on it is
an error; so the file's path in the repository stands there instead. That the file exists is a unit test's business.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from pymdownx import slugs

_SHIM = re.compile(r'<script src="https://unpkg.com/iframe-worker/shim"></script>')
#: How much a page or folder counts in the search: how to do something before what it is called.
_BOOSTS = {
    "guides": 4,
    "reference/variables.md": 4,
    "reference/manifest.md": 0.2,
    "reference/field-tests.md": 0.1,
    "reference/capabilities.md": 0.1,
}
_ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*>""")
#: First headings are looked for from the top, so comments in the code blocks below are none.
_HEADING = re.compile(r"^# +(\S.*?) *$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[(?P<text>[^]]*)\]\((?P<path>\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Settings of the site, with anchors of headings as on GitHub."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugs.slugify(case="lower")
    return config


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Page that loads nothing from elsewhere. Raises ValueError where the theme has come to load more."""
    return _of_this_site(output, "../" * page.url.count("/"))


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """The page for what is not there, likewise."""
    return _of_this_site(output, "") if template_name.endswith(".html") else output


def _of_this_site(output: str, up: str) -> str:
    """Text of a page with a script of our own in the place of one from elsewhere, for the search in a folder."""
    output = _SHIM.sub(f'<script src="{up}assets/search-from-a-folder.js"></script>', output)
    if found := _ELSEWHERE.search(output):
        raise ValueError(f"it would be loaded from elsewhere: {found[0]}")
    return output


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Text of a page with those links as text. Its title is its first heading.

    MkDocs takes a heading for the title only where nothing stands before it, as the comment with the license does.
    """
    path = page.file.src_uri
    if found := _HEADING.search(markdown):
        page.meta.setdefault("title", found[1].replace("`", ""))
    page.meta.setdefault("search", {"boost": _BOOSTS.get(path, _BOOSTS.get(posixpath.dirname(path), 1))})
    folder = posixpath.join("docs", posixpath.dirname(path))

    def told(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["path"]))
        if path.startswith("docs/"):
            return found[0]
        text = found["text"].strip("`")
        return f"`{path}`" if path.endswith(text) else f"{found['text']} (`{path}`)"

    return _LINK.sub(told, markdown)
