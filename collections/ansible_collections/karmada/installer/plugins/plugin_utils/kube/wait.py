# SPDX-License-Identifier: Apache-2.0
"""Wait until objects are ready, by watches, and tell meanwhile and in the end why they are not."""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..api_object import Object
from ..problems import Problem, Reason
from ..redaction import redacted
from .cluster import Cluster
from .errors import ApiError, Expired
from .limits import QUIET_SECONDS, SAY_SECONDS
from .objects import Ref
from .readiness import crashing, hopeless, not_pulled, reason_not_ready
from .watch import Watch

Related = list[Object]

# A long wait reports changes, but not each pod.
CHANGE_SECONDS = 3.0
# Interval of reading pods and events for explanations; readiness itself comes by watch.
EXPLAIN_SECONDS = 5.0
# Seconds for which a hopeless state must last before it is believed.
GRACE_SECONDS = 15.0
# Seconds for which an image pull may fail. The kubelet tries some four times; a registry may be away for a moment.
PULL_SECONDS = 60.0
WATCH_SECONDS = 30
# Watches that break at once must keep neither the server nor us busy.
SHORTEST_WATCH_SECONDS = 0.2
LOG_LINES = 10


class NotReady(Exception):  # noqa: N818 - reads as what happened
    """Some objects did not become ready. ``reasons`` tells why for each, with log lines where they help."""

    def __init__(self, reasons: Mapping[Ref, str], after: float, *, early: bool = False) -> None:
        self.reasons = dict(reasons)
        head = f"cannot become ready (found after {after:.0f} s)" if early else f"not ready after {after:.0f} s"
        lines = [f"  - {ref}: {reason}".replace("\n", "\n      ") for ref, reason in self.reasons.items()]
        super().__init__("\n".join([f"{head}:", *lines]))

    @property
    def problems(self) -> list[Problem]:
        """Each object that is not ready, with the reason."""
        return [Problem(why, str(ref), reason=Reason.NOT_READY_IN_TIME) for ref, why in self.reasons.items()]

    def with_hint(self, hint: str) -> NotReady:
        """Add a hint to the message; returns the error itself."""
        self.args = (f"{self.args[0]}\n{hint}",)
        return self


@dataclass(frozen=True)
class _News:
    """An observation of a follower: all objects of a group (``whole``), one object, its deletion, or an error."""

    group: tuple[str, str, str | None]
    objects: tuple[Object, ...] = ()
    whole: bool = False
    deleted: bool = False
    error: ApiError | None = None


def wait_until(
    cluster: Cluster,
    targets: Iterable[Ref],
    *,
    timeout: float,
    progress: Callable[[str], None] | None = None,
    not_ready: Callable[[Object, Related], str | None] = reason_not_ready,
    grace: float = GRACE_SECONDS,
) -> None:
    """Return as soon as every target exists and is ready.

    ``progress`` is called with the reasons that are left: after the first seconds, when they change, and at least every
    10 s. ``not_ready`` may replace the check; it gets the object and, now and then, its pods, claims and events.

    Raises NotReady after ``timeout`` seconds, or once an object has been in a hopeless state for ``grace`` seconds, or
    an image pull has failed for PULL_SECONDS. Raises ApiError when we are not allowed to look.
    """
    waiting = _Waiting(cluster, list(dict.fromkeys(targets)), not_ready, progress or (lambda _text: None))
    try:
        waiting.run(timeout, grace)
    finally:
        waiting.stop()


class _Follower(threading.Thread):
    """Thread that lists and watches one kind in one namespace, and queues what it observes."""

    def __init__(
        self, cluster: Cluster, group: tuple[str, str, str | None], names: list[str], news: queue.Queue[_News]
    ) -> None:
        super().__init__(name=f"wait {group[1]}", daemon=True)
        self._cluster, self._group, self._news = cluster, group, news
        self._fields = f"metadata.name={names[0]}" if len(names) == 1 else None
        self._over = threading.Event()
        self._watch: Watch | None = None

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
            except Expired:
                continue
            except ApiError as error:
                self._news.put(_News(self._group, error=error))
                self._over.wait(1.0)

    def _follow(self) -> None:
        api_version, kind, namespace = self._group
        items = self._cluster.list(api_version, kind, namespace, fields=self._fields)
        self._news.put(_News(self._group, tuple(items), whole=True))
        version = items.resource_version
        if not version:  # the resource type does not exist yet
            self._over.wait(1.0)
            return
        while not self._over.is_set():
            self._watch = self._cluster.watch(
                api_version,
                kind,
                namespace,
                resource_version=version,
                timeout_seconds=WATCH_SECONDS,
                fields=self._fields,
            )
            if self._over.is_set():
                self._watch.close()
            opened = time.monotonic()
            for event in self._watch:
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    deleted = event["type"] == "DELETED"
                    self._news.put(_News(self._group, (event["object"],), deleted=deleted))
            if time.monotonic() - opened < SHORTEST_WATCH_SECONDS:
                self._over.wait(SHORTEST_WATCH_SECONDS)

    def stop(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.close()


class _Waiting:
    """The state of one ``wait_until``."""

    def __init__(
        self,
        cluster: Cluster,
        targets: list[Ref],
        not_ready: Callable[[Object, Related], str | None],
        progress: Callable[[str], None],
    ) -> None:
        self._cluster, self._targets, self._not_ready, self._progress = cluster, targets, not_ready, progress
        # Explanations must not delay the wait itself.
        self._asked = cluster.with_patience(retry_seconds=EXPLAIN_SECONDS, read_seconds=EXPLAIN_SECONDS)
        self._live: dict[Ref, Object] = {}
        self._seen: set[tuple[str, str, str | None]] = set()
        self._related: dict[Ref, Related] = {}
        self._old_events: dict[str, object] | None = None
        self._hopeless_since: dict[tuple[Ref, float], float] = {}
        self._trouble = ""
        self._said, self._said_at = "", 0.0
        self._news: queue.Queue[_News] = queue.Queue()
        groups: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
        for ref in targets:
            groups[ref.api_version, ref.kind, ref.namespace].append(ref.name)
        self._followers = [_Follower(cluster, group, names, self._news) for group, names in groups.items()]

    def run(self, timeout: float, grace: float) -> None:
        start = time.monotonic()
        explained = start
        self._said_at = start + QUIET_SECONDS - CHANGE_SECONDS
        for follower in self._followers:
            follower.start()
        while True:
            reasons = self._reasons()
            if not reasons:
                return
            now = time.monotonic()
            if now - start >= timeout:
                self._explain(reasons)
                raise NotReady(self._with_logs(self._reasons()), now - start)
            if now - explained >= EXPLAIN_SECONDS:
                self._explain(reasons)
                explained = now
                lost = self._lost(now, grace)
                reasons = self._reasons()
                if lost:
                    # Hopeless objects come first, then all others that are not ready.
                    raise NotReady(self._with_logs({**lost, **reasons, **lost}), now - start, early=True)
            self._say(reasons, now)
            self._take_news(min(1.0, max(0.0, start + timeout - now)))

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()
        for follower in self._followers:
            if follower.is_alive():
                follower.join(2.0)

    def _take_news(self, seconds: float) -> None:
        try:
            news = self._news.get(timeout=seconds)
            while True:
                self._take(news)
                news = self._news.get_nowait()
        except queue.Empty:
            pass

    def _take(self, news: _News) -> None:
        if news.error is not None:
            if news.error.status in (401, 403):
                raise news.error
            self._trouble = str(news.error)
            return
        self._trouble = ""
        self._seen.add(news.group)
        if news.whole:
            gone = [ref for ref in self._live if (ref.api_version, ref.kind, ref.namespace) == news.group]
            for ref in gone:
                del self._live[ref]
        for obj in news.objects:
            ref = Ref(news.group[0], news.group[1], obj["metadata"]["name"], news.group[2])
            if news.deleted:
                self._live.pop(ref, None)
            else:
                self._live[ref] = {**obj, "apiVersion": ref.api_version, "kind": ref.kind}

    def _reasons(self) -> dict[Ref, str]:
        found = {}
        for ref in self._targets:
            if ref in self._live:
                reason = self._not_ready(self._live[ref], self._related.get(ref, []))
            elif (ref.api_version, ref.kind, ref.namespace) in self._seen:
                reason = "it does not exist"
            else:
                reason = "no answer from the API server yet"
            if reason:
                found[ref] = f"{reason} ({self._trouble})" if self._trouble else reason
        return found

    def _say(self, reasons: Mapping[Ref, str], now: float) -> None:
        shown = [f"{ref}: {reason}" for ref, reason in list(reasons.items())[:3]]
        more = f" (and {len(reasons) - 3} more)" if len(reasons) > 3 else ""
        ready = len(self._targets) - len(reasons)
        text = redacted(f"{ready} of {len(self._targets)} ready; waiting for " + " | ".join(shown) + more)
        since = now - self._said_at
        if since >= SAY_SECONDS or (text != self._said and since >= CHANGE_SECONDS):
            self._said, self._said_at = text, now
            self._progress(text)

    def _lost(self, now: float, grace: float) -> dict[Ref, str]:
        """Targets that have been hopeless for the grace period of their trouble, with the reason."""
        found = {}
        for ref in self._targets:
            obj, related = self._live.get(ref), self._related.get(ref, [])
            if obj is None or self._not_ready(obj, related) is None:
                continue
            for reason, patience in ((hopeless(obj, related), grace), (not_pulled([obj, *related]), PULL_SECONDS)):
                if reason is None:
                    self._hopeless_since.pop((ref, patience), None)
                elif now - self._hopeless_since.setdefault((ref, patience), now) >= patience:
                    found[ref] = reason
        return found

    # -- causes ----------------------------------------------------------------------------------------------------

    def _explain(self, reasons: Mapping[Ref, str]) -> None:
        """Read the pods, claims and warnings of objects that are not ready; missing permissions are no error."""
        namespaces = {ref.namespace for ref in reasons if ref.namespace}
        try:
            events = {name: self._asked.list("v1", "Event", name, fields="type=Warning") for name in sorted(namespaces)}
        except ApiError:
            events = {}
        # Events from before this wait may be obsolete: only new or repeated ones count.
        told = {one["metadata"]["uid"]: _times(one) for found in events.values() for one in found}
        if self._old_events is None:
            self._old_events = told
        for ref in reasons:
            if ref.namespace and ref in self._live:
                current = [
                    one
                    for one in events.get(ref.namespace, [])
                    if self._old_events.get(one["metadata"]["uid"]) != _times(one) or _about_pod(one)
                ]
                self._related[ref] = self._relatives(ref, self._live[ref], current)

    def _relatives(self, ref: Ref, obj: Object, events: list[Object]) -> Related:
        pods: Related = [obj] if ref.kind == "Pod" else []
        claims: Related = []
        labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        try:
            if ref.kind in ("Deployment", "StatefulSet", "DaemonSet", "Job") and labels:
                selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
                pods = list(self._asked.list("v1", "Pod", ref.namespace, labels=selector))
            named = {
                volume["persistentVolumeClaim"]["claimName"]
                for pod in pods
                for volume in pod["spec"].get("volumes") or []
                if "persistentVolumeClaim" in volume
            }
            for name in sorted(named):
                claim = self._asked.get("v1", "PersistentVolumeClaim", name, ref.namespace)
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

    def _with_logs(self, reasons: Mapping[Ref, str]) -> dict[Ref, str]:
        """The reasons, with the last log lines of crashing containers."""
        found = {}
        for ref, reason in reasons.items():
            text = reason
            pods = [*self._related.get(ref, []), *([self._live[ref]] if ref in self._live else [])]
            for pod, container in crashing(pods)[:3]:
                lines = self._last_lines(pod, ref.namespace or "", container)
                if lines:
                    text += f"\nlast lines of container {container} in pod {pod}:\n  " + "\n  ".join(lines)
            found[ref] = redacted(text)
        return found

    def _last_lines(self, pod: str, namespace: str, container: str) -> list[str]:
        for previous in (True, False):
            try:
                lines = self._asked.logs(pod, namespace, container, LOG_LINES, previous=previous).splitlines()
            except ApiError:
                continue
            # The kubelet answers 200 with this sentence when that container has been removed already.
            if lines and not lines[0].startswith("unable to retrieve container logs"):
                return lines[-LOG_LINES:]
        return []


def _times(event: Object) -> object:
    series = event.get("series") or {}
    return event.get("count"), event.get("lastTimestamp"), series.get("count")


def _about_pod(event: Object) -> bool:
    """Return whether an event is about a pod or claim; these go with their object, those of controllers linger."""
    return (event.get("involvedObject") or {}).get("kind") in ("Pod", "PersistentVolumeClaim")
