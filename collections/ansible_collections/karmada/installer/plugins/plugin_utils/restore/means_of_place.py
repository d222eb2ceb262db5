# SPDX-License-Identifier: Apache-2.0
"""Means of a restore for the place of a run, in pods or on plain hosts or both, which no step chooses by itself."""

from __future__ import annotations

from ..kube.apply import Change
from ..run.run import Run
from .in_pods import InPods
from .means import Means
from .on_hosts import OnHosts
from .pods_above_hosts import PodsAboveHosts


def means(run: Run, timeout: float, changes: list[Change]) -> Means:
    """Means of this run; ``changes`` gets what they have changed, and ``timeout`` is in seconds, for each step."""
    if not run.place.in_pods:
        return OnHosts(run, timeout, changes)
    return (PodsAboveHosts if run.place.etcd_apart else InPods)(run, timeout, changes)
