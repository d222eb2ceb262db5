# SPDX-License-Identifier: Apache-2.0
"""Files of a state in the form in which they are stored: JSON mostly, and packed by gzip where they are long.

Whoever can write a state could have packed anything. A few bytes of gzip become gigabytes, and brackets inside each
other become calls inside each other, which Python ends: size, number of values and depth have bounds.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

#: A Secret holds 1 MiB, and the records of a thousand members come close to that: files above this size are packed.
PACK_ABOVE = 64 * 1024
#: Most bytes of all files of a state, unpacked. Those of 5000 members, which fill a Secret, have 4 MiB.
MOST = 32 * 1024 * 1024
#: Most values in all JSON files of a state, of which each takes about 100 bytes of memory. Those of 5000 members have
#: 100,000.
MOST_VALUES = 1_000_000
#: Most objects and lists inside each other. A document has two dozen.
MOST_DEPTH = 100
_PACKED = ".gz"
#: gzip with its own header and checksum.
_GZIP = 16 + zlib.MAX_WBITS


def packed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files as they are stored; the names of packed ones say so. Equal files give equal ones."""
    return dict(_packed(name, content) for name, content in files.items())


def _packed(name: str, content: bytes) -> tuple[str, bytes]:
    # Without a time stamp, so that equal states are equal files.
    return (f"{name}{_PACKED}", gzip.compress(content, mtime=0)) if len(content) > PACK_ABOVE else (name, content)


def unpacked(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files as they were before ``packed``.

    Raises ValueError if they are larger than any state, or have more values, and if one was not packed by us.
    """
    found: dict[str, bytes] = {}
    left = MOST
    for name, content in files.items():
        plain = _unpacked(name, content, left) if name.endswith(_PACKED) else content
        left -= len(plain)
        if left < 0:
            raise ValueError(f"it is larger than {MOST >> 20} MiB")
        found[name.removesuffix(_PACKED)] = plain
    # Each value follows one of these characters. Those inside strings are counted as well.
    values = sum(sum(map(content.count, (b",", b"[", b"{"))) for name, content in found.items() if _is_json(name))
    if values > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
    return found


def _unpacked(name: str, content: bytes, most: int) -> bytes:
    """Unpacked content of a file; of one above ``most`` bytes a part, which is longer than that."""
    machine = zlib.decompressobj(_GZIP)
    try:
        plain = machine.decompress(content, most + 1)
    except zlib.error as error:
        raise ValueError(f"{name} cannot be unpacked: {error}") from None
    if len(plain) <= most and (not machine.eof or machine.unused_data):
        raise ValueError(f"{name} cannot be unpacked: it does not end where it should")
    return plain


def parsed(content: bytes) -> Any:
    """Content of a JSON file. Raises ValueError if it is none, or is nested deeper than any state."""
    too_deep = ValueError("it is nested too deep")
    try:
        found = json.loads(content)
    except RecursionError:
        raise too_deep from None
    # Level by level, since a function that calls itself would meet the limit that this is about.
    level = [found]
    for _ in range(MOST_DEPTH):
        level = [inner for each in level if _has_values(each) for inner in _values(each) if _has_values(inner)]
        if not level:
            return found
    raise too_deep


def _has_values(value: Any) -> bool:
    return isinstance(value, dict | list)


def _values(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value


def _is_json(name: str) -> bool:
    return name.endswith(".json")
