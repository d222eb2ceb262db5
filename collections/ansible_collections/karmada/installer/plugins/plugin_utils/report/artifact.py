# SPDX-License-Identifier: Apache-2.0
"""Report in a size that AWX keeps with a job and hands to every later node of a workflow. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: Bytes of JSON. AWX stores it in its database, and puts it into the variables of all later jobs of a workflow.
MOST_BYTES = 64 * 1024
#: Lists of the status that are shortened where that is not enough, the one that is needed least first.
SHORTENED = ("changes", "members", "components", "certificates", "hosts", "problems", "conditions")
#: Characters of a text where shorter lists are not enough, and once at most.
LONGEST = 500
#: Key with the number of entries that each list lacks.
LEFT_OUT = "leftOut"


def of_status(status: Mapping[str, Any], most: int = MOST_BYTES) -> dict[str, Any]:
    """Status in at most so many bytes of JSON: members that are not ready come first, and what lacks is counted."""
    found = dict(status)
    if "members" in found:
        found["members"] = sorted(found["members"], key=lambda each: bool(each.get("ready")))
    if _size(found) > most:
        found = {key: _shortened(each) for key, each in found.items()}
    for name in SHORTENED:
        if _size(found) <= most:
            break
        if found.get(name):
            found = _with_fewer(found, name, most)
    return found


def _with_fewer(status: Mapping[str, Any], name: str, most: int) -> dict[str, Any]:
    """Status with as many of the first entries of one list as there is room for."""
    entries = status[name]
    fits, too_many = 0, len(entries) + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if _size(_cut(status, name, middle)) <= most:
            fits = middle
        else:
            too_many = middle
    return _cut(status, name, fits)


def _cut(status: Mapping[str, Any], name: str, count: int) -> dict[str, Any]:
    lacking = {**status.get(LEFT_OUT, {}), name: len(status[name]) - count}
    return {**status, name: status[name][:count], LEFT_OUT: lacking}


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    if isinstance(value, Mapping):
        return {key: _shortened(each) for key, each in value.items()}
    return [_shortened(each) for each in value] if isinstance(value, list | tuple) else value


def _size(status: Mapping[str, Any]) -> int:
    """Bytes in the form that takes most: with characters of other scripts as escapes."""
    return len(json.dumps(status))
