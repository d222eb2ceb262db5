# SPDX-License-Identifier: Apache-2.0
"""Runs of objects: each is started or found, followed to its end, and cancelled on the way if that is asked for.

Runs that an earlier leader has started are found here, too. What is heard of a run goes to ``recorder``, and what it
leaves is remembered; whether there is to be one is decided elsewhere (``reconcile``, ``controller``).
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases

from . import parts, reconcile
from .actions import Start
from .course import deleted_by
from .executor import Ending, Executor, Left, LeftBehind, Outcome, Run, RunSpec, UnderWay
from .health import Health, Instance
from .kinds import Key, Kind, Lane
from .memory import Memories
from .orders import OF_A_RESTORE, HostCluster, Operation, Order, Seen, several_of
from .probes import Probes
from .recorder import Recorder
from .status import QUARANTINED

#: Ids of dead runs that are remembered of one control plane. Where that many fail in a row, the pauses between them are
#: longer than any lock is held for a run that is silent.
MOST_DEAD = 16
_LOG = logging.getLogger(__name__)


def unready_of(report: Mapping[str, Any] | None) -> str:
    """Components that a report has found not ready; empty if all are, or if a host does not answer.

    Nothing can be started on that one from here, and it starts its units when it boots.
    """
    if report is None or any(each.get("reason") == Reason.HOST_UNREACHABLE for each in report.get("problems") or ()):
        return ""
    found = [each for each in report.get("conditions") or () if each.get("type") == "ComponentsReady"]
    return next((str(each.get("message")) for each in found if each.get("status") == "False"), "")


def amiss_of(report: Mapping[str, Any] | None) -> str:
    """Message of a report on a control plane in pods that is not as it should be, members aside; empty if it is.

    Of a Service, a ConfigMap or a Secret the operator sees only that it was deleted; that it was edited shows by this.
    """
    found = [] if report is None else [each for each in report.get("conditions") or () if each.get("status") == "False"]
    kinds = ("ControlPlaneReady", "ComponentsReady")
    return "; ".join(str(each.get("message")) for each in found if each.get("type") in kinds)[:1024]


def is_later(phase: str, than: str) -> bool:
    """Return whether a run reaches a phase after another one; a log that is heard anew has earlier ones once more."""
    if phase not in phases.ORDER:
        return False
    return than not in phases.ORDER or phases.ORDER.index(phase) > phases.ORDER.index(than)


def spec_of(key: Key, kind: Kind, seen: Seen, order: Order, *, dead: Sequence[str] = (), owner: str = "") -> RunSpec:
    """Run of an order, with an id of its own. ``dead`` are the ids of earlier runs whose locks may be taken over.

    ``owner`` is the UID of the control plane that the object belongs to, if it is none.
    """
    variables: dict[str, Any] = dict(seen.wishes.variables)
    if order.operation is Operation.BACK_UP:
        # What is due is for the run to say, which sees what lies there; what is asked for is taken in any case.
        asked = bool(seen.backups and order.run_now not in ("", seen.backups.requested))
        variables["backup_now" if asked else "backup_only"] = key.name
    elif order.operation in OF_A_RESTORE:
        variables["restore_name"] = key.name
        named: dict[str, Any] = {
            "restore_release_parts": [parts.plain(each) for each in order.parts],
            "restore_keep": [*order.kept],
            "restore_let_go": [*order.let_go],
        }
        # Without parts a release is one of all that is left.
        variables |= {name: value for name, value in named.items() if value}
    if order.operation is Operation.REMOVE:
        # Deleting the object is what removal asks to be confirmed by.
        variables["karmada_confirm"] = key.name
        if order.given_up:
            given_up = {*variables.get("uninstall_abandon_members", ()), *order.given_up}
            variables["uninstall_abandon_members"] = sorted(given_up)
    if dead:
        variables["karmada_confirm_dead"] = ",".join(dead)
    return RunSpec(
        run_id=f"{key.name[:40].replace('.', '-')}-{uuid.uuid4().hex[:12]}",
        namespace=key.namespace,
        name=key.name,
        playbook={
            Operation.INSTALL: kind.playbook,
            Operation.REMOVE: kind.finalizer_playbook,
            Operation.LOOK: kind.report_playbook,
            Operation.BACK_UP: kind.playbook,
            Operation.RESTORE: kind.playbook,
            Operation.RELEASE: kind.release_playbook,
            Operation.UNDO: kind.undo_playbook,
        }[order.operation],
        uid=owner if kind.belongs else seen.uid,
        generation=0 if kind.belongs else seen.generation,
        deployment=seen.deployment,
        check=order.dry_run,
        variables=variables,
        time_limit=kind.time_limit,
        memory_limit=kind.memory_limit,
        kind=key.kind,
        order=order.plain(),
    )


def _is_suspect(seen: Seen | None, generation: int, until: float) -> bool:
    """Return whether an object is still as it was when its run failed, nobody has paused it, and its time is not up."""
    return seen is not None and seen.generation == generation and not seen.wishes.paused and time.monotonic() < until


class Runs:
    """All runs of one leader. ``found`` is called when a run can be cancelled, ``ended`` when the next may start.

    ``instance`` gives the control plane that an object is, or belongs to; ``owner`` the UID of that one's object.
    """

    def __init__(  # noqa: PLR0913 - what a run touches
        self,
        kinds: Mapping[str, Kind],
        executor: Executor,
        memories: Memories,
        recorder: Recorder,
        health: Health,
        probes: Probes,
        *,
        instance: Callable[[Key], Instance],
        owner: Callable[[Key], str],
        found: Callable[[Key], None],
        ended: Callable[[Key], None],
    ) -> None:
        self._instance, self._owner = instance, owner
        self._kinds, self._executor, self._memories, self._recorder = kinds, executor, memories, recorder
        self._health, self._probes = health, probes
        self._found, self._ended = found, ended
        self._guard = threading.Lock()
        self._under_way: dict[Key, Run] = {}
        #: Runs that an earlier leader has started and that nobody follows yet.
        self._left: dict[Key, tuple[Left, Order]] = {}
        #: Ids of the last runs of a control plane that did not succeed and whose processes were seen gone.
        self._dead: dict[Instance, tuple[str, ...]] = {}
        #: Control planes that worked until a run of this process failed, with the generation that it was for and the
        #: time up to which they hold others back; and by object that was held back because of them, the word of
        #: run-now that it had then.
        self._suspects: dict[Key, tuple[int, float]] = {}
        self._words: dict[Key, str] = {}

    def find_left(self) -> None:
        """See which runs an earlier leader has left, each to be followed when its object is seen. Raises ApiError."""
        for each in self._executor.left():
            key = each.spec.key
            try:
                order = Order.of(each.spec.order)
                if key.kind not in self._kinds:
                    raise ValueError(f"there is no kind {key.kind} in the table")
            except (KeyError, TypeError, ValueError) as error:
                _LOG.warning("a run cannot be followed: %s", error, extra={"object": str(key), "run": each.spec.run_id})
                continue
            with self._guard:
                self._left[key] = (each, order)

    def left(self, key: Key) -> tuple[RunSpec, Order] | None:
        """Run that an earlier leader has left and that nobody follows yet; None if there is none."""
        with self._guard:
            found = self._left.get(key)
        return None if found is None else (found[0].spec, found[1])

    def all_left(self) -> set[Key]:
        """Objects with a run that an earlier leader has left and that nobody follows yet."""
        with self._guard:
            return set(self._left)

    def start(self, key: Key, seen: Seen, action: Start) -> None:
        """Start a run, and follow it to its end."""
        instance = self._instance(key)
        with self._guard:
            dead = self._dead.get(instance, ())
        spec = spec_of(key, self._kinds[key.kind], seen, action.order, dead=dead, owner=self._owner(key))

        def begin() -> Run:
            self._recorder.begun(key, seen, action, spec)
            return self._executor.start(spec)

        self._carry_out(key, seen, action, spec, begin, datetime.now(UTC), known="")

    def go_on(self, key: Key, seen: Seen, lane: Lane) -> None:
        """Follow a run that was left to its end, in this lane. Raises ApiError, and then it is left as before."""
        with self._guard:
            left, order = self._left[key]
        phase = self._recorder.phase(key)
        with self._guard:
            self._left.pop(key, None)
        action = Start(order, lane, "it goes on since another operator led")
        self._recorder.gone_on(key, seen, action, left.spec, phase)
        # The earlier leader has sent Events of the phases up to this one, which the log of the run would repeat.
        self._carry_out(key, seen, action, left.spec, lambda: left.run, left.began, known=phase)

    def cancel(self, key: Key, why: str) -> None:
        """Ask the run of an object to end, once; returns at once."""
        with self._guard:
            run = self._under_way.get(key)
            if run is None or not self._memories.cancelled(key, why):
                return
        _LOG.info("cancels the run: %s", why, extra={"object": str(key)})
        run.cancel(why)

    def left_beside(self, key: Key) -> bool:
        """Return whether a run that was left is one of the same control plane, and nobody follows it yet."""
        with self._guard:
            left = [each for each in self._left if each != key]
        instance = self._instance(key)
        return any(self._instance(each) == instance for each in left)

    def waits_for_suspects(self, key: Key, order: Order, seen: Callable[[Key], Seen | None]) -> bool:
        """Return whether an order is put off because another control plane worked until a run of this process failed.

        One that was paused or edited since holds nobody back: its user has taken it in hand. Nor does one after a
        period: then one more is looked at, which may hold back the rest in its turn. A word of run-now lets one
        run that is held, if it was not there when that was seen to be held first. ``seen`` looks at an object.
        """
        with self._guard:
            suspects = {each: as_of for each, as_of in self._suspects.items() if each != key}
        if not any(_is_suspect(seen(each), *as_of) for each, as_of in suspects.items()):
            return False
        with self._guard:
            return order.run_now in ("", self._words.setdefault(key, order.run_now))

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        belongs, instance = self._kinds[key.kind].belongs, self._instance(key)
        with self._guard:
            if not belongs:
                self._dead.pop(instance, None)
            self._left.pop(key, None)
            self._suspects.pop(key, None)
            self._words.pop(key, None)

    def close(self) -> None:
        """Start no run any more; those under way are ended, or left behind."""
        self._executor.close()

    # -- one run, in the thread that follows it --------------------------------------------------------------------

    def _carry_out(
        self,
        key: Key,
        seen: Seen,
        action: Start,
        spec: RunSpec,
        begin: Callable[[], Run],
        began: datetime,
        *,
        known: str,
    ) -> None:
        """Start or find a run, follow it to its end, and tell how it ended. Its phases up to ``known`` were told."""
        kind, order, instance = self._kinds[key.kind], action.order, self._instance(key)
        before = self._memories.change(key, lambda memory: reconcile.started(memory, order))
        if reconcile.repeats(order, before.failed):
            self._recorder.retried(key)
        changes_it = order.operation in (Operation.INSTALL, Operation.REMOVE, *OF_A_RESTORE)
        if changes_it and not order.dry_run:
            self._health.suspend(instance)
            self._probes.suspend(instance)
        clock = time.monotonic()
        ending = Ending(Outcome.LOST, "it could not be started")
        try:
            run = begin()
            with self._guard:
                self._under_way[key] = run
            # What has changed before the run could be found.
            self._found(key)
            # A look each six hours is no news.
            reached = None if action.lane is Lane.ROUTINE else known
            ending = self._followed(key, seen, run, reached)
            self._bury(instance, spec, order, ending)
        except LeftBehind as error:
            _LOG.info("%s", error, extra={"object": str(key), "run": spec.run_id})
            return
        except UnderWay as error:
            ending = Ending(Outcome.LOST, str(error))
            self.find_left()
        except OSError as error:
            ending = Ending(Outcome.LOST, f"it could not be started: {error}")
        finally:
            with self._guard:
                self._under_way.pop(key, None)
            self._memories.change(
                key,
                lambda memory: reconcile.ended(
                    memory,
                    ending.outcome,
                    time.monotonic(),
                    period=kind.period,
                    chance=random.random(),  # noqa: S311 - spreads load, guards nothing
                    reasons=ending.reasons,
                    unready=unready_of(ending.report) if seen.on_hosts else None,
                    amiss="" if seen.on_hosts else amiss_of(ending.report),
                    held=None if ending.report is None else ending.report.get("phase") == QUARANTINED,
                ),
            )
            if order.operation is Operation.INSTALL or order.operation in OF_A_RESTORE:
                self._watch_over(instance, None if kind.belongs else seen.host, order, ending)
            if order.operation is Operation.INSTALL:
                self._suspect(key, seen, action.lane, ending)
            # Whatever comes next of it is for another turn.
            self._ended(key)
        self._recorder.ended(key, seen, order, ending, spec, began, time.monotonic() - clock)

    def _followed(self, key: Key, seen: Seen, run: Run, reached: str | None) -> Ending:
        """Follow a run to its end, with an Event for each phase after ``reached``; None: without Events."""
        for each in run.follow():
            if isinstance(each, Ending):
                return each
            new = reached is not None and is_later(each.phase, reached)
            self._recorder.task(key, seen, each, new=new)
            reached = each.phase if new else reached
        return Ending(Outcome.LOST, "it ended without a word")

    def _bury(self, instance: Instance, spec: RunSpec, order: Order, ending: Ending) -> None:
        """Remember whose locks may be taken over. A run that succeeded has given its own back; one that looks has none.

        An id is not dropped because a later run succeeded: that one may have had nothing to write, and so have taken
        no lock, or not the ones of hosts that were away. It is nobody else's, and stays that of a dead run.
        """
        looks = order.dry_run or order.operation is Operation.LOOK
        if looks or ending.outcome is Outcome.SUCCEEDED or not ending.seen_gone:
            return
        with self._guard:
            self._dead[instance] = (*self._dead.get(instance, ()), spec.run_id)[-MOST_DEAD:]

    def _watch_over(self, instance: Instance, host: HostCluster | None, order: Order, ending: Ending) -> None:
        """Have an instance looked at between runs. What a run that came to its end has left is what should be there.

        What others have deleted or edited in its course is not: but a restore stops and starts what it likes.
        ``host`` is where its workloads are, None for where they were.
        """
        if order.dry_run or ending.report is None:
            self._health.resume(instance)
            self._probes.resume(instance)
            return
        deleted = deleted_by(ending.report) if order.operation is Operation.INSTALL else None
        self._health.settle(instance, host, deleted=deleted)
        if secret := (ending.report.get("secretRef") or {}).get("name"):
            self._probes.follow(instance, str(secret), several_of(ending.report))

    def _suspect(self, key: Key, seen: Seen, lane: Lane, ending: Ending) -> None:
        """Remember one that this process may have broken: its first run here failed, the last one before had not."""
        with self._guard:
            if ending.outcome is Outcome.SUCCEEDED:
                self._suspects.pop(key, None)
            elif lane is Lane.ROUTINE and not seen.failing and ending.outcome is not Outcome.CANCELLED:
                self._suspects[key] = seen.generation, time.monotonic() + self._kinds[key.kind].period
