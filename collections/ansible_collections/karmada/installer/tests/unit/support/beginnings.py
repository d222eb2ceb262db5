# SPDX-License-Identifier: Apache-2.0
"""What many tests begin with and takes long to bring about, such as a restore in its quarantine: brought about once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.karmada.installer.tests.unit.support.copies import copied

#: Data of the fakes by the name of a beginning.
_KNOWN: dict[str, list[dict[str, Any]]] = {}
#: Attributes of fakes that are no data.
_NO_DATA = (
    "access",
    "inside",
    "world",
    "host",
    "folder",
    "one_at_a_time",
    "on_trouble",
    "before_write",
    "_controllers",
)


def begin(name: str, fakes: Sequence[Any], bring_about: Callable[[], object]) -> None:
    """Have these fakes as ``bring_about`` leaves them. ``name`` says of whichever test that it is the same."""
    if name not in _KNOWN:
        bring_about()
        _KNOWN[name] = copied([_data_of(each) for each in fakes])
    for fake, data in zip(fakes, copied(_KNOWN[name]), strict=True):
        vars(fake).update(data)


def _data_of(fake: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(fake).items() if name not in _NO_DATA}
