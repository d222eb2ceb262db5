# SPDX-License-Identifier: Apache-2.0
"""Steps on one API server: what is predicted is what is done, and after that a look finds nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import ApplyFailed, Change, Treatment
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref, claimed_by
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.snapshot import ABSENT, listed
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import (
    Mode,
    Step,
    StepRunner,
    merged,
    one_per_object,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st

Object = dict[str, Any]
NAMES = ("a", "b", "c", "d")
MINE = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": "me"}
LABELS = {"mine": MINE, "another's": {**MINE, "installer.karmada.io/owner": "another"}, "nobody's": {}}
GROUP = ("v1", "ConfigMap", "ns")


def thing(name: str, content: str, whose: str = "mine") -> Object:
    metadata = {"name": name, "namespace": "ns", "labels": dict(LABELS[whose])}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"content": content}}


def ref_of(name: str) -> Ref:
    return Ref("v1", "ConfigMap", name, "ns")


def marked(obj: Object) -> Object | None:
    """An edit: what it wants is there already, or one label away."""
    return None if obj["metadata"]["labels"].get("mark") else {"metadata": {"labels": {"mark": "yes"}}}


def treatment(treatments: dict[str, Treatment]) -> Any:
    return lambda live: treatments[live["metadata"]["name"]]


def unclaimed(live: Object) -> Treatment:
    return "adopt" if claimed_by(live) == (None, None) else "ours"


CONTENTS = st.sampled_from(["x", "y"])
LIVE = st.dictionaries(st.sampled_from(NAMES), st.tuples(CONTENTS, st.sampled_from(sorted(LABELS))))
TREATMENTS = st.fixed_dictionaries(
    {name: st.sampled_from(["ours", "ours", "ours", "adopt", "keep", "leave"]) for name in NAMES}
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[FakeCluster, list[Step]]:
    """A cluster, and steps for it as sequences have them: no object is wanted and deleted."""
    there = {name: thing(name, *each) for name, each in draw(LIVE).items()}
    cluster = FakeCluster("member m1", *there.values())
    # Some of it we have written before, and somebody else may have written after us.
    for name in draw(st.sets(st.sampled_from(NAMES))):
        if name in there and claimed_by(there[name])[1] == "me":
            StepRunner(cluster, Mode.WRITE, [], print).take([Step([there[name]])])
            if draw(st.booleans()):
                cluster.patch_merge(*GROUP[:2], name, "ns", {"data": {"content": draw(CONTENTS)}})
    cluster.log.clear()
    treat = draw(st.one_of(st.builds(treatment, TREATMENTS), st.just(unclaimed)))
    gone = draw(st.sets(st.sampled_from(NAMES)))
    steps = []
    for name in draw(st.permutations(NAMES)):
        live = cluster.objects.get((*GROUP, name))
        if name in gone:
            uid = draw(st.sampled_from([None, "uid-of-another", *([live["metadata"]["uid"]] if live else [])]))
            steps.append(Step(delete=[(ref_of(name), uid)]))
        elif draw(st.booleans()):
            edits = {ref_of(name): marked} if draw(st.booleans()) else {}
            steps.append(Step([thing(name, draw(CONTENTS))], treat, edits))
    return cluster, steps


def told(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.action, str(change.ref)) for change in one_per_object(changes)]


def taken(cluster: Any, mode: Mode, steps: list[Step]) -> tuple[list[Change], str]:
    """The changes, and why there are no more."""
    changes: list[Change] = []
    try:
        StepRunner(cluster, mode, changes, print).take(steps)
    except ProblemsError as error:
        return changes, str(error)
    return changes, ""


@given(world=worlds())
def test_what_is_predicted_is_what_is_done_and_then_there_is_nothing_to_do(
    world: tuple[FakeCluster, list[Step]],
) -> None:
    cluster, steps = world
    before = copy.deepcopy(cluster.objects)
    looked = taken(cluster, Mode.LOOK, steps)
    predicted = taken(cluster, Mode.PREDICT, steps)
    from_snapshot = taken(listed(cluster, [GROUP]), Mode.PREDICT, steps)
    assert (cluster.objects, cluster.log) == (before, []), "looking and predicting write nothing"

    done = taken(cluster, Mode.WRITE, steps)
    assert told(looked[0]) == told(predicted[0]) == told(from_snapshot[0]) == told(done[0])
    assert looked[1] == predicted[1] == from_snapshot[1] == done[1]
    # What exists is known by its UID before it is touched, so that it can be told from what is made.
    uids = [
        [change.uid for change in one_per_object(each[0]) if change.action != "created"]
        for each in (looked, predicted, done)
    ]
    assert uids[0] == uids[1] == uids[2]
    names = {change.ref.name for change in one_per_object(done[0])}
    after = {key: each for key, each in cluster.objects.items() if key[3] not in names}
    assert after == {key: each for key, each in before.items() if key[3] not in names}, "nothing else is touched"

    if not done[1]:
        log = list(cluster.log)
        for mode in Mode:
            assert told(taken(cluster, mode, steps)[0]) == []
        assert cluster.log == log


@given(world=worlds())
def test_diffs_are_foretold_as_they_come(world: tuple[FakeCluster, list[Step]]) -> None:
    cluster, steps = world
    predicted, done = taken(cluster, Mode.PREDICT, steps)[0], taken(cluster, Mode.WRITE, steps)[0]
    edited = {ref for step in steps for ref in step.edits}

    def diffs(changes: list[Change]) -> dict[str, dict[str, str]]:
        return {str(each.ref): each.diff for each in one_per_object(changes) if each.ref not in edited}

    assert diffs(predicted) == diffs(done)
    for change in one_per_object(predicted):
        if change.ref in edited and change.action == "created":
            assert "mark: 'yes'" in change.diff["after"], "an edit is part of what is made"


@given(live=LIVE, steps=worlds().map(lambda world: world[1]))
def test_an_api_server_that_is_still_to_come_gets_everything(live: Any, steps: list[Step]) -> None:
    del live
    for mode in (Mode.LOOK, Mode.PREDICT):
        changes, why = taken(ABSENT, mode, steps)
        assert why == ""
        assert {change.ref.name for change in one_per_object(changes) if change.action == "created"} == {
            each["metadata"]["name"] for step in steps for each in step.objects
        }


def test_steps_are_taken_in_order_each_read_when_its_turn_has_come() -> None:
    cluster = FakeCluster("member m1")

    def steps() -> Any:
        yield Step([thing("a", "x")])
        seen.append(cluster.get(*GROUP[:2], "a", "ns") is not None)
        yield Step(delete=[(ref_of("a"), None)])

    for mode, found in ((Mode.LOOK, False), (Mode.PREDICT, False), (Mode.WRITE, True)):
        seen: list[bool] = []
        StepRunner(cluster, mode, [], print).take(steps())
        assert seen == [found]
    assert cluster.log == ["apply ConfigMap a", "delete ConfigMap a"]


def test_a_value_that_only_a_run_knows_is_not_made_by_a_look() -> None:
    cluster: Any = FakeCluster("member m1")
    for mode in Mode:
        found = StepRunner(cluster, mode, [], print).late(lambda: "looked", lambda: "made")
        assert found == ("made" if mode is Mode.WRITE else "looked")


def test_what_was_written_stays_known_where_something_else_could_not_be() -> None:
    class Partly(FakeCluster):
        def apply(self, obj: Object, **more: Any) -> Any:
            if obj["metadata"]["name"] == "b":
                raise Forbidden(self.name, "PATCH", "/", 403, "Forbidden", "no")
            return super().apply(obj, **more)

    changes: list[Change] = []
    cluster: Any = Partly("member m1")
    with pytest.raises(ApplyFailed):
        StepRunner(cluster, Mode.WRITE, changes, print).take([Step([thing("a", "x"), thing("b", "x")])])
    assert told(changes) == [("created", "ConfigMap ns/a")]


def test_an_edit_of_what_is_not_there_is_told() -> None:
    for mode in Mode:
        _, why = taken(FakeCluster("member m1"), mode, [Step(edits={ref_of("a"): marked})])
        assert "there is no such ConfigMap" in why


JSON = st.recursive(
    st.one_of(st.integers(), st.text(max_size=2), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)
PATCHES = st.recursive(
    st.one_of(st.none(), st.integers(), st.lists(st.integers(), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
).filter(lambda each: isinstance(each, dict))


def without_nulls(value: Any) -> Any:
    return (
        {key: without_nulls(each) for key, each in value.items() if each is not None}
        if isinstance(value, dict)
        else value
    )


@given(obj=MAPS, patch=PATCHES)
def test_a_merge_patch_is_laid_over_as_an_api_server_does_it(obj: Object, patch: Object) -> None:
    before = copy.deepcopy(obj)
    after = merged(obj, patch)
    assert obj == before
    for key in {*obj, *patch}:
        wanted = patch.get(key)
        if key in patch and wanted is None:
            assert key not in after
        elif isinstance(wanted, dict):
            former = obj.get(key)
            assert after[key] == merged(former if isinstance(former, dict) else {}, wanted)
        else:
            assert after[key] == (wanted if key in patch else obj[key])
    # A map that is new comes without what the patch takes away.
    assert merged({}, patch) == without_nulls(patch)
