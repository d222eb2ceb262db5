# SPDX-License-Identifier: Apache-2.0
"""Releases of a part whose runs are killed at any write, inside the control plane and around it; and whom that reached.

The control plane here has Works of two clusters, admission by what a run has put there, and controllers that carry out
each Work that is not suspended, as soon as they run. The world around it is that of ``test_carry_out``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import held, partial
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import WRITERS, Goal, Step, is_released
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.restore import test_carry_out
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.restore.test_carry_out import (
    World,
    everything,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, Object

GOING = "2026-01-01T00:00:00Z"
#: Of the writes of a run, it is killed before each one with this distance.
DISTANCE = 3
#: More than any of these runs writes.
WRITES = 75
PART: dict[str, Any] = {"clusters": ["m1"]}


class Inside(FakeCluster):
    """The API server of the control plane, which has a moment for each write, and controllers behind it."""

    def __init__(self, world: Any) -> None:
        super().__init__("control plane")
        self.world = world
        #: clusters that were told by a Work, and those Works
        self.carried_out: set[str] = set()
        for cluster in ("m1", "m2"):
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space(cluster)}})
            self.put({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": cluster}})
            for name, suspended in (("absent", None), ("false", False), ("by-design", True)):
                self.put(work(cluster, name, suspended))

    def moment(self) -> None:
        """A write is about to happen."""
        self.world._moment()

    def create(self, obj: Object, *, dry_run: bool = False, **_: Any) -> Object:
        assert dry_run
        self.admit(obj)
        return obj

    def apply(self, obj: Object, **more: Any) -> Any:
        with self.world.one_at_a_time:
            self.moment()
            return super().apply(obj, **more)

    def delete(self, *arguments: Any, **more: Any) -> bool:
        self.moment()
        return super().delete(*arguments, **more)

    def patch_merge(self, *arguments: Any, **more: Any) -> Object:
        with self.world.one_at_a_time:
            self.moment()
            kind, name, namespace = arguments[1:4]
            if kind == "Work":
                wanted = arguments[4].get("spec", {}).get("suspendDispatching", True)
                if wanted is not True:
                    self.admit(work(namespace.removeprefix("karmada-es-"), name, wanted))
            changed = super().patch_merge(*arguments, **more)
            self.controllers()
            return changed

    def admit(self, wanted: Object) -> None:
        namespace = wanted["metadata"]["namespace"]
        there = self.objects["v1", "Namespace", None, namespace]["metadata"]
        in_force = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} <= {
            kind for _, kind, _, name in self.objects if name == held.POLICY
        }
        spaces = (there.get("annotations") or {}).get(held.NAMESPACES, "").split(",")
        if not in_force or (there.get("labels") or {}).get(held.LABEL) != held.HELD or held.is_suspended(wanted):
            return
        if held.namespaces_of(wanted) and held.namespaces_of(wanted) <= set(spaces):
            return
        raise Forbidden(self.name, "POST", "/", 403, "Forbidden", f"policy {held.POLICY} denied it")

    def controllers(self) -> None:
        if not WRITERS & self.world.running() or self.world.content() != {"backup"}:
            return
        for each in list(self.objects.values()):
            if each["kind"] == "Work" and (member_works.is_going(each) or not held.is_suspended(each)):
                self.carried_out.add(held.name_of(each))

    def works(self) -> dict[str, Any]:
        """Works: whether they are suspended, and their annotations."""
        return {
            held.name_of(each): (each["spec"].get("suspendDispatching"), each["metadata"].get("annotations") or {})
            for each in self.objects.values()
            if each["kind"] == "Work"
        }

    def labels(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in self.objects.values()
            if (each["metadata"].get("labels") or {}).get(held.LABEL)
        }


def space(cluster: str) -> str:
    return member_works.execution_namespace(cluster)


def work(cluster: str, name: str, suspended: bool | None = None) -> Object:
    spec = {} if suspended is None else {"suspendDispatching": suspended}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}}
    return {
        "apiVersion": member_works.WORK_API,
        "kind": "Work",
        "metadata": {"name": name, "namespace": space(cluster)},
        "spec": {**spec, "workload": {"manifests": [manifest]}},
    }


world = test_carry_out.world


@pytest.fixture
def inside(world: World, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """The control plane of a restore that has come to its quarantine."""
    found = Inside(world)
    world.inside = found
    controllers = World._controllers

    def all_controllers(self: World) -> None:
        controllers(self)
        found.controllers()

    @contextmanager
    def servers(run: Run) -> Iterator[list[Any]]:
        yield [run.control_plane]

    monkeypatch.setattr(World, "_controllers", all_controllers)
    monkeypatch.setattr(partial, "_api_servers", servers)
    monkeypatch.setattr(partial, "_LOOK_SECONDS", 0)
    take_steps(world, Goal.QUARANTINE)
    assert not found.carried_out
    return found


def names(*clusters: str) -> set[str]:
    return {f"{cluster}/{name}" for cluster in clusters for name in ("absent", "false")}


def assert_released(world: World, inside: Inside, before: dict[str, Any]) -> None:
    assert stored(world).step == "Released"
    assert inside.works() == before
    assert not inside.labels()
    assert inside.carried_out == names("m1", "m2")
    assert world.running() == everything()
    assert not inside.names("ValidatingAdmissionPolicy")


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
    with pytest.raises(ProblemsError, match="it is released"):
        take_steps(world, Goal.UNDO)


def test_who_goes_on_with_the_restore_releases_nothing_more(world: World, inside: Inside) -> None:
    while not is_released(stored(world)):
        take_steps(world, Goal.RELEASE, 12, **PART)
    assert stored(world).step != Step.PART_RELEASED
    take_steps(world, Goal.QUARANTINE)
    assert stored(world).step == Step.PART_RELEASED
    assert inside.carried_out == names("m1")


def test_a_cluster_or_a_namespace_that_is_not_there_is_refused_before_anything_is_written(
    world: World, inside: Inside
) -> None:
    writes = world.writes
    for asked, said in (({"clusters": ["m3"]}, "m3 is not registered"), ({"namespaces": ["shp"]}, "a namespace shp")):
        with pytest.raises(ProblemsError, match=said) as refused:
            take_steps(world, Goal.RELEASE, **asked)
        assert [each.reason for each in refused.value.problems] == [Reason.INVALID_ARGUMENT]
    assert world.writes == writes
    assert not inside.carried_out


def test_a_namespace_on_all_clusters_is_released(world: World, inside: Inside) -> None:
    inside.put(
        {**work("m2", "bank"), "spec": {"workload": {"manifests": [{"kind": "Node", "metadata": {"name": "n"}}]}}}
    )
    take_steps(world, Goal.RELEASE, namespaces=["shop"])
    assert inside.carried_out == names("m1", "m2")
    assert inside.works()["m2/bank"][0] is True
    take_steps(world, Goal.RELEASE)
    assert inside.carried_out == {*names("m1", "m2"), "m2/bank"}


def test_what_is_going_is_decided_before_anything_starts(world: World, inside: Inside) -> None:
    going = work("m2", "old")
    going["metadata"].update(deletionTimestamp=GOING, finalizers=["karmada.io/execution-controller"])
    inside.put(going)
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
    run = test_carry_out.fake_run(test_carry_out.DOCUMENT, world, operation="release")
    run.control_plane = inside
    partial.settle(run, held.EVERYTHING, 0)
    assert inside.works() == before
    assert not inside.labels()
