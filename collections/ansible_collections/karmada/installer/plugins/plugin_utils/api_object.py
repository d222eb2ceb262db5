# SPDX-License-Identifier: Apache-2.0
"""Object of an API server as plain data, and the conditions in its status. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Object in the form of its JSON: ``apiVersion``, ``kind``, ``metadata`` and the fields of the kind.
Object = dict[str, Any]


def conditions(obj: Mapping[str, Any] | None) -> list[Object]:
    """Conditions of an object; empty if it does not exist, or has none yet."""
    return list(((obj or {}).get("status") or {}).get("conditions") or ())


def condition(obj: Mapping[str, Any] | None, kind: str) -> Object:
    """Condition of this type; empty if it has not been reported yet."""
    return next((each for each in conditions(obj) if each.get("type") == kind), {})


def is_true(obj: Mapping[str, Any] | None, kind: str) -> bool:
    """Return whether the condition of this type is True: not False, not Unknown, not missing."""
    return bool(condition(obj, kind).get("status") == "True")
