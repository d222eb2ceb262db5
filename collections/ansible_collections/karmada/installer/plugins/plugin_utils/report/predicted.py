# SPDX-License-Identifier: Apache-2.0
"""Failure of a check by what it predicts: the variable ``karmada_fail_on_drift``. No I/O.

A check that finds something to change is successful for Ansible. Who watches a control plane by one, each night, looks
at how it ended and not at its output; AWX sends notifications by that alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..problems import Problem, Reason, number_of
from ..redaction import shown
from ..run.changes import StepChange, due

VARIABLE = "karmada_fail_on_drift"
#: Changes that are named one by one.
MOST_NAMED = 5
_REMEDY = (
    "Run the same without --check (in AWX: the template of the installation) to bring it to what the document says, or"
    " change the document if that is what is wrong."
)


def problem(*, fail_on_drift: bool, check: bool) -> Problem | None:
    """Problem of a run that is to fail for what it would change, and would change it.

    Whoever says so means to look. Without check mode the run would write, and it would end as if nothing had differed.
    """
    if not fail_on_drift or check:
        return None
    what = "it is for a check, and this run is none: it may change things"
    remedy = "add --check (in AWX: the job type Check), or leave the variable out to have changes made"
    return Problem(what, VARIABLE, remedy, reason=Reason.INVALID_ARGUMENT)


def failure(name: str, changes: Sequence[StepChange]) -> str:
    """Message with which a check fails for the changes that it predicts; empty where there is none.

    ``name`` is that of the control plane. At most ``MOST_NAMED`` changes are named, and the others counted.
    """
    if not changes:
        return ""
    left = len(changes) - MOST_NAMED
    number = number_of(len(changes), "change")
    lines = [f"control plane {name} is not as the document says; without --check this run would make {number}:"]
    lines += [f"  - {shown(due(each))}" for each in changes[:MOST_NAMED]]
    lines += [f"  … and {left} more"] if left > 0 else []
    return "\n".join([*lines, _REMEDY])
