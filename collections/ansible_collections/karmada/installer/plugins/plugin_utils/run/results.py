# SPDX-License-Identifier: Apache-2.0
"""Results of tasks as text for people. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(found: Mapping[str, Any]) -> str:
    """Text of a task that only shows some; empty if there is more, which then has to be shown as data."""
    more = {key for key in found if not key.startswith("_")} - {"msg", "changed", "failed"}
    lines = found.get("msg")
    lines = lines if isinstance(lines, list) else [lines]
    return "" if more or not all(isinstance(each, str) for each in lines) else "\n".join(lines)


def reason(found: Mapping[str, Any]) -> str:
    """Reason of a failure, without what is for programs and for the authors of a plugin."""
    turns = [each for each in found.get("results") or () if isinstance(each, Mapping) and each.get("failed")]
    if turns and not found.get("problems"):
        return "\n".join(dict.fromkeys(reason(each) for each in turns))
    told = str(found.get("msg") or found.get("reason") or found.get("censored") or "it gave no reason").strip()
    # Programs of a host, as others' tasks run them.
    further = [str(found[key]).strip() for key in ("module_stderr", "stderr") if str(found.get(key) or "").strip()]
    return "\n".join([told, *(each for each in further if each not in told)])
