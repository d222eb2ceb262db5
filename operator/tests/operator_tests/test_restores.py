# SPDX-License-Identifier: Apache-2.0
"""Decisions about EtcdRestores: nothing is restored without its confirmation, nothing released before it was read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE, UNDO
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from karmada_operator import restores
from karmada_operator.actions import Cancel, Forget, Refuse, Start, Wait
from karmada_operator.executor import Ending, Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Beside, Operation, Order, Restore, Seen
from karmada_operator.reconcile import Memory, ended, started
from karmada_operator.restores import NONE_EARLIER, decide, seen_of
from karmada_operator.status import Told, composed
from karmada_operator.telling import OfRestores, noticed
from karmada_operator.wishes import PAUSED, RUN_NOW

INSTALLED = Seen(uid="d1", generation=1, claimed=True, installed=True)
BESIDE = Beside(INSTALLED)
BACKUP = "prod-20261125t020000z-1f3a9c"
SEEN = Seen(uid="u1", generation=1, claimed=True, deployment="prod", restore=Restore())
NOW = datetime(2026, 11, 25, tzinfo=UTC)
RUN = {"id": "r", "playbook": "p", "startTime": "2026-11-23T00:00:00Z"}


def seen(generation: int = 1, **fields: Any) -> Seen:
    return replace(SEEN, generation=generation, restore=Restore(**fields))


def test_what_decides_of_an_object() -> None:
    spec = {
        "deploymentRef": {"name": "prod"},
        "backupRef": {"name": "hourly"},
        "confirm": BACKUP,
        "identitySecretRef": {"name": "key"},
        "decision": "Undo",
    }
    status = {"phase": "Quarantined", "observedGeneration": 2, "earlierDecision": "Undo"}
    meta = {"name": "back", "namespace": "a", "uid": "u1", "generation": 3, "annotations": {RUN_NOW: "{{ x }}"}}
    found = seen_of({"metadata": meta, "spec": spec, "status": status})
    assert found.restore == Restore("", BACKUP, UNDO, "Quarantined", 2, "Undo")
    assert found.references == (("Secret", "key"),)
    assert isinstance(decide(found, Memory(), 0.0, BESIDE), Refuse)


def test_it_is_judged_at_once_and_waits_for_its_confirmation() -> None:
    action = decide(seen(), Memory(), 0.0, BESIDE)
    assert isinstance(action, Start)
    assert (action.lane, action.order.operation, action.why) == (
        Lane.RESTORES,
        Operation.RESTORE,
        "to see what would be lost",
    )
    memory = ended(
        started(Memory(), action.order),
        Outcome.FAILED,
        0.0,
        period=21600,
        chance=0.0,
        reasons=frozenset({Reason.RESTORE_NOT_CONFIRMED.value}),
    )
    waiting = seen(phase="AwaitsConfirmation", carried_out=1)
    found = decide(waiting, memory, 700.0, BESIDE)
    assert isinstance(found, Wait)
    assert found.reason == "AwaitsConfirmation"
    # The operator after this one finds it so, and starts nothing.
    assert isinstance(decide(waiting, Memory(), 0.0, BESIDE), Wait)
    confirmed = seen(2, phase="AwaitsConfirmation", carried_out=1, confirm=BACKUP)
    for each in (memory, Memory()):
        found = decide(confirmed, each, 700.0, BESIDE)
        assert isinstance(found, Start)
        assert found.why == f"{BACKUP} is confirmed"


def test_what_a_survivor_has_is_confirmed_by_the_name_of_the_member() -> None:
    spec = {"deploymentRef": {"name": "prod"}, "backupRef": {"name": "hourly"}, "survivor": "prod-etcd-0"}
    meta = {"name": "back", "namespace": "a", "uid": "u1", "generation": 2}
    status = {"phase": "AwaitsConfirmation", "observedGeneration": 2}
    waiting = seen_of({"metadata": meta, "spec": spec, "status": status})
    found = decide(waiting, Memory(), 0.0, BESIDE)
    assert isinstance(found, Wait)
    assert found.why == "the loss is told; if it is meant, write the name of the survivor, prod-etcd-0: spec.confirm"
    confirmed = {"metadata": {**meta, "generation": 3}, "spec": {**spec, "confirm": "prod-etcd-0"}, "status": status}
    started_by = decide(seen_of(confirmed), Memory(), 0.0, BESIDE)
    assert isinstance(started_by, Start)
    assert (started_by.order.operation, started_by.why) == (Operation.RESTORE, "prod-etcd-0 is confirmed")
    ending = Ending(Outcome.SUCCEEDED, report={"phase": "Quarantined"})
    told = OfRestores().after(Told(), seen_of(confirmed), started_by.order, ending, RUN)
    assert told.phase == "Quarantined"
    assert told.fields["backup"] is None, "the run has named it, and a member is no backup"


def test_a_release_counts_only_if_it_was_written_in_quarantine() -> None:
    # Whatever else was edited since, as the Secret with the key taken out.
    for generation in (3, 4, 40):
        early = decide(seen(generation, phase="Quarantined", decision=RELEASE, earlier=RELEASE), Memory(), 0.0, BESIDE)
        assert isinstance(early, Wait)
        assert early.reason == "DecidedTooEarly"
    # Before it is noted what stood there, nobody knows when this was written.
    unknown = decide(seen(4, phase="Quarantined", decision=RELEASE), Memory(), 0.0, BESIDE)
    assert isinstance(unknown, Wait)
    assert unknown.reason == "AwaitsDecision"
    found = decide(seen(3, phase="Quarantined", decision=RELEASE, earlier=NONE_EARLIER), Memory(), 0.0, BESIDE)
    assert isinstance(found, Start)
    assert found.order == Order(Operation.RELEASE, "u1", 0)


def test_a_decision_is_noted_that_stood_there_before_the_quarantine_was_seen() -> None:
    def note(told: Told, **fields: Any) -> tuple[Told, str]:
        found = noticed(told, seen(**fields))
        return found, found.fields.get("earlierDecision", "")

    for phase in ("", "Pending", "AwaitsConfirmation", "Restoring"):
        assert note(Told(), phase=phase, decision=RELEASE) == (Told(), "")
    told, noted = note(Told(), phase="Quarantined", decision=RELEASE)
    assert noted == RELEASE
    # Of the same decision nothing new is told, by this operator and by the one after it.
    assert note(told, phase="Quarantined", decision=RELEASE) == (told, RELEASE)
    assert note(Told(), phase="Quarantined", decision=RELEASE, earlier=RELEASE) == (Told(), "")
    for told_before, earlier in ((told, ""), (told, RELEASE), (Told(), RELEASE)):
        without, noted = note(told_before, phase="Quarantined", decision="", earlier=earlier)
        assert noted == NONE_EARLIER
        # What is written from then on is a decision, also while the watch has not brought the note back yet.
        again, noted = note(without, phase="Quarantined", decision=RELEASE, earlier=earlier)
        assert (again, noted) == (without, NONE_EARLIER)
    # Another word is another decision.
    assert note(Told(), phase="Quarantined", decision=RELEASE, earlier=UNDO)[1] == NONE_EARLIER
    assert note(Told(), phase="Quarantined", decision=RELEASE, earlier=NONE_EARLIER) == (Told(), "")
    assert note(Told(), phase="Quarantined")[1] == NONE_EARLIER
    assert noticed(Told(), INSTALLED) == Told()


def test_a_note_that_could_not_be_written_is_told_again_at_rest() -> None:
    early = seen(phase="Quarantined", decision=RELEASE)
    told = OfRestores().at_rest(Told(), early, Wait("decide", reason="AwaitsDecision"), NOW)
    assert told.fields == {"earlierDecision": RELEASE}


@pytest.mark.parametrize("phase", ["Restoring", "Quarantined", "Undoing"])
def test_it_is_taken_back_from_anywhere(phase: str) -> None:
    # Also if that stood there before the quarantine: it reaches no member.
    found = decide(seen(2, phase=phase, decision=UNDO, earlier=UNDO), Memory(), 0.0, BESIDE)
    assert isinstance(found, Start)
    assert found.order.operation is Operation.UNDO


def test_what_was_never_begun_is_not_taken_back_unless_the_control_plane_is_held() -> None:
    undo = seen(2, phase="Pending", decision=UNDO)
    found = decide(undo, Memory(), 0.0, BESIDE)
    assert isinstance(found, Wait)
    assert found.reason == "NothingToUndo"
    held = Beside(replace(INSTALLED, quarantined=True))
    assert isinstance(decide(undo, Memory(), 0.0, held), Start)


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        (Beside(), "NoDeployment"),
        (Beside(replace(INSTALLED, installed=False)), "NotInstalled"),
        (Beside(replace(INSTALLED, deleting=True)), "BeingDeleted"),
        (Beside(replace(INSTALLED, wishes=replace(INSTALLED.wishes, paused=True))), "Paused"),
        (Beside(INSTALLED, "forth"), "AnotherRestore"),
    ],
    ids=["none", "new", "going", "paused", "another"],
)
def test_what_it_waits_for(beside: Beside, reason: str) -> None:
    found = decide(seen(confirm=BACKUP), Memory(), 0.0, beside)
    assert isinstance(found, Wait)
    assert (found.reason, found.until) == (reason, restores.LOOK)


@pytest.mark.parametrize("phase", ["Released", "Undone"])
def test_after_its_end_nothing_is_done(phase: str) -> None:
    for generation in (1, 2):
        found = decide(seen(generation, phase=phase, confirm=BACKUP, decision=UNDO), Memory(), 0.0, BESIDE)
        assert isinstance(found, Wait)


def test_in_quarantine_a_word_has_it_compared_again() -> None:
    order = Order(Operation.RESTORE, "u1", 1)
    memory = ended(started(Memory(), order), Outcome.SUCCEEDED, 0.0, period=1, chance=0.0)
    quarantined = seen(phase="Quarantined", earlier=NONE_EARLIER)
    assert isinstance(decide(quarantined, memory, 0.0, BESIDE), Wait)
    asked = replace(quarantined, wishes=replace(quarantined.wishes, run_now="again"))
    assert isinstance(decide(asked, memory, 0.0, BESIDE), Start)


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.UNDO])
def test_what_is_mended_beside_it_is_tried_again_soon_or_at_once_for_a_word_or_an_edit(operation: Operation) -> None:
    """Such as an overlay of the control plane, of which its own document knows nothing."""
    decision = {Operation.RELEASE: RELEASE, Operation.UNDO: UNDO}[operation]
    held = seen(3, phase="Quarantined", decision=decision, earlier=NONE_EARLIER)
    first = decide(held, Memory(), 0.0, BESIDE)
    assert isinstance(first, Start)
    assert first.order.operation is operation
    kept: dict[str, Any] = {"period": 21600, "chance": 0.0}
    memory = Memory()
    for _ in range(9):
        broken = frozenset({Reason.INVALID_OVERLAY})
        memory = ended(started(memory, first.order), Outcome.FAILED, 0.0, reasons=broken, **kept)
    assert decide(held, memory, 599.0, BESIDE) == Wait("the last run failed", 600.0, "Failed")
    assert isinstance(decide(held, memory, 600.0, BESIDE), Start)
    asked = replace(held, wishes=replace(held.wishes, run_now="mended"))
    for changed in (asked, replace(held, generation=4)):
        again = decide(changed, memory, 1.0, BESIDE)
        assert isinstance(again, Start)
        assert again.order.operation is operation
        done = ended(started(memory, again.order), Outcome.SUCCEEDED, 1.0, **kept)
        failed = ended(started(memory, again.order), Outcome.FAILED, 1.0, **kept)
        assert isinstance(decide(replace(changed, wishes=held.wishes), failed, 2.0, BESIDE), Wait), "it is taken away"
        for late in (held, asked):
            assert decide(late, done, 2.0, BESIDE) == Wait("its end is being told"), "a word does nothing over again"


def test_what_is_restored_is_not_restored_again_because_its_status_is_late() -> None:
    memory = ended(started(Memory(), Order(Operation.RESTORE, "u1", 2)), Outcome.SUCCEEDED, 0.0, period=1, chance=0.0)
    late = seen(3, phase="Restoring", carried_out=2, confirm=BACKUP, decision=RELEASE)
    assert decide(late, memory, 0.0, BESIDE) == Wait("its end is being told", restores.LOOK)


def test_a_run_goes_on_to_its_end_when_its_object_is_deleted() -> None:
    memory = started(Memory(), Order(Operation.RESTORE, "u1", 1))
    for gone in (None, replace(SEEN, uid="u2")):
        assert isinstance(decide(gone, memory, 0.0, BESIDE), Wait)
    paused = replace(SEEN, wishes=replace(SEEN.wishes, paused=True))
    assert decide(paused, memory, 0.0, BESIDE) == Cancel("it was paused")
    going = Beside(replace(INSTALLED, deleting=True))
    assert decide(SEEN, memory, 0.0, going) == Cancel("the control plane is being deleted")
    assert decide(None, Memory(), 0.0, BESIDE) == Forget()
    meta = {"name": "back", "namespace": "a", "uid": "u", "annotations": {PAUSED: "true"}}
    assert isinstance(decide(seen_of({"metadata": meta}), Memory(), 0.0, BESIDE), Wait)


@pytest.mark.parametrize("operation", [Operation.RELEASE, Operation.UNDO])
def test_who_waits_for_what_was_decided_waits_for_a_status_of_that_generation(operation: Operation) -> None:
    """kubectl wait passes over conditions of an older one."""
    decided, order = seen(3, phase="Quarantined", earlier=NONE_EARLIER), Order(operation, "u1", 0)
    action = Start(order, Lane.RESTORES, "it was decided")
    begun = OfRestores().begun(Told(phase="Quarantined", generation=2), decided, action)
    told = OfRestores().after(begun, decided, order, Ending(Outcome.SUCCEEDED, report={}), RUN)
    status = composed({}, told, NOW, frozenset({"conditions", "observedGeneration", "phase"}))
    assert status["observedGeneration"] == 3
    assert {each["observedGeneration"] for each in status["conditions"]} == {3}
