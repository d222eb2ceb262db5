# SPDX-License-Identifier: Apache-2.0
"""Lines that a step says while it runs, and the report, on their way from a fork to the terminal.

Ansible carries what a fork displays to its first process, as text. This text knows its kind as well: the callback
``karmada.installer.report`` lays it out by that, and for every other callback it is the text that is shown.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from ..redaction import shown

#: Line that is out of date when what it waits for has come: it begins with the time and the limit, or says so.
_WAITING = re.compile(r"\[[^\]]*\bs\]|[^:]{0,60}?\bwaiting\b", re.IGNORECASE)
#: What plain callbacks show a line of a step with.
INDENT = "    "


class Kind(StrEnum):
    """Kind of a text, by which it is laid out."""

    #: waits; each line makes those before it out of date
    PROGRESS = "progress"
    #: facts that stay worth reading: warnings, hints, what was done and why
    NOTE = "note"
    #: the block at the end of a run
    REPORT = "report"


class Said(str):
    """Text as plain callbacks show it, with its kind."""

    __slots__ = ("kind",)
    kind: Kind

    def __new__(cls, text: str, kind: Kind) -> Said:
        """Text of this kind."""
        found = super().__new__(cls, text)
        found.kind = kind
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Text and kind, so that both pass from process to process."""
        return Said, (str(self), self.kind)

    @classmethod
    def by_step(cls, message: str) -> Said:
        """Line of a step; other people's words in it are made safe for a terminal."""
        text = shown(message)
        kind = Kind.PROGRESS if _WAITING.match(text) else Kind.NOTE
        return cls(INDENT + text.replace("\n", f"\n{INDENT}"), kind)

    @property
    def words(self) -> str:
        """Text without the indentation for plain callbacks."""
        return self if self.kind is Kind.REPORT else "\n".join(line.removeprefix(INDENT) for line in self.split("\n"))


def waited_for(displayed: str) -> str:
    """Awaited thing of a step, in a text as plain callbacks show it; empty if it says something else."""
    words = displayed.removeprefix(INDENT)
    return words.strip() if words != displayed and _WAITING.match(words) else ""


def say(message: str) -> None:
    """Show a line of a step."""
    _display(Said.by_step(message))


def say_report(lines: list[str]) -> None:
    """Show the report."""
    _display(Said("\n".join(map(shown, lines)), Kind.REPORT))


def _display(text: Said) -> None:
    # The operator reads such lines without Ansible, whose settings take a tenth of a second to load.
    from ansible.utils.display import Display  # noqa: PLC0415 - see above

    Display().display(text)
