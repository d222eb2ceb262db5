# SPDX-License-Identifier: Apache-2.0
"""Numbers of propagated objects in words. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

#: Kinds of objects that have pods.
WORKLOADS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"})


def counted(kinds: Iterable[str], one: str, several: str) -> str:
    """Number of objects of these kinds, with the verb in the form for it: ``2 workloads and 1 other object stay``."""
    found = list(kinds)
    workloads = sum(kind in WORKLOADS for kind in found)
    others = len(found) - workloads
    if not found:
        return f"nothing {one}"
    parts = [_number(workloads, "workload")] if workloads else []
    parts += [_number(others, "other object" if workloads else "object")] if others else []
    return f"{' and '.join(parts)} {one if len(found) == 1 else several}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
