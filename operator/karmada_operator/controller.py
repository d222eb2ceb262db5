# SPDX-License-Identifier: Apache-2.0
"""What ties the parts: keys that changed are queued, decided upon, and worked on.

One thread hands out keys, a pool of threads works on them, each with one key at a time. A run takes the thread that
started it until it has ended. Everything that is remembered is guarded by one lock, which is held for no request.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason

from . import inputs, reconcile, status, wishes
from .events import EventSender
from .executor import Ending, Executor, Run, RunSpec
from .health import Health, Instance
from .kinds import Key, Kind, Lane
from .metrics import Metrics
from .probes import Probes
from .reconcile import Cancel, Claim, Forget, Memory, Operation, Outcome, Refuse, Release, Seen, Start, Wait
from .status import StatusWriter
from .watch import Watcher
from .work_queue import Turn, WorkQueue

#: Seconds of one look at the queue, and after which a loop that has not come round is stuck.
LOOK, STUCK = 1.0, 60.0
#: Seconds between two looks at an object that was refused.
REFUSED = 60.0
#: Seconds between two looks at an object that is held back.
HELD = 15.0
_LOG = logging.getLogger(__name__)


class Controller:
    """One operator that leads. ``may_go_on`` is asked before each run."""

    def __init__(  # noqa: PLR0913 - it ties all parts
        self,
        cluster: Cluster,
        kinds: Mapping[str, Kind],
        watchers: Callable[[Callable[[Key], None]], Sequence[Watcher[Seen]]],
        executor: Executor,
        writer: StatusWriter,
        events: EventSender,
        metrics: Metrics,
        health: Health,
        *,
        probes: Probes,
        bounds: Mapping[Lane, int],
    ) -> None:
        self._cluster, self._kinds, self._executor = cluster, kinds, executor
        self._writer, self._events, self._metrics = writer, events, metrics
        self._queue = WorkQueue(bounds)
        self._guard = threading.Lock()
        self._memory: dict[Key, Memory] = {}
        self._runs: dict[Key, Run] = {}
        self._troubles: dict[Key, int] = {}
        self._inputs: dict[Key, str] = {}
        self._refused: dict[Key, str] = {}
        #: Id of the last run of an object whose processes were seen gone, unless it came to its end.
        self._dead: dict[Key, str] = {}
        #: Control planes that worked until a run of this process failed.
        self._suspects: set[Key] = set()
        self._watchers = watchers(self.changed)
        self._health, self._probes = health, probes
        self._threads: list[Watcher[Any]] = [*self._watchers, *health.watchers]
        health.listen(self.health_changed)
        probes.listen(self.health_changed)
        self._pool = ThreadPoolExecutor(sum(bounds.values()), "worker")
        self._came_round = time.monotonic()
        self._may_go_on: Callable[[], bool] = lambda: True

    # -- life ------------------------------------------------------------------------------------------------------

    def work(self, may_go_on: Callable[[], bool]) -> None:
        """Work until ``may_go_on`` says no; then end all runs and see them gone."""
        self._may_go_on = may_go_on
        self._probes.start()
        for each in self._threads:
            each.start()
        try:
            while may_go_on():
                self._came_round = time.monotonic()
                turn = self._queue.take(LOOK)
                self._metrics.of_queue(self._queue.depth(), self._queue.active())
                if turn is not None:
                    self._metrics.waited.labels(turn.lane.value).observe(turn.waited)
                    self._pool.submit(self._take, turn)
        finally:
            self._queue.close()
            self._probes.stop()
            for each in self._threads:
                each.stop()
            self._executor.close()
            self._pool.shutdown(cancel_futures=True)

    def trouble(self) -> str:
        """What is wrong with this process, for ``/healthz``; empty if nothing is."""
        if time.monotonic() - self._came_round > STUCK:
            return f"the loop has not come round for {STUCK:.0f} s"
        if self._may_go_on() and (gone := [each.name for each in self._threads if each.ident and not each.is_alive()]):
            return f"threads have ended: {', '.join(gone)}"
        return ""

    def not_synced(self) -> str:
        """What has not been listed yet, for ``/readyz``."""
        return ", ".join(each.name for each in self._threads if not each.synced.is_set())

    # -- from watches ----------------------------------------------------------------------------------------------

    def changed(self, key: Key) -> None:
        """Have a key looked at; a run that is under way and shall not be is ended at once."""
        self._reconsider(key)
        self._queue.add(key, self._lane(self._decide(key)))

    def health_changed(self, instance: Instance) -> None:
        """Have the objects of an instance looked at whose workloads have changed."""
        for kind in self._kinds:
            key = Key(kind, *instance)
            if self._seen(key) is not None:
                self._queue.add(key, Lane.QUICK)

    def _doubt(self, key: Key) -> None:
        """Compare an instance with what its last run has left, unless a run is changing it."""
        instance = Instance(key.namespace, key.name)
        verdict, found = self._health.verdict(instance), self._probes.finding(instance)
        seen = self._seen(key)
        if verdict is None or seen is None or seen.deleting:
            return
        with self._guard:
            memory = self._memory.get(key, Memory())
            if memory.running is None and memory.done is not None:
                self._memory[key] = replace(memory, doubt="; ".join(verdict.drifted)[:1024])
        self._writer.tell(
            key,
            seen.uid,
            lambda told: replace(
                told, unready=verdict.unready, unanswered=found.trouble, members=found.members, listed=seen.members
            ),
        )

    def _look_at_inputs(self, key: Key) -> None:
        seen = self._seen(key)
        if seen is not None and not seen.deleting:
            found = inputs.digest(self._cluster, key.namespace, seen.references, self._inputs.get(key, ""))
            with self._guard:
                self._inputs[key] = found

    def _reconsider(self, key: Key) -> None:
        action = self._decide(key)
        if not isinstance(action, Cancel):
            return
        with self._guard:
            run, memory = self._runs.get(key), self._memory[key]
            if run is None or memory.cancelled:
                return
            self._memory[key] = replace(memory, cancelled=action.why)
        _LOG.info("cancels the run: %s", action.why, extra={"object": str(key)})
        run.cancel(action.why)

    def _seen(self, key: Key) -> Seen | None:
        return next((found for each in self._watchers if (found := each.get(key)) is not None), None)

    def _decide(self, key: Key) -> reconcile.Action:
        seen = self._seen(key)
        with self._guard:
            memory, known = self._memory.get(key, Memory()), self._inputs.get(key, "")
            return reconcile.decide(seen, memory, time.monotonic(), known)

    @staticmethod
    def _lane(action: reconcile.Action) -> Lane:
        return action.lane if isinstance(action, Start) else Lane.QUICK

    # -- a turn ----------------------------------------------------------------------------------------------------

    def _take(self, turn: Turn) -> None:
        key = turn.key
        try:
            self._act(key, turn.lane)
        except ApiError as error:
            self._again(key, turn.lane, str(error))
            self._metrics.errors.labels(key.kind).inc()
        except Exception as error:  # noqa: BLE001 - see below
            # One object whose turn ends in a defect must not keep the others from theirs.
            _LOG.exception("a turn failed", extra={"object": str(key)})
            self._again(key, turn.lane, f"{type(error).__name__}")
        else:
            self._troubles.pop(key, None)
        finally:
            self._queue.done(key)

    def _again(self, key: Key, lane: Lane, why: str) -> None:
        times = self._troubles[key] = self._troubles.get(key, 0) + 1
        _LOG.warning("tries again: %s", why, extra={"object": str(key)})
        self._queue.postpone(key, lane, reconcile.back_off(times) * random.uniform(0.5, 1))  # noqa: S311

    def _act(self, key: Key, lane: Lane) -> None:
        self._doubt(key)
        self._look_at_inputs(key)
        seen, action = self._seen(key), self._decide(key)
        if isinstance(action, Claim | Start) and seen and (problem := self._not_allowed(key, seen)):
            action = Refuse((problem,))
        if isinstance(action, Start) and action.lane is not lane:
            self._queue.add(key, action.lane)
            return
        if isinstance(action, Start) and action.lane is Lane.ROUTINE and self._held_back(key):
            self._queue.postpone(key, Lane.QUICK, HELD)
            return
        match action, seen:
            case Forget(), _:
                self._forget(key)
            case Claim(), Seen():
                self._set_finalizer(key, seen, there=True)
            case Start(), Seen():
                self._run(key, seen, action)
            case Release(kept), Seen():
                self._release(key, seen, kept=kept)
            case Refuse(problems), Seen():
                self._writer.tell(key, seen.uid, lambda told: status.refused(told, seen.generation, problems))
                if (text := "; ".join(map(str, problems))) != self._refused.get(key):
                    self._refused[key] = text
                    self._events.send(key, seen.uid, "Refused", text, warning=True)
                # What was refused because of another object may be allowed by now.
                self._queue.postpone(key, Lane.QUICK, REFUSED)
            case Wait(_, until), Seen():
                self._wait(key, seen, until)

    def _held_back(self, key: Key) -> bool:
        """Whether the first look at what works is put off, because this operator has broken another one that worked.

        So an upgrade of the operator that goes wrong goes wrong once.
        """
        with self._guard:
            return key not in self._memory and bool(self._suspects - {key})

    def _not_allowed(self, key: Key, seen: Seen) -> Problem | None:
        """Problem of an object that asks for a namespace whose owner has not agreed.

        The operator has rights there that the object's author may not have.
        """
        if not seen.elsewhere:
            return None
        try:
            namespace = self._cluster.get("v1", "Namespace", seen.elsewhere) or {"metadata": {}}
        except Forbidden:
            # One that this operator does not serve.
            namespace = {"metadata": {}}
        agreed = (namespace["metadata"].get("annotations") or {}).get(wishes.ALLOWED_FROM, "")
        if key.namespace in [each.strip() for each in agreed.split(",")]:
            return None
        return Problem(
            f"asks for the namespace {seen.elsewhere}, which does not allow that",
            "spec.hostCluster.namespace",
            f"Leave it out, or have namespace {seen.elsewhere} annotated: {wishes.ALLOWED_FROM}={key.namespace}",
            reason=Reason.MISSING_PERMISSION,
        )

    def _wait(self, key: Key, seen: Seen, until: float | None) -> None:
        if not seen.deleting or seen.wishes.paused:
            paused = seen.wishes.paused
            self._writer.tell(key, seen.uid, lambda told: status.at_rest(told, seen.generation, paused=paused))
        due = [] if until is None else [until - time.monotonic()]
        if seen.references and not seen.deleting:
            due.append(inputs.EVERY * random.uniform(0.8, 1))  # noqa: S311 - spreads load
        if due:
            self._queue.postpone(key, Lane.QUICK, max(0.0, min(due)))

    def _forget(self, key: Key) -> None:
        with self._guard:
            self._memory.pop(key, None)
            self._inputs.pop(key, None)
            self._refused.pop(key, None)
            self._dead.pop(key, None)
            self._suspects.discard(key)
        self._trust(Instance(key.namespace, key.name))
        self._writer.forget(key)
        self._metrics.forget(key)

    def _release(self, key: Key, seen: Seen, *, kept: bool) -> None:
        self._set_finalizer(key, seen, there=False)
        note = "the object goes, and the control plane stays" if kept else "the control plane is removed"
        self._events.send(key, seen.uid, "Kept" if kept else "Removed", note)

    def _set_finalizer(self, key: Key, seen: Seen, *, there: bool) -> None:
        kind = self._kinds[key.kind]
        live = self._cluster.get(kind.api_version, kind.kind, key.name, key.namespace)
        if live is None or live["metadata"]["uid"] != seen.uid:
            return
        finalizers = [each for each in live["metadata"].get("finalizers") or () if each != kind.finalizer]
        if there:
            finalizers.append(kind.finalizer)
        # Fails if anybody has written it meanwhile, so that no finalizer of others is lost.
        meta = {"resourceVersion": live["metadata"]["resourceVersion"], "finalizers": finalizers}
        patch = {"metadata": meta}
        self._cluster.patch_merge(kind.api_version, kind.kind, key.name, key.namespace, patch)

    # -- a run -----------------------------------------------------------------------------------------------------

    def _run(self, key: Key, seen: Seen, action: Start) -> None:
        if not self._may_go_on():
            return
        kind, order = self._kinds[key.kind], action.order
        spec = self._spec(key, kind, seen, order, dead=self._dead.get(key, ""))
        log = {"object": str(key), "run": spec.run_id}
        with self._guard:
            before = self._memory.get(key, Memory())
            self._memory[key] = reconcile.started(before, order)
        self._refused.pop(key, None)
        if before.failed == order:
            self._metrics.retries.labels(key.kind).inc()
        if not order.dry_run:
            self._trust(Instance(key.namespace, key.name))
        began, clock = datetime.now(UTC), time.monotonic()
        ending = Ending(Outcome.LOST, "it could not be started")
        try:
            self._writer.tell(key, seen.uid, lambda told: status.begun(told, order, action.lane, action.why))
            self._say_begun(key, seen, action, spec)
            run = self._executor.start(spec)
            with self._guard:
                self._runs[key] = run
            # What has changed before the run could be found.
            self._reconsider(key)
            ending = self._followed(key, seen, run, silent=action.lane is Lane.ROUTINE)
            with self._guard:
                # Its processes are gone; one that came to its end has given its lock back.
                if ending.outcome is Outcome.SUCCEEDED:
                    self._dead.pop(key, None)
                else:
                    self._dead[key] = spec.run_id
        except OSError as error:
            ending = Ending(Outcome.LOST, f"it could not be started: {error}")
        finally:
            with self._guard:
                self._runs.pop(key, None)
                self._memory[key] = reconcile.ended(
                    self._memory[key],
                    ending.outcome,
                    time.monotonic(),
                    period=kind.period,
                    chance=random.random(),  # noqa: S311 - spreads load, guards nothing
                    reasons=ending.reasons,
                )
            if ending.outcome is Outcome.SUCCEEDED and order.operation is Operation.INSTALL and not order.dry_run:
                self._watch_over(Instance(key.namespace, key.name), ending)
            self._suspect(key, action.lane, ending)
            # Whatever comes next of it is for another turn.
            self._queue.add(key, Lane.QUICK)
        seconds = time.monotonic() - clock
        _LOG.info("run ended: %s, %d changed, %.1f s", ending.outcome.value, ending.changed, seconds, extra=log)
        self._tell_end(key, seen, order, ending, spec, began)
        self._metrics.runs.labels(key.kind, order.operation.value, ending.outcome.name.lower()).inc()
        self._metrics.run_seconds.labels(key.kind, order.operation.value).observe(seconds)
        self._metrics.run_memory.labels(key.kind).set(ending.peak_mib)
        if ending.outcome is Outcome.SUCCEEDED:
            self._metrics.last_success.labels(*key).set_to_current_time()

    def _watch_over(self, instance: Instance, ending: Ending) -> None:
        """Have an instance looked at between runs; what this one has left is what should be there."""
        self._health.settle(instance)
        secret = ((ending.report or {}).get("secretRef") or {}).get("name")
        if secret:
            self._probes.follow(instance, str(secret))

    def _trust(self, instance: Instance) -> None:
        """Have an instance looked at no more: a run is changing it, or it is gone."""
        self._health.forget(instance)
        self._probes.forget(instance)

    def _suspect(self, key: Key, lane: Lane, ending: Ending) -> None:
        with self._guard:
            if ending.outcome is Outcome.SUCCEEDED:
                self._suspects.discard(key)
            elif lane is Lane.ROUTINE and ending.outcome is not Outcome.CANCELLED:
                self._suspects.add(key)

    @staticmethod
    def _spec(key: Key, kind: Kind, seen: Seen, order: reconcile.Order, *, dead: str) -> RunSpec:
        removing = order.operation is Operation.REMOVE
        variables: dict[str, Any] = dict(seen.wishes.variables)
        if removing:
            # Deleting the object is what removal asks to be confirmed by.
            variables["karmada_confirm"] = key.name
        if dead:
            variables["karmada_confirm_dead"] = dead
        return RunSpec(
            run_id=f"{key.name[:40].replace('.', '-')}-{uuid.uuid4().hex[:12]}",
            namespace=key.namespace,
            name=key.name,
            playbook=kind.finalizer_playbook if removing else kind.playbook,
            check=order.dry_run,
            variables=variables,
            time_limit=kind.time_limit,
            memory_limit=kind.memory_limit,
        )

    def _followed(self, key: Key, seen: Seen, run: Run, *, silent: bool) -> Ending:
        reached = ""
        for each in run.follow():
            if isinstance(each, Ending):
                return each
            phase = each.phase
            if phase and phase != reached and not silent:
                self._events.send(key, seen.uid, phase, each.task or each.play)
            reached = phase or reached
            self._writer.tell(key, seen.uid, lambda told, task=each: status.at_task(told, task))  # type: ignore[misc]
        return Ending(Outcome.LOST, "it ended without a word")

    def _say_begun(self, key: Key, seen: Seen, action: Start, spec: RunSpec) -> None:
        log = {"object": str(key), "run": spec.run_id}
        _LOG.info("starts %s: %s", spec.playbook, action.why, extra=log)
        # A look each six hours is no news.
        if action.lane is not Lane.ROUTINE:
            reason = "DryRun" if spec.check else "Removing" if action.order.operation is Operation.REMOVE else "Running"
            self._events.send(key, seen.uid, reason, f"{spec.playbook}: {action.why}")

    def _tell_end(
        self, key: Key, seen: Seen, order: reconcile.Order, ending: Ending, spec: RunSpec, began: datetime
    ) -> None:
        run = {
            "id": spec.run_id,
            "playbook": spec.playbook,
            "startTime": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "completionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self._writer.tell(key, seen.uid, lambda told: status.after(told, order, ending, run))
        if ending.outcome is Outcome.SUCCEEDED and (ending.changed or order.dry_run):
            verb = "would change" if order.dry_run else "changed"
            reason = "DryRunSucceeded" if order.dry_run else "RunSucceeded"
            self._events.send(key, seen.uid, reason, f"{spec.playbook}: {ending.changed} tasks {verb} something")
        elif ending.outcome is Outcome.CANCELLED:
            self._events.send(key, seen.uid, "RunCancelled", ending.message)
        elif ending.outcome is not Outcome.SUCCEEDED:
            task = f"{ending.failed_task}: " if ending.failed_task else ""
            self._events.send(key, seen.uid, "RunFailed", f"{task}{ending.message}", warning=True)
