# SPDX-License-Identifier: Apache-2.0
"""Refusal of operations while a restore is under way, or after a move: they could start what is held. No I/O."""

from __future__ import annotations

from ..components.state import PART_RELEASED, State
from ..problems import Problem, Reason

#: Operations that go on with it, take it back, or remove the control plane. Backups note nothing in its journal.
OF_A_RESTORE = frozenset({"restore", "release", "restore_undo"})
_ADMITTED = OF_A_RESTORE | {"uninstall", "break_glass"}
#: Operations at a place that was handed over, or is being.
_OF_A_HAND_OVER = frozenset({"hand_over", "uninstall"})


def problem(state: State | None, operation: str, where: str) -> Problem | None:
    """Problem of an operation that would change a control plane which a restore holds, or that was moved; else None."""
    if state and (moved := _moved(state, operation, where)):
        return moved
    found = state.restore if state else None
    if found is None or found.is_over or operation in _ADMITTED:
        return None
    how_far = (
        "is being taken back" if found.undoing else f"has come to its step {found.step}" if found.step else "began"
    )
    if found.step == PART_RELEASED:
        what = f"it was restored from {found.backup} ({found.name}), a part of it was released, and the rest is held"
        remedy = (
            "release the rest with karmada.installer.release, or restore another backup, which holds all of it: "
            "karmada.installer.restore -e restore_confirm=BACKUP, with that in spec.backup of the EtcdRestore"
        )
        return Problem(what, where, remedy, reason=Reason.QUARANTINED)
    return Problem(
        f"it is being restored from {found.backup} ({found.name}), which {how_far}",
        where,
        "go on with karmada.installer.restore, let it work again with karmada.installer.release, "
        "or take it back with karmada.installer.restore_undo",
        reason=Reason.QUARANTINED,
    )


def _moved(state: State, operation: str, where: str) -> Problem | None:
    """Problem of an operation at a place that is left, or at one to which the control plane has not come yet."""
    left, taken = state.handed_over, state.taken_over
    if left and operation not in _OF_A_HAND_OVER:
        what = "it is being handed over to another place"
        remedy = "go on with karmada.installer.hand_over, or take it back: -e hand_over_undo=true"
        if left.is_over:
            what = f"it was handed over: the control plane is where {left.backup} was restored"
            remedy = (
                "work on it there; if it was restored nowhere, take it back: "
                "karmada.installer.hand_over -e hand_over_undo=true"
            )
        return Problem(what, where, remedy, reason=Reason.MOVED)
    if taken and state.restore is None and operation not in ("restore", "uninstall"):
        what = f"it is being taken over from {taken.source}, by {taken.backup}"
        remedy = "go on with karmada.installer.restore, or give it up with karmada.installer.uninstall"
        return Problem(what, where, remedy, reason=Reason.QUARANTINED)
    return None
