# SPDX-License-Identifier: Apache-2.0
"""Checks of any cluster, be it the host cluster or a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from ..kube.cluster import Cluster
from ..problems import Problem, Reason

#: Greatest tolerated difference of clocks.
CLOCK_TOLERANCE = timedelta(seconds=30)


def clock(cluster: Cluster, where: str) -> Iterable[Problem]:
    """Clock skew that would make certificates and tokens of one side not yet, or no longer, valid on the other."""
    ahead = cluster.clock_ahead(retry_seconds=5)
    if abs(ahead) > CLOCK_TOLERANCE:
        seconds, side = round(abs(ahead).total_seconds()), "ahead of" if ahead > timedelta(0) else "behind"
        yield Problem(
            what=f"its clock is {seconds} s {side} the clock of this machine",
            where=where,
            remedy="set the wrong one (timedatectl shows whether it is synchronized); certificates made by one would "
            "not be valid for the other",
            reason=Reason.CLOCK_SKEW,
        )


def minor(version: Mapping[str, Any]) -> tuple[int, int]:
    """Minor version in the version document of an API server, as (1, 35)."""
    return int(version["major"]), int(version["minor"].rstrip("+"))
