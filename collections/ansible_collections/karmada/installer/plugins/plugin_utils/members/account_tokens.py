# SPDX-License-Identifier: Apache-2.0
"""Tokens of service accounts on a member, whose controller fills them into Secrets a moment after their creation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..kube.cluster import Cluster
from ..problems import Problem, ProblemsError, Reason

#: Time within which a member must fill the tokens of accounts.
FILLED_SECONDS = 30.0
_PAUSE = 0.1

Filled = TypeVar("Filled")


def wait_for(find: Callable[[], Filled | None], member: Cluster, what: str, where: str) -> Filled:
    """Wait for the member to fill tokens; returns the first non-empty result of ``find``.

    Raises ProblemsError at the end of FILLED_SECONDS; ``what`` and ``where`` are for its message.
    """
    deadline = time.monotonic() + FILLED_SECONDS
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise ProblemsError(
                Problem(
                    what=f"it did not fill {what} within {FILLED_SECONDS:.0f} s",
                    where=f"{member.name}, {where}",
                    remedy="check that its kube-controller-manager runs, then run the playbook again",
                    reason=Reason.CREDENTIALS_NOT_ISSUED,
                ),
                consequence="what is there stays; the next run goes on from there",
            )
        time.sleep(_PAUSE)
