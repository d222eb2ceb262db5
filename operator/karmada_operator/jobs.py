# SPDX-License-Identifier: Apache-2.0
"""Runs as Jobs: a pod each, which goes on when the operator ends, and is followed by whoever leads next.

A Job is named after its object, so the API server itself refuses a second run of one object. It has the run in an
annotation, which reaches the worker as a file; what comes back are the lines of the pod's log.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object, condition, is_true
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import readiness
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.stream import Lines

from .executor import (
    LONGEST_LINE,
    Ending,
    Executor,
    Left,
    LeftBehind,
    Outcome,
    Run,
    RunSpec,
    Task,
    UnderWay,
    parsed,
    told,
)
from .kinds import Key
from .worker import GRACE

BATCH = "batch/v1"
#: Annotation of Job and pod with the run, as ``RunSpec.text``, and label of both with the operator that started it.
RUN, OPERATOR = "installer.karmada.io/run", "installer.karmada.io/operator"
#: Container of the pod that is the run.
CONTAINER = "run"
#: Seconds that a pod gets beyond the limits of its run, until it has an image, a node and a volume among them.
MARGIN = 600
#: Seconds between two looks at a pod; in which the Job of an earlier run has to be gone; and for which the log of a pod
#: that has ended is asked for, and the end of one awaited whose grace period is over.
LOOK, GONE, UNREAD = 1.0, 120.0, 60.0
#: Lines of a log that is followed again after the connection was lost.
AGAIN = 100
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pod:
    """Pod of a run, as it is seen. ``waits``: why its container does not run yet; ``ended``: how it has ended.

    ``gone``: nobody has seen it end, so its node may be lost and not know that.
    """

    name: str = ""
    runs: bool = False
    waits: str = ""
    ended: str = ""
    gone: bool = False


def load(path: Path) -> Object:
    """Template of Jobs. Raises ValueError for one without a container for the run, OSError if it cannot be read."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        names = [each["name"] for each in found["spec"]["template"]["spec"]["containers"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is no template of a Job: {type(error).__name__}: {error}") from None
    if (found.get("apiVersion"), found.get("kind")) != (BATCH, "Job") or CONTAINER not in names:
        raise ValueError(f"{path} is no template of a Job with a container {CONTAINER}")
    return dict(found)


def name_of(key: Key) -> str:
    """Name of the Job of an object's run, which is the same for all of its runs."""
    digest = hashlib.sha256("/".join(key).encode()).hexdigest()[:10]
    return f"{key.name[:40].replace('.', '-').strip('-')}-{digest}"


def job_of(template: Object, spec: RunSpec, namespace: str, operator: str) -> Object:
    """Job of a run, from the template."""
    job = copy.deepcopy(template)
    pods = job["spec"]["template"]
    for each in (job, pods):
        meta = each.setdefault("metadata", {})
        meta.setdefault("labels", {})[OPERATOR] = operator
        meta.setdefault("annotations", {})[RUN] = spec.text()
    job["metadata"] |= {"name": name_of(spec.key), "namespace": namespace}
    job["spec"] |= {"backoffLimit": 0, "activeDeadlineSeconds": int(spec.time_limit + GRACE) + MARGIN}
    pods["spec"]["restartPolicy"] = "Never"
    return job


def seen_of(pod: Object | None, before: Pod = Pod()) -> Pod:
    """Pod of a run as it decides, and as it was seen ``before``; without one it waits for it."""
    if pod is None:
        return Pod(waits="its pod is not there yet")
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    containers = {each["name"]: each.get("state") or {} for each in status.get("containerStatuses") or ()}
    state = containers.get(CONTAINER, {})
    if (over := state.get("terminated")) is not None:
        return Pod(name, ended=f"{over.get('reason') or 'ended'}, exit code {over.get('exitCode')}")
    if status.get("phase") in ("Failed", "Succeeded"):
        # Such as one that was evicted before it had a container. One that had it, and whose end nobody has seen, is
        # called Failed by the cluster because its node is gone: there the container may run on.
        began = "running" in state or before.runs
        why = str(status.get("message") or status.get("reason") or status["phase"])
        return Pod(name, runs=before.runs, ended=why, gone=began)
    if "running" in state:
        return Pod(name, runs=True)
    return Pod(name, waits=readiness.reason_not_ready(pod) or "it does not run yet")


class JobExecutor(Executor):
    """Runs Jobs in ``namespace``, the operator's own. ``operator`` tells several operators' Jobs apart."""

    def __init__(self, cluster: Cluster, namespace: str, operator: str, template: Object) -> None:
        self.cluster, self.namespace, self._operator, self._template = cluster, namespace, operator, template
        self.closed = threading.Event()
        self._guard = threading.Lock()
        self._runs: set[JobRun] = set()

    def start(self, spec: RunSpec) -> JobRun:
        job = job_of(self._template, spec, self.namespace, self._operator)
        until = time.monotonic() + GONE
        try:
            while True:
                if self.closed.is_set():
                    raise OSError("the operator ends")
                made: Object | None
                try:
                    made = self.cluster.create(job)
                except Conflict:
                    made = self._in_the_way(job, spec)
                if made is not None:
                    return self._run(made, spec)
                if time.monotonic() > until:
                    self._let_go(spec)
                    raise OSError(f"Job {self.namespace}/{name_of(spec.key)} of an earlier run does not go")
                self.closed.wait(LOOK)
        except ApiError as error:
            raise OSError(str(error)) from None

    def _in_the_way(self, job: Object, spec: RunSpec) -> Object | None:
        """Job of this name that is there: ours, if an answer was lost; None if it is on its way out.

        Raises UnderWay for a run that goes on.
        """
        there = self.job(spec)
        if there is None or there["metadata"].get("deletionTimestamp"):
            return None
        if there["metadata"].get("annotations", {}).get(RUN) == job["metadata"]["annotations"][RUN]:
            return there
        if not (is_true(there, "Complete") or is_true(there, "Failed")):
            raise UnderWay(f"Job {self.namespace}/{name_of(spec.key)} is under way, which an earlier operator started")
        self.remove(there)
        return None

    def _let_go(self, spec: RunSpec) -> None:
        """Have a Job that was removed in the foreground not wait for its pod: with a lost node that does not go."""
        there = self.job(spec)
        if there is not None and there["metadata"].get("deletionTimestamp"):
            self.remove(there)

    def left(self) -> list[Left]:
        found = []
        with self._guard:
            followed = {each.uid for each in self._runs}
        for job in self.cluster.list(BATCH, "Job", self.namespace, labels=f"{OPERATOR}={self._operator}"):
            meta = job["metadata"]
            try:
                spec = RunSpec.of(meta.get("annotations", {}).get(RUN, ""))
                began = datetime.fromisoformat(meta["creationTimestamp"]).astimezone(UTC)
            except (KeyError, TypeError, ValueError) as error:
                _LOG.warning("Job %s has no run that can be read: %s", meta["name"], error)
                continue
            if not meta.get("deletionTimestamp") and meta["uid"] not in followed:
                found.append(Left(spec, self._run(job, spec), began))
        return found

    def close(self) -> None:
        """Follow no run any more. They go on."""
        self.closed.set()
        with self._guard:
            runs = list(self._runs)
        for each in runs:
            each.look()

    def remove(self, job: Object, propagation: str = "Background") -> None:
        """Have a Job and its pod removed. Raises ApiError."""
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        self.cluster.delete(BATCH, "Job", name, self.namespace, uid=uid, propagation=propagation)

    def forget(self, run: JobRun) -> None:
        """Drop a run that has ended."""
        with self._guard:
            self._runs.discard(run)

    def job(self, spec: RunSpec) -> Object | None:
        return self.cluster.get(BATCH, "Job", name_of(spec.key), self.namespace)

    def _run(self, job: Object, spec: RunSpec) -> JobRun:
        run = JobRun(self, spec, job)
        with self._guard:
            self._runs.add(run)
        return run


class JobRun(Run):
    """One Job."""

    def __init__(self, executor: JobExecutor, spec: RunSpec, job: Object) -> None:
        self.spec, self._executor, self._job = spec, executor, job
        self.uid: str = job["metadata"]["uid"]
        self._cluster = executor.cluster
        self._guard = threading.Lock()
        self._why = ""
        #: Whether the API server was asked to end it.
        self._asked = False
        #: Moment by which its pod should have gone that is being deleted, as of ``time.monotonic``; 0: it is not.
        self._gone_by = 0.0
        self._log: Lines | None = None
        self._woken = threading.Event()

    def follow(self) -> Iterator[Task | Ending]:
        """Raises LeftBehind once the executor is closed: the run goes on."""
        ending: Ending | None = None
        pod, waits, tail, unread_until = Pod(), "", None, float("inf")
        try:
            # A worker tells its result when nothing below it lives any more. The kubelet sees its end seconds later.
            while ending is None and not pod.ended:
                if self._executor.closed.is_set():
                    raise LeftBehind(f"Job {self._job['metadata']['name']} goes on")
                try:
                    self._end_if_asked()
                    pod = self._look(pod)
                    if pod.runs or (pod.ended and not pod.gone):
                        # Of one that has ended, too: the connection may have been lost before the last line.
                        for found in self._lines(pod, tail):
                            if isinstance(found, Ending):
                                ending = found
                                break
                            yield found
                        tail = AGAIN
                except ApiError as error:
                    _LOG.warning("cannot see the run: %s", error, extra={"run": self.spec.run_id})
                    unread_until = min(unread_until, time.monotonic() + UNREAD) if pod.ended else float("inf")
                    # The log may yet be had; that of a node that is lost, or of a pod that never ran, may not.
                    pod = pod if time.monotonic() > unread_until else replace(pod, ended="")
                if pod.waits and pod.waits != waits:
                    waits = pod.waits
                    yield Task("", "", "The pod of the run starts", waits=told(waits))
                if ending is None and not pod.ended:
                    self._pause()
            ending = self._finished(ending, pod)
        finally:
            self._executor.forget(self)
        yield ending

    def cancel(self, why: str) -> None:
        with self._guard:
            first, self._why = not self._why, self._why or why
        if first:
            self.look()

    def look(self) -> None:
        """Have whoever follows look at once."""
        self._woken.set()
        with self._guard:
            log = self._log
        if log is not None:
            log.close()

    def _end_if_asked(self) -> None:
        """Remove the Job if it was cancelled: its pod gets SIGTERM, and what it says until it has ended is heard."""
        if self._why and not self._asked:
            self._executor.remove(self._job, "Foreground")
            self._asked = True

    def _look(self, before: Pod) -> Pod:
        """Pod of the run. One that was there and is gone has ended, unless its node is lost and does not know."""
        name = self._job["metadata"]["name"]
        pods = self._cluster.list("v1", "Pod", self._executor.namespace, labels=f"batch.kubernetes.io/job-name={name}")
        pod = next((each for each in pods if _belongs(each, self.uid)), None)
        if pod is not None:
            return self._unless_lost(pod["metadata"], seen_of(pod, before))
        job = self._live()
        if job is not None and is_true(job, "Failed"):
            why = str(condition(job, "Failed").get("message") or "it has failed")
            return replace(before, runs=False, waits="", ended=why, gone=True)
        if before.name or job is None:
            return replace(before, runs=False, waits="", ended="its pod is gone", gone=True)
        return seen_of(None)

    def _unless_lost(self, meta: Object, pod: Pod) -> Pod:
        """Pod as it is seen. One that should have gone by now is on a node that is lost, and looks as it did there."""
        if pod.ended or not meta.get("deletionTimestamp"):
            return pod
        now = time.monotonic()
        self._gone_by = self._gone_by or now + meta.get("deletionGracePeriodSeconds", 30) + UNREAD
        if now < self._gone_by:
            return pod
        return replace(pod, runs=False, waits="", ended="its pod does not go, so its node may be lost", gone=True)

    def _live(self) -> Object | None:
        """Job as it is now; another one of the name is not ours."""
        job = self._executor.job(self.spec)
        return job if job is not None and job["metadata"]["uid"] == self.uid else None

    def _lines(self, pod: Pod, tail: int | None) -> Iterator[Task | Ending]:
        log = self._cluster.follow_log(pod.name, self._executor.namespace, CONTAINER, tail)
        with self._guard:
            self._log = log
        try:
            # Whoever asked to look before there was a log to close.
            if self._executor.closed.is_set() or (self._why and not self._asked):
                return
            for line in log:
                if len(line) <= LONGEST_LINE and (found := parsed(line)) is not None:
                    yield found
        finally:
            with self._guard:
                self._log = None
            log.release()

    def _pause(self) -> None:
        self._woken.wait(LOOK)
        self._woken.clear()

    def _finished(self, ending: Ending | None, pod: Pod) -> Ending:
        """Ending as it was told, or why none was; the Job is not needed any more."""
        seen_gone = ending is not None or not pod.gone
        try:
            if ending is None and not self._why:
                job = self._live()
                if job is not None and condition(job, "Failed").get("reason") == "DeadlineExceeded":
                    ending = Ending(Outcome.TIMED_OUT, "it took longer than its limit, the start of its pod included")
            self._executor.remove(self._job)
        except ApiError as error:
            _LOG.warning("Job %s stays: %s", self._job["metadata"]["name"], error)
        if ending is None:
            lost = Ending(Outcome.LOST, told(f"the run ended without a result: {pod.ended}"))
            ending = Ending(Outcome.CANCELLED, told(self._why)) if self._why else lost
        return replace(ending, seen_gone=seen_gone)


def _belongs(pod: Object, uid: str) -> bool:
    return any(each.get("uid") == uid for each in pod["metadata"].get("ownerReferences") or ())
