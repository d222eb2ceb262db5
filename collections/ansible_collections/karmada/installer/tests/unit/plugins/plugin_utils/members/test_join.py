# SPDX-License-Identifier: Apache-2.0
"""Joining as a run finds a member: what is there already, what is on record, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import NotReady
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.joined_members import M1, MADE_BY_APPLY
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

NAMESPACE = Ref("v1", "Namespace", "karmada-cluster")


def surveyed(namespace: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch) -> member_join.Outcome:
    """What a look at a member finds that has nothing of ours but, perhaps, this namespace."""
    member = FakeCluster("member m1", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    if namespace:
        member.put(namespace)

    @contextmanager
    def connected(_run: Run, _entry: Any) -> Iterator[FakeCluster]:
        yield member

    monkeypatch.setattr(member_join, "connected", connected)
    outcome = member_join.Outcome("m1")
    run = fake_run(document(), FakeCluster("host cluster"), stored=state())
    member_join.survey_member(run, MemberEntry(M1), Clusters(), outcome)
    return outcome


@pytest.mark.parametrize(("patience", "seconds"), [(None, 90), (5, 5), (500, 90)])
def test_requests_are_tried_again_for_as_long_as_the_member_has_time(
    patience: float | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    member: Any = FakeCluster("member m1")
    member.retry_seconds = 90
    monkeypatch.setattr(member_join, "cluster_from_secret", lambda *_, **__: member)
    monkeypatch.setattr(Run, "secret", lambda *_: {})
    run = fake_run(document(), FakeCluster("host cluster"))
    with member_join.connected(run, MemberEntry(M1), patience) as found:
        assert found.retry_seconds == seconds


def of_namespace(outcome: member_join.Outcome) -> list[tuple[str, bool]]:
    return [(change.action, change.uid is not None) for change in outcome.on_member if change.ref == NAMESPACE]


def test_a_namespace_that_is_missing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_namespace(surveyed(None, monkeypatch)) == [("created", False)]


def test_a_namespace_that_a_run_of_ours_made_before_it_was_killed_is_put_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = registration.namespace_on_member(OWNER)
    ours["metadata"]["managedFields"] = MADE_BY_APPLY
    outcome = surveyed(ours, monkeypatch)
    assert of_namespace(outcome) == [("unchanged", True)]
    (uid,) = [change.uid for change in outcome.on_member if change.ref == NAMESPACE]
    assert member_join.recorded(state(), MemberEntry(M1), outcome.on_member).uids("member/m1") == {uid}


@pytest.mark.parametrize("owner", [OWNER, "another"], ids=["only labelled", "of another control plane"])
def test_a_namespace_of_others_is_used_and_not_put_on_record(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = registration.namespace_on_member(owner)
    if owner != OWNER:
        theirs["metadata"]["managedFields"] = MADE_BY_APPLY
    assert of_namespace(surveyed(theirs, monkeypatch)) == []


@pytest.mark.parametrize(("known", "due"), [({"Namespace karmada-cluster": "u"}, False), ({}, True)])
def test_a_member_is_due_while_something_of_ours_there_is_not_on_record(known: dict[str, str], due: bool) -> None:
    joined: State = state(members={"m1": {"mode": "Push", "secretRef": {"name": "m1"}}}, owned={"member/m1": known})
    outcome = member_join.Outcome("m1", on_member=[Change(NAMESPACE, "unchanged", "u")])
    assert member_join.needs_work(MemberEntry(M1), outcome, joined) is due


@pytest.mark.parametrize(
    ("entry", "due"),
    [
        (M1, False),
        ({**M1, "onLeave": "Retain"}, False),
        ({**M1, "onLeave": "Delete"}, True),
        ({**M1, "secretRef": {"name": "other"}}, True),
        ({**M1, "context": "other"}, True),
    ],
)
def test_a_member_is_due_while_the_record_of_how_it_leaves_is_another(entry: dict[str, Any], due: bool) -> None:
    """An earlier version did not record what leaving means: it means that workloads stay."""
    old = {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}
    known = state(members={"m1": old}, owned={"member/m1": {"Namespace karmada-cluster": "u"}})
    outcome = member_join.Outcome("m1", on_member=[Change(NAMESPACE, "unchanged", "u")])
    assert member_join.needs_work(MemberEntry(entry), outcome, known) is due


# -- the stages of the action --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("all", ["saved with m1", "register m1", "saved with m1", "wait for m1"]),
        ("registration", ["saved with m1", "register m1", "saved with m1"]),
        ("readiness", ["wait for m1"]),
    ],
)
def test_what_was_put_on_members_is_on_record_before_they_are_waited_for(
    stage: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    run = fake_run(document({"members": [M1]}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")

    def register(_run: Run, entry: Any, _registered: Any, outcome: member_join.Outcome) -> None:
        outcome.on_member.append(Change(NAMESPACE, "created", "u"))
        done.append(f"register {entry.name}")

    @contextmanager
    def writing(_step: str) -> Iterator[None]:
        yield

    def waits(_run: Run, entries: Any, _timeout: float) -> list[member_join.Outcome]:
        done.extend(f"wait for {entry.name}" for entry in entries)
        return [member_join.Outcome(entry.name) for entry in entries]

    def save(saved: State) -> None:
        done.append(f"saved with {', '.join(saved.members)}")

    monkeypatch.setattr(member_join, "survey_member", lambda *_: None)
    monkeypatch.setattr(member_join, "register_member", register)
    monkeypatch.setattr(member_ready, "wait_ready", waits)
    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", save)
    action: Any = ActionModule
    arguments = {
        "stage": stage,
        "noted": False,
        "on_record": False,
        "timeout": 600,
        "broken": [],
        "on_broken_member": "fail",
    }
    found = action.perform(None, run, arguments)
    assert done == expected
    assert found["changed"] is (stage != "readiness")


# -- members that are broken ---------------------------------------------------------------------------------


def joined(
    monkeypatch: pytest.MonkeyPatch,
    identities: dict[str, str],
    broken: list[dict[str, str]],
    on_broken_member: str,
    selected: tuple[str, ...] = (),
) -> tuple[dict[str, Any], list[str]]:
    """What the action makes of these members, and which of them it registered."""
    done: list[str] = []
    entries = [{"name": name, "mode": "Push", "secretRef": {"name": name}} for name in identities]
    run = fake_run(document({"members": entries}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    run.selected = selected

    def survey(_run: Run, entry: Any, _registered: Any, outcome: member_join.Outcome, _inside: Any) -> None:
        outcome.cluster_id = identities[entry.name]
        if not outcome.cluster_id:
            raise Unreachable("member", "GET", "/", 0, "Unreachable", "no answer")

    @contextmanager
    def writing(_step: str) -> Iterator[None]:
        yield

    monkeypatch.setattr(member_join, "survey_member", survey)
    monkeypatch.setattr(member_join, "register_member", lambda _run, entry, *_: done.append(entry.name))
    monkeypatch.setattr(member_ready, "wait_ready", lambda *_: [])
    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", lambda _state: None)
    action: Any = ActionModule
    arguments = {
        "stage": "all",
        "noted": False,
        "on_record": False,
        "timeout": 600,
        "broken": broken,
        "on_broken_member": on_broken_member,
    }
    return action.perform(None, run, arguments), done


def test_broken_members_stop_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"name": "m1", "problem": "its clock is wrong", "next": "set it"}
    found, done = joined(monkeypatch, {"m1": "1", "m2": "", "m3": "3"}, [refused], "tell")
    assert done == ["m3"]
    assert "failed" not in found
    assert [each["name"] for each in found["broken_members"]] == ["m1", "m2"]
    assert found["broken_members"][0] == refused
    assert "no answer" in found["broken_members"][1]["problem"]
    assert [each["joined"] for each in found["members"]] == [False, False, True]


def test_members_that_were_not_selected_are_neither_asked_nor_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "", "m2": "2", "m3": "3"}, [], "fail", selected=("m3",))
    assert done == ["m3"]
    assert "failed" not in found
    assert [each["name"] for each in found["members"]] == ["m3"]


def test_broken_members_make_the_step_fail_that_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "", "m2": "2"}, [], "fail")
    assert (found["failed"], done) == (True, ["m2"])
    assert "1 of 2 members are not joined" in found["msg"]
    assert "next: mend that and run again" in found["msg"]


def test_one_cluster_that_is_listed_twice_is_not_joined_under_either_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found, done = joined(monkeypatch, {"m1": "1", "m2": "2", "m3": "1"}, [], "tell")
    assert done == ["m2"]
    assert [each["problem"] for each in found["broken_members"]] == [
        "spec.members[m1]: this cluster is listed as m3, too",
        "spec.members[m3]: this cluster is listed as m1, too",
    ]


# -- adoption ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pulls", [False, True])
def test_a_member_that_nobody_looks_at_is_told_with_what_ails_karmada_itself(
    pulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Ready of a member in mode Push comes from karmada-controller-manager, that of another one from its agent."""
    entry = MemberEntry({**M1, "mode": "Pull" if pulls else "Push"})
    manager = Ref("apps/v1", "Deployment", "prod-controller-manager", "karmada")
    asked: dict[Ref, Any] = {}

    def wait_until(_cluster: Any, targets: Any, *, served_by: Any, **_: Any) -> None:
        asked.update(served_by)
        (cluster,) = targets
        raise NotReady({manager: "cannot pull it", cluster: "Ready is not reported yet"}, 65, early=True)

    monkeypatch.setattr(member_ready, "wait_until", wait_until)
    monkeypatch.setattr(member_ready, "of_each", lambda *_: [])
    run = fake_run(document({"members": [M1]}), FakeCluster("host cluster"), stored=state())
    run.__dict__["control_plane"] = FakeCluster("control plane")
    (outcome,) = member_ready.wait_ready(run, [entry], 300)
    assert ("cannot pull it" in outcome.problem) is not pulls
    assert "Ready is not reported yet" in outcome.problem
    assert outcome.unready
    assert [server for each in asked.values() for server in each.workloads] == ([] if pulls else [manager])
