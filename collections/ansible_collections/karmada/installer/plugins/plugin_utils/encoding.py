# SPDX-License-Identifier: Apache-2.0
"""Bytes as text, for JSON and YAML: base64 as Secrets, kubeconfigs and what is handed between steps have it."""

from __future__ import annotations

import base64
from collections.abc import Mapping


def base64_text(content: bytes) -> str:
    """The bytes in base64, in one line."""
    return base64.b64encode(content).decode()


def base64_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """Files by name as the ``data`` of a Secret."""
    return {name: base64_text(content) for name, content in files.items()}


def files_of(data: Mapping[str, str] | None) -> dict[str, bytes]:
    """The files in the ``data`` of a Secret, by name; none of a Secret without data. Raises ValueError."""
    return {name: base64.b64decode(content) for name, content in (data or {}).items()}
