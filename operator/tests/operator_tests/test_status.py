# SPDX-License-Identifier: Apache-2.0
"""Status: phases, conditions with honest times."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import phases
from hypothesis import given, settings
from hypothesis import strategies as st
from karmada_operator import kinds, status, telling
from karmada_operator.actions import Start
from karmada_operator.executor import Ending, Outcome, Task
from karmada_operator.kinds import Lane
from karmada_operator.orders import Operation, Order, Part, Seen
from karmada_operator.probes import Member
from karmada_operator.status import Condition, Told, after, at_rest, at_task, begun, composed

from operator_tests.statuses import NOW, ORDER, READY, REPORT, conditions

REAL = kinds.load()["KarmadaDeployment"]
RUN = {"id": "r", "playbook": "karmada.installer.install", "startTime": "2026-11-23T00:00:00Z"}
tasks = st.builds(Task, st.just("P"), st.just("role"), st.just("T"), st.sampled_from(["", *phases.ORDER]))


@settings(deadline=None)
@given(st.lists(tasks), st.sampled_from([Lane.CHANGES, Lane.DELETIONS, Lane.ROUTINE]), st.booleans())
def test_phases_never_go_back_within_a_run(heard: list[Task], lane: Lane, removing: bool) -> None:
    order = replace(ORDER, operation=Operation.REMOVE) if removing else ORDER
    told = begun(Told(report=REPORT, phase="Completed"), order, lane, "why")
    reached = [told.phase]
    for each in heard:
        told = at_task(told, each)
        reached.append(told.phase)
    indices = [phases.ORDER.index(each) for each in reached]
    assert indices == sorted(indices)
    if lane is Lane.ROUTINE and not removing:
        assert set(reached) == {"Completed"}, "a look is no installation"


def test_what_holds_a_control_plane_is_its_phase_until_a_report_says_otherwise() -> None:
    refused = Ending(Outcome.FAILED, "it is being restored", reason="Quarantined")
    told = after(begun(Told(report=REPORT, phase="Completed"), ORDER, Lane.CHANGES, "why"), ORDER, refused, RUN)
    assert (told.phase, told.conditions["Progressing"].reason) == ("Quarantined", "Quarantined")
    assert "Degraded" not in told.conditions, "what was asked for is as good as it was"
    look = replace(ORDER, operation=Operation.LOOK)
    for phase in ("Quarantined", "Completed"):
        seen = Ending(Outcome.SUCCEEDED, report={**REPORT, "phase": phase})
        assert after(told, look, seen, RUN).phase == phase
    later = {**REPORT, "observedGeneration": 4}
    back = status.restored(replace(status.held(told, "back"), report=REPORT), later)
    assert back.report == REPORT, "an edit in quarantine is not carried out by its end"
    assert (back.phase, back.conditions["Progressing"].reason) == ("Completed", "Idle")


def test_what_is_at_another_place_says_so_and_once_its_record_does_it_is_held() -> None:
    problem = {"severity": "error", "reason": "Moved", "what": "it was handed over"}
    refused = Ending(Outcome.FAILED, "it was handed over", reason="Moved", problems=(problem,))
    told = after(begun(Told(report=REPORT, phase="Completed"), ORDER, Lane.CHANGES, "why"), ORDER, refused, RUN)
    told = at_rest(told, 3, paused=False, waits=("Moved", "it is at another place, which its members follow"))
    written = composed({}, told, NOW)
    found = conditions(written)
    assert [(found[each]["status"], found[each]["reason"]) for each in ("Degraded", "Progressing")] == [
        ("True", "Moved"),
        ("False", "Moved"),
    ]
    assert (written["phase"], written["problems"]) == ("Failed", [problem])
    look, holds = replace(ORDER, operation=Operation.LOOK), {"type": "Held", "status": "True", "reason": "HandedOver"}
    report = {**REPORT, "phase": "Quarantined", "conditions": [*REPORT["conditions"], {**holds, "message": ""}]}
    written = composed({}, after(told, look, Ending(Outcome.SUCCEEDED, report=report), RUN), NOW)
    found = conditions(written)
    assert (written["phase"], written.get("problems", [])) == ("Quarantined", [])
    assert [(found[each]["status"], found[each]["reason"]) for each in ("Degraded", "Held")] == [
        ("False", "Quarantined"),
        ("True", "HandedOver"),
    ]
    # Where only its members know, it stays what it was.
    written = composed({}, after(told, look, Ending(Outcome.SUCCEEDED, report=REPORT), RUN), NOW)
    assert (written["phase"], conditions(written)["Degraded"]["reason"]) == ("Failed", "Moved")


def test_what_holds_a_control_plane_is_what_was_told_last() -> None:
    """A part of an earlier restore is held again from the first task of the next one on, until a report says more."""

    def held(told: Told) -> str:
        return str(conditions(composed({}, told, NOW)).get("Held", {}).get("reason", ""))

    partly = {"type": "Held", "status": "True", "reason": "PartReleased", "message": "", "observedGeneration": 3}
    report = {**REPORT, "phase": "Quarantined", "conditions": [*REPORT["conditions"], partly]}
    look, seen = replace(ORDER, operation=Operation.LOOK), Ending(Outcome.SUCCEEDED, report=report)
    told = after(Told(3), look, seen, RUN)
    assert held(told) == "PartReleased"
    again = status.held(told, "another")
    assert held(again) == "Restored"
    assert held(after(again, look, seen, RUN)) == held(status.restored(again, report)) == "PartReleased"
    assert held(after(again, ORDER, Ending(Outcome.SUCCEEDED, report=REPORT), RUN)) == ""


def test_what_is_waited_for_is_told() -> None:
    told = at_task(begun(Told(), ORDER, Lane.CHANGES, "why"), Task("P", "etcd", "See it work", "Installing"))
    told = at_task(told, Task("P", "etcd", "See it work", "", "[9 s of 60 s] Deployment x: ErrImagePull"))
    assert (told.phase, told.conditions["Progressing"].message) == (
        "Installing",
        "See it work: [9 s of 60 s] Deployment x: ErrImagePull",
    )


def test_an_image_that_nobody_has_is_told_with_its_component_until_that_is_mended() -> None:
    why = "Deployment prod-webhook: ErrImagePull of image registry.invalid/nobody/webhook"
    failed = Ending(Outcome.FAILED, why, "See it work", reason="ImageNotAvailable", component="karmada-webhook")
    told = after(begun(Told(report=REPORT), ORDER, Lane.CHANGES, "why"), ORDER, failed, RUN)
    for kind, state in (("Degraded", True), ("MaterialFetched", False)):
        found = told.conditions[kind]
        assert (found.status, found.reason) == (state, "ImageNotAvailable")
        assert found.message == f"See it work: karmada-webhook: {why}"
    again = begun(told, ORDER, Lane.CHANGES, "the document was edited")
    assert again.conditions["MaterialFetched"].status is False, "until a run has come to its end"
    mended = after(again, ORDER, Ending(Outcome.SUCCEEDED, report=REPORT), RUN)
    assert mended.conditions["Degraded"].status is False
    assert "MaterialFetched" not in mended.conditions, "the report says it of what is there"


def test_a_time_is_that_of_the_change_of_status() -> None:
    told = Told(report=REPORT).having(Condition("Paused", False, "NotPaused", ""))
    first = composed({}, told, NOW)
    later = composed(first, told.having(Condition("Paused", False, "Another", "words")), NOW + timedelta(hours=1))
    assert conditions(later)["Paused"]["lastTransitionTime"] == "2026-11-23T00:00:00Z"
    assert conditions(later)["Paused"]["reason"] == "Another"
    last = composed(later, told.having(Condition("Paused", True, "Now", "")), NOW + timedelta(hours=2))
    assert conditions(last)["Paused"]["lastTransitionTime"] == "2026-11-23T02:00:00Z"
    assert conditions(last)["Ready"]["lastTransitionTime"] == "2026-11-23T00:00:00Z"


PARTS = [{"type": each, "status": "True"} for each in ("Ready", "ComponentsReady", "ControlPlaneReady", "MembersReady")]
WORKING = {
    **REPORT,
    "conditions": PARTS,
    "members": [{"name": "m1", "ready": True, "reason": "ClusterReady", "lastTransitionTime": "2026-11-01T00:00:00Z"}],
}


def test_a_member_that_is_lost_between_runs_is_told_with_the_time_and_so_is_its_return() -> None:
    unreachable = (Member("m1", False, "ClusterNotReachable"),)
    lost = Told(report={**WORKING, "membersReady": "1/1"}, members=unreachable, listed=frozenset({"m1"}))
    first = composed({}, lost, NOW)
    member = {"name": "m1", "ready": False, "reason": "ClusterNotReachable"}
    assert first["members"] == [{**member, "lastTransitionTime": "2026-11-23T00:00:00Z"}]
    assert first["membersReady"] == "0/1"
    assert conditions(first)["MembersReady"]["message"] == "not ready, or not as listed: m1"
    assert conditions(first)["Ready"]["reason"] == "NotReady"
    assert conditions(first)["ComponentsReady"]["status"] == "True"
    later = composed(first, lost, NOW + timedelta(hours=1))
    assert later == first, "nothing has changed, so nothing is to be written"
    back = composed(later, replace(lost, members=(Member("m1", True, "ClusterReady"),)), NOW + timedelta(hours=2))
    assert {each["status"] for each in back["conditions"]} == {"True"}
    assert back["members"][0]["ready"] is True


def test_a_member_that_becomes_ready_after_the_run_makes_the_control_plane_ready() -> None:
    parts = [{**each, "status": "False"} if each["type"] in ("Ready", "MembersReady") else each for each in PARTS]
    joining = {"name": "m1", "ready": False, "reason": "ClusterNotReachable"}
    report = {**REPORT, "conditions": parts, "members": [joining]}
    now_ready, listed = (Member("m1", True, "ClusterReady"),), frozenset({"m1", "m2"})
    found = composed({}, Told(report=report, members=now_ready, listed=listed), NOW)
    assert {kind: each["status"] for kind, each in conditions(found).items()} == {
        each["type"]: "True" for each in PARTS
    }
    broken = {**report, "members": [{**joining, "message": "its registration failed"}]}
    found = composed({}, Told(report=broken, members=now_ready, listed=listed), NOW)
    assert conditions(found)["MembersReady"]["status"] == "False", "a run has to mend it"
    absent = {**report, "members": [{"name": "m2", "ready": False, "reason": "NotJoined"}]}
    found = composed({}, Told(report=absent, members=now_ready, listed=listed), NOW)
    assert conditions(found)["Ready"]["status"] == "False"


def test_a_member_that_the_document_does_not_list_may_be_lost() -> None:
    told = Told(report=WORKING, members=(Member("m1", False, "ClusterNotReachable"),), listed=frozenset({"m2"}))
    found = composed({}, told, NOW)
    assert found["members"][0]["ready"] is False
    assert conditions(found)["Ready"]["status"] == "True"


def of_many(*changed: Member, away: str = "") -> dict[str, Any]:
    """Status of a control plane with 1,100 listed members, all ready at the last run, and what has changed since."""
    names = [f"m{number:04}" for number in range(1100)]
    entries = [{"name": name, "ready": True, "reason": "ClusterReady"} for name in names[:1000]]
    now = {name: Member(name, True, "ClusterReady") for name in names if name != away}
    now |= {each.name: each for each in changed}
    report = {**WORKING, "members": entries, "membersReady": "1100/1100"}
    told = Told(report=report, members=tuple(now.values()), listed=frozenset(names))
    found = composed({}, told, NOW)
    assert composed(found, told, NOW + timedelta(hours=1)) == found, "nothing has changed, so nothing is to be written"
    return found


def test_of_more_members_than_a_report_has_entries_each_that_is_lost_is_told() -> None:
    found = of_many()
    assert (found["membersReady"], len(found["members"])) == ("1100/1100", 1000)
    assert conditions(found)["Ready"]["status"] == "True"
    for name in ("m0007", "m1042"):
        found = of_many(Member(name, False, "ClusterNotReachable"))
        assert (found["membersReady"], len(found["members"])) == ("1099/1100", 1000)
        assert conditions(found)["MembersReady"]["message"] == f"not ready, or not as listed: {name}"
        assert conditions(found)["Ready"]["status"] == "False"
        (lost,) = (each for each in found["members"] if not each["ready"])
        assert (lost["name"], lost["reason"]) == (name, "ClusterNotReachable")
        found = of_many(away=name)
        assert found["membersReady"] == "1099/1100"
        assert conditions(found)["MembersReady"]["message"] == f"not ready, or not as listed: {name}"
        assert [each["reason"] for each in found["members"] if not each["ready"]] == ["NotJoined"]


def test_a_member_that_others_have_registered_since_is_counted_in_both() -> None:
    states = tuple(Member(name, True, "ClusterReady") for name in ("m1", "other"))
    found = composed({}, Told(report={**WORKING, "membersReady": "1/1"}, members=states, listed=frozenset({"m1"})), NOW)
    assert found["membersReady"] == "2/2"


def test_a_control_plane_that_does_not_answer_is_not_ready_with_the_reason() -> None:
    told = Told(report=WORKING, unanswered="cannot reach it", unready=("Deployment x: no pod",))
    found = conditions(composed({}, told, NOW))
    assert found["ControlPlaneReady"]["reason"] == "NotAnswering"
    assert found["Ready"]["message"] == "Deployment x: no pod; cannot reach it"
    assert found["MembersReady"]["status"] == "True"
    assert (
        conditions(composed({}, begun(told, ORDER, Lane.CHANGES, "why"), NOW))["ControlPlaneReady"]["status"] == "False"
    ), "a run that begins has mended nothing yet"
    ended = after(begun(told, ORDER, Lane.CHANGES, "why"), ORDER, Ending(Outcome.SUCCEEDED, report=WORKING), RUN)
    assert conditions(composed({}, ended, NOW))["Ready"]["status"] == "True"
    look = replace(ORDER, operation=Operation.LOOK)
    seen = {**WORKING, "components": [{"name": "etcd", "desired": 1, "ready": 0, "message": "it is Pending"}]}
    looked = after(begun(told, look, Lane.ROUTINE, "why"), look, Ending(Outcome.SUCCEEDED, report=seen), RUN)
    found = composed({}, looked, NOW)
    assert found["components"][0]["message"] == "it is Pending"
    assert conditions(found)["Ready"]["message"] == "Deployment x: no pod; cannot reach it"
    assert "lastRun" not in found


def test_components_are_told_as_they_are_between_runs() -> None:
    rows = [{"name": "etcd", "desired": 3, "ready": 3}, {"name": "karmada-webhook", "desired": 2, "ready": 2}]
    told = Told(report={**WORKING, "components": rows})
    assert composed({}, told, NOW)["components"] == rows
    why = "Deployment x-webhook: 1 of 2 ready"
    parts = (Part("etcd", 3, ""), Part("karmada-webhook", 1, why), Part("karmada-search", 0, "another"))
    lost = replace(told, parts=parts, unready=(why,))
    found = composed({}, lost, NOW)
    webhook = {"name": "karmada-webhook", "desired": 2, "ready": 1, "message": why}
    assert found["components"] == [rows[0], webhook]
    # A look has asked the pods, and that holds while as many are ready.
    pulled = {**webhook, "message": "1 of 2 ready; pod x: ErrImagePull"}
    look = replace(ORDER, operation=Operation.LOOK)
    seen = Ending(Outcome.SUCCEEDED, report={**WORKING, "components": [rows[0], pulled]})
    looked = after(lost, look, seen, RUN)
    assert composed(found, looked, NOW)["components"] == [rows[0], pulled]
    worse = replace(looked, parts=(Part("karmada-webhook", 0, "Deployment x-webhook: 0 of 2 ready"),))
    assert composed(found, worse, NOW)["components"][1]["message"] == "Deployment x-webhook: 0 of 2 ready"
    back = replace(looked, parts=(Part("etcd", 3, ""), Part("karmada-webhook", 2, "")))
    assert composed(found, back, NOW)["components"] == rows
    assert after(lost, ORDER, Ending(Outcome.SUCCEEDED, report=WORKING), RUN).parts == ()


def test_what_others_have_changed_is_told_until_a_run_has_put_it_right() -> None:
    words = ("Deployment x-webhook was changed", "Service x-webhook was deleted")
    drifted = replace(Told(generation=3, report=WORKING, phase="Completed"), drifted=words)
    first = composed({}, at_rest(drifted, 4, paused=True), NOW)
    found = conditions(first)["Drifted"]
    assert (found["status"], found["reason"], found["message"]) == ("True", "ChangedByOthers", "; ".join(words))
    assert found["observedGeneration"] == 3, "it is about what was carried out"
    assert conditions(first)["Ready"] == {**conditions(composed({}, Told(report=WORKING), NOW))["Ready"]}
    assert composed(first, at_rest(drifted, 4, paused=True), NOW + timedelta(hours=1)) == first
    failed = after(begun(drifted, ORDER, Lane.CHANGES, "why"), ORDER, Ending(Outcome.FAILED, "no image"), RUN)
    assert conditions(composed(first, failed, NOW))["Drifted"]["status"] == "True", "it is as it was"
    mended = after(begun(drifted, ORDER, Lane.CHANGES, "why"), ORDER, Ending(Outcome.SUCCEEDED, report=WORKING), RUN)
    assert conditions(composed(first, mended, NOW))["Drifted"]["reason"] == "AsTheDocumentSays"
    # The run before has said that nothing was; what comes since is news.
    again = conditions(composed({}, replace(mended, drifted=words[:1]), NOW))["Drifted"]
    assert (again["status"], again["message"]) == ("True", words[0])
    dry = after(drifted, replace(ORDER, dry_run=True), Ending(Outcome.SUCCEEDED, changed=2), RUN)
    assert conditions(composed({}, dry, NOW))["Drifted"]["reason"] == "DryRun", "it has looked at more"
    gone = replace(mended, drifted=())
    assert conditions(composed(first, gone, NOW))["Drifted"]["status"] == "False"


def test_what_an_earlier_operator_wrote_stays_until_there_is_news() -> None:
    former = composed({}, Told(report={**REPORT, "members": [{"name": "m", "ready": True}]}), NOW)
    found = composed(former, at_rest(Told(), 3, paused=True), NOW + timedelta(hours=1))
    assert found["members"] == former["members"]
    assert conditions(found)["Ready"] == conditions(former)["Ready"]
    assert conditions(found)["Paused"]["status"] == "True"


def test_trouble_that_an_earlier_operator_saw_stays_until_this_one_has_seen_its_end() -> None:
    """A run does not tell: it may be long until there is one, as of an object that is paused."""
    rows = [{"name": "etcd", "desired": 1, "ready": 1}, {"name": "karmada-webhook", "desired": 2, "ready": 2}]
    why = "Deployment x-webhook: 1 of 2 ready"
    lost = {"unready": (why,), "parts": (Part("etcd", 1, ""), Part("karmada-webhook", 1, why))}
    report = {**WORKING, "components": rows}
    former = composed({}, Told(report=report, unanswered="cannot reach it", **lost), NOW)
    told, hour = at_rest(Told(), 3, paused=True), timedelta(hours=1)

    def reasons(status: dict[str, Any]) -> list[str]:
        return [conditions(status)[each]["reason"] for each in ("ComponentsReady", "ControlPlaneReady", "Ready")]

    assert reasons(composed(former, told, NOW + hour)) == ["ComponentsNotReady", "NotAnswering", "ComponentsNotReady"]
    answering = replace(told, members=(Member("m1", True, "ClusterReady"),), listed=frozenset({"m1"}))
    found = composed(former, answering, NOW + hour)
    assert reasons(found) == ["ComponentsNotReady", "Answering", "ComponentsNotReady"]
    assert conditions(found)["Ready"]["message"] == why
    # What is gone since before that is watched by nobody: a run brings it back.
    watched = replace(answering, parts=(Part("etcd", 1, ""),))
    assert reasons(composed(former, watched, NOW + hour))[0] == "ComponentsNotReady"
    watched = replace(answering, parts=(Part("etcd", 1, ""), Part("karmada-webhook", 2, "")))
    found = composed(former, watched, NOW + hour)
    assert reasons(found) == ["AllReady", "Answering", "AllReady"]
    assert conditions(found)["Ready"]["lastTransitionTime"] == "2026-11-23T01:00:00Z"
    # A run that is cancelled begins the probes anew.
    again = composed(found, replace(watched, members=None), NOW + 2 * hour, first=former)
    assert reasons(again) == ["AllReady", "Answering", "AllReady"]
    worse = composed(again, replace(watched, unanswered="cannot reach it"), NOW + 3 * hour, first=former)
    assert reasons(worse) == ["AllReady", "NotAnswering", "NotAnswering"]
    of_a_run = [{**each, "reason": "NotReady", "status": "False"} for each in PARTS]
    found = composed({**former, "conditions": of_a_run}, watched, NOW)
    assert reasons(found)[:2] == ["NotReady", "NotReady"], "what a report says is for the next one to take back"


def test_ready_is_not_told_of_an_edit_before_that_is_carried_out() -> None:
    """Whoever waits for a condition compares its generation with that of the object."""
    rests = replace(Told(generation=3, report=WORKING, phase="Completed"), members=(), listed=frozenset())
    edited = begun(rests, replace(ORDER, generation=4), Lane.CHANGES, "the document was edited")
    found = conditions(composed({}, edited, NOW))
    assert found["Progressing"]["observedGeneration"] == 4
    assert (found["Ready"]["status"], found["Ready"]["observedGeneration"]) == ("True", 3)
    assert found["MembersReady"]["observedGeneration"] == 3
    lost = conditions(composed({}, replace(edited, unanswered="cannot reach it"), NOW))
    assert (lost["Ready"]["status"], lost["Ready"]["observedGeneration"]) == ("False", 3)


@pytest.mark.parametrize("known", [True, False], ids=["the-same-operator", "another-operator"])
def test_a_look_carries_no_edit_out(known: bool) -> None:
    """In quarantine an edit waits, while it is looked whether that is over."""
    former = composed({}, Told(generation=3, report=REPORT, phase="Quarantined"), NOW)
    told, look = Told(generation=4, report=REPORT if known else None), replace(ORDER, operation=Operation.LOOK)
    ready = {**READY, "observedGeneration": 4}
    seen = {**REPORT, "phase": "Quarantined", "observedGeneration": 4, "conditions": [ready]}
    for found in (
        after(begun(told, look, Lane.ROUTINE, "why"), look, Ending(Outcome.SUCCEEDED, report=seen), RUN),
        status.restored(told, seen),
    ):
        looked = composed(former, found, NOW)
        assert looked["observedGeneration"] == 3
        assert conditions(looked)["Ready"]["observedGeneration"] == 3


def test_what_came_of_the_last_run_is_not_told_of_an_edit_since() -> None:
    done = after(begun(Told(), ORDER, Lane.CHANGES, "it is new"), ORDER, Ending(Outcome.SUCCEEDED, report=REPORT), RUN)
    edited = begun(done, replace(ORDER, generation=4), Lane.CHANGES, "the document was edited")
    found = conditions(composed({}, edited, NOW))
    assert [found[each]["observedGeneration"] for each in ("Degraded", "Drifted", "Progressing", "Paused")] == [
        3,
        3,
        4,
        4,
    ]
    paused = conditions(composed({}, at_rest(done, 4, paused=True), NOW))
    assert [paused[each]["observedGeneration"] for each in ("Degraded", "Drifted", "Progressing", "Paused")] == [
        3,
        3,
        4,
        4,
    ]


@pytest.mark.parametrize("operation", [Operation.REMOVE, Operation.LOOK])
def test_an_operator_that_begins_with_a_removal_or_a_look_tells_the_generation_of_the_object(
    operation: Operation,
) -> None:
    seen, action = (
        Seen("u", 7, deleting=operation is Operation.REMOVE),
        Start(Order(operation, "u", 0), Lane.DELETIONS, "why"),
    )
    for told in (
        telling.of(REAL).begun(Told(), seen, action),
        telling.of(REAL).gone_on(Told(), seen, action, "Deleting"),
    ):
        assert conditions(composed({}, told, NOW))["Progressing"]["observedGeneration"] == 7


def test_the_last_run_stays_when_an_operator_that_does_not_remember_it_tells_a_report() -> None:
    former = {"phase": "Completed", "lastRun": {"id": "prod-1", "outcome": "succeeded"}}
    looked = status.composed(former, Told(report={"phase": "Quarantined"}), NOW)
    assert (looked["phase"], looked["lastRun"]) == ("Quarantined", former["lastRun"])
    newer = status.composed(former, Told(report={}, last_run={"id": "prod-2"}), NOW)
    assert newer["lastRun"] == {"id": "prod-2"}


def test_a_failed_run_does_not_make_what_works_unready() -> None:
    told = after(Told(report=REPORT), ORDER, Ending(Outcome.FAILED, "no image", "Check"), RUN)
    found = composed({}, told, NOW)
    assert conditions(found)["Ready"]["status"] == "True"
    assert conditions(found)["Degraded"]["message"] == "Check: no image"
    assert found["phase"] == "Failed"


def test_a_run_with_broken_members_has_a_report_and_is_degraded() -> None:
    problem = {"severity": "error", "reason": "MemberUnreachable", "what": "gone"}
    ending = Ending(Outcome.FAILED, "1 member", "Report", problems=(problem,), report={**REPORT, "problems": [problem]})
    found = composed({}, after(Told(), ORDER, ending, RUN), NOW)
    assert (found["phase"], found["problems"]) == ("Completed", [problem])
    assert conditions(found)["Degraded"]["reason"] == "MemberUnreachable"


def test_problems_go_with_the_run_that_has_none() -> None:
    failed = after(Told(), ORDER, Ending(Outcome.FAILED, "x", problems=({"severity": "error", "reason": "R"},)), RUN)
    former = composed({}, failed, NOW)
    assert former["problems"]
    assert composed(former, after(failed, ORDER, Ending(Outcome.SUCCEEDED), RUN), NOW)["problems"] == []


def test_a_cancelled_run_is_no_failure() -> None:
    told = after(begun(Told(), ORDER, Lane.CHANGES, "new"), ORDER, Ending(Outcome.CANCELLED, "paused"), RUN)
    assert "Degraded" not in told.conditions
    assert told.conditions["Progressing"].message == "the last run was cancelled"


def test_a_status_has_no_field_that_the_schema_does_not_know() -> None:
    told = after(Told(report={**REPORT, "ofTomorrow": 1}), ORDER, Ending(Outcome.SUCCEEDED), RUN)
    found = composed({}, told, NOW, REAL.status_fields)
    assert "ofTomorrow" not in found
    assert "conditions" in found


@settings(deadline=None)
@given(st.lists(tasks), st.sampled_from(list(Outcome)), st.text(max_size=2000), st.booleans())
def test_the_schema_accepts_every_status(heard: list[Task], outcome: Outcome, words: str, dry: bool) -> None:
    order = replace(ORDER, dry_run=dry)
    told = begun(at_rest(Told(), 1, paused=False), order, Lane.CHANGES, words[:1000])
    for each in heard:
        told = at_task(told, each)
    told = after(told, order, Ending(outcome, words, "Task", "Waiting", "NotReadyInTime", "etcd"), RUN)
    found = composed({}, told, NOW, REAL.status_fields)
    document = {
        "apiVersion": REAL.api_version,
        "kind": REAL.kind,
        "metadata": {"name": "x"},
        "spec": {},
        "status": found,
    }
    assert judged(document) == []


@functools.cache
def validator() -> jsonschema.protocols.Validator:
    schema = yaml.safe_load(manifest._SCHEMA_FILE.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return jsonschema.Draft202012Validator(schema["properties"]["status"])


def judged(document: dict[str, Any]) -> list[str]:
    return [each.message for each in validator().iter_errors(document["status"])]
