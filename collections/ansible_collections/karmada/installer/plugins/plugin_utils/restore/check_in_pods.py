# SPDX-License-Identifier: Apache-2.0
"""Reasons why members of etcd in pods cannot take new data beside the old. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from ..etcd import raft_snapshot
from ..kube.errors import ApiError
from ..kube.objects import quantity
from ..problems import Problem, Reason
from ..render import cluster_layout, etcd_restore
from ..run.run import Run
from .new_data import COPIES, LEAST_BUMP, members


def problems(run: Run, size: int, there: int) -> Iterator[Problem]:
    """Reasons, for a snapshot of ``size`` bytes, with ``there`` in the database of a member as it is."""
    yield from storage(run)
    yield from _claims(run, size, there)
    yield from _pods(run)


def storage(run: Run) -> Iterator[Problem]:
    """Problem of members whose data would go with their pods."""
    if run.state.etcd.storage == "emptyDir":
        what = "members of etcd keep their data in their pods (emptyDir), and it would go with them"
        remedy = "install a control plane with volumes, and restore it there"
        yield _problem(what, "spec.components.etcd.local.volumeData", remedy)


def _claims(run: Run, size: int, there: int) -> Iterator[Problem]:
    """Claims that are not bound, or too small for another copy beside the data that etcd still writes to."""
    needed = int(size * COPIES)
    found = {
        each["metadata"]["name"]: each for each in run.host_cluster.list("v1", "PersistentVolumeClaim", run.namespace)
    }
    for member in members(run.state):
        claim = found.get(f"data-{member}")
        status = (claim or {}).get("status") or {}
        place = f"PersistentVolumeClaim {run.namespace}/data-{member}"
        if status.get("phase") != "Bound":
            what = "it is not there" if claim is None else f"it is {status.get('phase', 'Pending')} and has no volume"
            remedy = f"have member {member} get a volume: the controller of its StatefulSet makes the claim"
            yield _problem(what, place, remedy)
            continue
        has = quantity((status.get("capacity") or {}).get("storage")) or 0
        if run.state.etcd.storage == "volumeClaim" and has < needed + there:
            what = (
                f"it has {int(has) >> 20} MiB, and {needed >> 20} MiB are needed beside the data that is there"
                f" ({there >> 20} MiB)"
            )
            yield _problem(what, place, "enlarge the claim")


def _pods(run: Run) -> Iterator[Problem]:
    """Problem with the pods that make the new data, which nothing else of a control plane is like: a dry run tells."""
    for name in members(run.state)[:1]:
        member = cluster_layout.etcd_pod(run.instance, name)
        new = etcd_restore.NewData("trial", run.state.etcd.generation + 1, LEAST_BUMP, [member])
        try:
            run.host_cluster.apply(etcd_restore.pod(run.instance, member, new, raft_snapshot.FILE, ""), dry_run=True)
        except ApiError as error:
            what = f"a pod that makes new data of etcd beside the old is not admitted: {error}"
            remedy = "have the account of this run create and patch pods there, and let policies and quotas admit it"
            yield _problem(what, f"namespace {run.namespace} of the host cluster", remedy)


def _problem(what: str, where: str, remedy: str) -> Problem:
    return Problem(what, where, remedy, reason=Reason.RESTORE_IMPOSSIBLE)
