# SPDX-License-Identifier: Apache-2.0
"""Telling of a run, from its start to its end: the object's status, Events, metrics and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError

from . import parts, status, telling
from .actions import Start
from .events import EventSender
from .executor import Ending, Outcome, RunSpec, Task
from .kinds import Key, Kind, Lane
from .metrics import Metrics
from .orders import OF_A_RESTORE, Operation, Order, Seen
from .schedules import text_of
from .status import Told
from .status_writer import StatusWriter

_LOG = logging.getLogger(__name__)


class Recorder:
    """Tells of runs. ``seen`` gives an object as it is now, ``owner`` the control plane that it belongs to."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: Mapping[str, Kind],
        writer: StatusWriter,
        events: EventSender,
        metrics: Metrics,
        *,
        seen: Callable[[Key], Seen | None],
        owner: Callable[[Key], Key | None],
    ) -> None:
        self._cluster, self._kinds = cluster, kinds
        self._writer, self._events, self._metrics = writer, events, metrics
        self._seen, self._owner = seen, owner

    def begun(self, key: Key, seen: Seen, action: Start, spec: RunSpec) -> None:
        """A run is about to start."""
        tells = telling.of(self._kinds[key.kind])
        self._writer.tell(key, seen.uid, lambda told: tells.begun(told, seen, action))
        _LOG.info("starts %s: %s", spec.playbook, action.why, extra={"object": str(key), "run": spec.run_id})
        # A look each six hours is no news.
        if action.lane is not Lane.ROUTINE:
            reason = "DryRun" if spec.check else "Removing" if action.order.operation is Operation.REMOVE else "Running"
            self._events.send(key, seen.uid, reason, f"{spec.playbook}: {action.why}")
        if action.order.missed:
            self._events.send(key, seen.uid, "BackupMissed", telling.missed(action.order), warning=True)
        if action.order.given_up:
            names = parts.names_in_words(action.order.given_up)
            what = f"what joining put on {names}, because the Secrets with their kubeconfigs are gone"
            self.stays(key, seen, what)

    def phase(self, key: Key) -> str:
        """Phase that an object's status has now. Raises ApiError."""
        kind = self._kinds[key.kind]
        live = self._cluster.get(kind.api_version, kind.kind, key.name, key.namespace) or {}
        return str((live.get("status") or {}).get("phase") or "")

    def gone_on(self, key: Key, seen: Seen, action: Start, spec: RunSpec, phase: str) -> None:
        """A run is followed that an earlier leader started; ``phase`` is what its object has reached."""
        _LOG.info("follows a run of an earlier leader", extra={"object": str(key), "run": spec.run_id})
        tells = telling.of(self._kinds[key.kind])
        self._writer.tell(key, seen.uid, lambda told: tells.gone_on(told, seen, action, phase))

    def retried(self, key: Key) -> None:
        """A run starts for the order that failed last."""
        self._metrics.retries.labels(key.kind).inc()

    def task(self, key: Key, seen: Seen, task: Task, *, new: bool) -> None:
        """A task has begun, or waits; ``new``: with a phase that is worth an Event."""
        kind = self._kinds[key.kind]
        # Phases are those of control planes.
        if new and not kind.belongs:
            self._events.send(key, seen.uid, task.phase, task.task or task.play)
        self._writer.tell(key, seen.uid, lambda told: telling.of(kind).at_task(told, task), passing=True)
        if kind.lane is Lane.RESTORES and telling.begins(task):
            self._tell_owner(key, lambda told: status.held(told, key.name))

    def ended(
        self, key: Key, seen: Seen, order: Order, ending: Ending, spec: RunSpec, began: datetime, seconds: float
    ) -> None:
        """A run has ended. It ``began`` when its first leader started it; this one followed it for ``seconds``."""
        log = {"object": str(key), "run": spec.run_id}
        _LOG.info("run ended: %s, %d changed, %.1f s", ending.outcome.value, ending.changed, seconds, extra=log)
        run = {
            "id": spec.run_id,
            "playbook": spec.playbook,
            "startTime": text_of(began),
            "completionTime": text_of(datetime.now(UTC)),
        }
        tells, now = telling.of(self._kinds[key.kind]), self._now(key, seen, order)
        self._writer.tell(key, seen.uid, lambda told: tells.after(told, now, order, ending, run), awaited=True)
        if order.operation in OF_A_RESTORE and ending.report is not None:
            report = ending.report
            self._tell_owner(key, lambda told: status.restored(told, report))
        self._send_end(key, seen, order, ending, spec)
        self._metrics.runs.labels(key.kind, order.operation.value, ending.outcome.name.lower()).inc()
        self._metrics.run_seconds.labels(key.kind, order.operation.value).observe(seconds)
        self._metrics.run_memory.labels(key.kind).set(ending.peak_mib)
        if ending.outcome is Outcome.SUCCEEDED:
            self._metrics.last_success.labels(*key).set_to_current_time()

    def stays(self, key: Key, seen: Seen, what: str) -> None:
        """Something stays that was to go. Nobody can write Events in a namespace that is going, so the log has it."""
        _LOG.warning("this stays: %s", what, extra={"object": str(key)})
        self._events.send(key, seen.uid, "Left", f"this stays: {what}", warning=True)

    def left_held(self, key: Key, owner: Key) -> None:
        """An EtcdRestore is gone while its control plane is in quarantine, or on the way there or back."""
        seen = self._seen(owner)
        if seen is not None:
            what = f"{key} is gone, and takes nothing back: the control plane stays as it is. Write one of that name, "
            what += "or run karmada.installer.release or restore_undo"
            self._events.send(owner, seen.uid, "LeftInQuarantine", what, warning=True)

    def _now(self, key: Key, seen: Seen, order: Order) -> Seen:
        """Object as it is now. Of a restore its generation says what its user cannot have read, so nobody may be late.

        A watch may not have told yet of what was written a moment ago.
        """
        found = self._seen(key) or seen
        if order.operation is not Operation.RESTORE:
            return found
        kind = self._kinds[key.kind]
        try:
            live = self._cluster.get(kind.api_version, kind.kind, key.name, key.namespace)
        except ApiError as error:
            _LOG.warning("cannot see what was decided meanwhile: %s", error, extra={"object": str(key)})
            return found
        if live is None or live["metadata"]["uid"] != found.uid:
            return found
        return replace(found, generation=int(live["metadata"].get("generation") or found.generation))

    def _tell_owner(self, key: Key, change: Callable[[Told], Told]) -> None:
        """Change what is told of the control plane that an object belongs to."""
        owner = self._owner(key)
        seen = self._seen(owner) if owner is not None else None
        if owner is not None and seen is not None:
            self._writer.tell(owner, seen.uid, change)

    def _send_end(self, key: Key, seen: Seen, order: Order, ending: Ending, spec: RunSpec) -> None:
        if order.operation is Operation.LOOK and ending.outcome is Outcome.SUCCEEDED:
            return
        if ending.outcome is not Outcome.CANCELLED:
            news = telling.of(self._kinds[key.kind]).news_of(order, ending)
            if news is not None:
                self._events.send(key, seen.uid, news.reason, news.note, warning=news.warning)
                return
        if ending.outcome is Outcome.SUCCEEDED and (ending.changed or order.dry_run):
            verb = "would change" if order.dry_run else "changed"
            reason = "DryRunSucceeded" if order.dry_run else "RunSucceeded"
            self._events.send(key, seen.uid, reason, f"{spec.playbook}: {ending.changed} tasks {verb} something")
        elif ending.outcome is Outcome.CANCELLED:
            self._events.send(key, seen.uid, "RunCancelled", ending.message)
        elif ending.outcome is not Outcome.SUCCEEDED:
            task = f"{ending.failed_task}: " if ending.failed_task else ""
            self._events.send(key, seen.uid, "RunFailed", f"{task}{ending.message}", warning=True)
