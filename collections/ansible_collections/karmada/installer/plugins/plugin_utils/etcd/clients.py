# SPDX-License-Identifier: Apache-2.0
"""Pods of the control plane that are clients of etcd, brought to the members that they are to connect to."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..components.table import ETCD, pod_components
from ..kube.apply import Change
from ..kube.progress import Progress
from ..kube.wait import wait_until
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import patience


def follow(run: Run, timeout: float) -> list[Change]:
    """Have every client that there is connect to the members that stay; returns the changes.

    ``timeout`` is in seconds, for each wait. Raises NotReady or ProblemsError if they do not come to that in time.
    """
    names = [
        each.name
        for each in pod_components(run.spec)
        if any(call.component == ETCD.name for call in each.calls) and each is not ETCD
    ]
    if not names:
        return []
    there = [name for name in names if run.host_cluster.get(*run.workload(name))]
    run.say("etcd: its clients connect to the members that stay")
    changes = run.apply_to_host_cluster("have etcd's clients follow", lambda: run.workloads(there))
    wait_until(run.host_cluster, [run.workload(name) for name in there], timeout=timeout, progress=run.say)
    _wait_for_former_pods(run, there, timeout)
    return [each for each in changes if each.action != "unchanged"]


def _wait_for_former_pods(run: Run, names: Sequence[str], timeout: float) -> None:
    """Wait until the pods before are gone: while they stop they serve, and ask the members that they know."""
    began = time.monotonic()
    progress = Progress(run.say, began, timeout)
    selectors = [run.instance.pod_selector(name) for name in names]
    while True:
        pods = [
            each for labels in selectors for each in run.host_cluster.list("v1", "Pod", run.namespace, labels=labels)
        ]
        stopping = [each["metadata"]["name"] for each in pods if each["metadata"].get("deletionTimestamp")]
        if not stopping:
            return
        if time.monotonic() - began > timeout:
            raise ProblemsError(
                Problem(
                    f"{', '.join(stopping)} should be gone, and are still stopping (after {timeout:.0f} s)",
                    "etcd",
                    "see why, and run the playbook again",
                    reason=Reason.NOT_READY_IN_TIME,
                ),
                consequence="run it again to go on from here",
            )
        progress.tell(f"etcd: {len(stopping)} former pods of its clients are stopping", time.monotonic())
        time.sleep(patience.LOOK_SECONDS)
