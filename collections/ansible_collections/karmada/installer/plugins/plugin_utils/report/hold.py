# SPDX-License-Identifier: Apache-2.0
"""Hold on a control plane, whose end installations wait for: a restore, or a move to another place. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..components.moving import HandOverState
from ..components.state import PART_RELEASED, RestoreState, State
from ..restore import held
from ..restore.plan import is_partial

#: Type of the condition that says so. It is there, and True, in phase Quarantined only.
HELD = "Held"


class Why(StrEnum):
    """Reason of that condition."""

    #: A restore is under way, or waits for its release: what is there may be taken back.
    RESTORED = "Restored"
    #: A part of what was restored follows, and nothing is taken back any more. All else is held.
    PART_RELEASED = "PartReleased"
    HANDING_OVER = "HandingOver"
    #: It is at another place, and nothing of it runs here.
    HANDED_OVER = "HandedOver"


@dataclass(frozen=True)
class Hold:
    """Hold on a control plane: ``why`` for programs, ``told`` as a sentence for people."""

    why: Why
    told: str


def of(state: State) -> Hold | None:
    """Hold that a state has on record; None if there is none."""
    if state.handed_over:
        return _of_a_move(state.handed_over)
    found = state.restore
    return None if found is None or found.is_over else _of_a_restore(found, state)


def _of_a_move(left: HandOverState) -> Hold:
    if left.is_over:
        told = f"the control plane was handed over by {left.backup}, and is at another place; nothing of it runs here"
        return Hold(Why.HANDED_OVER, told)
    return Hold(Why.HANDING_OVER, "the control plane is being handed over to another place")


def _of_a_restore(found: RestoreState, state: State) -> Hold:
    why = Why.PART_RELEASED if found.step == PART_RELEASED else Why.RESTORED
    told = f"restored from {found.backup}" if found.former.generation != state.etcd.generation else "being restored"
    if found.held or not is_partial(found):
        return Hold(why, f"the control plane is {told} and held: {', '.join(found.held) or 'nothing'} does not run")
    return Hold(why, f"the control plane is {told}; released is {held.in_words(found.parts)}, and all else is held")
