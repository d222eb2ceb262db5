# SPDX-License-Identifier: Apache-2.0
"""Volume claims of members that etcd has no more: what a smaller number of members has left, with its data.

The StatefulSet leaves them (``persistentVolumeClaimRetentionPolicy``), so they go by a word of the user, as the folders
that a restore has put aside. Which they are is seen: a claim of ours for a member that is neither on record nor in the
document, and that no pod mounts. Directories of nodes are none of ours to delete, so with hostPath there are none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..api_object import Object
from ..components.table import ETCD
from ..kube.apply import Change
from ..kube.objects import Ref
from ..labels import OWNER_LABEL
from ..problems import Problem, ProblemsError, Reason
from ..render import cluster_layout
from ..run.run import Run

_KIND = ("v1", "PersistentVolumeClaim")
_LOOK_SECONDS = 0.5


def unused(run: Run) -> list[Object]:
    """Claims that no member uses, in the order of their names."""
    etcd = run.state.etcd
    if etcd.storage != "volumeClaim" or not etcd.bootstrapped or not etcd.members:
        return []
    stem = f"data-{run.instance.object_name(ETCD.name)}-"
    kept = {each.name for each in etcd.members} | {*cluster_layout.etcd_pod_names(run.instance)}
    mounted = _mounted(run.host_cluster.list("v1", "Pod", run.namespace))
    found = {
        each["metadata"]["name"]: each
        for each in run.host_cluster.list(*_KIND, run.namespace, labels=f"{OWNER_LABEL}={run.state.owner}")
    }
    names = sorted(name for name in found if name.startswith(stem) and name.removeprefix(stem).isdecimal())
    return [found[name] for name in names if name.removeprefix("data-") not in kept and name not in mounted]


def changes(run: Run, claims: Iterable[Object]) -> list[Change]:
    """Changes that it is to delete these."""
    return [Change(Ref(*_KIND, each["metadata"]["name"], run.namespace), "deleted") for each in claims]


def delete(run: Run, claims: Iterable[Object], deadline: float) -> None:
    """Delete these, and wait until they are gone. Raises ProblemsError if one is still there at the end of the time."""
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in claims}
    for name, uid in uids.items():
        run.say(f"etcd: deleting {name}")
        run.host_cluster.delete(*_KIND, name, run.namespace, uid=uid)
    while left := [name for name, uid in uids.items() if _uid(run, name) == uid]:
        if time.monotonic() > deadline:
            what = f"{', '.join(left)} should be gone, and still there"
            problem = Problem(what, run.place.where, "see why, and run it again", reason=Reason.NOT_READY_IN_TIME)
            raise ProblemsError(problem, "what was removed stays so, and the next run goes on from there")
        time.sleep(_LOOK_SECONDS)


def _uid(run: Run, name: str) -> str:
    live = run.host_cluster.get(*_KIND, name, run.namespace)
    return live["metadata"]["uid"] if live else ""


def _mounted(pods: Iterable[Object]) -> set[str]:
    volumes = [volume for pod in pods for volume in (pod.get("spec") or {}).get("volumes") or ()]
    return {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
