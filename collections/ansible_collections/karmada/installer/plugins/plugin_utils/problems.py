# SPDX-License-Identifier: Apache-2.0
"""How this collection refuses something: what is wrong, where, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: What became of a check that comes before the first change.
NOTHING_CHANGED = "nothing was changed"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    ``what`` is the finding, ``where`` the place a user can go to (a field path, an object, a file), ``remedy`` the
    sentence that tells them what to do. ``where`` and ``remedy`` may be empty when there is nothing useful to say.
    """

    what: str
    where: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.remedy:
            text = f"{text.rstrip('.')}. {self.remedy}"
        return text


class ProblemsError(Exception):
    """Everything that was found wrong, told at once instead of one run at a time.

    ``consequence`` says what happened because of it. The default is right for every check that comes before the first
    change; a caller that has already changed something must say so.
    """

    def __init__(self, problems: Iterable[Problem] | Problem, consequence: str = NOTHING_CHANGED) -> None:
        self.problems: list[Problem] = [problems] if isinstance(problems, Problem) else list(problems)
        if not self.problems:
            raise ValueError("ProblemsError needs at least one problem")
        self.consequence = consequence
        super().__init__(str(self))

    def __str__(self) -> str:
        count = len(self.problems)
        head = f"{count} problem{'' if count == 1 else 's'}; {self.consequence}:"
        return "\n".join([head, *(f"  - {_indented(str(problem))}" for problem in self.problems)])


def _indented(text: str) -> str:
    """Keep the lines of one problem together under its bullet."""
    return text.replace("\n", "\n    ")
