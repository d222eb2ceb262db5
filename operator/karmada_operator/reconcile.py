# SPDX-License-Identifier: Apache-2.0
"""Next action for one object, from what is seen of it and what is remembered of its runs. Pure.

Two equal orders need one run: an order that was carried out is not run again before its period is over, and an edit
during a run makes another order, so exactly one more run, however many edits there were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason

from .kinds import Lane
from .orders import NOTHING_AROUND, Around, Operation, Order, Outcome, Seen

#: Seconds until the first and at most until a later attempt after a failure, before jitter.
FIRST_RETRY, LONGEST_RETRY = 5.0, 600.0
#: Share of a period or back-off by which it may be shorter, so that many objects do not fall due together.
JITTER = 0.2
#: Seconds between two looks at a control plane in trouble, and at one on plain hosts, which nobody watches.
LOOK_AGAIN, LOOK_AT_HOSTS = 60.0, 3600.0
#: Seconds between two looks whether a control plane is still in quarantine: others may release it, too.
LOOK_AT_QUARANTINE = 300.0
#: Failures that no repetition mends: an edit does, or the look at the end of the period finds it mended.
MENDED_BY_EDITS = frozenset(
    {
        Reason.INVALID_DOCUMENT,
        Reason.FIELD_WITHOUT_EFFECT,
        Reason.IMMUTABLE_SETTING,
        Reason.CONFIRMATION_REQUIRED,
        Reason.INVALID_FLAG,
        Reason.INVALID_ARGUMENT,
        Reason.INVALID_OVERLAY,
        Reason.INVALID_AUDIT_POLICY,
        Reason.UNKNOWN_RELEASE,
        Reason.RESTORE_NOT_CONFIRMED,
    }
)


@dataclass(frozen=True)
class Memory:
    """Memory of one object, since this process started. Times are seconds of a monotonic clock.

    ``done`` is the order that was carried out last and holds; ``next_at`` the time of the next look at it.
    ``doubt`` says why health does not believe it; ``doubts`` counts runs in a row for that, the next not before
    ``doubt_from``. ``looked`` says whether it was in trouble when it was looked at last, ``suspected`` for which sign;
    ``look_from`` and ``look_at`` are when a look is possible and when it is due. ``failed`` is the order that failed
    last, until something succeeds.
    """

    uid: str = ""
    running: Order | None = None
    cancelled: str = ""
    done: Order | None = None
    next_at: float = 0.0
    doubt: str = ""
    doubted: bool = False
    doubts: int = 0
    doubt_from: float = 0.0
    looked: bool = False
    suspected: str = ""
    look_from: float = 0.0
    look_at: float = 0.0
    failed: Order | None = None
    failures: int = 0
    retry_at: float = 0.0


# -- actions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wait:
    """Nothing to do before ``until``; None means before something changes. ``reason`` is for programs."""

    why: str
    until: float | None = None
    reason: str = "Idle"


@dataclass(frozen=True)
class Claim:
    """Add the finalizer."""


@dataclass(frozen=True)
class Start:
    """Start a run for this order."""

    order: Order
    lane: Lane
    why: str


@dataclass(frozen=True)
class Cancel:
    """End the run under way."""

    why: str


@dataclass(frozen=True)
class Release:
    """Take the finalizer away. ``kept``: the instance stays. ``left`` says what stays that was to go."""

    kept: bool
    left: str = ""


@dataclass(frozen=True)
class Refuse:
    """No run, because of these problems of the annotations."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True)
class Forget:
    """The object is gone: drop what is remembered of it."""


Action = Wait | Claim | Start | Cancel | Release | Refuse | Forget


def order_of(seen: Seen, around: Around = NOTHING_AROUND) -> Order:
    """The order for which an object asks as it is seen now."""
    given_up = sorted({member for member, secret in seen.access if secret in around.lost})
    return Order(
        operation=Operation.REMOVE if seen.deleting else Operation.INSTALL,
        uid=seen.uid,
        # Deleting an object changes its generation once more; removal does not depend on it.
        generation=0 if seen.deleting else seen.generation,
        dry_run=seen.wishes.dry_run,
        run_now=seen.wishes.run_now,
        confirmations=seen.wishes.confirmations,
        inputs="" if seen.deleting else around.inputs,
        given_up=tuple(given_up) if seen.deleting else (),
    )


def decide(  # noqa: PLR0911 - a line for each thing that may be seen
    seen: Seen | None, memory: Memory, now: float, around: Around = NOTHING_AROUND
) -> Action:
    """Next action for an object; None means that it is gone."""
    if memory.running is not None:
        return _during(seen, memory, memory.running)
    if seen is None:
        return Forget()
    if memory.uid not in ("", seen.uid):
        memory = Memory()
    if seen.deleting and not seen.claimed:
        return Wait("is going; others hold it, not the operator")
    if seen.deleting and seen.keep:
        return Release(kept=True)
    if seen.wishes.problems:
        return Refuse(seen.wishes.problems)
    if seen.wishes.paused:
        return Wait("is paused")
    if not seen.claimed:
        return Claim()
    if seen.deleting and not seen.wishes.dry_run and (lost := sorted(seen.needs & around.lost)):
        return Release(kept=True, left=f"the control plane; it cannot be reached any more: no Secret {', '.join(lost)}")
    if seen.quarantined and not seen.deleting:
        return _in_quarantine(seen, memory, now, around)
    return _next_run(seen, memory, now, around)


def _in_quarantine(seen: Seen, memory: Memory, now: float, around: Around) -> Action:
    """Action upon a control plane that a restore holds: an install would be refused, so it waits for its end."""
    until = memory.look_from + LOOK_AT_QUARANTINE
    if now >= until:
        look = replace(order_of(seen, around), operation=Operation.LOOK, in_trouble=bool(around.trouble))
        return Start(look, Lane.ROUTINE, "to see whether it is still in quarantine")
    return Wait("a restore holds it, until that is released or taken back", until, "Quarantined")


def _during(seen: Seen | None, memory: Memory, running: Order) -> Action:
    """Action while a run is under way: it goes on, or is cancelled."""
    why = ""
    if seen is None:
        why = "the object is gone"
    elif seen.uid != running.uid:
        why = "another object has the name"
    elif seen.deleting and running.operation is not Operation.REMOVE:
        why = "the object is being deleted"
    elif seen.deleting and seen.keep:
        why = "the instance is kept"
    elif seen.wishes.problems:
        why = "its annotations cannot be used"
    elif seen.wishes.paused:
        why = "it was paused"
    elif seen.wishes.dry_run and not running.dry_run:
        why = "it was set to dry-run"
    if not why or memory.cancelled:
        return Wait("a run is under way")
    return Cancel(why)


def _next_run(  # noqa: PLR0911 - as above
    seen: Seen, memory: Memory, now: float, around: Around
) -> Action:
    order, changes = order_of(seen, around), Lane.DELETIONS if seen.deleting else Lane.CHANGES
    if order == memory.failed:
        if seen.deleting and around.going and not order.dry_run:
            # The cluster removes what is in the namespace, our rights there among it.
            return Release(kept=False, left=f"what joining put on {', '.join(sorted(seen.members)) or 'no member'}")
        if now < memory.retry_at:
            return Wait("the last run failed", memory.retry_at)
        return Start(order, changes, f"the last {memory.failures} runs failed" if memory.failures > 1 else "it failed")
    if order == memory.done:
        if seen.deleting and not order.dry_run:
            return Release(kept=False)
        if memory.doubt and now >= memory.doubt_from:
            return Start(order, Lane.CHANGES, memory.doubt)
        if now >= memory.next_at:
            return Start(order, Lane.ROUTINE, "the period is over")
        news = bool(around.trouble) != memory.looked
        # In pods, what does not run is seen there.
        news |= seen.on_hosts and around.suspicion not in ("", memory.suspected)
        if (news and now >= memory.look_from) or (seen.on_hosts and now >= memory.look_at):
            look = replace(order, operation=Operation.LOOK, in_trouble=bool(around.trouble), suspicion=around.suspicion)
            return Start(look, Lane.ROUTINE, around.trouble or around.suspicion or "to see how it is")
        due = [
            memory.next_at,
            *([memory.doubt_from] if memory.doubt else ()),
            *([memory.look_from] if news else ()),
            *([memory.look_at] if seen.on_hosts else ()),
        ]
        return Wait("everything is done", min(due))
    if memory.done is None and memory.failed is None and seen.settled and not seen.deleting:
        return Start(order, Lane.ROUTINE, "the operator has just started")
    return Start(order, changes, _difference(memory.done or memory.failed, order))


def _difference(before: Order | None, order: Order) -> str:
    """Reason why an order needs a run."""
    if order.operation is Operation.REMOVE:
        return "the object is being deleted"
    if before is None:
        return "it is new"
    for name, why in (
        ("generation", "the document was edited"),
        ("inputs", "a Secret or ConfigMap that the document names was changed"),
        ("run_now", "run-now asks for it"),
        ("dry_run", "dry-run was set or taken away"),
    ):
        if getattr(before, name) != getattr(order, name):
            return why
    return "a confirmation was given or taken back"


# -- what is remembered ------------------------------------------------------------------------------------------------


def started(memory: Memory, order: Order) -> Memory:
    """Memory when a run starts. Raises ValueError if one is under way: that is for the queue to prevent."""
    if memory.running is not None:
        raise ValueError(f"a run is under way already: {memory.running}")
    if memory.uid != order.uid:
        memory = Memory()
    if order.operation is Operation.LOOK:
        return replace(memory, running=order, cancelled="")
    return replace(memory, uid=order.uid, running=order, cancelled="", doubt="", doubted=bool(memory.doubt))


def ended(
    memory: Memory,
    outcome: Outcome,
    now: float,
    *,
    period: float,
    chance: float,
    reasons: frozenset[str] = frozenset(),
    unready: str | None = None,
) -> Memory:
    """Memory when the run under way has ended. ``chance`` in [0, 1) is the jitter, ``reasons`` those of its errors.

    ``unready`` is what a look has found stopped on plain hosts, which another run brings back; None where health
    watches. What a run that did not succeed has left half done is not remembered as done.
    """
    order = memory.running
    if order is None:
        raise ValueError("no run is under way")
    plain = replace(
        memory,
        running=None,
        cancelled="",
        looked=order.in_trouble,
        suspected=order.suspicion,
        look_from=now + LOOK_AGAIN,
        look_at=now + LOOK_AT_HOSTS,
    )
    if order.operation is Operation.LOOK:
        return plain if unready is None or memory.done is None else replace(plain, doubt=unready)
    if outcome is Outcome.SUCCEEDED:
        next_at = now + period * (1 - JITTER * chance)
        # Whoever keeps changing what we change gets an answer less and less often, and not a run without end.
        calm = not memory.doubted or now - memory.doubt_from > LONGEST_RETRY
        doubts = int(memory.doubted) if calm else memory.doubts + 1
        again = now + back_off(doubts) if doubts else 0.0
        plain = replace(plain, doubted=False, doubts=doubts, doubt_from=again)
        return replace(plain, done=order, next_at=next_at, failed=None, failures=0, retry_at=0.0)
    if outcome is Outcome.CANCELLED:
        return replace(plain, done=None)
    failures = memory.failures + 1 if memory.failed == order else 1
    hopeless = bool(reasons) and reasons <= MENDED_BY_EDITS
    pause = max(period, LONGEST_RETRY) if hopeless else back_off(failures)
    if Reason.QUARANTINED in reasons:
        # By then the status says so, and it waits for the end of that.
        pause = max(pause, LOOK_AGAIN)
    return replace(plain, done=None, failed=order, failures=failures, retry_at=now + pause * (1 - JITTER * chance))


def back_off(failures: int) -> float:
    """Seconds before the attempt after so many failures in a row."""
    return min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 20))
