# SPDX-License-Identifier: Apache-2.0
"""Changes of a run as text for people. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ..run.changes import StepChange

#: Lines of a summary, each about one kind, and names in a line.
MOST_LINES, MOST_NAMES = 10, 3


def lines(changes: Sequence[StepChange], *, check: bool) -> list[str]:
    """Summary of changes, grouped by what was done and by kind: numbers, and some names of each."""
    if not changes:
        return ["nothing would change" if check else "nothing was changed"]
    groups: dict[tuple[str, str], list[str]] = {}
    for each in changes:
        groups.setdefault((each.action, each.kind), []).append(_name(each))
    head = f"{len(changes)} {'change' if len(changes) == 1 else 'changes'}{' would be made' if check else ''}:"
    shown = list(groups.items())[:MOST_LINES]
    rest = [names for _, names in list(groups.items())[MOST_LINES:]]
    more = [f"  and {sum(map(len, rest))} more, of {len(rest)} other kinds"] if rest else []
    return [head, *(f"  {_line(action, kind, names)}" for (action, kind), names in shown), *more]


def _line(action: str, kind: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{action} {kind} {names[0]}"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{action} {len(names)} {kind}: {', '.join(names[:MOST_NAMES])}{more}"


def _name(change: StepChange) -> str:
    # The namespace is nearly always that of the control plane.
    short = change.name if change.name.startswith("/") else change.name.rpartition("/")[2]
    where = change.member or change.host
    return f"{short} ({where})" if where and where not in short else short
