# SPDX-License-Identifier: Apache-2.0
"""ServiceExport and ServiceImport on members: installed where they are missing, and removed if ours and of no use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.bootstrap import owner_labels
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import Mode, StepRunner
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import service_types as member_types
from ansible_collections.karmada.installer.plugins.plugin_utils.members.plan import Clusters
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, service_types, state

M1 = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
KUBE_SYSTEM = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id"}}
EXPORTS, IMPORTS = member_types.KINDS


def a_run(spec: dict[str, Any] | None = None, **known: Any) -> Run:
    run = fake_run(document({"members": [M1], **(spec or {})}), FakeCluster("host cluster"), stored=state(**known))
    run.__dict__["_crds"] = service_types()
    run.__dict__["control_plane"] = FakeCluster("control plane")
    return run


def a_member(*objects: dict[str, Any]) -> FakeCluster:
    return FakeCluster("member m1", KUBE_SYSTEM, *objects)


def theirs(name: str) -> dict[str, Any]:
    (found,) = [each for each in service_types() if each["metadata"]["name"] == name]
    return found


def changes(run: Run, member: Any, mode: Mode) -> list[Change]:
    """Changes that the step makes on the member, in that mode."""
    return StepRunner(member, mode, [], run.say).take([member_types.step(run)])


def crds(member: FakeCluster) -> set[str]:
    return {name for _, kind, _, name in member.objects if kind == member_types.CRD}


def an_object(kind: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop"},
    }


def test_they_say_whose_they_are_and_keep_what_they_said() -> None:
    made = member_types.on_member(service_types(), OWNER, "karmada/prod")
    assert [each["metadata"]["name"] for each in made] == [EXPORTS, IMPORTS]
    for each in made:
        assert "status" not in each
        assert each["metadata"]["labels"]["installer.karmada.io/owner"] == OWNER
        assert each["metadata"]["annotations"] == {
            "example.com/made-by": "a generator",
            registration.CONTROL_PLANE_ANNOTATION: "karmada/prod",
        }


@pytest.mark.parametrize("mode", ["Push", "Pull"])
def test_joining_installs_what_is_missing_and_records_it(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, {**M1, "mode": mode}, a_member(), run := a_run())
    assert crds(member) == {EXPORTS, IMPORTS}
    assert {f"CustomResourceDefinition {name}" for name in member_types.KINDS} <= set(run.state.owned["member/m1"])


def joined_by(monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], member: FakeCluster, run: Run) -> FakeCluster:
    """One run of the step, as far as the member is concerned."""

    @contextmanager
    def connected(_run: Run, _entry: Any, _patience: float | None = None) -> Iterator[FakeCluster]:
        yield member

    monkeypatch.setattr(member_join, "connected", connected)
    monkeypatch.setattr(member_join, "wait_for_credentials", lambda *_: registration.Credentials("t", "i", b"c"))
    monkeypatch.setattr(member_join.agent_join, "grant", lambda *_: [])
    monkeypatch.setattr(member_join.agent_join, "install", lambda *_: None)
    outcome = member_join.Outcome("m1")
    member_join.register_member(run, MemberEntry(entry), Clusters(), outcome)
    run.go_on_with(member_join.recorded(run.state, MemberEntry(entry), outcome.on_member))
    return member


def test_a_second_look_finds_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, M1, a_member(), run := a_run())
    found = changes(run, member, Mode.LOOK)
    assert [change.action for change in found] == ["unchanged", "unchanged"]
    assert {change.uid for change in found} <= run.state.uids("member/m1")


def test_ours_follow_the_release_of_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, M1, a_member(), run := a_run())
    run.__dict__["_crds"][0]["spec"]["names"]["shortNames"] = ["svcex"]
    found = changes(run, member, Mode.PREDICT)
    assert [(change.ref.name, change.action) for change in found] == [(EXPORTS, "changed"), (IMPORTS, "unchanged")]
    assert found[0].diff["before"] != found[0].diff["after"]


@pytest.mark.parametrize("labels", [{}, owner_labels("another")], ids=["nobody's", "another control plane's"])
def test_those_of_others_are_used_and_left_as_they_are(labels: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = theirs(EXPORTS)
    before["metadata"]["labels"] = labels
    member = joined_by(monkeypatch, M1, a_member(before), run := a_run())
    assert crds(member) == {EXPORTS, IMPORTS}
    live = member.get(member_types.CRD_API, member_types.CRD, EXPORTS)
    assert live
    assert live["metadata"].get("labels") == labels
    assert f"CustomResourceDefinition {EXPORTS}" not in run.state.owned["member/m1"]
    assert [change.ref.name for change in changes(run, member, Mode.LOOK)] == [IMPORTS]


def test_a_document_without_crds_brings_none_to_members_either(monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, M1, a_member(), run := a_run({"installCRD": False}))
    assert crds(member) == set()
    assert changes(run, member, Mode.LOOK) == []


# -- when the member leaves --------------------------------------------------------------------------------------------


def cleaned(monkeypatch: pytest.MonkeyPatch, member: FakeCluster, run: Run) -> tuple[list[Change], list[str]]:
    """What is done and said on the member."""
    said: list[str] = []
    run.say = said.append

    @contextmanager
    def connected(_run: Run, _entry: Any, _patience: float | None = None) -> Iterator[FakeCluster]:
        yield member

    monkeypatch.setattr(member_cleanup, "connected", connected)
    return member_cleanup.clean_member(run, MemberEntry(M1), 1.0), said


def test_they_go_with_what_joining_made(monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, M1, a_member(), run := a_run())
    cleaned(monkeypatch, member, run)
    assert {name for _, _, _, name in member.objects} == {"kube-system"}


def test_one_that_is_in_use_stays_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it would go what is in use, which may be a workload that was to stay."""
    member = joined_by(monkeypatch, M1, a_member(), run := a_run())
    for number in range(4):
        member.put(an_object("ServiceExport", f"web-{number}"))
    _changes, said = cleaned(monkeypatch, member, run)
    assert crds(member) == {EXPORTS}
    (text,) = said
    assert text.startswith(f"hint: CustomResourceDefinition {EXPORTS} stays on member m1, because it is in use: ")
    assert text.endswith("ServiceExport shop/web-2, …")


def test_those_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = theirs(IMPORTS)
    labelled["metadata"]["labels"] = owner_labels(OWNER)
    for before in (theirs(EXPORTS), labelled):
        member = a_member(before)
        cleaned(monkeypatch, member, a_run())
        assert Ref.of(before) in map(Ref.of, member.objects.values())


def test_a_check_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    member = joined_by(monkeypatch, M1, a_member(), run := a_run())
    run.check = True
    changes, _said = cleaned(monkeypatch, member, run)
    assert {change.ref.name for change in changes if change.ref.kind == member_types.CRD} == {EXPORTS, IMPORTS}
    assert crds(member) == {EXPORTS, IMPORTS}
