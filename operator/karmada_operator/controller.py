# SPDX-License-Identifier: Apache-2.0
"""Controller, which ties the parts: keys that changed are queued, decided upon, and worked on.

One thread hands out keys, a pool of threads works on them, each with one key at a time. A run takes the thread that
started it until it has ended (``runs``). No lock is held for a request.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason

from . import inputs, reconcile, telling, wishes
from .actions import Action, Cancel, Claim, Forget, Refuse, Release, Start, Wait
from .deciding import Decider
from .events import EventSender
from .executor import Executor, RunSpec
from .health import Health, Instance
from .kinds import Key, Kind, Lane
from .memory import Memories
from .metrics import Metrics
from .orders import Around, Operation, Order, Seen
from .probes import Finding, Probes
from .recorder import Recorder
from .runs import Runs
from .status import Told
from .status_writer import StatusWriter
from .watch import Watcher
from .work_queue import Turn, WorkQueue

#: Seconds of one look at the queue, and after which a loop that has not come round is stuck.
LOOK, STUCK = 1.0, 60.0
#: Seconds between two looks at an object that was refused.
REFUSED = 60.0
#: Seconds between two looks at an object that is held back.
HELD = 15.0
#: Seconds after which an object that waits for its turn is told to do so.
WAITS = 2.0
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
        self._cluster, self._kinds = cluster, kinds
        self._writer, self._events, self._metrics = writer, events, metrics
        self._decider = Decider(kinds, lambda: self._watchers)
        self._queue = WorkQueue(bounds, group_of=self._decider.instance)
        self._memories = Memories()
        self._recorder = Recorder(cluster, kinds, writer, events, metrics, seen=self._seen, owner=self._decider.owner)
        self._runs = Runs(
            kinds,
            executor,
            self._memories,
            self._recorder,
            health,
            probes,
            instance=self._decider.instance,
            owner=self._uid_of_owner,
            found=self._reconsider,
            ended=lambda key: self._queue.add(key, Lane.QUICK),
        )
        self._guard = threading.Lock()
        self._troubles: dict[Key, int] = {}
        self._around: dict[Key, Around] = {}
        #: When what an object names was looked at last, and what that was.
        self._looked: dict[Key, tuple[float, tuple[inputs.Reference, ...]]] = {}
        self._refused: dict[Key, str] = {}
        #: Objects that are told to wait for their turn, and those whose runs were left and that no watch has shown. Of
        #: the thread that hands out keys.
        self._waiting: set[Key] = set()
        self._unseen: set[Key] = set()
        self._watchers: Sequence[Watcher[Seen]] = ()
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
        """Work until ``may_go_on`` says no; then end all runs, or leave them behind. Raises ApiError."""
        self._may_go_on = may_go_on
        # Until then there was nothing to come round for.
        self._came_round = time.monotonic()
        self._runs.find_left()
        self._probes.start()
        for each in self._threads:
            each.start()
        try:
            while may_go_on():
                self._came_round = time.monotonic()
                self._see_to_what_is_left()
                turn = self._queue.take(LOOK)
                self._metrics.of_queue(self._queue.depth(), self._queue.active())
                self._tell_who_waits()
                if turn is not None:
                    self._metrics.waited.labels(turn.lane.value).observe(turn.waited)
                    self._pool.submit(self._take, turn)
        finally:
            self._queue.close()
            self._probes.stop()
            for each in self._threads:
                each.stop()
            self._runs.close()
            self._pool.shutdown(cancel_futures=True)
            self._health.stop()

    def trouble(self) -> str:
        """Trouble of this process, for ``/healthz``; empty if nothing is."""
        if time.monotonic() - self._came_round > STUCK:
            return f"the loop has not come round for {STUCK:.0f} s"
        threads = [*self._threads, *self._probes.threads, self._writer, self._events]
        if self._may_go_on() and (gone := [each.name for each in threads if each.ident and not each.is_alive()]):
            return f"threads have ended: {', '.join(gone)}"
        return ""

    def not_synced(self) -> str:
        """Kinds that have not been listed yet, for ``/readyz``."""
        return ", ".join(each.name for each in self._threads if not each.synced.is_set())

    # -- from watches ----------------------------------------------------------------------------------------------

    def changed(self, key: Key) -> None:
        """Have a key looked at; a run that is under way and shall not be is ended at once."""
        self._notice(key)
        for each in (key, *self._decider.belongings(key)):
            self._reconsider(each)
            self._queue.add(each, self._lane(self._decide(each)))

    def _notice(self, key: Key) -> None:
        """Note what only this version of an object tells: the next turn may find a later one."""
        seen = self._seen(key)
        if seen is None:
            return
        self._memories.change(key, lambda memory: reconcile.noticed(memory, seen, time.monotonic()))
        if telling.noticed(Told(), seen) != Told():
            self._writer.tell(key, seen.uid, lambda told: telling.noticed(told, seen))

    def health_changed(self, instance: Instance) -> None:
        """Have the objects of an instance looked at of which something has changed."""
        for name, kind in self._kinds.items():
            key = Key(name, *instance)
            if not kind.belongs and self._seen(key) is not None:
                self._queue.add(key, Lane.QUICK)

    def _doubt(self, key: Key) -> None:
        """Compare an instance with what its last run has left, unless a run is changing it."""
        if self._kinds[key.kind].belongs:
            return
        instance = Instance(key.namespace, key.name)
        verdict, found = self._health.verdict(instance), self._probes.finding(instance)
        seen = self._seen(key)
        if verdict is None or seen is None or seen.deleting:
            return
        doubt = "; ".join(verdict.drifted)[:1024]
        if doubt or not seen.on_hosts:
            # There nobody watches more than what is beside the object, and what a look has found is remembered until a
            # run has mended it.
            self._memories.change(key, lambda memory: reconcile.doubted(memory, doubt))
        if not seen.on_hosts and self._kinds[key.kind].report_playbook:
            now, unready = time.monotonic(), "; ".join(verdict.unready)[:1024]
            self._memories.change(key, lambda memory: reconcile.found_unready(memory, unready, now))
        self._writer.tell(
            key,
            seen.uid,
            lambda told: replace(
                told,
                unready=verdict.unready,
                parts=verdict.parts,
                drifted=verdict.drifted,
                unanswered=found.trouble,
                members=found.members,
                listed=seen.members,
            ),
        )

    def _look_around(self, key: Key) -> None:
        seen, before = self._seen(key), self._around.get(key, Around())
        if seen is None:
            return
        if seen.deleting:
            found = self._around_one_that_goes(key, seen)
        else:
            digest = self._digest(key, seen, before.inputs)
            looks = bool(self._kinds[key.kind].report_playbook)
            probed = self._probes.finding(Instance(key.namespace, key.name)) if looks else Finding()
            found = Around(digest, trouble=probed.trouble, suspicion=probed.suspicion)
        with self._guard:
            self._around[key] = found

    def _digest(self, key: Key, seen: Seen, before: str) -> str:
        """Digest of what a document names, of a moment ago if it was looked at then."""
        now = time.monotonic()
        at, named = self._looked.get(key, (0.0, ()))
        if before and named == seen.references and now - at < inputs.pause(named) * inputs.HOLDS:
            return before
        found = inputs.digest(self._cluster, key.namespace, seen.references, before)
        # As of its begin: what has changed since may not be in it.
        self._looked[key] = now, seen.references
        return found

    def _around_one_that_goes(self, key: Key, seen: Seen) -> Around:
        going = inputs.is_going(self._cluster, key.namespace)
        named = {*seen.needs, *(secret for _, secret in seen.access)}
        found = Around(lost=inputs.lost(self._cluster, key.namespace, named, going=going), going=going)
        if not seen.elsewhere:
            return found
        try:
            other = self._cluster.metadata("v1", "Namespace", seen.elsewhere)
        except Forbidden:
            # Whether it is there, and what it allows, cannot be known: nothing is given up.
            return found
        if other is None:
            return replace(found, gone=True)
        going = going or "deletionTimestamp" in other
        return replace(found, going=going, closed=not wishes.allows(other, key.namespace))

    def _reconsider(self, key: Key) -> None:
        if isinstance(action := self._decide(key), Cancel):
            self._runs.cancel(key, action.why)

    def _seen(self, key: Key) -> Seen | None:
        return self._decider.seen(key)

    def _uid_of_owner(self, key: Key) -> str:
        owner = self._decider.owner(key)
        seen = self._seen(owner) if owner is not None else None
        return seen.uid if seen is not None else ""

    def _decide(self, key: Key) -> Action:
        with self._guard:
            around = self._around.get(key, Around())
        return self._decider.decide(key, self._memories.of(key), around)

    @staticmethod
    def _lane(action: Action) -> Lane:
        # What waits for its turn among many is seen before that.
        return action.lane if isinstance(action, Start) and action.lane is not Lane.ROUTINE else Lane.QUICK

    def _tell_who_waits(self) -> None:
        """Have the status of objects that wait behind the runs of others say so."""
        waiting = self._queue.waiting(WAITS)
        found, self._waiting, clock = waiting - self._waiting, waiting, datetime.now(UTC)
        wait = Wait("its run begins when one of those that are under way has ended", reason="Waiting")

        def waits(key: Key, seen: Seen, told: Told) -> Told:
            # What a run tells that has begun meanwhile comes after this, since it was handed out before.
            tells = telling.of(self._kinds[key.kind])
            return tells.at_rest(told, seen, wait, clock) if self._queue.waits(key) else told

        for key in found:
            if (seen := self._seen(key)) is not None:
                self._writer.tell(key, seen.uid, partial(waits, key, seen))

    def _see_to_what_is_left(self) -> None:
        """Queue each object with a run that was left and that was not listed: no watch tells it."""
        left = self._runs.all_left() - self._unseen
        if not left or not all(each.synced.is_set() for each in self._watchers):
            return
        for key in left:
            if self._seen(key) is None:
                self._unseen.add(key)
                self._queue.add(key, Lane.QUICK)

    # -- a turn ----------------------------------------------------------------------------------------------------

    def _take(self, turn: Turn) -> None:
        key = turn.key
        try:
            # Whoever leads next may have told newer things by now, as of a run that was left behind.
            if self._may_go_on():
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
        if (left := self._runs.left(key)) is not None:
            self._see_to_run(key, lane, *left)
            return
        self._watch_from_now(key)
        self._doubt(key)
        self._look_around(key)
        seen, action = self._seen(key), self._decide(key)
        if isinstance(action, Claim | Start) and seen and (problem := self._not_allowed(key, seen)):
            action = Refuse((problem,))
        if isinstance(action, Start) and action.lane is not lane:
            self._queue.add(key, action.lane)
            return
        if isinstance(action, Start) and seen and (why := self._held_back(key, action)):
            self._wait(key, seen, Wait(why, time.monotonic() + HELD, "HeldBack"))
            return
        match action, seen:
            case Forget(), _:
                self._forget(key)
            case Claim(), Seen():
                self._set_finalizer(key, seen, there=True)
            case Start(), Seen():
                if self._may_go_on():
                    self._refused.pop(key, None)
                    self._runs.start(key, seen, action)
            case Release(), Seen():
                self._release(key, seen, action)
            case Refuse(problems), Seen():
                self._refuse(key, seen, problems)
            case Wait(), Seen():
                self._wait(key, seen, action)

    def _held_back(self, key: Key, action: Start) -> str:
        """Reason why a run is put off; empty if it is not.

        The first look at one that works waits while this operator has broken another one, so that an upgrade of the
        operator that goes wrong goes wrong once. What somebody has deleted or changed since is a reason of its own, and
        so is a word of its user. What an earlier leader has started in the same control plane is followed first.
        """
        if self._runs.left_beside(key):
            return "a run that an earlier operator has started is followed first"
        new = not self._memories.of(key).uid
        if action.lane is Lane.ROUTINE and new and self._runs.waits_for_suspects(key, action.order, self._seen):
            # Whose it is, is not for everybody to know.
            why = "the run of another control plane failed since this operator has started"
            return f"{why}; it is looked at after that, or when run-now asks for it"
        return ""

    def _watch_from_now(self, key: Key) -> None:
        """Have an instance that was installed watched and probed from the first time on that it is seen.

        Its first run may have to wait for those of many others, or for one that fails.
        """
        seen, instance = self._seen(key), Instance(key.namespace, key.name)
        if self._kinds[key.kind].belongs or seen is None or seen.deleting or self._memories.of(key).uid:
            return
        if not (seen.installed or seen.settled):
            return
        self._health.begin(instance, seen.host)
        if seen.kubeconfig:
            self._probes.begin(instance, seen.kubeconfig, seen.several)

    def _see_to_run(self, key: Key, lane: Lane, spec: RunSpec, order: Order) -> None:
        """Follow a run that an earlier leader started, also of an object that is gone; the rules say how it ends.

        One that is there and that no watch has shown is not for this operator: it may serve fewer than an earlier one.
        """
        seen, kind = self._seen(key), self._kinds[key.kind]
        if seen is None:
            if self._cluster.get(kind.api_version, kind.kind, key.name, key.namespace) is not None:
                self._queue.postpone(key, Lane.QUICK, REFUSED)
                return
            seen = Seen(order.uid, order.document or order.generation, deployment=spec.deployment)
            self._decider.adopt(key, spec.deployment)
        # The one that it would have been started in.
        of_others = {Operation.REMOVE: Lane.DELETIONS, Operation.LOOK: Lane.ROUTINE}
        wanted = of_others.get(order.operation, kind.lane)
        if lane is not wanted:
            self._queue.add(key, wanted)
            return
        self._refused.pop(key, None)
        self._runs.go_on(key, seen, wanted)

    def _not_allowed(self, key: Key, seen: Seen) -> Problem | None:
        """Problem of an object that asks for a namespace whose owner has not agreed.

        The operator has rights there that the object's author may not have.
        """
        owner = self._decider.owner(key)
        seen = (self._seen(owner) if owner is not None else None) or seen
        if not seen.elsewhere:
            return None
        try:
            namespace = self._cluster.metadata("v1", "Namespace", seen.elsewhere)
        except Forbidden:
            # One that this operator does not serve.
            namespace = None
        if namespace is not None and wishes.allows(namespace, key.namespace):
            return None
        return Problem(
            f"asks for the namespace {seen.elsewhere}, which does not allow that",
            "spec.hostCluster.namespace",
            f"Leave it out, or have namespace {seen.elsewhere} annotated: {wishes.ALLOWED_FROM}={key.namespace}",
            reason=Reason.MISSING_PERMISSION,
        )

    def _refuse(self, key: Key, seen: Seen, problems: tuple[Problem, ...]) -> None:
        tells = telling.of(self._kinds[key.kind])
        self._writer.tell(key, seen.uid, lambda told: tells.refused(told, seen, problems))
        if (text := "; ".join(map(str, problems))) != self._refused.get(key):
            self._refused[key] = text
            self._events.send(key, seen.uid, "Refused", text, warning=True)
        # What was refused because of another object may be allowed by now.
        self._queue.postpone(key, Lane.QUICK, REFUSED)

    def _wait(self, key: Key, seen: Seen, wait: Wait) -> None:
        if not seen.deleting or seen.wishes.paused:
            tells, clock = telling.of(self._kinds[key.kind]), datetime.now(UTC)
            self._writer.tell(key, seen.uid, lambda told: tells.at_rest(told, seen, wait, clock))
        due = [] if wait.until is None else [wait.until - time.monotonic()]
        if seen.references and not seen.deleting:
            due.append(inputs.pause(seen.references) * random.uniform(0.8, 1))  # noqa: S311 - spreads load
        if due:
            self._queue.postpone(key, Lane.QUICK, max(0.0, min(due)))

    def _forget(self, key: Key) -> None:
        if (owner := self._decider.forget(key)) is not None:
            self._recorder.left_held(key, owner)
        with self._guard:
            self._around.pop(key, None)
            self._looked.pop(key, None)
            self._refused.pop(key, None)
        self._runs.forget(key)
        self._memories.forget(key)
        if not self._kinds[key.kind].belongs:
            self._health.forget(Instance(key.namespace, key.name))
            self._probes.forget(Instance(key.namespace, key.name))
        self._writer.forget(key)
        self._metrics.forget(key)

    def _release(self, key: Key, seen: Seen, action: Release) -> None:
        self._set_finalizer(key, seen, there=False)
        note = "the object goes, and the control plane stays" if action.kept else "the control plane is removed"
        self._events.send(key, seen.uid, "Kept" if action.kept else "Removed", note)
        if action.left:
            self._recorder.stays(key, seen, action.left)

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
