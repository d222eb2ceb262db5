# SPDX-License-Identifier: Apache-2.0
"""Hooks of the site: the anchors that GitHub makes, and links to files of the repository that are no pages of it.

On GitHub such a link leads to the file. The site has no address of the repository to lead to, and a dead link on it is
an error; so the file's path in the repository stands there instead. That the file exists is a unit test's business.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from pymdownx import slugs

_LINK = re.compile(r"(?<!!)\[(?P<text>[^]]*)\]\((?P<path>\.\./[^)#\s]+)(?:#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Settings of the site, with anchors of headings as on GitHub."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugs.slugify(case="lower")
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Text of a page with those links as text."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def told(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found["path"]))
        if path.startswith("docs/"):
            return found[0]
        text = found["text"].strip("`")
        return f"`{path}`" if path.endswith(text) else f"{found['text']} (`{path}`)"

    return _LINK.sub(told, markdown)
