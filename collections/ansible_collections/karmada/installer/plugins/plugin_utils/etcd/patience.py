# SPDX-License-Identifier: Apache-2.0
"""Patience with members of etcd between two steps."""

from __future__ import annotations

from ..problems import ProblemsError, Reason
from .plan_types import Refusal

#: Pause between two looks while something is waited for.
LOOK_SECONDS = 0.3
#: Share of the time already waited, after which members on hosts are looked at again, and the seconds that this is at
#: most: the locks of hosts, which each look keeps, last longer.
LATER_SHARE, LATER_SECONDS = 0.125, 60.0
#: Seconds for which a member may seem not to be healthy between two steps: after a change of the leader, and on a busy
#: machine, a look finds one that answers late.
SETTLE_SECONDS = 30.0
#: Seconds for that before the first change, while somebody waits for the answer.
SETTLE_SECONDS_BEFORE = 5.0


def pause_on_hosts(waited: float, timeout: float) -> float:
    """Seconds until the next look at members on hosts, which have been waited for during ``waited`` of ``timeout``.

    There a look is tasks that are included by those of the look before: each costs more than the last, and ansible-core
    2.19 ends a run at the 248th. A loop over an include is no way out, as its condition is evaluated for all of its
    passes before the first one. So the number of looks grows with the logarithm of the time up to some minutes, and
    what comes soon is seen soon.
    """
    later = min(waited * LATER_SHARE, LATER_SECONDS, timeout - waited)
    return max(LOOK_SECONDS, later)


def require_patience(refusal: Refusal, seconds: float, *, again: bool) -> None:
    """Raise the refusal as ProblemsError, unless it may pass.

    A health may only have to settle, and an election to end, for which they have had ``seconds``; of answers that were
    given one after the other the look before has to have said the same (``again``).
    """
    passes = refusal.passes or refusal.reason is Reason.ETCD_MAJORITY_AT_RISK
    settles = passes and seconds < SETTLE_SECONDS
    if not settles and (again or not refusal.twice):
        raise ProblemsError(refusal.problem, consequence="etcd goes on with the members that it has")
