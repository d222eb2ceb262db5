# SPDX-License-Identifier: Apache-2.0
"""Refusal of other operations while a restore is under way: they could start what it holds. No I/O."""

from __future__ import annotations

from ..components.state import PART_RELEASED, State
from ..problems import Problem, Reason

#: Operations that go on with it, take it back, or remove the control plane. Backups note nothing in its journal.
OF_A_RESTORE = frozenset({"restore", "release", "restore_undo"})
_ADMITTED = OF_A_RESTORE | {"uninstall", "break_glass"}


def problem(state: State | None, operation: str, where: str) -> Problem | None:
    """Problem of an operation that would change a control plane which a restore holds; None if it may."""
    found = state.restore if state else None
    if found is None or found.is_over or operation in _ADMITTED:
        return None
    how_far = (
        "is being taken back" if found.undoing else f"has come to its step {found.step}" if found.step else "began"
    )
    if found.step == PART_RELEASED:
        what = f"it was restored from {found.backup} ({found.name}), a part of it was released, and the rest is held"
        remedy = "release the rest with karmada.installer.release"
        return Problem(what, where, remedy, reason=Reason.QUARANTINED)
    return Problem(
        f"it is being restored from {found.backup} ({found.name}), which {how_far}",
        where,
        "go on with karmada.installer.restore, let it work again with karmada.installer.release, "
        "or take it back with karmada.installer.restore_undo",
        reason=Reason.QUARANTINED,
    )
