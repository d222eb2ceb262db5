# SPDX-License-Identifier: Apache-2.0
"""Which etcd members to replace next so that all run what the StatefulSet says now. No I/O.

The StatefulSet never replaces a pod by itself (OnDelete): a member that works is replaced only while all others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..api_object import Object
from ..kube.readiness import reason_not_ready, reason_stale

REVISION_LABEL = "controller-revision-hash"
#: The revision that a change to the StatefulSet would bring; no pod has it.
NOT_YET_MADE = "not-yet-made"


@dataclass(frozen=True)
class Round:
    """The pods to replace now, together; or why the outdated ones must stay (``refused``). Neither: all are current."""

    replace: tuple[Object, ...] = ()
    refused: str = ""
    #: All pods of an older revision, by ordinal: what is left to do.
    outdated: tuple[Object, ...] = ()


def reason_not_settled(stateful_set: Object) -> str | None:
    """Why it cannot be told yet which pods are outdated, or None: the revision is the controller's to say."""
    if reason := reason_stale(stateful_set):
        return reason
    return None if _revision(stateful_set) else "the controller has not given it a revision yet"


def with_next_revision(stateful_set: Object, template: Object) -> Object:
    """The StatefulSet as it would be with this pod template: with another one, every pod is of an older revision."""
    if stateful_set["spec"]["template"] == template:
        return stateful_set
    status = {**(stateful_set.get("status") or {}), "updateRevision": NOT_YET_MADE}
    return {**stateful_set, "status": status}


def next_round(stateful_set: Object, pods: Sequence[Object], storage: str) -> Round:
    """What may be replaced now without risk for data or for the majority.

    A pod that holds its member's data (``storage`` emptyDir) never goes. One that is ready goes alone, and only while
    every other member is there and ready. One that is not ready serves nothing, so it may go while others are not
    ready; without that, settings that break every member could not be mended. Where none is ready all of them go at
    once, because a member is not ready before it finds a majority.
    """
    outdated = tuple(sorted((pod for pod in pods if _is_outdated(pod, stateful_set)), key=ordinal))
    if not outdated:
        return Round()
    if storage == "emptyDir":
        return Round(refused="its data is in the pod (emptyDir) and would be lost with it", outdated=outdated)
    broken = tuple(pod for pod in outdated if reason_not_ready(pod))
    if broken:
        some_are_ready = any(reason_not_ready(pod) is None for pod in pods)
        return Round(replace=broken[:1] if some_are_ready else broken, outdated=outdated)
    waiting = _not_ready_or_missing(stateful_set, pods)
    if waiting:
        return Round(refused=f"{', '.join(waiting)} must be ready first", outdated=outdated)
    return Round(replace=outdated[:1], outdated=outdated)


def ordinal(pod: Object) -> int:
    """The number at the end of a pod's name; as a number, because 10 comes after 2."""
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _revision(stateful_set: Object) -> str:
    return str((stateful_set.get("status") or {}).get("updateRevision") or "")


def _is_outdated(pod: Object, stateful_set: Object) -> bool:
    wanted = _revision(stateful_set)
    return bool(wanted) and (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) != wanted


def _not_ready_or_missing(stateful_set: Object, pods: Sequence[Object]) -> list[str]:
    """A member without a pod counts: it is missing from the majority like one that is not ready."""
    name = stateful_set["metadata"]["name"]
    missing = set(range(stateful_set["spec"]["replicas"])) - {ordinal(pod) for pod in pods}
    waiting = {ordinal(pod) for pod in pods if reason_not_ready(pod)}
    return [f"{name}-{each}" for each in sorted(missing | waiting)]
