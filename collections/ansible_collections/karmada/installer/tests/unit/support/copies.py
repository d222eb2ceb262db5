# SPDX-License-Identifier: Apache-2.0
"""Copies of what fakes hold: one that a test changes must not change what is stored."""

from __future__ import annotations

import pickle
from typing import TypeVar

T = TypeVar("T")


def copied(value: T) -> T:
    """A deep copy of plain data.

    A fake API answers thousands of times in a test, and ``copy.deepcopy`` was a third of the time of the longest ones;
    this takes a quarter of its time.
    """
    copy: T = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))  # noqa: S301 - nobody else wrote these bytes
    return copy
