# SPDX-License-Identifier: Apache-2.0
"""Bytes as text, for JSON and YAML: base64 as in Secrets and kubeconfigs; text that systemd can read."""

from __future__ import annotations

import base64
from collections.abc import Mapping


def base64_text(content: bytes) -> str:
    """Base64 of the bytes, in one line."""
    return base64.b64encode(content).decode()


def base64_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files by name, in the form of the ``data`` of a Secret."""
    return {name: base64_text(content) for name, content in files.items()}


def files_of(data: Mapping[str, str] | None) -> dict[str, bytes]:
    """Files in the ``data`` of a Secret, by name; empty if it has no data. Raises ValueError."""
    return {name: base64.b64decode(content) for name, content in (data or {}).items()}


def unfit_for_systemd(text: str) -> str:
    """Number (``U+FDD0``) of the first character of a text that no word of a systemd unit can have; empty if none.

    NUL ends a string in the kernel. The noncharacters of Unicode and surrogates are broken UTF-8 to systemd, escaped or
    not: it ignores the variable, or loads no unit.
    """
    for character in text:
        number = ord(character)
        if not number or 0xD800 <= number <= 0xDFFF or 0xFDD0 <= number <= 0xFDEF or number & 0xFFFE == 0xFFFE:
            return f"U+{number:04X}"
    return ""
