# SPDX-License-Identifier: Apache-2.0
"""Releases of a part whose runs are killed at any write, inside the control plane and around it; whom that reached."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import Part
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.members.scheduling import BINDING_API
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held, partial
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step, is_released
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run
from ansible_collections.karmada.installer.tests.unit.support.held_works_in_memory import (
    PART,
    Inside,
    assert_all_let_go,
    going_work,
    names,
    set_to_work,
    space,
    work,
)
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    DOCUMENT,
    World,
    everything,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import BACKUP_BEFORE

#: Of the writes of a run, it is killed before each one with this distance.
DISTANCE = 3
#: More than any of these runs writes.
WRITES = 75


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return made(monkeypatch)


@pytest.fixture
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """The control plane of a restore that has come to its quarantine."""
    found = Inside(world)
    set_to_work(world, found, monkeypatch)
    begin("pods in quarantine", (world, found), lambda: take_steps(world, Goal.QUARANTINE))
    assert not found.carried_out
    return found


def assert_released(world: World, inside: Inside, before: dict[str, Any]) -> None:
    assert stored(world).step == "Released"
    assert world.running() == everything()
    assert_all_let_go(inside, before)


def told(world: World, inside: Inside) -> dict[str, Any] | None:
    """What a run tells at its end of what is released."""
    run = fake_run(DOCUMENT, world, operation="release")
    run.control_plane = inside
    return Restoring(run, Goal.RELEASE, Asked(), timeout=0).release.told()


def test_one_cluster_follows_and_the_other_does_not_until_it_is_released_too(world: World, inside: Inside) -> None:
    before = inside.works()
    take_steps(world, Goal.RELEASE, **PART)
    restore = stored(world)
    assert (restore.step, dict(restore.parts)) == (Step.PART_RELEASED, {"m1": ()})
    assert inside.carried_out == names("m1")
    assert inside.labels() == {space("m2")}
    assert inside.works()["m2/by-design"] == (True, {}), "it was suspended by somebody else, and stays so"
    writes = world.writes
    take_steps(world, Goal.RELEASE, **PART)
    assert world.writes == writes

    take_steps(world, Goal.RELEASE)
    assert_released(world, inside, before)


@pytest.mark.parametrize(
    ("suspension", "let_go"),
    [
        ({"dispatching": True}, set()),
        ({"dispatchingOnClusters": {"clusterNames": ["m2"]}}, set()),
        ({"dispatchingOnClusters": {"clusterNames": ["m1"]}}, {"m2/absent"}),
        ({"scheduling": True}, {"m2/absent"}),
    ],
)
@pytest.mark.parametrize("namespace", ["shop", None])
def test_what_a_policy_suspends_while_it_is_held_is_not_let_go(
    world: World, inside: Inside, suspension: dict[str, Any], let_go: set[str], namespace: str | None
) -> None:
    take_steps(world, Goal.RELEASE, **PART)
    kind = "ResourceBinding" if namespace else "ClusterResourceBinding"
    # Karmada writes it to the Work, which says so already, and leaves the annotations that it does not know.
    metadata = {"name": "absent", **({"namespace": namespace} if namespace else {})}
    inside.put({"apiVersion": BINDING_API, "kind": kind, "metadata": metadata, "spec": {"suspension": suspension}})
    made = {f"{kind.lower()}.karmada.io/{key}": value for key, value in metadata.items()}
    inside.patch_merge(member_works.WORK_API, "Work", "absent", space("m2"), {"metadata": {"annotations": made}})

    take_steps(world, Goal.RELEASE)
    assert inside.carried_out == {*names("m1"), "m2/false", *let_go}
    assert inside.works()["m2/absent"] == (None if let_go else True, made)
    assert not inside.labels()


@pytest.mark.parametrize("killed_after", range(0, WRITES, DISTANCE))
def test_a_part_that_is_killed_at_any_write_tells_nobody_else_and_is_gone_on_with(
    world: World, inside: Inside, killed_after: int
) -> None:
    take_steps(world, Goal.RELEASE, killed_after, **PART)
    assert inside.carried_out <= names("m1")
    take_steps(world, Goal.RELEASE, **PART)
    assert stored(world).step == Step.PART_RELEASED
    assert inside.carried_out == names("m1")


@pytest.mark.parametrize("killed_after", range(0, WRITES, DISTANCE))
def test_the_rest_that_is_killed_at_any_write_ends_as_a_full_release(
    world: World, inside: Inside, killed_after: int
) -> None:
    before = inside.works()
    take_steps(world, Goal.RELEASE, killed_after, **PART)
    take_steps(world, Goal.RELEASE, killed_after)
    take_steps(world, Goal.RELEASE)
    assert_released(world, inside, before)


def test_from_the_first_part_on_there_is_no_way_back_and_before_it_there_is(world: World, inside: Inside) -> None:
    take_steps(world, Goal.RELEASE, 12, **PART)
    assert inside.labels()
    take_steps(world, Goal.UNDO)
    assert stored(world).step == "Undone"
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.RELEASE, **PART)
    with pytest.raises(ProblemsError, match=rf"it is released.*Restore the backup that was taken .*, {BACKUP_BEFORE}"):
        take_steps(world, Goal.UNDO)


def test_who_goes_on_with_the_restore_releases_nothing_more(world: World, inside: Inside) -> None:
    while not is_released(stored(world)):
        take_steps(world, Goal.RELEASE, 12, **PART)
    assert stored(world).step != Step.PART_RELEASED
    with pytest.raises(ProblemsError, match=r"ave its release come to its end first"):
        take_steps(world, Goal.QUARANTINE, confirm=BACKUP_BEFORE)
    take_steps(world, Goal.QUARANTINE)
    assert stored(world).step == Step.PART_RELEASED
    assert inside.carried_out == names("m1")


def test_a_cluster_or_a_namespace_that_is_not_there_is_refused_before_anything_is_written(
    world: World, inside: Inside
) -> None:
    writes = world.writes
    for part, said in ((Part(("m3",)), "m3 is not registered"), (Part((), ("shp",)), "a namespace shp")):
        with pytest.raises(ProblemsError, match=said) as refused:
            take_steps(world, Goal.RELEASE, parts=[part])
        assert [each.reason for each in refused.value.problems] == [Reason.INVALID_ARGUMENT]
    assert world.writes == writes
    assert not inside.carried_out


def test_more_than_can_be_on_record_is_refused_before_anything_is_written(
    world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MOST_CLUSTERS", 1)
    take_steps(world, Goal.QUARANTINE)
    writes = world.writes
    with pytest.raises(ProblemsError, match="2 clusters are to be noted, of which at most 1 can be"):
        take_steps(world, Goal.RELEASE, parts=[Part((), ("shop",))])
    assert world.writes == writes
    take_steps(world, Goal.RELEASE)


def test_what_is_in_no_namespace_is_held_whatever_names_are_on_record() -> None:
    role = {**work("m2", "role"), "spec": {"workload": {"manifests": [{"kind": "ClusterRole", "metadata": {}}]}}}
    assert held.holds_work({"m2": ("",)}, role)
    assert held.holds_work({"m2": ("", "shop")}, role)
    assert not held.holds_work({"m2": ()}, role)


def test_a_namespace_on_all_clusters_is_released(world: World, inside: Inside) -> None:
    inside.put(
        {**work("m2", "bank"), "spec": {"workload": {"manifests": [{"kind": "Node", "metadata": {"name": "n"}}]}}}
    )
    take_steps(world, Goal.RELEASE, parts=[Part((), ("shop",))])
    assert inside.carried_out == names("m1", "m2")
    assert inside.works()["m2/bank"][0] is True
    take_steps(world, Goal.RELEASE)
    assert inside.carried_out == {*names("m1", "m2"), "m2/bank"}


def test_several_parts_are_released_by_one_run_and_the_record_tells_which(world: World, inside: Inside) -> None:
    inside.put({**work("m2", "bank"), "spec": {"workload": {"manifests": [{"metadata": {"namespace": "bank"}}]}}})
    parts = [Part(("m1",)), Part(("m2",), ("shop",))]
    assert told(world, inside) is None
    take_steps(world, Goal.RELEASE, parts=parts)
    assert dict(stored(world).parts) == {"m1": (), "m2": ("shop",)}
    assert inside.carried_out == names("m1", "m2")
    assert inside.works()["m2/bank"][0] is True
    assert told(world, inside) == {
        "restore": "back",
        "clusters": [{"name": "m1", "namespaces": []}, {"name": "m2", "namespaces": ["shop"]}],
        "held": ["m2"],
    }
    writes = world.writes
    take_steps(world, Goal.RELEASE, parts=parts)
    assert world.writes == writes, "what is named is released"
    take_steps(world, Goal.RELEASE, parts=[Part(("m2",))])
    assert stored(world).step == "Released", "that leaves nothing"
    assert told(world, inside) == {}


def test_what_was_released_may_be_named_further_whatever_became_of_it(world: World, inside: Inside) -> None:
    take_steps(world, Goal.RELEASE, **PART)
    # Somebody has taken its registration away since, and nothing is propagated there any more.
    for key in [key for key in inside.objects if "m1" in key or space("m1") in key]:
        del inside.objects[key]
    named = [Part(("m1",)), Part(("m1",), ("shop",)), Part(("m2",), ("shop",))]
    take_steps(world, Goal.RELEASE, parts=named)
    assert dict(stored(world).parts) == {"m1": (), "m2": ("shop",)}


def test_what_is_going_is_decided_before_anything_starts(world: World, inside: Inside) -> None:
    inside.put(going_work("m2", "old"))
    with pytest.raises(ProblemsError) as refused:
        take_steps(world, Goal.RELEASE, **PART)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert '"restore_keep": ["m2/old"]' in problem.remedy
    assert not inside.labels()
    take_steps(world, Goal.RELEASE, **PART, let_go=["m2/old"])
    assert inside.carried_out == {*names("m1"), "m2/old"}
    assert held.LET_GO in inside.works()["m2/old"][1]
    take_steps(world, Goal.RELEASE, **PART)


def test_what_somebody_has_let_loose_is_told_and_held_anew(
    world: World, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(world, Goal.RELEASE, **PART)
    told: list[Problem] = []
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    del inside.objects["v1", "Namespace", None, space("m2")]["metadata"]["labels"]
    take_steps(world, Goal.RELEASE, **PART)
    assert [each.reason for each in told] == [Reason.QUARANTINE_OPEN]
    assert inside.labels() == {space("m2")}
    assert stored(world).step == Step.PART_RELEASED


def test_a_control_plane_that_was_backed_up_while_it_was_held_is_let_go_by_its_release(
    world: World, inside: Inside
) -> None:
    before = inside.works()
    take_steps(world, Goal.RELEASE, **PART)
    backed_up = {key: dict(each) for key, each in inside.objects.items()}
    take_steps(world, Goal.RELEASE)
    inside.objects = backed_up
    inside.carried_out.clear()
    take_steps(world, Goal.QUARANTINE)
    # The same EtcdRestore is done, so that this is another one's release.
    run = fake_run(DOCUMENT, world, operation="release")
    run.control_plane = inside
    partial.settle(run, held.EVERYTHING, 0)
    assert inside.works() == before
    assert not inside.labels()
