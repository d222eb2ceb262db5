# SPDX-License-Identifier: Apache-2.0
"""Next action for one object, from what is seen of it and what is remembered of its runs. Pure.

What holds for each kind stands here (``decide_by``), beside the rules of control planes; ``backups`` and ``restores``
have those of the other kinds.

Two equal orders need one run: an order that was carried out is not run again before its period is over, and an edit
during a run makes another order, so exactly one more run, however many edits there were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report.hold import Why

from .actions import Action, Cancel, Claim, Forget, Refuse, Release, Start, Wait
from .executor import Outcome
from .kinds import Lane
from .orders import NOTHING_AROUND, Around, Operation, Order, Seen
from .parts import names_in_words
from .wishes import ALLOWED_FROM, KEEP_LABELS, handed_on

#: Seconds until the first and at most until a later attempt after a failure, before jitter.
FIRST_RETRY, LONGEST_RETRY = 5.0, 600.0
#: Share of a period or back-off by which it may be shorter, so that many objects do not fall due together.
JITTER = 0.2
#: Seconds between two looks at a control plane in trouble, and at one on plain hosts, which nobody watches.
LOOK_AGAIN, LOOK_AT_HOSTS = 60.0, 3600.0
#: Seconds in which a control plane in pods that a look has found in trouble may come back by itself.
BY_ITSELF = 30.0
#: Seconds between two looks whether a control plane is still in quarantine: others may release it, too.
LOOK_AT_QUARANTINE = 300.0
#: Seconds for which a document that was edited during a run is to stay as it is before the next run begins, and for
#: which that waits at most. A run that begins between two edits of a series ends without a write, one after the other.
STILL, LONGEST_STILL = 2.0, 10.0
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
#: Those of them that an edit of an EtcdBackup or EtcdRestore mends; the others are about the control plane beside it.
_MENDED_BESIDE = frozenset({Reason.CONFIRMATION_REQUIRED, Reason.INVALID_ARGUMENT, Reason.RESTORE_NOT_CONFIRMED})

#: Words and reason for a control plane that is held, by why that is. Else a restore holds all of it.
_HELD: Mapping[str, tuple[str, str]] = {
    Why.PART_RELEASED: ("a part of it is released, and a restore holds it until the rest is, too", "Quarantined"),
    Why.HANDING_OVER: ("it is being handed over to another place", "HandingOver"),
    Why.HANDED_OVER: ("it was handed over, and is at another place", "HandedOver"),
}


@dataclass(frozen=True)
class Memory:
    """Memory of one object, since this process started. Times are seconds of a monotonic clock.

    ``done`` is the order that was carried out last and holds; ``next_at`` the time of the next look at it.
    ``doubt`` says why health does not believe it; ``doubts`` counts runs in a row for that, the next not before
    ``doubt_from``. ``amiss`` is what a look in trouble has found in pods; it counts from ``amiss_from`` on, if the
    trouble is still there. ``looked`` says whether it was in trouble when it was looked at last, ``suspected`` for
    which sign;
    ``look_from`` and ``look_at`` are when a look is possible and when it is due. ``failed`` is the order that failed
    last, until something succeeds. ``unready`` are workloads in pods that are not ready: the next look at their pods is
    not before ``unready_from``, and ``unready_looks`` counts those since the last run. ``generation`` is that of the
    document as it was seen last, ``edited_at`` since when it is; ``overtaken_at`` is when the last run ended, if the
    document had been edited in its course. ``moved`` is None unless the last install was refused because the control
    plane is at another place: from then on a look may tell whether it was handed over; infinite once one has denied it.
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
    amiss: str = ""
    amiss_from: float = 0.0
    unready: str = ""
    unready_from: float = 0.0
    unready_looks: int = 0
    looked: bool = False
    suspected: str = ""
    look_from: float = 0.0
    look_at: float = 0.0
    failed: Order | None = None
    failures: int = 0
    retry_at: float = 0.0
    generation: int = 0
    edited_at: float = 0.0
    overtaken_at: float | None = None
    moved: float | None = None


def order_of(seen: Seen, around: Around = NOTHING_AROUND) -> Order:
    """The order for which an object asks as it is seen now."""
    given_up = sorted({member for member, secret in seen.access if secret in around.lost})
    return Order(
        operation=Operation.REMOVE if seen.deleting else Operation.INSTALL,
        uid=seen.uid,
        # Deleting an object changes its generation once more. A removal that goes on or is done does not depend on it;
        # one that has failed does (``repeats``).
        generation=0 if seen.deleting else seen.generation,
        dry_run=seen.wishes.dry_run,
        run_now=seen.wishes.run_now,
        confirmations=seen.wishes.confirmations,
        inputs="" if seen.deleting else around.inputs,
        given_up=tuple(given_up) if seen.deleting else (),
        document=seen.generation,
    )


def repeats(order: Order, failed: Order | None) -> bool:
    """Return whether an order is the one that failed, for a document that nobody has edited since."""
    return failed is not None and order == failed and failed.document in (0, order.document)


def decide_by(  # noqa: PLR0911 - a line for each thing that may be seen
    seen: Seen | None,
    memory: Memory,
    *,
    ends: Callable[[Order], str],
    next_run: Callable[[Seen, Memory], Action],
    problems: tuple[Problem, ...] = (),
    over: Wait | None = None,
    paused: Wait | None = None,
) -> Action:
    """Next action by what holds for each kind, and by that in which one differs; None means that the object is gone.

    ``ends`` says why a run under way is to end, empty if it goes on; ``next_run`` decides upon an object that can be
    used and is not paused. For ``problems`` it is refused as for those of its annotations. One that is ``over`` rests.
    """
    if memory.running is not None:
        why = ends(memory.running)
        return Cancel(why) if why and not memory.cancelled else Wait("a run is under way")
    if seen is None:
        return Forget()
    if seen.deleting and not seen.claimed:
        return Wait("is going; others hold it, not the operator")
    if seen.deleting and seen.keep:
        return Release(kept=True)
    if problems := seen.wishes.problems or problems:
        return Refuse(problems)
    if over is not None:
        return over
    if seen.wishes.paused:
        return paused or Wait("is paused")
    return next_run(seen, memory if memory.uid in ("", seen.uid) else Memory())


def ends_with_object(seen: Seen | None, running: Order) -> str:
    """Reason in an object itself why the run under way for it is to end; empty if there is none."""
    if seen is None:
        return "the object is gone"
    if seen.uid != running.uid:
        return "another object has the name"
    if seen.wishes.problems:
        return "its annotations cannot be used"
    return "it was paused" if seen.wishes.paused else ""


def decide(seen: Seen | None, memory: Memory, now: float, around: Around = NOTHING_AROUND) -> Action:
    """Next action for a control plane; None means that its object is gone."""
    return decide_by(
        seen,
        memory,
        ends=lambda running: _ends(seen, running),
        next_run=lambda seen, memory: _claimed(seen, memory, now, around),
    )


def _ends(seen: Seen | None, running: Order) -> str:
    if seen is not None and seen.uid == running.uid and seen.deleting:
        if running.operation is not Operation.REMOVE:
            return "the object is being deleted"
        if seen.keep:
            return "the instance is kept"
    if (why := ends_with_object(seen, running)) or seen is None:
        return why
    if seen.wishes.dry_run and not running.dry_run:
        return "it was set to dry-run"
    if running.dry_run and not seen.wishes.dry_run and running.operation is not Operation.LOOK:
        # It changes nothing, so nothing is left half done, and what is wanted now waits for it.
        return "dry-run was taken away"
    return ""


def _claimed(seen: Seen, memory: Memory, now: float, around: Around) -> Action:
    if not seen.claimed:
        return Claim()
    if seen.deleting and not seen.wishes.dry_run and (release := _out_of_reach(seen, around)) is not None:
        return release
    if seen.deleting and (hindered := _not_to_be_named(seen, around)) is not None:
        return hindered
    if seen.quarantined and not seen.deleting:
        return _in_quarantine(seen, memory, now, around)
    return _next_run(seen, memory, now, around)


def _out_of_reach(seen: Seen, around: Around) -> Release | None:
    """Release of an object whose control plane can be removed from here no more; None if it may be tried."""
    if lost := sorted(seen.needs & around.lost):
        return Release(kept=True, left=f"the control plane; it cannot be reached any more: no Secret {', '.join(lost)}")
    if around.gone:
        # All of it went with its namespace, what is known of its members as well.
        return Release(kept=False, left=_on_members(seen) if seen.members else "")
    if around.closed:
        why = f"that namespace has no annotation {ALLOWED_FROM} for this one any more"
        return Release(kept=True, left=f"the control plane in namespace {seen.elsewhere}; {why}")
    return None


def _not_to_be_named(seen: Seen, around: Around) -> Release | Refuse | None:
    """Action where more members are to be given up by name than a run can be told; None if it can be told all."""
    given_up = order_of(seen, around).given_up
    # Its order has them, and its variables.
    too_much = handed_on(*2 * (given_up,), seen.wishes.confirmations, seen.wishes.variables)
    if not given_up or not too_much:
        return None
    if around.going and not seen.wishes.dry_run:
        return Release(kept=False, left=_on_members(seen))
    what = f"{too_much}: the Secrets with the kubeconfigs of {len(given_up)} members are gone"
    remedy = f"Bring some of them back, or let the object go without its control plane: label {KEEP_LABELS[0]}=true"
    return Refuse((Problem(what, "spec.members", remedy, reason=Reason.SECRET_NOT_FOUND),))


def _in_quarantine(seen: Seen, memory: Memory, now: float, around: Around) -> Action:
    """Action upon a control plane that is held: an install would be refused, so it waits for the end of that."""
    until = memory.look_from + LOOK_AT_QUARANTINE
    if now >= until:
        look = replace(order_of(seen, around), operation=Operation.LOOK, in_trouble=bool(around.trouble))
        return Start(look, Lane.ROUTINE, "to see whether it is still in quarantine")
    why, reason = _HELD.get(seen.held, ("a restore holds it, until that is released or taken back", "Quarantined"))
    return Wait(why, until, reason)


def _next_run(  # noqa: PLR0911 - a line for each thing that may be seen
    seen: Seen, memory: Memory, now: float, around: Around
) -> Action:
    order, changes = order_of(seen, around), Lane.DELETIONS if seen.deleting else Lane.CHANGES
    before = memory.done or memory.failed
    if before is not None and not order.run_now:
        # A word that was taken away asks for nothing.
        order = replace(order, run_now=before.run_now)
    if order == memory.failed:
        if seen.deleting and around.going and not order.dry_run:
            # The cluster removes what is in the namespace, our rights there among it.
            return Release(kept=False, left=_on_members(seen))
        if repeats(order, memory.failed):
            if now < memory.retry_at:
                return _until_retry(order, memory, now, around)
            why = f"the last {memory.failures} runs failed" if memory.failures > 1 else "it failed"
            return Start(order, changes, why)
    if order == memory.done:
        if seen.deleting and not order.dry_run:
            return Release(kept=False)
        if seen.deleting:
            return Wait("a dry run of the removal is done")
        return _when_done(order, seen, memory, now, around)
    if not seen.deleting and now < (until := _still_at(seen, memory, now)):
        return Wait(f"the next run begins when its document has not changed for {STILL:.0f} s", until, "BeingEdited")
    if memory.done is None and memory.failed is None and seen.settled and not seen.deleting and not memory.uid:
        # One that does not work waits for nobody's first look.
        why = memory.doubt or around.trouble or (around.suspicion if seen.on_hosts else "")
        return Start(order, Lane.CHANGES if why else Lane.ROUTINE, why or "the operator has just started")
    if before is None and memory.uid and not seen.deleting:
        return Start(order, changes, "the last run was cancelled")
    return Start(order, changes, _difference(before, order))


def _until_retry(order: Order, memory: Memory, now: float, around: Around) -> Action:
    """Action for an order that has failed, until it is tried again. No repetition mends one that was moved away."""
    if memory.moved is None:
        return Wait("the last run failed", memory.retry_at)
    if now >= memory.moved:
        return Start(_look(order, around), Lane.ROUTINE, "to see whether it was handed over")
    return Wait("it is at another place, which its members follow", min(memory.moved, memory.retry_at), Reason.MOVED)


def _look(order: Order, around: Around) -> Order:
    return replace(order, operation=Operation.LOOK, in_trouble=bool(around.trouble), suspicion=around.suspicion)


def _when_done(order: Order, seen: Seen, memory: Memory, now: float, around: Around) -> Action:
    """Action for an object whose order was carried out: it rests, is looked at, or is not as it was left."""
    doubt, doubt_from = _doubt(memory, around)
    if doubt and now >= doubt_from:
        return Start(order, Lane.CHANGES, doubt)
    if now >= memory.next_at:
        return Start(order, Lane.ROUTINE, "the period is over")
    news = bool(around.trouble) != memory.looked
    # In pods, what does not run is seen there.
    news |= seen.on_hosts and around.suspicion not in ("", memory.suspected)
    # A watch of workloads does not tell why their pods are not ready.
    lasting = bool(memory.unready) and now >= memory.unready_from
    if (news and now >= memory.look_from) or (seen.on_hosts and now >= memory.look_at) or lasting:
        why = around.trouble or (around.suspicion if seen.on_hosts else memory.unready)
        return Start(_look(order, around), Lane.ROUTINE, why or "to see how it is")
    due = [
        memory.next_at,
        *([doubt_from] if doubt else ()),
        *([memory.look_from] if news else ()),
        *([memory.look_at] if seen.on_hosts else ()),
        *([memory.unready_from] if memory.unready else ()),
    ]
    return Wait("everything is done", min(due))


def _doubt(memory: Memory, around: Around) -> tuple[str, float]:
    """Reason not to believe what was carried out, empty if there is none, and when it counts."""
    if not memory.doubt and around.trouble:
        return memory.amiss, max(memory.doubt_from, memory.amiss_from)
    return memory.doubt, memory.doubt_from


def _still_at(seen: Seen, memory: Memory, now: float) -> float:
    """Time from which a document is carried out; a past one unless it was edited in the course of the last run."""
    if memory.overtaken_at is None:
        return now
    edited_at = memory.edited_at if memory.generation == seen.generation else now
    return min(edited_at + STILL, memory.overtaken_at + LONGEST_STILL)


def _on_members(seen: Seen) -> str:
    return f"what joining put on {names_in_words(sorted(seen.members)) or 'no member'}"


def _difference(before: Order | None, order: Order) -> str:
    """Reason why an order needs a run."""
    if order.operation is Operation.REMOVE:
        return "the document was edited" if order == before else "the object is being deleted"
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


def noticed(memory: Memory, seen: Seen, now: float) -> Memory:
    """Memory when an object is seen, whether or not a run is under way."""
    if seen.generation == memory.generation:
        return memory
    return replace(memory, generation=seen.generation, edited_at=now)


def doubted(memory: Memory, why: str) -> Memory:
    """Memory when health has this against what the last run left, empty for nothing; not in a run or after a failure.

    Before the first run of this process it is what an earlier one has left.
    """
    counts = memory.running is None and (memory.done is not None or not memory.uid)
    return replace(memory, doubt=why) if counts else memory


def found_unready(memory: Memory, what: str, now: float) -> Memory:
    """Memory when it is seen which workloads in pods are not ready; what passes by itself is not worth a look."""
    if what and not memory.unready:
        memory = replace(memory, unready_from=max(memory.unready_from, now + BY_ITSELF))
    return replace(memory, unready=what)


def started(memory: Memory, order: Order) -> Memory:
    """Memory when a run starts. Raises ValueError if one is under way: that is for the queue to prevent."""
    if memory.running is not None:
        raise ValueError(f"a run is under way already: {memory.running}")
    if memory.uid != order.uid:
        memory = Memory(generation=memory.generation, edited_at=memory.edited_at)
    if order.operation is Operation.LOOK:
        return replace(memory, running=order, cancelled="")
    memory = replace(memory, doubted=bool(memory.doubt or memory.amiss), overtaken_at=None, moved=None)
    return replace(memory, uid=order.uid, running=order, cancelled="", doubt="", amiss="")


def ended(  # noqa: PLR0913 - what a run may tell
    memory: Memory,
    outcome: Outcome,
    now: float,
    *,
    period: float,
    chance: float,
    reasons: frozenset[str] = frozenset(),
    unready: str | None = None,
    amiss: str = "",
    held: bool | None = None,
) -> Memory:
    """Memory when the run under way has ended. ``chance`` in [0, 1) is the jitter, ``reasons`` those of its errors.

    ``unready`` is what a look has found stopped on plain hosts, which another run brings back; None where health
    watches. ``amiss`` is what a look has found in pods, where a run follows if that does not pass. ``held`` says
    whether the control plane is held by its report; None without one. What a run that did not succeed has left half
    done is not remembered as done.
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
        # After a run the first sign is looked at at once, and after a look the next one later.
        look_from=now + (LOOK_AGAIN if order.operation is Operation.LOOK else 0.0),
        look_at=now + LOOK_AT_HOSTS,
    )
    if order.operation is Operation.LOOK:
        if memory.unready:
            # One that crashes is ready now and then: the pauses grow until a run has changed something.
            again = now + min(LOOK_AT_HOSTS, LOOK_AGAIN * 2.0 ** min(memory.unready_looks, 10))
            plain = replace(plain, unready_from=again, unready_looks=memory.unready_looks + 1)
        plain = replace(plain, amiss=amiss if order.in_trouble else "", amiss_from=now + BY_ITSELF)
        plain = _looked_for_a_move(plain, now, held)
        return plain if unready is None or memory.done is None else replace(plain, doubt=unready)
    plain = replace(plain, unready="", unready_from=0.0, unready_looks=0)
    if order.operation is Operation.INSTALL:
        plain = _overtaken(plain, order, now, found_edited=Reason.DOCUMENT_CHANGED in reasons)
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
    failures = memory.failures + 1 if repeats(order, memory.failed) else 1
    moved = Reason.MOVED in reasons
    of_control_plane = order.operation in (Operation.INSTALL, Operation.REMOVE)
    hopeless = moved or (bool(reasons) and reasons <= (MENDED_BY_EDITS if of_control_plane else _MENDED_BESIDE))
    pause = max(period, LONGEST_RETRY) if hopeless else back_off(failures)
    if Reason.QUARANTINED in reasons:
        # By then the status says so, and it waits for the end of that.
        pause = max(pause, LOOK_AGAIN)
    plain = replace(plain, moved=now if moved and order.operation is Operation.INSTALL else None)
    return replace(plain, done=None, failed=order, failures=failures, retry_at=now + pause * (1 - JITTER * chance))


def _looked_for_a_move(memory: Memory, now: float, held: bool | None) -> Memory:
    """Memory when a look has ended that may have told whether a control plane at another place was handed over."""
    if memory.moved is None:
        return memory
    if held is None:
        return replace(memory, moved=now + LOOK_AGAIN)
    if not held:
        return replace(memory, moved=inf)
    # By then the status says so, and it waits for the end of that, after which it is worth another attempt.
    return replace(memory, moved=None, retry_at=now + LOOK_AGAIN)


def _overtaken(memory: Memory, order: Order, now: float, *, found_edited: bool) -> Memory:
    """Memory when an install has ended; ``found_edited``: it has found another document than it was started for."""
    known = memory.generation not in (0, order.generation)
    if found_edited and not known:
        # The watch has not shown that edit yet.
        memory = replace(memory, edited_at=now)
    return replace(memory, overtaken_at=now if known or found_edited else None)


def back_off(failures: int) -> float:
    """Seconds before the attempt after so many failures in a row."""
    return min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 20))
