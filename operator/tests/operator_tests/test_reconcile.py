# SPDX-License-Identifier: Apache-2.0
"""Decisions about runs, by examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from karmada_operator import reconcile
from karmada_operator.actions import Cancel, Claim, Forget, Refuse, Release, Start, Wait
from karmada_operator.executor import Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Around, Operation, Seen
from karmada_operator.reconcile import (
    LOOK_AGAIN,
    LOOK_AT_HOSTS,
    Memory,
    decide,
    ended,
    found_unready,
    order_of,
    started,
)
from karmada_operator.runs import amiss_of
from karmada_operator.wishes import Wishes

SEEN = Seen(uid="u1", generation=1, claimed=True)
WITH_MEMBERS = replace(SEEN, access=(("m1", "k1"), ("m2", "k2")), members=frozenset({"m1", "m2"}))
PERIOD = 21600.0
BAD = Wishes(problems=(Problem("is nonsense", reason=Reason.INVALID_ARGUMENT),))


def after(seen: Seen, outcome: Outcome = Outcome.SUCCEEDED, memory: Memory | None = None, **more: Any) -> Memory:
    """Memory after a run at time 0 for what is seen."""
    return ended(started(memory or Memory(), order_of(seen)), outcome, 0.0, period=PERIOD, chance=0.0, **more)


def test_the_finalizer_is_there_before_anything_is_done() -> None:
    assert decide(replace(SEEN, claimed=False), Memory(), 0.0) == Claim()


@pytest.mark.parametrize("seen", [replace(SEEN, claimed=False), SEEN, replace(SEEN, deleting=True)])
def test_a_paused_object_is_left_alone(seen: Seen) -> None:
    assert isinstance(decide(replace(seen, wishes=Wishes(paused=True)), Memory(), 0.0), Wait)
    assert isinstance(decide(replace(seen, wishes=BAD), Memory(), 0.0), Refuse)


def test_a_new_object_is_a_change_and_a_settled_one_a_look() -> None:
    assert decide(SEEN, Memory(), 0.0) == Start(order_of(SEEN), Lane.CHANGES, "it is new")
    settled = replace(SEEN, settled=True)
    assert decide(settled, Memory(), 0.0) == Start(order_of(SEEN), Lane.ROUTINE, "the operator has just started")


def test_one_that_does_not_work_when_the_operator_starts_waits_for_no_other() -> None:
    """The first looks come one after the other, and none while one fails that worked."""
    settled = replace(SEEN, settled=True)
    for seen in (settled, replace(settled, on_hosts=True)):
        trouble = decide(seen, Memory(), 0.0, Around(trouble="the API server does not answer"))
        assert trouble == Start(order_of(seen), Lane.CHANGES, "the API server does not answer")
        sign = decide(seen, Memory(), 0.0, Around(suspicion="nobody renews the Lease of x"))
        # In pods, what does not run is seen there.
        lane = Lane.CHANGES if seen.on_hosts else Lane.ROUTINE
        assert isinstance(sign, Start)
        assert (sign.lane, sign.order) == (lane, order_of(seen))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"generation": 2}, "the document was edited"),
        ({"wishes": Wishes(run_now="now")}, "run-now asks for it"),
        ({"wishes": Wishes(dry_run=True)}, "dry-run was set or taken away"),
        ({"wishes": Wishes(confirmations=(("c", ("m1",)),))}, "a confirmation was given or taken back"),
    ],
)
def test_what_starts_a_run(change: dict[str, Any], why: str) -> None:
    changed = replace(SEEN, **change)
    assert decide(changed, after(SEEN), 1.0) == Start(order_of(changed), Lane.CHANGES, why)
    # Back-off is for the order that failed, not for its correction.
    assert decide(changed, after(SEEN, Outcome.FAILED), 1.0) == Start(order_of(changed), Lane.CHANGES, why)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED])
def test_a_word_that_is_taken_away_asks_for_nothing(outcome: Outcome) -> None:
    asked = replace(SEEN, wishes=Wishes(run_now="w"))
    memory = after(asked, outcome)
    assert isinstance(decide(SEEN, memory, 1.0), Wait)
    assert isinstance(decide(asked, memory, 1.0), Wait), "nor does the same one that comes back"
    for change in ({"generation": 2}, {"wishes": Wishes(run_now="v")}):
        assert isinstance(decide(replace(SEEN, **change), memory, 1.0), Start)  # type: ignore[arg-type] # fields of it


def test_a_secret_that_changed_starts_a_run() -> None:
    action = decide(SEEN, after(SEEN), 1.0, Around("other"))
    assert isinstance(action, Start)
    assert "Secret" in action.why


def test_the_period_and_doubts_start_a_look() -> None:
    memory = after(SEEN)
    assert decide(SEEN, memory, 1.0) == Wait("everything is done", PERIOD)
    assert decide(SEEN, memory, PERIOD) == Start(order_of(SEEN), Lane.ROUTINE, "the period is over")
    doubted = replace(memory, doubt="Deployment prod-webhook is gone")
    assert decide(SEEN, doubted, 1.0) == Start(order_of(SEEN), Lane.CHANGES, "Deployment prod-webhook is gone")


def test_who_keeps_changing_things_gets_an_answer_less_and_less_often() -> None:
    memory, now, waits = after(SEEN), 1.0, []
    for _ in range(5):
        memory = replace(memory, doubt="Deployment prod-webhook was changed")
        action = decide(SEEN, memory, now)
        if isinstance(action, Wait):
            assert action.until
            waits.append(action.until - now)
            now = action.until
        assert isinstance(decide(SEEN, memory, now), Start)
        memory = ended(started(memory, order_of(SEEN)), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0)
    assert waits == [5, 10, 20, 40]
    calm = ended(started(memory, order_of(SEEN)), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0)
    assert isinstance(decide(SEEN, replace(calm, doubt="again"), now), Start)


def test_failures_wait_longer_each_time_and_what_only_edits_mend_waits_for_them() -> None:
    memory, waits = Memory(), []
    for _ in range(9):
        memory = after(SEEN, Outcome.FAILED, memory)
        action = decide(SEEN, memory, 0.0)
        assert isinstance(action, Wait)
        waits.append(action.until)
    assert waits == [5, 10, 20, 40, 80, 160, 320, 600, 600]
    assert isinstance(decide(SEEN, memory, 600.0), Start)
    assert after(SEEN, memory=memory).failures == 0
    only_edits = after(SEEN, Outcome.FAILED, reasons=frozenset({Reason.INVALID_DOCUMENT}))
    assert only_edits.retry_at == PERIOD
    both = after(SEEN, Outcome.FAILED, reasons=frozenset({Reason.INVALID_DOCUMENT, Reason.MEMBER_UNREACHABLE}))
    assert both.retry_at == 5


def test_deletion_has_a_lane_of_its_own_also_in_the_middle_of_an_install() -> None:
    going = replace(SEEN, deleting=True)
    running = started(Memory(), order_of(SEEN))
    assert decide(going, running, 0.0) == Cancel("the object is being deleted")
    # Once is enough.
    assert isinstance(decide(going, replace(running, cancelled="the object is being deleted"), 0.0), Wait)
    memory = ended(running, Outcome.CANCELLED, 0.0, period=PERIOD, chance=0.0)
    action = decide(going, memory, 0.0)
    assert action == Start(order_of(going), Lane.DELETIONS, "the object is being deleted")
    removed = ended(started(memory, order_of(going)), Outcome.SUCCEEDED, 0.0, period=PERIOD, chance=0.0)
    assert decide(going, removed, 0.0) == Release(kept=False)
    assert decide(replace(going, claimed=False), removed, 0.0) == Wait("is going; others hold it, not the operator")
    assert decide(None, removed, 0.0) == Forget()


def test_an_edit_of_one_that_is_being_deleted_is_not_kept_waiting_by_a_removal_that_failed() -> None:
    # The API server has made another generation of it when it was deleted.
    going = replace(SEEN, generation=2, deleting=True)
    removal = started(after(SEEN), order_of(going))
    edited = replace(going, generation=3)
    assert isinstance(decide(edited, removal, 1.0), Wait), "one that goes on is not started anew"
    for reasons in (frozenset({"InvalidDocument"}), frozenset[str]()):
        failed = ended(removal, Outcome.FAILED, 1.0, period=PERIOD, chance=0.0, reasons=reasons)
        assert isinstance(decide(going, failed, 1.0), Wait)
        again = Start(order_of(edited), Lane.DELETIONS, "the document was edited")
        assert decide(edited, failed, 1.0) == again
        assert again.order.document == 3
        twice = ended(started(failed, again.order), Outcome.FAILED, 2.0, period=PERIOD, chance=0.0)
        assert (twice.failures, twice.retry_at) == (1, 2.0 + reconcile.FIRST_RETRY), "back-off is for what failed"
        assert decide(edited, twice, 2.0) == Wait("the last run failed", twice.retry_at)
        thrice = ended(started(twice, again.order), Outcome.FAILED, 9.0, period=PERIOD, chance=0.0)
        assert thrice.failures == 2


def test_a_removal_is_none_for_the_generation_that_deleting_makes() -> None:
    going = replace(SEEN, generation=2, deleting=True)
    done = ended(started(after(SEEN), order_of(going)), Outcome.SUCCEEDED, 1.0, period=PERIOD, chance=0.0)
    assert decide(replace(going, generation=3), done, 1.0) == Release(kept=False), "what is gone is not removed again"
    # One that an older operator started does not say which document it was for.
    unknown = replace(order_of(going), document=0)
    failed = ended(started(Memory(), unknown), Outcome.FAILED, 1.0, period=PERIOD, chance=0.0)
    assert isinstance(decide(going, failed, 1.0), Wait)


def test_what_can_be_reached_no_more_holds_no_object() -> None:
    going = replace(SEEN, deleting=True, needs=frozenset({"host"}), access=(("m1", "k1"), ("m2", "k2")))
    assert decide(going, Memory(), 0.0, Around(lost=frozenset({"host", "k1"}))) == Release(
        kept=True, left="the control plane; it cannot be reached any more: no Secret host"
    )
    paused = replace(going, wishes=Wishes(paused=True))
    assert isinstance(decide(paused, Memory(), 0.0, Around(lost=frozenset({"host"}))), Wait)
    around = Around(lost=frozenset({"k2"}))
    action = decide(going, Memory(), 0.0, around)
    assert isinstance(action, Start)
    assert action.order.given_up == ("m2",)
    # A Secret that goes while the removal fails starts the next attempt at once, without that member.
    failed = ended(started(Memory(), order_of(going)), Outcome.FAILED, 0.0, period=PERIOD, chance=0.0)
    assert isinstance(decide(going, failed, 0.0), Wait)
    again = order_of(going, around)
    assert decide(going, failed, 0.0, around) == Start(again, Lane.DELETIONS, "the object is being deleted")
    assert order_of(replace(going, deleting=False), around).given_up == ()


def test_another_namespace_that_is_gone_or_closed_holds_no_object() -> None:
    going = replace(SEEN, deleting=True, elsewhere="far", members=frozenset({"m1"}))
    assert decide(going, Memory(), 0.0, Around(gone=True)) == Release(kept=False, left="what joining put on m1")
    assert decide(replace(going, members=frozenset()), Memory(), 0.0, Around(gone=True)) == Release(kept=False)
    closed = decide(going, Memory(), 0.0, Around(closed=True))
    assert isinstance(closed, Release)
    assert closed.kept
    assert closed.left.startswith("the control plane in namespace far; ")
    for around in (Around(gone=True), Around(closed=True)):
        assert isinstance(decide(replace(going, wishes=Wishes(paused=True)), Memory(), 0.0, around), Wait)
        assert isinstance(decide(replace(going, wishes=Wishes(dry_run=True)), Memory(), 0.0, around), Start)
        assert isinstance(decide(replace(going, deleting=False), Memory(), 0.0, around), Start)


def test_a_namespace_that_is_going_is_not_held_after_one_attempt() -> None:
    going, around = replace(SEEN, deleting=True, members=frozenset({"m2", "m1"})), Around(going=True)
    assert isinstance(decide(going, Memory(), 0.0, around), Start)
    failed = ended(started(Memory(), order_of(going)), Outcome.FAILED, 0.0, period=PERIOD, chance=0.0)
    assert decide(going, failed, 0.0, around) == Release(kept=False, left="what joining put on m1, m2")
    assert isinstance(decide(going, failed, 0.0), Wait)


def test_trouble_is_looked_at_once_and_so_is_its_end() -> None:
    trouble = Around(trouble="cannot reach it")
    look = replace(order_of(SEEN), operation=Operation.LOOK, in_trouble=True)
    memory = after(SEEN)
    assert isinstance(decide(SEEN, memory, 1.0), Wait)
    assert decide(SEEN, memory, 1.0, trouble) == Start(look, Lane.ROUTINE, "cannot reach it")
    healed = ended(started(memory, look), Outcome.SUCCEEDED, 1.0, period=PERIOD, chance=0.0)
    assert decide(SEEN, healed, 2.0) == Wait("everything is done", 1.0 + LOOK_AGAIN), "whatever comes and goes"
    for outcome in Outcome:
        looked = ended(started(memory, look), outcome, 100.0, period=PERIOD, chance=0.0)
        assert looked.done == order_of(SEEN), "a look does nothing and undoes nothing"
        assert looked.failed is None
        assert decide(SEEN, looked, 1000.0, trouble) == Wait("everything is done", looked.next_at)
        assert decide(SEEN, looked, 1000.0) == Start(replace(look, in_trouble=False), Lane.ROUTINE, "to see how it is")
    # Whatever is to be done comes first.
    assert decide(replace(SEEN, generation=2), memory, 100.0, trouble).order.operation is Operation.INSTALL  # type: ignore[union-attr]


def test_a_sign_that_something_does_not_run_is_looked_at_once_on_plain_hosts() -> None:
    """Such as another leader: the one before it may have ended for good. In pods that is seen without a look."""
    hosts, sign = replace(SEEN, on_hosts=True), Around(suspicion="another process holds the Lease of x (1)")
    look = replace(order_of(hosts), operation=Operation.LOOK, suspicion=sign.suspicion)
    memory = after(hosts)
    assert decide(hosts, memory, LOOK_AGAIN, sign) == Start(look, Lane.ROUTINE, sign.suspicion)
    assert isinstance(decide(SEEN, memory, LOOK_AGAIN, sign), Wait)
    assert decide(hosts, memory, 1.0, sign) == Start(look, Lane.ROUTINE, sign.suspicion)
    looked = ended(started(memory, look), Outcome.SUCCEEDED, 100.0, period=PERIOD, chance=0.0, unready="")
    assert isinstance(decide(hosts, looked, 1000.0, sign), Wait)
    another = Around(suspicion="another process holds the Lease of x (2)")
    assert isinstance(decide(hosts, looked, 1000.0, another), Start)
    # Probes begin anew after a run, and so do their signs.
    run = ended(started(looked, order_of(hosts)), Outcome.SUCCEEDED, 1000.0, period=PERIOD, chance=0.0)
    assert isinstance(decide(hosts, run, 1100.0), Wait)
    assert isinstance(decide(hosts, run, 1100.0, sign), Start)


def test_what_a_look_finds_stopped_on_plain_hosts_is_brought_back() -> None:
    hosts = replace(SEEN, on_hosts=True)
    look = replace(order_of(hosts), operation=Operation.LOOK, in_trouble=True)
    memory, told = after(hosts), "karmada-webhook has 0 of 1 ready"
    looked = ended(started(memory, look), Outcome.SUCCEEDED, 100.0, period=PERIOD, chance=0.0, unready=told)
    assert decide(hosts, looked, 100.0) == Start(order_of(hosts), Lane.CHANGES, told)
    # Whoever keeps stopping it is answered less and less often.
    again = ended(started(looked, order_of(hosts)), Outcome.SUCCEEDED, 110.0, period=PERIOD, chance=0.0)
    assert (again.doubt, again.doubts) == ("", 1)
    looked = ended(started(again, look), Outcome.SUCCEEDED, 111.0, period=PERIOD, chance=0.0, unready=told)
    assert decide(hosts, looked, 111.0) == Wait("everything is done", looked.doubt_from)
    assert isinstance(decide(hosts, looked, looked.doubt_from), Start)
    # A run that failed has its own time to be tried again.
    failed = replace(memory, done=None, failed=order_of(hosts), retry_at=1000.0)
    assert ended(started(failed, look), Outcome.SUCCEEDED, 1.0, period=PERIOD, chance=0.0, unready=told).doubt == ""


def test_trouble_in_pods_that_does_not_pass_is_answered_by_a_run() -> None:
    """Such as a Service or a Secret that somebody has deleted, which nobody watches."""
    trouble = Around(trouble="the API server does not answer")
    look = replace(order_of(SEEN), operation=Operation.LOOK, in_trouble=True)
    told = "no answer of the API server"
    looked = ended(started(after(SEEN), look), Outcome.SUCCEEDED, 100.0, period=PERIOD, chance=0.0, amiss=told)
    assert decide(SEEN, looked, 100.0, trouble) == Wait("everything is done", 130.0), "it may come back by itself"
    assert decide(SEEN, looked, 130.0, trouble) == Start(order_of(SEEN), Lane.CHANGES, told)
    # It did, and that is looked at.
    assert decide(SEEN, looked, 200.0) == Start(replace(look, in_trouble=False), Lane.ROUTINE, "to see how it is")
    # A run that does not help is followed by another one later each time.
    waits, memory, now = [], looked, 130.0
    for _ in range(8):
        memory = ended(started(memory, order_of(SEEN)), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0)
        now = max(memory.look_from, now)
        memory = ended(started(memory, look), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0, amiss=told)
        action = decide(SEEN, memory, now, trouble)
        assert isinstance(action, Wait)
        assert action.until
        waits.append(action.until - now)
        now = action.until
        assert isinstance(decide(SEEN, memory, now, trouble), Start)
    assert waits[0] == 30.0
    assert waits[-1] > 300.0
    assert ended(started(memory, look), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0).amiss == ""


def test_what_a_report_has_against_a_control_plane_in_pods() -> None:
    def report(**found: str) -> dict[str, Any]:
        return {"conditions": [{"type": kind, "status": each, "message": kind} for kind, each in found.items()]}

    assert amiss_of(report(ControlPlaneReady="False", ComponentsReady="True", Ready="False")) == "ControlPlaneReady"
    assert amiss_of(report(MembersReady="False", EtcdHealthy="Unknown", Ready="False")) == ""
    assert amiss_of(None) == ""


def test_in_quarantine_nothing_is_installed_and_its_end_is_looked_for() -> None:
    held = replace(SEEN, generation=2, quarantined=True)
    found = decide(held, after(SEEN), 1.0)
    assert found == Wait("a restore holds it, until that is released or taken back", 300.0, "Quarantined")
    moved = decide(replace(held, held="HandedOver"), after(SEEN), 1.0)
    assert moved == Wait("it was handed over, and is at another place", 300.0, "HandedOver")
    partly = decide(replace(held, held="PartReleased"), after(SEEN), 1.0)
    assert isinstance(partly, Wait)
    assert (partly.why[:24], partly.reason) == ("a part of it is released", "Quarantined")
    look = decide(held, after(SEEN), 300.0)
    assert isinstance(look, Start)
    assert (look.order.operation, look.lane) == (Operation.LOOK, Lane.ROUTINE)
    refused = after(SEEN, Outcome.FAILED, reasons=frozenset({Reason.QUARANTINED}))
    assert decide(SEEN, refused, 59.0) == Wait("the last run failed", 60.0), "its status may not be seen yet"
    # It is removed all the same, and goes on when the restore is over.
    assert isinstance(decide(replace(held, deleting=True), after(SEEN), 1.0), Start)
    assert isinstance(decide(replace(held, quarantined=False), after(SEEN), 1.0), Start)


def test_what_is_at_another_place_is_looked_at_once_and_waits_for_a_change() -> None:
    """Whatever else its refusal has found: nothing of this place is to work again."""
    moved = after(SEEN, Outcome.FAILED, reasons=frozenset({Reason.MOVED, Reason.MEMBER_UNREACHABLE}))
    look = replace(order_of(SEEN), operation=Operation.LOOK)
    assert decide(SEEN, moved, 0.0) == Start(look, Lane.ROUTINE, "to see whether it was handed over")
    unseen = ended(started(moved, look), Outcome.FAILED, 5.0, period=PERIOD, chance=0.0)
    assert decide(SEEN, unseen, 5.0) == Wait(
        "it is at another place, which its members follow", 5.0 + LOOK_AGAIN, "Moved"
    ), "a look that says nothing is followed by another one"
    # Its own record does not know of it: its members told. Nothing here can find that this has ended.
    followed = ended(started(moved, look), Outcome.SUCCEEDED, 5.0, period=PERIOD, chance=0.0, held=False)
    for now in (6.0, PERIOD - 1):
        assert decide(SEEN, followed, now) == Wait("it is at another place, which its members follow", PERIOD, "Moved")
    assert decide(SEEN, followed, PERIOD) == Start(order_of(SEEN), Lane.CHANGES, "it failed")
    edited = replace(SEEN, generation=2)
    assert decide(edited, followed, 6.0) == Start(order_of(edited), Lane.CHANGES, "the document was edited")
    # Its record says that it was handed over, and so does its status by now. An end of that is met by an attempt.
    over = ended(started(moved, look), Outcome.SUCCEEDED, 5.0, period=PERIOD, chance=0.0, held=True)
    held = replace(SEEN, quarantined=True, held="HandedOver")
    assert decide(held, over, 6.0) == Wait("it was handed over, and is at another place", 365.0, "HandedOver")
    assert decide(SEEN, over, 6.0) == Wait("the last run failed", 5.0 + LOOK_AGAIN), "its status may not be seen yet"
    assert decide(SEEN, over, 400.0) == Start(order_of(SEEN), Lane.CHANGES, "it failed")
    # Another failure is none of that.
    failed = ended(started(moved, order_of(SEEN)), Outcome.FAILED, 0.0, period=PERIOD, chance=0.0)
    assert decide(SEEN, failed, 0.0) == Wait("the last run failed", 10.0)
    going = order_of(replace(SEEN, deleting=True))
    removal = ended(
        started(Memory(), going), Outcome.FAILED, 0.0, period=PERIOD, chance=0.0, reasons=frozenset({Reason.MOVED})
    )
    assert decide(replace(SEEN, deleting=True), removal, 1.0) == Wait("the last run failed", PERIOD)


def test_plain_hosts_are_looked_at_each_hour() -> None:
    hosts = replace(SEEN, on_hosts=True)
    memory = after(hosts)
    assert decide(hosts, memory, LOOK_AT_HOSTS - 1) == Wait("everything is done", LOOK_AT_HOSTS)
    action = decide(hosts, memory, LOOK_AT_HOSTS)
    assert isinstance(action, Start)
    assert (action.order.operation, action.lane) == (Operation.LOOK, Lane.ROUTINE)


def test_a_dry_run_of_a_removal_removes_no_finalizer() -> None:
    going = replace(SEEN, deleting=True, wishes=Wishes(dry_run=True))
    assert isinstance(decide(going, after(going), 0.0), Wait)


def test_a_label_keeps_the_instance_even_if_nothing_else_can_be_read() -> None:
    assert decide(replace(SEEN, deleting=True, keep=True, wishes=BAD), Memory(), 0.0) == Release(kept=True)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (None, "the object is gone"),
        (replace(SEEN, uid="u2"), "another object has the name"),
        (replace(SEEN, wishes=Wishes(paused=True)), "it was paused"),
        (replace(SEEN, wishes=BAD), "its annotations cannot be used"),
        (replace(SEEN, wishes=Wishes(dry_run=True)), "it was set to dry-run"),
    ],
)
def test_what_ends_a_run(seen: Seen | None, why: str) -> None:
    assert decide(seen, started(Memory(), order_of(SEEN)), 0.0) == Cancel(why)


def test_a_dry_run_ends_when_it_is_wanted_no_more() -> None:
    dry = replace(SEEN, wishes=Wishes(dry_run=True))
    running = started(Memory(), order_of(dry))
    assert isinstance(decide(dry, running, 0.0), Wait)
    assert decide(SEEN, running, 0.0) == Cancel("dry-run was taken away")
    removal = started(Memory(), order_of(replace(dry, deleting=True)))
    assert decide(replace(SEEN, deleting=True), removal, 0.0) == Cancel("dry-run was taken away")
    look = replace(running, running=replace(order_of(dry), operation=Operation.LOOK))
    assert isinstance(decide(SEEN, look, 0.0), Wait), "it is none"
    # What was carried out before is no news, but it is not the start of the operator either.
    over = ended(running, Outcome.CANCELLED, 0.0, period=PERIOD, chance=0.0)
    action = decide(replace(SEEN, settled=True), over, 0.0)
    assert action == Start(order_of(SEEN), Lane.CHANGES, "the last run was cancelled")


def test_what_lasts_in_pods_is_looked_at_less_and_less_often() -> None:
    """The watch of a workload says how many pods are ready, and a report why."""
    what = "Deployment x-webhook: 0 of 1 ready"
    memory = found_unready(after(SEEN), what, 10.0)
    assert decide(SEEN, memory, 10.0) == Wait("everything is done", 40.0), "it may pass by itself"
    assert decide(SEEN, found_unready(memory, "", 20.0), 50.0) == Wait("everything is done", PERIOD)
    now, pauses = 40.0, []
    for _ in range(8):
        action = decide(SEEN, memory, now)
        assert isinstance(action, Start)
        assert (action.order.operation, action.lane, action.why) == (Operation.LOOK, Lane.ROUTINE, what)
        memory = ended(started(memory, action.order), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0)
        # One that crashes is ready now and then.
        memory = found_unready(found_unready(memory, "", now), what, now)
        pauses.append(memory.unready_from - now)
        now = memory.unready_from
    assert pauses == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
    again = ended(started(memory, order_of(SEEN)), Outcome.SUCCEEDED, now, period=PERIOD, chance=0.0)
    assert decide(SEEN, found_unready(again, what, now), now) == Wait("everything is done", now + 30.0)


def test_a_cancelled_look_leaves_nothing_done() -> None:
    memory = started(after(SEEN), order_of(SEEN))
    memory = ended(memory, Outcome.CANCELLED, 1.0, period=PERIOD, chance=0.0)
    assert isinstance(decide(SEEN, memory, 1.0), Start)


def test_an_object_of_the_same_name_is_another_one() -> None:
    memory = after(SEEN)
    assert decide(replace(SEEN, uid="u2"), memory, 1.0) == Start(
        order_of(replace(SEEN, uid="u2")), Lane.CHANGES, "it is new"
    )


def test_two_runs_of_one_object_are_an_error() -> None:
    with pytest.raises(ValueError, match="under way"):
        started(started(Memory(), order_of(SEEN)), order_of(SEEN))


def test_the_longest_back_off_is_reached_by_any_number_of_failures() -> None:
    assert reconcile.back_off(10_000) == reconcile.LONGEST_RETRY
