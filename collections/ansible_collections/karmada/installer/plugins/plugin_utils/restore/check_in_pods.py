# SPDX-License-Identifier: Apache-2.0
"""Reasons why members of etcd in pods cannot take new data beside the old. Reads only."""

from __future__ import annotations

from collections.abc import Iterator

from ..etcd import access, raft_snapshot
from ..etcd.client import EndpointStatus
from ..kube.errors import ApiError
from ..kube.objects import quantity
from ..labels import OWNER_LABEL
from ..problems import Problem, number_of
from ..render import cluster_layout, etcd_restore
from ..run.run import Run
from .impossible import impossible
from .new_data import COPIES, LEAST_BUMP, MOST_LOG, NEW_LOG, members, old_folders


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
        yield impossible(what, "spec.components.etcd.local.volumeData", remedy)


def statuses(run: Run) -> list[EndpointStatus]:
    """Members as they answer through the host cluster."""
    return access.connect(run).status()


def statuses_by_name(run: Run) -> dict[str, EndpointStatus]:
    """Members on record as they answer through the host cluster, by name."""
    names = access.names(run)
    return {names[each.url]: each for each in statuses(run)}


def data_there(run: Run) -> Iterator[Problem]:
    """Volumes of an etcd of this name, with whose data the new one would begin; or pods, with which data would go."""
    claims = {f"data-{each.name}" for each in run.state.etcd.members}
    yield from storage(run)
    found = run.host_cluster.list("v1", "PersistentVolumeClaim", run.namespace)
    there = sorted({each["metadata"]["name"] for each in found} & claims)
    if run.state.etcd.storage == "hostPath":
        # Volumes in directories of nodes are named after the owner, and that has moved along.
        labels = f"{OWNER_LABEL}={run.state.owner}"
        there += [each["metadata"]["name"] for each in run.host_cluster.list("v1", "PersistentVolume", labels=labels)]
    if there:
        remedy = "keep what is in them, and delete them; or use another namespace, without hostPath"
        what = f"data of an etcd is there already: {', '.join(there)}"
        yield impossible(what, f"namespace {run.namespace}", remedy)


def _claims(run: Run, size: int, there: int) -> Iterator[Problem]:
    """Claims that are not bound, or too small for another copy beside the data that etcd still writes to.

    Nobody tells how full a volume is, so what lies there is counted at its most: a full disk stops an etcd that serves.
    """
    needed = int(size * COPIES) + NEW_LOG
    # Of old data the size is not on record; a database shrinks seldom, and what is restored may be what was put aside.
    old = old_folders(run.state)
    taken = there + MOST_LOG + len(old) * (max(there, size) + MOST_LOG)
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
            yield impossible(what, place, remedy)
            continue
        has = quantity((status.get("capacity") or {}).get("storage")) or 0
        if run.state.etcd.storage == "volumeClaim" and has < needed + taken:
            data = f"the data that is there with its log ({there + MOST_LOG >> 20} MiB)"
            remedy = "enlarge the claim"
            if old:
                data += f" and {number_of(len(old), 'folder')} of old data (up to {taken - there - MOST_LOG >> 20} MiB)"
                remedy = "have old data removed by karmada.installer.restore_cleanup, or enlarge the claim"
                if run.state.restore and not run.state.restore.is_over:
                    remedy = "enlarge the claim: old data cannot go (restore_cleanup) before the restore is over"
            what = f"it has {int(has) >> 20} MiB, and {needed >> 20} MiB are needed beside {data}"
            yield impossible(what, place, remedy)


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
            yield impossible(what, f"namespace {run.namespace} of the host cluster", remedy)
