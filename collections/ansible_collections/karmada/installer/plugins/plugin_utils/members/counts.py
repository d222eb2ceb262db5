# SPDX-License-Identifier: Apache-2.0
"""Numbers of propagated objects in words. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from ..problems import number_of

#: Kinds of objects that have pods.
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"})


def counted(kinds: Iterable[str], one: str, several: str) -> str:
    """Number of objects of these kinds, with the verb in the form for it: ``2 workloads and 1 other object stay``."""
    found = list(kinds)
    workloads = sum(kind in WORKLOADS for kind in found)
    others = len(found) - workloads
    if not found:
        return f"nothing {one}"
    parts = [number_of(workloads, "workload")] if workloads else []
    parts += [number_of(others, "other object" if workloads else "object")] if others else []
    return f"{' and '.join(parts)} {one if len(found) == 1 else several}"
