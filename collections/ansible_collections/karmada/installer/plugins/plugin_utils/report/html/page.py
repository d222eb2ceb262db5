# SPDX-License-Identifier: Apache-2.0
"""A status of a KarmadaDeployment as one HTML page. No I/O but for reading the templates of this collection."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .picture import drawings
from .view import View

if TYPE_CHECKING:
    import jinja2

_TEMPLATES = Path(__file__).parent / "templates"


def page(name: str, namespace: str, status: Mapping[str, Any], now: datetime) -> str:
    """Page of one control plane, as seen at ``now``.

    It needs nothing but itself: its style and its script are in it, and its policy (CSP) admits these two by their
    digests and nothing else. So no text of a status can be carried out, even if it were not escaped.
    """
    view = View(name, namespace, status, now)
    style, script = _file("page.css"), _file("page.js")
    drawn = drawings(view)
    values = {"view": view, "drawings": drawn, "tiled": any(each.tiles for each in drawn), "policy": _policy()}
    return _environment().get_template("page.html.j2").render(values, style=style, script=script)


@functools.cache
def _policy() -> str:
    """Content security policy of the page."""
    style, script = (_digest(_file(each)) for each in ("page.css", "page.js"))
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _file(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415 - only this form of the report needs it

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
