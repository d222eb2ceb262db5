# SPDX-License-Identifier: Apache-2.0
"""Causes for which objects are not ready: their pods, claims and events, read now and then by whoever waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

from ..api_object import Object
from ..redaction import redacted
from .cluster import Cluster
from .errors import ApiError
from .objects import Ref
from .readiness import cause_in_brief, crashing, hopeless, not_pulled, reason_not_ready, refused_pull

Related = list[Object]

# Interval of reading pods and events for explanations; readiness itself comes by watch.
EXPLAIN_SECONDS = 5.0
# Seconds for which a hopeless state must last before it is believed.
GRACE_SECONDS = 15.0
# Seconds for which an image pull may fail. The kubelet tries some four times; a registry may be away for a moment.
PULL_SECONDS = 60.0
# Seconds for which it may fail by an answer that trying again does not change. The kubelet tries twice or more.
REFUSED_PULL_SECONDS = 25.0
LOG_LINES = 10
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


@dataclass
class _Hopeless:
    """Trouble that waiting does not mend: since when (monotonic seconds), and for how many seconds it is borne."""

    since: float
    patience: float

    @property
    def over(self) -> float:
        return self.since + self.patience


class Causes:
    """Causes of objects of one cluster, with the time since when there has been no hope for them."""

    def __init__(self, cluster: Cluster, grace: float = GRACE_SECONDS) -> None:
        # Explanations must not delay the wait itself.
        self._cluster = cluster.with_patience(retry_seconds=EXPLAIN_SECONDS, read_seconds=EXPLAIN_SECONDS)
        self._grace = grace
        self._related: dict[Ref, Related] = {}
        self._old_events: dict[str, object] | None = None
        self._hopeless: dict[tuple[Ref, Callable[..., str | None]], _Hopeless] = {}

    def of(self, ref: Ref) -> Related:
        """Pods, claims and events of an object, as of the last look."""
        return self._related.get(ref, [])

    def get(self, ref: Ref) -> Object | None:
        """Object as it is now; None if there is none or it cannot be read."""
        try:
            return self._cluster.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        except ApiError:
            return None

    def look(self, objects: Mapping[Ref, Object]) -> None:
        """Read the pods, claims and warnings of these objects; missing permissions are no error."""
        namespaces = {ref.namespace for ref in objects if ref.namespace}
        try:
            events = {
                name: self._cluster.list("v1", "Event", name, fields="type=Warning") for name in sorted(namespaces)
            }
        except ApiError:
            events = {}
        # Events from before this wait may be obsolete: only new or repeated ones count.
        told = {one["metadata"]["uid"]: _times(one) for found in events.values() for one in found}
        if self._old_events is None:
            self._old_events = told
        for ref, obj in objects.items():
            if ref.namespace:
                current = [
                    one
                    for one in events.get(ref.namespace, [])
                    if self._old_events.get(one["metadata"]["uid"]) != _times(one) or _about_pod(one)
                ]
                self._related[ref] = self._relatives(ref, obj, current)

    def lost(self, ref: Ref, obj: Object, now: float) -> str | None:
        """Reason of an object that is not ready and has been hopeless for the grace period of its trouble, or None."""
        found = None
        related = self.of(ref)
        unpulled = not_pulled([obj, *related])
        pull = REFUSED_PULL_SECONDS if unpulled and refused_pull(unpulled) else PULL_SECONDS
        for which, reason, patience in (
            (hopeless, hopeless(obj, related), self._grace),
            (not_pulled, unpulled, pull),
        ):
            if reason is None:
                self._hopeless.pop((ref, which), None)
                continue
            trouble = self._hopeless.setdefault((ref, which), _Hopeless(now, patience))
            # Between two tries the kubelet may say less than it knows.
            trouble.patience = min(trouble.patience, patience)
            if now >= trouble.over:
                found = reason
        return found

    def give_up_at(self, refs: Iterable[Ref]) -> float:
        """Time at which the first of these is lost unless its trouble passes; infinite if none is hopeless."""
        among = set(refs)
        return min((each.over for (ref, _which), each in self._hopeless.items() if ref in among), default=inf)

    def with_logs(self, ref: Ref, obj: Object | None, reason: str) -> str:
        """Reason with the last log lines of crashing containers."""
        for pod, container in crashing([*self.of(ref), *([obj] if obj else [])])[:3]:
            lines = self._last_lines(pod, ref.namespace or "", container)
            if lines:
                reason += f"\nlast lines of container {container} in pod {pod}:\n  " + "\n  ".join(lines)
        return redacted(reason)

    def _relatives(self, ref: Ref, obj: Object, events: list[Object]) -> Related:
        pods: Related = [obj] if ref.kind == "Pod" else []
        claims: Related = []
        labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        try:
            if ref.kind in _WORKLOADS and labels:
                selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
                pods = list(self._cluster.list("v1", "Pod", ref.namespace, labels=selector))
            named = {
                volume["persistentVolumeClaim"]["claimName"]
                for pod in pods
                for volume in pod["spec"].get("volumes") or []
                if "persistentVolumeClaim" in volume
            }
            for name in sorted(named):
                claim = self._cluster.get("v1", "PersistentVolumeClaim", name, ref.namespace)
                claims += [claim] if claim else []
        except ApiError:
            pass
        names = {ref.name, *(one["metadata"]["name"] for one in (*pods, *claims))}
        about = [
            one
            for one in events
            if (one.get("involvedObject") or {}).get("name") in names
            # Events of ReplicaSets between a Deployment and its pods.
            or str((one.get("involvedObject") or {}).get("name")).rpartition("-")[0] == ref.name
        ]
        return [*(one for one in pods if one is not obj), *claims, *about]

    def _last_lines(self, pod: str, namespace: str, container: str) -> list[str]:
        for previous in (True, False):
            try:
                lines = self._cluster.logs(pod, namespace, container, LOG_LINES, previous=previous).splitlines()
            except ApiError:
                continue
            # The kubelet answers 200 with this sentence when that container has been removed already.
            if lines and not lines[0].startswith("unable to retrieve container logs"):
                return lines[-LOG_LINES:]
        return []


@dataclass(frozen=True)
class Servers:
    """Workloads whose pods serve what is waited for, such as an API, mostly in another cluster; none if unknown."""

    cluster: Cluster | None = None
    workloads: tuple[Ref, ...] = ()


NO_SERVERS = Servers()


class Serving:
    """Servers of one wait, with what ails those that are not ready."""

    def __init__(self, servers: Iterable[Servers], grace: float = GRACE_SECONDS) -> None:
        self._causes: dict[int, Causes] = {}
        self._of: dict[Ref, Causes] = {}
        self._ailing: dict[Ref, Object] = {}
        for each in servers:
            if each.cluster is not None:
                causes = self._causes.setdefault(id(each.cluster), Causes(each.cluster, grace))
                self._of.update(dict.fromkeys(each.workloads, causes))

    def look(self, workloads: Iterable[Ref]) -> None:
        """Read these workloads, and the causes of those that are not ready."""
        wanted = dict.fromkeys(ref for ref in workloads if ref in self._of)
        live = {ref: self._of[ref].get(ref) for ref in wanted}
        self._ailing = {ref: obj for ref, obj in live.items() if obj and reason_not_ready(obj)}
        for causes in self._causes.values():
            if mine := {ref: obj for ref, obj in self._ailing.items() if self._of[ref] is causes}:
                causes.look(mine)

    def lost(self, now: float) -> dict[Ref, str]:
        """Workloads that will not become ready by waiting, with the reason."""
        found = {ref: self._of[ref].lost(ref, obj, now) for ref, obj in self._ailing.items()}
        return {ref: reason for ref, reason in found.items() if reason}

    def give_up_at(self) -> float:
        """Time at which the first of the workloads is lost unless its trouble passes; infinite if none is hopeless."""
        return min((causes.give_up_at(self._ailing) for causes in self._causes.values()), default=inf)

    def troubles(self, workloads: Iterable[Ref]) -> dict[Ref, str]:
        """Reason of each of these workloads that was not ready when last looked at."""
        found = {ref: self._ailing[ref] for ref in workloads if ref in self._ailing}
        return {ref: str(reason_not_ready(obj, self._of[ref].of(ref))) for ref, obj in found.items()}

    def in_brief(self, workloads: Iterable[Ref]) -> str | None:
        """First of these workloads that has a known trouble, with it in a few words; None if there is none."""
        for ref in workloads:
            if ref in self._ailing and (cause := cause_in_brief(self._of[ref].of(ref))):
                return f"{ref.name}: {cause}"
        return None

    def with_logs(self, ref: Ref, reason: str) -> str:
        """Reason of a workload with the last log lines of its crashing containers."""
        return self._of[ref].with_logs(ref, self._ailing.get(ref), reason)


def _times(event: Object) -> object:
    series = event.get("series") or {}
    return event.get("count"), event.get("lastTimestamp"), series.get("count")


def _about_pod(event: Object) -> bool:
    """Return whether an event is about a pod or claim; these go with their object, those of controllers linger."""
    return (event.get("involvedObject") or {}).get("kind") in ("Pod", "PersistentVolumeClaim")
