# SPDX-License-Identifier: Apache-2.0
"""Next action for an EtcdBackup: a run when one is due, asked for, or when its document was edited. Pure.

A moment of the schedule is met by one run. One that fails is tried again until the next moment comes, which is another
order; the moments between are missed, and told. Nothing of it outlives the object: no backup is deleted with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.due import Due
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups as documents
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.report.hold import Why

from . import inputs, schedules
from .actions import Action, Forget, Start, Wait
from .kinds import Lane
from .orders import NOTHING_AROUND, Around, Beside, Operation, Order, Seen
from .reconcile import Memory, decide_by, ends_with_object
from .schedules import Backups
from .wishes import OF_BELONGINGS, Wishes

#: Seconds after which the clock is looked at again at the latest: it may have been set.
LOOK_AT_CLOCK = 60.0


def belonging(obj: Object, problems: Iterable[Problem] = ()) -> Seen:
    """Parts that decide of an object which belongs to a control plane, but for those that only its own kind has.

    ``problems`` are those of its spec.
    """
    meta, spec = obj["metadata"], obj.get("spec") or {}
    deleting = bool(meta.get("deletionTimestamp"))
    return Seen(
        uid=str(meta["uid"]),
        generation=int(meta.get("generation") or 0),
        wishes=Wishes.asked_of(meta, OF_BELONGINGS, problems),
        claimed=not deleting,
        deleting=deleting,
        references=inputs.references(spec),
        deployment=_deployment(spec),
        version=str(meta.get("resourceVersion", "")),
    )


def seen_of(obj: Object) -> Seen:
    """Parts of an EtcdBackup that decide, of the object as an API server gives it."""
    status = obj.get("status") or {}
    wanted, problems = _wanted(obj)
    known = Backups(
        wanted=wanted,
        newest=schedules.moment_of((status.get("newest") or {}).get("startTime")),
        requested=str(status.get("requested") or ""),
        carried_out=int(status.get("observedGeneration") or 0),
    )
    return replace(belonging(obj, problems), backups=known)


def hindrance(seen: Seen, beside: Beside, until: float) -> Wait | None:
    """Wait for a control plane itself, of its backups and restores, with a look at ``until``; None if there is none."""
    deployment, name = beside.deployment, seen.deployment
    if deployment is None:
        return Wait(f"there is no KarmadaDeployment {name} here", until, "NoDeployment")
    if deployment.deleting:
        return Wait(f"KarmadaDeployment {name} is being deleted", until, "BeingDeleted")
    if not deployment.installed:
        return Wait(f"KarmadaDeployment {name} is not installed yet", until, "NotInstalled")
    return None


def decide(
    seen: Seen | None,
    memory: Memory,
    now: float,
    clock: datetime,
    beside: Beside,
    around: Around = NOTHING_AROUND,
) -> Action:
    """Next action; None means that the object is gone. ``now`` is of a monotonic clock, ``clock`` the time in UTC."""
    # One that is not seen may not have been listed yet; whoever goes is seen to be deleted before it is gone.
    goes = "the control plane goes" if beside.deployment and beside.deployment.deleting else ""
    return decide_by(
        seen,
        memory,
        ends=lambda running: ends_with_object(seen, running) or goes,
        next_run=lambda seen, memory: (
            hindrance(seen, beside, _soon(now))
            or _held(beside.deployment, _soon(now))
            or _next_run(seen, memory, now, clock, around)
        ),
        paused=Wait("is paused", _soon(now), "Paused"),
    )


def _next_run(seen: Seen, memory: Memory, now: float, clock: datetime, around: Around) -> Action:
    if seen.backups is None:
        return Forget()
    verdict = schedules.verdict(seen.backups, clock, memory.done.moment if memory.done else "")
    order = order_of(seen, memory, verdict, around)
    if order is None or order == memory.done:
        return Wait(_next(verdict), _until(verdict, now, clock))
    if order == memory.failed and now < memory.retry_at:
        return Wait("the last run failed", min(memory.retry_at, _until(verdict, now, clock)), "Failed")
    return Start(order, Lane.BACKUPS, _why(order, seen.backups))


def _held(deployment: Seen | None, until: float) -> Wait | None:
    """Wait for a control plane that is held, and not backed up; None if it is."""
    if deployment is None or not deployment.quarantined or deployment.held == Why.PART_RELEASED:
        # Nothing of it is taken back any more, and members follow what is there, maybe for days.
        return None
    if deployment.held == Why.HANDED_OVER:
        return Wait("the control plane was handed over, and is backed up where it is now", until, Why.HANDED_OVER)
    if deployment.held == Why.HANDING_OVER:
        return Wait("the control plane is being handed over, which takes its final backup", until, Why.HANDING_OVER)
    # A backup of it would outlive the restore, also one that is taken back.
    return Wait("a restore holds the control plane; the release takes a backup", until, "Quarantined")


def order_of(seen: Seen, memory: Memory, verdict: Due, around: Around) -> Order | None:
    """Order for which an EtcdBackup asks; None if nothing is due, and the status is that of its document."""
    if seen.backups is None:
        return None
    word, done = seen.wishes.run_now, memory.done
    asked = word if word not in (seen.backups.requested, done.run_now if done else "") else ""
    known = {seen.backups.carried_out, done.generation if done else 0}
    if not asked and verdict.since is None and seen.generation in known:
        return None
    return Order(
        Operation.BACK_UP,
        seen.uid,
        seen.generation,
        run_now=asked or (done.run_now if done else ""),
        inputs=around.inputs,
        moment=schedules.text_of(verdict.since) if verdict.since else "",
        missed=verdict.missed,
    )


def _why(order: Order, backups: Backups) -> str:
    if order.moment:
        return f"one is due since {order.moment}"
    if order.generation != backups.carried_out:
        return "the document was edited" if backups.carried_out else "it is new"
    return "run-now asks for it"


def _next(verdict: Due) -> str:
    return f"the next one is due at {schedules.text_of(verdict.next)}" if verdict.next else "none is due"


def _until(verdict: Due, now: float, clock: datetime) -> float:
    """Time of the next look: when one falls due, and before that now and then, because a clock may be set."""
    if verdict.next is None:
        return _soon(now)
    return now + min(LOOK_AT_CLOCK, max(0.0, (verdict.next - clock).total_seconds()))


def _soon(now: float) -> float:
    """A look is due now and then also where nothing is to be done: the newest backup grows too old meanwhile."""
    return now + LOOK_AT_CLOCK


def _wanted(obj: Object) -> tuple[documents.Wanted | None, tuple[Problem, ...]]:
    """Content of the object, or why it cannot be used although an API server has taken it."""
    meta = obj["metadata"]
    home = {"metadata": {"name": _deployment(obj.get("spec") or {}), "namespace": meta.get("namespace")}}
    try:
        (found,) = documents.resolved([obj], home)
    except ProblemsError as error:
        return None, tuple(error.problems)
    return documents.Wanted.of(found), ()


def _deployment(spec: Object) -> str:
    return str((spec.get("deploymentRef") or {}).get("name") or "")
