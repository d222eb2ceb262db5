# SPDX-License-Identifier: Apache-2.0
"""An object of an API server as plain data, and the conditions in its status. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: As JSON has it: ``apiVersion``, ``kind``, ``metadata`` and what belongs to the kind.
Object = dict[str, Any]


def conditions(obj: Mapping[str, Any] | None) -> list[Object]:
    """The conditions of an object; none where it does not exist, or nobody has reported any yet."""
    return list(((obj or {}).get("status") or {}).get("conditions") or ())


def condition(obj: Mapping[str, Any] | None, kind: str) -> Object:
    """The condition of this type; empty where nobody has reported it yet."""
    return next((each for each in conditions(obj) if each.get("type") == kind), {})


def is_true(obj: Mapping[str, Any] | None, kind: str) -> bool:
    """The condition of this type is True: not False, not Unknown, not missing."""
    return bool(condition(obj, kind).get("status") == "True")
