# SPDX-License-Identifier: Apache-2.0
"""Arguments that were left empty. AWX hands on what nobody wrote into a question of a survey as ``""``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def left_out(arguments: Mapping[str, Any], options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments without the empty ones, so that the defaults of ``options`` count; lists from text lose their blanks.

    Ansible makes a list with one empty name of an empty text, and refuses it where a number or a truth is expected. A
    text without a default stays as it is, because its step knows what an empty one means.
    """
    found = dict(arguments)
    for name, value in arguments.items():
        option = options.get(name)
        if option is None or not isinstance(value, str):
            continue
        kind = option.get("type", "str")
        if not value.strip() and (kind != "str" or option.get("default") is not None):
            del found[name]
        elif kind == "list" and not value.lstrip().startswith("["):
            found[name] = [each.strip() for each in value.split(",") if each.strip()]
    return found
