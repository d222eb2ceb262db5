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
from .causes import EXPLAIN_SECONDS, GRACE_SECONDS, NO_SERVERS, Causes, Related, Servers, Serving
from .cluster import Cluster
from .errors import ApiError, Expired
from .objects import Ref
from .progress import Progress, named
from .readiness import cause_in_brief, lacks_image, reason_not_ready
from .watch import Watch

WATCH_SECONDS = 30
# Watches that break at once must keep neither the server nor us busy.
SHORTEST_WATCH_SECONDS = 0.2
# Pause between two probes of a function.
PROBE_SECONDS = 0.25


class NotReady(Exception):  # noqa: N818 - reads as what happened
    """Some objects did not become ready. ``reasons`` tells why for each, with log lines where they help.

    Workloads that serve them stand among them if they are not ready either.
    """

    def __init__(self, reasons: Mapping[Ref, str], after: float, *, early: bool = False) -> None:
        self.reasons, self.after, self.early = dict(reasons), after, early
        head = f"cannot become ready (found after {after:.0f} s)" if early else f"not ready after {after:.0f} s"
        lines = [f"  - {ref}: {reason}".replace("\n", "\n      ") for ref, reason in self.reasons.items()]
        super().__init__("\n".join([f"{head}:", *lines]))

    @property
    def problems(self) -> list[Problem]:
        """Each object that is not ready, with the reason."""
        return [
            Problem(why, str(ref), reason=Reason.IMAGE_NOT_AVAILABLE if lacks_image(why) else Reason.NOT_READY_IN_TIME)
            for ref, why in self.reasons.items()
        ]

    def about(self, target: Ref, servers: Servers | None) -> NotReady:
        """Part of the error that concerns one target and what serves it."""
        ailing = [ref for ref in (servers or NO_SERVERS).workloads if ref in self.reasons]
        reasons = {ref: self.reasons[ref] for ref in (*ailing, target)}
        return NotReady(reasons, self.after, early=self.early and bool(ailing))

    def with_hint(self, hint: str) -> NotReady:
        """Add a hint to the message; returns the error itself."""
        self.args = (f"{self.args[0]}\n{hint}",)
        return self


@dataclass(frozen=True)
class _News:
    """An observation of a follower: all objects of a group (``whole``), one object, its deletion, or an error.

    ``unforeseen`` is an error of another kind: the answer is none that an API server gives.
    """

    group: tuple[str, str, str | None]
    objects: tuple[Object, ...] = ()
    whole: bool = False
    deleted: bool = False
    error: ApiError | None = None
    unforeseen: Exception | None = None


def wait_until(
    cluster: Cluster,
    targets: Iterable[Ref],
    *,
    timeout: float,
    progress: Callable[[str], None] | None = None,
    not_ready: Callable[[Object, Related], str | None] = reason_not_ready,
    grace: float = GRACE_SECONDS,
    served_by: Mapping[Ref, Servers] | None = None,
) -> None:
    """Return as soon as every target exists and is ready.

    ``progress`` is called with lines that tell what is left, see ``progress.Progress``. ``not_ready`` may replace the
    check; it gets the object and, now and then, its pods, claims and events. ``served_by`` names the workloads on which
    a target depends, as an APIService on the pods behind it: what ails these is told with the target. An answer that no
    API server gives ends the wait with the error that reading it met.

    Raises NotReady after ``timeout`` seconds, or once an object or what serves it has been in a hopeless state for
    ``grace`` seconds, or an image pull has failed for PULL_SECONDS, or for REFUSED_PULL_SECONDS by an answer of its
    registry. Raises ApiError when we are not allowed to look.
    """
    waiting = _Waiting(cluster, list(dict.fromkeys(targets)), not_ready, progress, grace, served_by or {})
    try:
        waiting.run(timeout)
    finally:
        waiting.stop()


def wait_for(
    probe: Callable[[], str | None],
    what: str,
    *,
    timeout: float,
    progress: Callable[[str], None] | None = None,
    served_by: Servers = NO_SERVERS,
) -> str | None:
    """Call ``probe`` until it returns no reason; None then, and after ``timeout`` seconds all that is known.

    ``what`` names the function that is probed, in lines of progress. Raises NotReady once a workload that serves it has
    been in a hopeless state, or an image has been pulled in vain, for as long as ``wait_until`` bears with that.
    """
    start = explained = time.monotonic()
    told, serving = Progress(progress, start, timeout), Serving([served_by])
    while reason := probe():
        now = time.monotonic()
        over = now - start >= timeout
        if over or now - explained >= EXPLAIN_SECONDS:
            serving.look(served_by.workloads)
            explained = now
            if lost := serving.lost(now):
                raise NotReady(lost, now - start, early=True)
        troubles = serving.troubles(served_by.workloads)
        if over:
            return "\n".join([reason, *(f"{ref}: {serving.with_logs(ref, why)}" for ref, why in troubles.items())])
        told.tell(serving.in_brief(served_by.workloads) or f"{what}: {reason}", now, serving.give_up_at())
        time.sleep(PROBE_SECONDS)
    return None


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
            except Exception as error:  # noqa: BLE001 - raised by who waits
                # A watch that is closed while it is read fails in ways of its own.
                if not self._over.is_set():
                    self._news.put(_News(self._group, unforeseen=error))
                return

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
        progress: Callable[[str], None] | None,
        grace: float,
        served_by: Mapping[Ref, Servers],
    ) -> None:
        self._targets, self._not_ready, self._progress = targets, not_ready, progress
        self._causes = Causes(cluster, grace)
        self._servers = {ref: served_by[ref].workloads for ref in targets if ref in served_by}
        self._serving = Serving((served_by[ref] for ref in self._servers), grace)
        self._live: dict[Ref, Object] = {}
        self._seen: set[tuple[str, str, str | None]] = set()
        self._trouble = ""
        self._news: queue.Queue[_News] = queue.Queue()
        groups: dict[tuple[str, str, str | None], list[str]] = defaultdict(list)
        for ref in targets:
            groups[ref.api_version, ref.kind, ref.namespace].append(ref.name)
        self._followers = [_Follower(cluster, group, names, self._news) for group, names in groups.items()]

    def run(self, timeout: float) -> None:
        start = explained = time.monotonic()
        told = Progress(self._progress, start, timeout)
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
                lost = self._lost(reasons, now)
                reasons = self._reasons()
                if lost:
                    # Hopeless objects come first, then all others that are not ready.
                    raise NotReady(self._with_logs({**lost, **reasons, **lost}), now - start, early=True)
            if reasons:
                told.tell(
                    self._in_brief(reasons), now, min(self._causes.give_up_at(reasons), self._serving.give_up_at())
                )
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
        if news.unforeseen is not None:
            raise news.unforeseen
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
                reason = self._not_ready(self._live[ref], self._causes.of(ref))
            elif (ref.api_version, ref.kind, ref.namespace) in self._seen:
                reason = "it does not exist"
            else:
                reason = "no answer from the API server yet"
            if reason:
                found[ref] = f"{reason} ({self._trouble})" if self._trouble else reason
        return found

    def _in_brief(self, reasons: Mapping[Ref, str]) -> str:
        """Count of what is ready, and the first target whose trouble is known, with that in a few words."""
        causes = {ref: cause for ref in reasons if (cause := self._cause(ref))}
        ref, cause = next(iter(causes.items()), (next(iter(reasons)), ""))
        if not cause:
            # Without events: of a server that starts, these tell that it has not started yet.
            bare = ref in self._live and not self._trouble and self._not_ready(self._live[ref], [])
            cause = f"{named(ref)}: {bare or reasons[ref]}"
        if len(self._targets) == 1:
            return cause
        return f"{len(self._targets) - len(reasons)}/{len(self._targets)} ready; {cause}"

    def _cause(self, ref: Ref) -> str | None:
        """Trouble in brief of a target or of what serves it; None if there is none, or none is known."""
        if told := self._serving.in_brief(self._servers.get(ref, ())):
            return told
        own = [*([self._live[ref]] if ref.kind == "Pod" and ref in self._live else []), *self._causes.of(ref)]
        cause = cause_in_brief(own)
        return f"{ref.name}: {cause}" if cause else None

    def _explain(self, reasons: Mapping[Ref, str]) -> None:
        """Read the causes of targets that are not ready, and those of what serves them."""
        self._causes.look({ref: self._live[ref] for ref in reasons if ref in self._live})
        self._serving.look(server for ref in reasons for server in self._servers.get(ref, ()))

    def _lost(self, reasons: Mapping[Ref, str], now: float) -> dict[Ref, str]:
        """Targets and their servers that have been hopeless for as long as such a trouble is borne; with reasons."""
        own = {ref: self._causes.lost(ref, self._live[ref], now) for ref in reasons if ref in self._live}
        return {**self._serving.lost(now), **{ref: reason for ref, reason in own.items() if reason}}

    def _with_logs(self, reasons: Mapping[Ref, str]) -> dict[Ref, str]:
        """The reasons, and those of what serves these targets, with the last log lines of crashing containers."""
        found = {}
        servers = [server for ref in reasons for server in self._servers.get(ref, ())]
        troubles = self._serving.troubles(servers)
        for ref, reason in {**troubles, **reasons}.items():
            if ref in troubles:
                found[ref] = self._serving.with_logs(ref, reason)
            else:
                found[ref] = self._causes.with_logs(ref, self._live.get(ref), reason)
        return found
