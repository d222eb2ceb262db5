# SPDX-License-Identifier: Apache-2.0
"""Releases of a part by an EtcdRestore: what is decided, what its status tells, and the operator's loop with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import RELEASE, UNDO, Part
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import parts, reconcile
from karmada_operator.actions import Refuse, Start, Wait
from karmada_operator.executor import Ending, Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Operation, Order, Seen
from karmada_operator.reconcile import Memory, ended, started
from karmada_operator.restores import NONE_EARLIER, decide, earlier_of, seen_of
from karmada_operator.status import Told, composed
from karmada_operator.telling import OfRestores, noticed

from operator_tests import test_belongings as belongings
from operator_tests.stand_ins import live, operating
from operator_tests.test_belongings import (
    BACKUP,
    DRIFT,
    INSTALLED,
    QUARANTINED,
    RESTORES,
    TABLE,
    condition,
    control_plane,
    edited,
    of,
    reasons,
    restore,
    settled,
    step,
)
from operator_tests.test_restores import BESIDE, NOW, RUN
from operator_tests.test_restores import seen as plainly

kinds = belongings.kinds
M1, SHOP_OF_M2 = Part(("m1",)), Part(("m2",), ("shop",))
#: What a run tells of it.
FACT = {"restore": "back", "clusters": [{"name": "m1", "namespaces": []}], "held": ["m2", "m3"]}
PART = [{"clusters": ["m1"]}]
FIELDS = frozenset({"phase", "conditions", "observedGeneration", "released", "held"})


def seen(*named: Part, phase: str = "Quarantined", generation: int = 3, **fields: Any) -> Seen:
    defaults = {"decision": RELEASE, "earlier": NONE_EARLIER, "named": parts.Named(named)}
    return plainly(generation, phase=phase, **{**defaults, **fields})


def partly(*named: Part, **fields: Any) -> Seen:
    return seen(*named, phase="PartlyReleased", **{"released": (("m1", ()),), "held": ("m2", "m3"), **fields})


# -- what is decided ---------------------------------------------------------------------------------------------------


def test_what_an_object_says_of_parts() -> None:
    spec = {
        "deploymentRef": {"name": "prod"},
        "decision": "Release",
        "release": [{"namespaces": ["shop"], "clusters": ["m2"]}, {"clusters": ["m1"]}],
        "keep": ["m3/a"],
        "letGo": ["m3/b"],
    }
    named = parts.Named((M1, SHOP_OF_M2), ("m3/a",), ("m3/b",))
    status = {
        "phase": "PartlyReleased",
        "earlierDecision": "Release",
        "earlierRelease": "abc",
        "released": [{"cluster": "m1"}, {"cluster": "m2", "namespaces": ["shop"]}],
        "held": ["m2"],
    }
    found = seen_of({"metadata": {"uid": "u1"}, "spec": spec, "status": status}).restore
    assert found
    assert (found.named, found.earlier, found.held) == (named, "Release abc", ("m2",))
    assert found.released == (("m1", ()), ("m2", ("shop",)))


def test_names_that_cannot_be_used_are_refused_before_any_run() -> None:
    spec = {"deploymentRef": {"name": "prod"}, "decision": "Release", "release": [{"clusters": ["{{ x }}"]}]}
    status = {"phase": "Quarantined", "earlierDecision": "None"}
    found = decide(seen_of({"metadata": {"uid": "u1"}, "spec": spec, "status": status}), Memory(), 0.0, BESIDE)
    assert isinstance(found, Refuse)
    assert [each.where for each in found.problems] == ["spec.release"]


def test_the_parts_of_a_decision_are_what_its_order_is_for() -> None:
    found = decide(seen(M1, SHOP_OF_M2), Memory(), 0.0, BESIDE)
    assert isinstance(found, Start)
    assert found.order == Order(Operation.RELEASE, "u1", 0, parts=(M1, SHOP_OF_M2))
    assert found.why == "its decision is to release m1, m2 (namespace shop)"
    waits = decide(seen(M1, decision=""), Memory(), 0.0, BESIDE)
    assert isinstance(waits, Wait)
    assert waits.why == "in quarantine; decide: spec.decision Release or Undo (Release: m1)"


def test_other_parts_are_another_decision_and_the_same_ones_are_not() -> None:
    early = f"Release {parts.digest((M1,))}"
    waits = decide(seen(M1, generation=40, earlier=early), Memory(), 0.0, BESIDE)
    assert isinstance(waits, Wait)
    assert waits.reason == "DecidedTooEarly"

    def note(*named: Part, **fields: Any) -> dict[str, Any]:
        return dict(noticed(Told(), seen(*named, earlier=early, **fields)).fields)

    assert note(M1) == {}
    for changed in (note(SHOP_OF_M2), note(M1, SHOP_OF_M2), note(), note(M1, decision="")):
        assert changed == {"earlierDecision": NONE_EARLIER, "earlierRelease": None}
    # As it is seen first, in a status that an API server takes.
    told = noticed(Told(), seen(M1, earlier=""))
    status = composed({}, told, NOW)
    assert (status["earlierDecision"], status["earlierRelease"]) == ("Release", parts.digest((M1,)))
    assert earlier_of(status) == early
    assert noticed(told, seen(M1, earlier="")) == told
    after = noticed(told, seen(SHOP_OF_M2, earlier=early))
    assert "earlierRelease" not in composed(status, after, NOW)
    # One of an object that was made anew, while a part was released already, has not been read before, either.
    assert noticed(Told(), partly(earlier="")).fields == {"earlierDecision": "Release"}


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (partly(M1), "PartlyReleased", "Name more in spec.release, or take that out to release the rest"),
        (partly(M1, released=(("m1", ()), ("m2", ()))), "PartlyReleased", "stays released: m2. Name more"),
        (partly(M1, decision=""), "AwaitsDecision", "To release more, decide: spec.decision Release"),
        (partly(decision=UNDO), "CannotUndo", "Nothing takes it back once a part is released"),
        (partly(earlier=RELEASE), "DecidedTooEarly", "written before there was a quarantine"),
    ],
    ids=["carried out", "taken out", "no decision", "undo", "early"],
)
def test_what_it_waits_for_after_a_part(found: Seen, reason: str, words: str) -> None:
    waits = decide(found, Memory(), 0.0, BESIDE)
    assert isinstance(waits, Wait)
    assert waits.reason == reason
    assert words in waits.why


def test_after_a_part_more_is_released_and_at_last_the_rest() -> None:
    for named, why in (((M1, SHOP_OF_M2), "m1, m2 (namespace shop)"), ((), "the rest")):
        found = decide(partly(*named), Memory(), 0.0, BESIDE)
        assert isinstance(found, Start)
        assert (found.order.parts, found.why) == (named, f"its decision is to release {why}")
    # Namespaces on all clusters are those on clusters of which something is held.
    spaces = Part((), ("shop",))
    both = (("m1", ()), ("m2", ("shop",)), ("m3", ("bank", "shop")))
    assert isinstance(decide(partly(spaces, released=both), Memory(), 0.0, BESIDE), Wait)
    assert isinstance(decide(partly(spaces, released=both[:2]), Memory(), 0.0, BESIDE), Start)


def test_who_withdraws_it_in_its_course_releases_nothing_more() -> None:
    """Without its parts, a release would be one of everything."""
    for decision in ("", UNDO):
        found = decide(seen(phase="Releasing", decision=decision), Memory(), 0.0, BESIDE)
        assert isinstance(found, Start)
        assert (found.order.operation, found.order.parts) == (Operation.RESTORE, ())


# -- what is told ------------------------------------------------------------------------------------------------------


def after(found: Seen, ending: Ending, operation: Operation = Operation.RELEASE, told: Told | None = None) -> Told:
    order = Order(operation, "u1", 0, parts=found.restore.named.parts if found.restore else ())
    begun = OfRestores().begun(told or Told(), found, Start(order, Lane.RESTORES, "why"))
    return OfRestores().after(begun, found, order, ending, RUN)


REFUSED = Ending(
    Outcome.FAILED,
    message="m9 is not registered",
    reason=Reason.INVALID_ARGUMENT.value,
    problems=({"severity": "error", "reason": Reason.INVALID_ARGUMENT.value},),
)


@pytest.mark.parametrize(
    ("ending", "phase"),
    [
        (Ending(Outcome.SUCCEEDED, facts={"released": FACT}, report={"phase": "Quarantined"}), "PartlyReleased"),
        # Members that are broken make its report fail.
        (Ending(Outcome.FAILED, facts={"released": FACT}, report={"phase": "Quarantined"}), "PartlyReleased"),
        # It has ended an earlier part, and the names of its own are wrong; or it was killed in the next one.
        (replace(REFUSED, facts={"released": FACT}), "PartlyReleased"),
        (Ending(Outcome.LOST, facts={"released": FACT}), "Releasing"),
        (Ending(Outcome.LOST), "Releasing"),
        (REFUSED, "Quarantined"),
        (Ending(Outcome.SUCCEEDED, report={"phase": "Completed"}), "Released"),
    ],
    ids=["part", "broken members", "refused more", "killed in more", "killed", "refused", "all"],
)
def test_the_phase_after_a_release(ending: Ending, phase: str) -> None:
    told = after(seen(M1), ending)
    assert told.phase == phase
    status = composed({}, told, NOW, FIELDS)
    known = ("released", "held")
    wanted = ([{"cluster": "m1"}], ["m2", "m3"]) if "released" in ending.facts else (None, None)
    assert tuple(status.get(each) for each in known) == wanted
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True" if phase == "Released" else "False", phase)


def test_a_further_part_that_is_refused_leaves_the_first_and_the_rest_ends_it() -> None:
    told = after(seen(M1), Ending(Outcome.SUCCEEDED, facts={"released": FACT}, report={}))
    more = partly(M1, Part(("m9",)))
    for before in (told, Told()):
        refused = after(more, REFUSED, told=before)
        assert refused.phase == "PartlyReleased"
        assert refused.conditions["Degraded"].message == "m9 is not registered"
    former = composed({}, told, NOW)
    assert composed(former, after(more, REFUSED), NOW)["released"] == [{"cluster": "m1"}]
    whole = after(partly(), Ending(Outcome.SUCCEEDED, report={"phase": "Completed"}), told=told)
    assert not {"released", "held"} & composed(former, whole, NOW).keys()


def test_a_part_that_somebody_has_released_with_a_playbook_is_seen_by_the_next_look() -> None:
    ending = Ending(Outcome.SUCCEEDED, facts={"released": FACT}, report={"phase": "Quarantined"})
    assert after(seen(decision=""), ending, Operation.RESTORE).phase == "PartlyReleased"
    # An undo of a restore upon a part leads back to that, and is over itself.
    undone = after(seen(decision=UNDO), ending, Operation.UNDO)
    assert undone.phase == "Undone"
    assert "released" not in composed({}, undone, NOW)


def test_each_part_is_news() -> None:
    order = Order(Operation.RELEASE, "u1", 0, parts=(M1,))
    news = OfRestores().news_of(order, Ending(Outcome.SUCCEEDED, facts={"released": FACT}))
    assert news
    assert (news.reason, news.warning) == ("PartlyReleased", False)
    assert news.note == "released is m1, whose members follow; held is m2, m3"


def test_who_waits_for_a_part_sees_the_generation_that_named_it() -> None:
    told = after(seen(M1), Ending(Outcome.SUCCEEDED, facts={"released": FACT}, report={}))
    # Something else is edited, which changes nothing of what is released.
    found = partly(M1, generation=4)
    waits = decide(found, Memory(), 0.0, BESIDE)
    assert isinstance(waits, Wait)
    rests = OfRestores().at_rest(told, found, waits, NOW)
    assert rests.generation == 4
    unread = partly(M1, Part(("m9",)), generation=5)
    assert OfRestores().at_rest(told, unread, Wait("it failed", reason="Failed"), NOW).generation == 3


def test_a_part_that_was_refused_waits_for_an_edit_and_not_for_time() -> None:
    order = Order(Operation.RELEASE, "u1", 0, parts=(Part(("m9",)),))
    kept = {"period": 21600, "chance": 0.0, "reasons": REFUSED.reasons}
    memory = ended(started(Memory(), order), Outcome.FAILED, 0.0, **kept)  # type: ignore[arg-type] # keywords of it
    waits = decide(seen(Part(("m9",))), memory, 3600.0, BESIDE)
    assert isinstance(waits, Wait)
    assert waits.reason == "Failed"
    assert isinstance(decide(seen(M1), memory, 3600.0, BESIDE), Start)
    taken_back = decide(seen(decision=UNDO), memory, 3600.0, BESIDE)
    assert isinstance(taken_back, Start)
    assert taken_back.order.operation is Operation.UNDO, "nothing was released"


# -- the operator's loop -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("soon", "kinds")
def test_from_part_to_part_although_a_run_dies_while_the_control_plane_stays_held(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither operator looks at the control plane, which is held all the time.
    monkeypatch.setattr(reconcile, "LOOK_AT_QUARANTINE", 1e9)
    status = lambda: of(api, RESTORES, "back")  # noqa: E731 - read at each look
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        restore(api, confirm=BACKUP)
        run = operator.executor.next()
        step(run)
        run.end(changed=9, report=QUARANTINED, facts={"drift": DRIFT})
        until(lambda: status().get("earlierDecision") == "None")
        restore(api, decision="Release", release=PART)
        first = operator.executor.next()
        wanted = {"restore_name": "back", "restore_release_parts": [{"clusters": ["m1"], "namespaces": []}]}
        assert (first.spec.playbook, first.spec.variables) == ("karmada.installer.release", wanted)
        first.end(Outcome.LOST, message="it was killed")
        # Nobody has to name it again.
        again = operator.executor.next()
        assert again.spec.playbook == "karmada.installer.release"
        assert again.spec.variables == {**wanted, "karmada_confirm_dead": first.spec.run_id}
        again.end(changed=3, report=QUARANTINED, facts={"released": FACT})
        until(lambda: condition(status(), "Progressing") == "False PartlyReleased")
        assert (status()["phase"], status()["released"], status()["held"]) == (
            "PartlyReleased",
            [{"cluster": "m1"}],
            ["m2", "m3"],
        )
        assert condition(status(), "Ready") == "False PartlyReleased"
        # The control plane is held as before.
        edited(api, "x", generation=2)
        until(lambda: condition(live(api, "x")["status"], "Progressing") == "False Quarantined")
        assert operator.executor.started.empty()
        restore(api, release=[*PART, {"clusters": ["m9"]}])
        refused = operator.executor.next()
        problem = {"severity": "error", "reason": "InvalidArgument"}
        refused.end(Outcome.FAILED, reason="InvalidArgument", message="m9 is not registered", problems=(problem,))
        until(lambda: condition(status(), "Degraded") == "True InvalidArgument")
        assert status()["phase"] == "PartlyReleased"
    with operating(cluster, kinds=TABLE) as operator:
        # Who leads next does what the spec says, and nothing while that is done.
        tried = operator.executor.next()
        assert tried.spec.variables["restore_release_parts"][0]["clusters"] == ["m1"]
        tried.end(Outcome.FAILED, reason="InvalidArgument", message="m9 is not registered", problems=(problem,))
        # An edit before that is told begins one more run, which finds all of it released.
        until(lambda: status()["lastRun"].items() >= {"id": tried.spec.run_id, "outcome": "failed"}.items())
        restore(api, release=PART)
        until(lambda: condition(status(), "Progressing") == "False PartlyReleased")
        assert condition(status(), "Degraded") == "False PartlyReleased"
        assert operator.executor.started.empty()
        restore(api, release=None)
        rest = operator.executor.next()
        assert rest.spec.variables == {"restore_name": "back", "karmada_confirm_dead": tried.spec.run_id}
        rest.end(changed=3, report=INSTALLED)
        until(lambda: condition(status(), "Ready") == "True Released")
        wanted_events = {"Quarantined", "PartlyReleased", "RunFailed", "Released"}
        until(lambda: wanted_events <= set(reasons(api, "EtcdRestore")))
