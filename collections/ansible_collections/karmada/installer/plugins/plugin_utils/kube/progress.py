# SPDX-License-Identifier: Apache-2.0
"""Lines that a wait shows while it lasts: ``[40/300 s] prod-search: cannot pull …/karmada-search:v1.18.2``. No I/O.

A line says what is waited for and what holds it, in one line of a terminal. All that is known stands in the error with
which a wait ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf

from ..redaction import redacted
from .limits import CHANGE_SECONDS, QUIET_SECONDS, SAY_SECONDS
from .objects import Ref

#: Columns of a line: those of a terminal, less four by which lines of a step are indented.
COLUMNS = 76
#: Columns that are given up so that a line ends with a whole word.
LONGEST_GAP = 12
_CUT = "…"
# Kinds whose names tell enough in a line.
_KNOWN_BY_NAME = ("APIService", "DaemonSet", "Deployment", "Pod", "StatefulSet")
# Images and URLs in a text: the first part, what is left out of them, and the last part.
_PATH = re.compile(r"((?:\w+://)?[^\s/\"'(]+)(/[^\s\"']+)(/[^\s/\"']+)")
# The ephemeral port of a Go client, another one for each attempt: 10.0.0.2:46231->10.0.0.1:53
OWN_PORT = re.compile(r":\d+(?=->)")


class Progress:
    """Progress of one wait. Times are seconds of the caller's clock; ``limit`` is the length of the wait at most."""

    def __init__(
        self, say: Callable[[str], None] | None, began: float, limit: float, *, quiet: float | None = None
    ) -> None:
        self._say, self._began, self._limit = say, began, limit
        self._quiet = QUIET_SECONDS if quiet is None else quiet
        self._said, self._said_at = "", float("-inf")

    def tell(self, text: str, now: float, until: float = inf) -> None:
        """Show the text with the time, if it is worth a line: a new text soon, the last one again after a while.

        ``until`` is the time at which the wait ends if that is before its limit: with a trouble that is not borne as
        long.
        """
        if self._say is None or now - self._began < self._quiet:
            return
        # As wide as with the longest time, so that equal texts are cut equally.
        line = fitted(redacted(text), COLUMNS - len(self._head(self._limit)))
        same = OWN_PORT.sub("", line)
        if now - self._said_at < (SAY_SECONDS if same == self._said else CHANGE_SECONDS):
            return
        self._said, self._said_at = same, now
        self._say(self._head(now - self._began, until - self._began) + line)

    def _head(self, elapsed: float, end: float = inf) -> str:
        limit = min(self._limit, end)
        return f"[{min(elapsed, limit):.0f}/{limit:.0f} s] "


def named(ref: Ref) -> str:
    """Short name of an object for a line of progress, without its namespace."""
    return ref.name if ref.kind in _KNOWN_BY_NAME else f"{ref.kind} {ref.name}"


def fitted(text: str, columns: int) -> str:
    """Text as one line of at most so many columns. The middle of images and URLs goes first, then the text's end."""
    line = " ".join(text.split())
    for shorter in (rf"\1/{_CUT}\3", rf"{_CUT}\3"):
        if len(line) > columns:
            line = _PATH.sub(shorter, " ".join(text.split()))
    if len(line) <= columns:
        return line
    kept = line[: columns - len(_CUT)]
    at_word = kept.rpartition(" ")[0].rstrip(" ;:,(")
    # The beginning of a long word is worth more than an end at a blank.
    return (at_word if len(kept) - len(at_word) <= LONGEST_GAP else kept) + _CUT
