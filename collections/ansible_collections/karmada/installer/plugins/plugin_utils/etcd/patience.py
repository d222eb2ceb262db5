# SPDX-License-Identifier: Apache-2.0
"""Patience with members of etcd between two steps."""

from __future__ import annotations

from ..problems import ProblemsError, Reason
from .plan_types import Refusal

#: Pause between two looks while something is waited for.
LOOK_SECONDS = 0.3
#: Seconds for which a member may seem not to be healthy between two steps: after a change of the leader, and on a busy
#: machine, a look finds one that answers late.
SETTLE_SECONDS = 30.0
#: The same before the first change, while somebody waits for the answer.
SETTLE_SECONDS_BEFORE = 5.0


def require_patience(refusal: Refusal, seconds: float) -> None:
    """Raise the refusal as ProblemsError, unless it is of a health that may only have to settle."""
    if refusal.reason is not Reason.ETCD_MAJORITY_AT_RISK or seconds >= SETTLE_SECONDS:
        raise ProblemsError(refusal.problem, consequence="etcd goes on with the members that it has")
