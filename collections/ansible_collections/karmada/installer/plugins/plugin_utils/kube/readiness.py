# SPDX-License-Identifier: Apache-2.0
"""Readiness of objects, with the reason when they are not ready. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from ..api_object import Object, condition, is_true
from ..redaction import shown
from .progress import OWN_PORT

Related = Collection[Object]

# Waiting reasons of containers that do not go away by waiting.
HOPELESS_WAITING = frozenset({"ErrImageNeverPull", "InvalidImageName"})
# Waiting reasons of an image that is not pulled yet.
UNPULLED_WAITING = frozenset({"ErrImagePull", "ImagePullBackOff"})
MAX_EVENTS = 3
# Reasons of a container whose image cannot be pulled.
_NOT_PULLED = ("ErrImagePull", "ImagePullBackOff")
# What a kubelet says of a registry that answered, or of a name that nobody has: trying again changes neither. A name
# server that fails says "server misbehaving" or nothing in time. Words of containerd and CRI-O, with those of the
# distribution specification's error codes.
_REFUSED_PULL = re.compile(
    r"not found|no such host|manifest unknown|name unknown|repository does not exist|unauthorized"
    r"|authentication required|authorization failed|access (?:is )?denied|requested access to the resource is denied",
    re.IGNORECASE,
)
# A container's trouble, in the words of ``_container_trouble``, that is its image.
_WITHOUT_IMAGE = re.compile(rf"\b(?:{'|'.join(sorted(UNPULLED_WAITING | HOPELESS_WAITING))}) of image ")
# Prefixes that an event puts before the text of a container's status or of a condition.
_BEGINNING = re.compile(r'^(Error: |Error creating: |Failed to pull image "[^"]*": )')
# Waiting reasons of a container that has only just begun.
_BEGINNING_WAITING = frozenset({"ContainerCreating", "PodInitializing"})


def reason_not_ready(obj: Object, related: Related = ()) -> str | None:
    """Reason why the object is not ready, or None when it is. A kind not known here is ready once it exists.

    ``related`` may hold its pods, claims and events; with them the reason names the cause (an image that cannot be
    pulled, no node with room) and not only the symptom (0 of 1 ready).
    """
    if obj["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    check = _CHECKS.get(obj.get("kind", ""))
    symptom = check(obj) if check else None
    if symptom is None:
        return None
    causes = list(dict.fromkeys([*_refused_pods(obj), *(text for one in related if (text := _cause(one)))]))
    # Conditions and events quote text of others.
    return shown("; ".join([symptom, *causes, *_warnings(related, " ".join(causes))]))


def hopeless(obj: Object, related: Related = ()) -> str | None:
    """Reason why waiting does not make this object ready, or None. Trust it only when it persists."""
    if (message := _not_created(obj)) and _refused(message):
        return message
    if obj.get("kind") == "Job" and is_true(obj, "Failed"):
        return _job(obj)
    for one in related:
        if one.get("kind") == "Pod":
            for status in _containers(one):
                waiting = (status.get("state") or {}).get("waiting") or {}
                if waiting.get("reason") in HOPELESS_WAITING:
                    return f"pod {one['metadata']['name']}: {_container_trouble(status)}"
        # A StatefulSet reports refused pods only by event.
        if one.get("kind") == "Event" and one.get("reason") == "FailedCreate" and _refused(one.get("message", "")):
            return str(one["message"])
    return None


def _refused_pods(obj: Object) -> list[str]:
    """Reason of a Deployment whose pods the API server refuses, as a list of at most one."""
    message = _not_created(obj)
    return [f"its pods are refused: {message}"] if message else []


def _not_created(obj: Object) -> str:
    """Message about pods that a controller could not create; empty if there is none."""
    return str(condition(obj, "ReplicaFailure").get("message") or "") if is_true(obj, "ReplicaFailure") else ""


def not_pulled(related: Related) -> str | None:
    """Image that the kubelet fails to pull, with the reason, or None. The kubelet keeps trying and may succeed."""
    for one in related:
        if one.get("kind") != "Pod" or one["metadata"].get("deletionTimestamp"):
            continue
        for status in _containers(one):
            if ((status.get("state") or {}).get("waiting") or {}).get("reason") in UNPULLED_WAITING:
                trouble = f"pod {one['metadata']['name']}: {_container_trouble(status)}"
                return "; ".join([trouble, *_warnings(related, trouble)])
    return None


def refused_pull(reason: str) -> bool:
    """Answer, in a reason of ``not_pulled``, that another try gets again: no such image, or none for this reader."""
    return _REFUSED_PULL.search(reason) is not None


def lacks_image(reason: str) -> bool:
    """Return whether a reason why something is not ready is that a container's image is not to be had."""
    return _WITHOUT_IMAGE.search(reason) is not None


def cause_in_brief(related: Related) -> str | None:
    """Trouble of these pods or claims in a few words, the worst first; None if they are only starting.

    A probe that does not pass yet is no trouble: a server that starts answers its probes with anything.
    """
    pods = [one for one in related if one.get("kind") == "Pod" and not one["metadata"].get("deletionTimestamp")]
    found = [
        *(text for pod in pods for status in _containers(pod) if (text := _container_in_brief(status))),
        *(text for pod in pods if (text := _not_scheduled(pod))),
        *(f"claim {one['metadata']['name']}: {text}" for one in related if (text := _unbound(one))),
        *(
            f"{one.get('reason') or 'Warning'}: {one.get('message') or ''}"
            for one in sorted(related, key=_when, reverse=True)
            if one.get("kind") == "Event" and one.get("type") == "Warning" and one.get("reason") != "Unhealthy"
        ),
    ]
    return shown(found[0]) if found else None


def _container_in_brief(status: Object) -> str | None:
    state = status.get("state") or {}
    reason = (state.get("waiting") or {}).get("reason") or ""
    if "Image" in reason:
        return f"cannot pull {status.get('image')}"
    if reason and reason not in _BEGINNING_WAITING:
        restarts, code = status.get("restartCount") or 0, _last_end(status).get("exitCode")
        ended = f", exit code {code}" if code is not None else ""
        return f"{reason} after {restarts} restarts{ended}" if restarts else reason
    return _container_trouble(status) if (state.get("terminated") or {}).get("exitCode") else None


def _refused(message: str) -> bool:
    # "is forbidden" alone is not enough: a service account that is created a moment later is reported so too.
    refusals = ("exceeded quota", "insufficient quota", "no PriorityClass", "is invalid:", "violates PodSecurity")
    return any(word in message for word in refusals)


def crashing(pods: Iterable[Object]) -> list[tuple[str, str]]:
    """(pod, container) pairs whose last run failed; their logs tell why."""
    return [
        (pod["metadata"]["name"], status["name"])
        for pod in pods
        if pod.get("kind") == "Pod"
        for status in _containers(pod)
        if not status.get("ready") and _failed_run(status)
    ]


def is_backing_off(pod: Object, restarts: int) -> bool:
    """Return whether kubelet puts off the next start of a container that it has restarted at least so many times."""
    return any(
        (status.get("state") or {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
        and (status.get("restartCount") or 0) >= restarts
        for status in _containers(pod)
    )


# -- kinds -------------------------------------------------------------------------------------------------------------


def _deployment(obj: Object) -> str | None:
    wanted, status = _replicas(obj), obj.get("status") or {}
    if (stale := reason_stale(obj)) is not None:
        return stale
    updated = status.get("updatedReplicas") or 0
    if updated < wanted:
        return f"{updated} of {wanted} replicas are updated"
    if (status.get("replicas") or 0) > updated:
        return f"{(status.get('replicas') or 0) - updated} replicas of the old version are still there"
    available = status.get("availableReplicas") or 0
    if available < wanted:
        return f"{available} of {wanted} replicas are available"
    return None


def _stateful_set(obj: Object) -> str | None:
    wanted, status, spec = _replicas(obj), obj.get("status") or {}, obj.get("spec") or {}
    if (stale := reason_stale(obj)) is not None:
        return stale
    ready = status.get("readyReplicas") or 0
    if ready < wanted:
        return f"{ready} of {wanted} replicas are ready"
    if (status.get("replicas") or 0) > wanted:
        return f"{status['replicas']} replicas are there and {wanted} are wanted"
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        # With OnDelete somebody else replaces the pods; the controller waits for them, and we would wait for ever.
        return None
    if wanted and not status.get("updateRevision"):
        return "the controller has not looked at it yet"
    # With a partition only the upper ordinals are updated.
    target = max(0, wanted - ((strategy.get("rollingUpdate") or {}).get("partition") or 0))
    updated = status.get("updatedReplicas") or 0
    if status.get("currentRevision") == status.get("updateRevision"):
        updated = max(updated, status.get("currentReplicas") or 0)
    return f"{updated} of {target} replicas are updated" if updated < target else None


def _daemon_set(obj: Object) -> str | None:
    status = obj.get("status") or {}
    if (stale := reason_stale(obj)) is not None:
        return stale
    wanted = status.get("desiredNumberScheduled") or 0
    for field, what in (("updatedNumberScheduled", "updated"), ("numberAvailable", "available")):
        if (status.get(field) or 0) < wanted:
            return f"{status.get(field) or 0} of {wanted} pods are {what}"
    return None


def _pod(obj: Object) -> str | None:
    status = obj.get("status") or {}
    if status.get("phase") == "Succeeded" or is_true(obj, "Ready"):
        return None
    return _pod_trouble(obj) or f"it is {status.get('phase') or 'Pending'}"


def _job(obj: Object) -> str | None:
    if is_true(obj, "Complete"):
        return None
    if is_true(obj, "Failed"):
        failed = condition(obj, "Failed")
        return f"it failed: {failed.get('message') or failed.get('reason') or 'no reason given'}"
    status = obj.get("status") or {}
    return f"it is not complete ({status.get('active') or 0} running, {status.get('failed') or 0} failed)"


def _claim(obj: Object) -> str | None:
    phase = (obj.get("status") or {}).get("phase") or "Pending"
    if phase == "Bound":
        return None
    storage_class = (obj.get("spec") or {}).get("storageClassName")
    return f"it is {phase} (storage class {storage_class or 'not set'})"


def _namespace(obj: Object) -> str | None:
    phase = (obj.get("status") or {}).get("phase")
    return None if phase == "Active" else f"it is {phase or 'not active yet'}"


def _needs(*types: str) -> Callable[[Object], str | None]:
    def check(obj: Object) -> str | None:
        for kind in types:
            found = condition(obj, kind)
            if not found:
                return f"{kind} is not reported yet"
            if found["status"] != "True":
                told = ": ".join(filter(None, (found.get("reason"), found.get("message"))))
                return f"{kind} is {found['status']}{f' ({told})' if told else ''}"
        return None

    return check


_CHECKS: dict[str, Callable[[Object], str | None]] = {
    "APIService": _needs("Available"),
    "Cluster": _needs("Ready"),
    "CustomResourceDefinition": _needs("Established"),
    "DaemonSet": _daemon_set,
    "Deployment": _deployment,
    "Job": _job,
    "Namespace": _namespace,
    "Node": _needs("Ready"),
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "StatefulSet": _stateful_set,
}


# -- causes ------------------------------------------------------------------------------------------------------------


def _cause(one: Object) -> str | None:
    name = one["metadata"]["name"]
    if one.get("kind") == "Pod":
        trouble = None if is_true(one, "Ready") else _pod_trouble(one)
        return f"pod {name}: {trouble}" if trouble else None
    trouble = _unbound(one)
    return f"claim {name}: {trouble}" if trouble else None


def _unbound(one: Object) -> str | None:
    return _claim(one) if one.get("kind") == "PersistentVolumeClaim" else None


def _not_scheduled(pod: Object) -> str | None:
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "False":
        return None
    return f"no node for it: {scheduled.get('message') or scheduled.get('reason') or 'no reason given'}"


def _pod_trouble(pod: Object) -> str | None:
    """Reason why a pod is not ready: scheduling, a container, or a probe; None if none is known."""
    if pod["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if refused := _not_scheduled(pod):
        return refused
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return f"it failed: {status.get('message') or status.get('reason') or 'no reason given'}"
    troubles = [text for one in _containers(pod) if (text := _container_trouble(one))]
    return "; ".join(troubles) or None


def _container_trouble(status: Object) -> str | None:
    name, state = status["name"], status.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    restarts = status.get("restartCount") or 0
    if waiting:
        reason = waiting.get("reason") or "Waiting"
        if "Image" in reason:
            detail = f" of image {status.get('image')}"
        elif restarts:
            detail = f" after {restarts} restarts{_last_exit(status)}"
        else:
            detail = ""
        # Of a container that ends again and again the message says for how long the kubelet waits, not why.
        message = waiting.get("message") if "Image" in reason or not restarts else None
        return f"container {name}: {reason}{detail}{f' ({message})' if message else ''}"
    if terminated and terminated.get("exitCode"):
        return f"container {name}: {terminated.get('reason') or 'Error'}, exit code {terminated['exitCode']}"
    if "running" in state and not status.get("ready"):
        return f"container {name}: runs, its readiness probe does not pass yet{_last_exit(status)}"
    return None


def _last_exit(status: Object) -> str:
    last = _last_end(status)
    return f", last exit code {last['exitCode']} ({last.get('reason') or 'Error'})" if "exitCode" in last else ""


def _last_end(status: Object) -> Object:
    return (status.get("lastState") or {}).get("terminated") or {}


def _failed_run(status: Object) -> bool:
    ends = [((status.get(key) or {}).get("terminated") or {}).get("exitCode") for key in ("state", "lastState")]
    return any(ends)


def _warnings(related: Related, said: str) -> list[str]:
    """Newest warnings, each once, without those that repeat ``said``."""
    said, told = OWN_PORT.sub("", said), dict[str, str]()
    events = [one for one in related if one.get("kind") == "Event" and one.get("type") == "Warning"]
    events.sort(key=_when, reverse=True)
    for one in events:
        message = " ".join(str(one.get("message") or "").split())
        same = OWN_PORT.sub("", message)
        bare = _BEGINNING.sub("", same)
        # While a pod says the one, the last event may say the other: the kubelet tries, then waits, in turns.
        known = bare in said or (bare in _NOT_PULLED and any(reason in said for reason in _NOT_PULLED))
        if not known:
            reason = one.get("reason") or "Warning"
            told.setdefault(f"{reason}: {same}", f"event {reason}: {message}")
    return list(told.values())[:MAX_EVENTS]


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _containers(pod: Object) -> list[Object]:
    """Statuses of the containers, or of the unfinished init containers while there are any."""
    status = pod.get("status") or {}
    inits = [one for one in status.get("initContainerStatuses") or [] if not one.get("ready")]
    # While an init container runs, the others only report PodInitializing.
    return inits or list(status.get("containerStatuses") or [])


def _replicas(obj: Object) -> int:
    wanted = (obj.get("spec") or {}).get("replicas")
    return 1 if wanted is None else int(wanted)


def reason_stale(obj: Object) -> str | None:
    """Reason why the status does not describe the current generation, or None."""
    observed = (obj.get("status") or {}).get("observedGeneration") or 0
    if observed < (obj["metadata"].get("generation") or 0):
        return "the controller has not looked at this version of it yet"
    return None
