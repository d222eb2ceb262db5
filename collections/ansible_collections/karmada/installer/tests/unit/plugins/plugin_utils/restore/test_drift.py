# SPDX-License-Identifier: Apache-2.0
"""What members have, against the Works of a restored control plane."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden, Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.limits import AT_ONCE
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import drift, held
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.drift import GENERATION, Verdict
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster

LABELS = {"karmada.io/managed": "true"}


def config(name: str, generation: int = 0, color: str = "blue", **metadata: Any) -> dict[str, Any]:
    annotations = {GENERATION: str(generation)} if generation else {}
    about = {"name": name, "namespace": "shop", "labels": LABELS, "annotations": annotations, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"color": color}}


def work(*manifests: dict[str, Any], member: str = "m1", **metadata: Any) -> dict[str, Any]:
    about = {"name": f"work-{len(manifests)}", "namespace": f"karmada-es-{member}", **metadata}
    spec = {"workload": {"manifests": list(manifests)}}
    return {"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": about, "spec": spec}


@pytest.mark.parametrize(
    ("manifest", "live", "verdict"),
    [
        (config("a", 2), config("a", 2), Verdict.SAME),
        (config("a", 2), config("a", 2, resourceVersion="5"), Verdict.SAME),
        (config("a", 2), config("a", 3, "red"), Verdict.OLDER),
        (config("a", 2), config("a", 3), Verdict.OLDER),
        (config("a", 2), config("a", 2, "red"), Verdict.OTHER),
        (config("a", 3), config("a", 2, "red"), Verdict.OTHER),
        (config("a"), config("a", color="red"), Verdict.OTHER),
        (config("a", 2), None, Verdict.MISSING),
        (config("a", 2), config("a", annotations={GENERATION: "9" * 400}), Verdict.OTHER),
    ],
)
def test_each_object_has_one_verdict(manifest: Any, live: Any, verdict: Verdict) -> None:
    assert drift.judge(manifest, live) is verdict


def test_a_member_is_compared_with_all_of_its_works_and_what_nobody_takes_care_of_is_told() -> None:
    member = FakeCluster(
        "member m1",
        config("same"),
        config("changed", 2, "red"),
        config("orphan"),
        config("of-a-template", ownerReferences=[{"kind": "X"}]),
        config("mine", labels={}),
        config("unlabelled", labels={}),
        config("going"),
    )
    works = [
        work(config("same"), config("changed", 1), config("missing")),
        work(config("unlabelled", labels={})),
        work(config("going"), deletionTimestamp="2026-11-25T02:41:00Z"),
    ]
    found = drift.compare(works, member)  # type: ignore[arg-type]
    assert {verdict: names for verdict, names in found.items() if names} == {
        Verdict.SAME: ["ConfigMap shop/same", "ConfigMap shop/unlabelled"],
        Verdict.OLDER: ["ConfigMap shop/changed"],
        Verdict.MISSING: ["ConfigMap shop/missing"],
        Verdict.ORPHAN: ["ConfigMap shop/orphan"],
        Verdict.GOING: ["ConfigMap shop/going"],
    }
    assert member.log == []


def suspended(*manifests: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    found = work(*manifests, **metadata)
    found["spec"]["suspendDispatching"] = True
    return found


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({}, {Verdict.SAME: ["a"], Verdict.SUSPENDED: ["b", "c"]}),
        # We have suspended it, and the release lets it go on.
        (
            {"annotations": {held.FORMER: held.ABSENT}},
            {Verdict.SAME: ["a"], Verdict.OTHER: ["b"], Verdict.MISSING: ["c"]},
        ),
        ({"annotations": {held.FORMER: "false"}}, {Verdict.SAME: ["a"], Verdict.OTHER: ["b"], Verdict.MISSING: ["c"]}),
        ({"annotations": {held.FORMER: "true"}}, {Verdict.SAME: ["a"], Verdict.SUSPENDED: ["b", "c"]}),
        # One that is going goes, suspended or not.
        ({"deletionTimestamp": "2026-11-25T02:41:00Z"}, {Verdict.GOING: ["a", "b", "c"]}),
    ],
)
def test_what_others_have_suspended_a_release_neither_makes_nor_changes(
    about: dict[str, Any], expected: dict[Verdict, list[str]]
) -> None:
    member = FakeCluster("member m1", config("a"), config("b", color="red"))
    of_member = [suspended(config("a"), config("b"), config("c"), **about)]
    found = drift.compare(of_member, member)  # type: ignore[arg-type]
    assert {verdict: names for verdict, names in found.items() if names} == {
        verdict: [f"ConfigMap shop/{name}" for name in names] for verdict, names in expected.items()
    }


def scaler(version: str, name: str = "web") -> dict[str, Any]:
    about = {"name": name, "namespace": "shop", "labels": LABELS, "annotations": {}}
    return {"apiVersion": f"autoscaling/{version}", "kind": "HorizontalPodAutoscaler", "metadata": about, "spec": {}}


class Converting(FakeCluster):
    """Member that serves an object in both versions, and prefers the newer one."""

    def listable_kinds(self, **_: Any) -> Any:
        return [("autoscaling/v2", "HorizontalPodAutoscaler")]


def test_an_object_that_is_applied_in_another_version_than_the_member_prefers_is_no_orphan() -> None:
    """Whoever is told that nobody takes care of it deletes it."""
    member = Converting("member m1", *map(scaler, ("v1", "v2")), scaler("v2", "left"))
    found = drift.compare([work(scaler("v1"))], member)  # type: ignore[arg-type]
    assert {verdict: names for verdict, names in found.items() if names} == {
        Verdict.SAME: ["HorizontalPodAutoscaler shop/web"],
        Verdict.ORPHAN: ["HorizontalPodAutoscaler shop/left"],
    }


def test_what_is_in_no_namespace_is_found_too() -> None:
    def bare(api_version: str, kind: str, name: str, **metadata: Any) -> dict[str, Any]:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": LABELS, **metadata}}

    crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    member = FakeCluster(
        "member m1",
        bare(*crd, "kept.example.com"),
        bare(*crd, "left.example.com"),
        bare(*crd, "of-others.example.com", labels={}),
        bare("v1", "Namespace", "left"),
        bare("storage.k8s.io/v1", "StorageClass", "left"),
    )
    found = drift.compare([work(bare(*crd, "kept.example.com"))], member)  # type: ignore[arg-type]
    assert found[Verdict.ORPHAN] == [
        "CustomResourceDefinition left.example.com",
        "Namespace left",
        "StorageClass left",
    ]


class Slow(FakeCluster):
    """Member that notes how many requests for single objects are under way at a time."""

    def __init__(self, seconds: float) -> None:
        super().__init__("member m1")
        self.seconds, self.now, self.most, self.asked, self._guard = seconds, 0, 0, 0, threading.Lock()

    def get(self, *ref: Any) -> Any:
        with self._guard:
            self.now, self.asked = self.now + 1, self.asked + 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds)
        with self._guard:
            self.now -= 1
        return super().get(*ref)


def test_many_missing_objects_are_asked_for_several_at_a_time() -> None:
    """A backup from before a roll-out misses none, and one from after a clean-up may miss a thousand."""
    member = Slow(0.002)
    found = drift.compare([work(config(f"c{number}")) for number in range(1000)], member)  # type: ignore[arg-type]
    assert len(found[Verdict.MISSING]) == member.asked == 1000
    assert 4 < member.most <= AT_ONCE


def test_a_kind_that_cannot_be_listed_is_passed_over_and_a_member_that_fails_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = FakeCluster("member m1", config("orphan"))

    def refused(error: type) -> Any:
        raise error("member m1", "GET", "/", 403 if error is Forbidden else 0, "", "no")

    monkeypatch.setattr(member, "list", lambda *_, **__: refused(Forbidden))
    assert not any(drift.compare([], member).values())  # type: ignore[arg-type]
    monkeypatch.setattr(member, "list", lambda *_, **__: refused(Unreachable))
    with pytest.raises(Unreachable):
        drift.compare([], member)  # type: ignore[arg-type]


def cluster(name: str) -> dict[str, Any]:
    return {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {}}


def run_with(plane: FakeCluster, entries: list[Any], *joined: str) -> Any:
    return SimpleNamespace(
        control_plane=plane,
        trace=print,
        state=SimpleNamespace(members={name: {} for name in joined}, member=lambda name: SimpleNamespace(name=name)),
        spec=SimpleNamespace(members=entries, member_by_name={each.name: each for each in entries}),
    )


def test_a_member_that_the_document_has_forgotten_is_compared_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release without names writes to it like to any other."""
    member = FakeCluster("member m2", config("changed", 2, "red"))
    plane = FakeCluster("plane", cluster("m2"), work(config("changed", 1), member="m2"))

    @contextmanager
    def connected(_run: Any, _entry: Any) -> Any:
        yield member

    monkeypatch.setattr(drift.join, "connected", connected)
    report = drift.look(run_with(plane, [], "m2", "joined"))
    assert [(each.name, each.counts["older"]) for each in report.members] == [("m2", 1)]
    assert (report.forgotten, report.gone, report.back) == (["m2"], ["joined"], [])
    assert report.plain["forgotten"] == ["m2"]
    told = {each.reason for each in report.problems() if each.where == "member m2"}
    assert told == {Reason.RESTORE_DRIFT, Reason.MEMBER_LEAVING}


def test_all_members_are_told_of_one_that_cannot_be_asked_and_clusters_that_went_or_came_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = FakeCluster("member m1", config("changed", 2, "red"))
    sound.put(config("rights"))
    of_cluster = work(config("rights"), name="rights", ownerReferences=[{"kind": "Cluster"}])
    plane = FakeCluster("plane", cluster("m1"), cluster("m2"), cluster("back"), work(config("changed", 1)), of_cluster)
    entries = [SimpleNamespace(name=name) for name in ("m1", "m2", "joined", "to come")]

    @contextmanager
    def connected(_run: Any, entry: Any) -> Any:
        if entry.name == "m2":
            raise Unreachable("member m2", "GET", "/", 0, "", "no answer")
        yield sound

    monkeypatch.setattr(drift.join, "connected", connected)
    report = drift.look(run_with(plane, entries, "m1", "m2", "joined"))
    first, second = report.members
    # What Karmada propagates for a Cluster by itself is no orphan.
    assert (first.name, {name: number for name, number in first.counts.items() if number}) == (
        "m1",
        {"same": 1, "older": 1},
    )
    assert "no answer" in second.trouble
    assert (list(report.gone), list(report.back)) == (["joined"], ["back"])
    assert [(each.where, each.reason, each.severity) for each in report.problems()] == [
        (f"member {name}", Reason.RESTORE_DRIFT, Severity.WARNING) for name in ("m1", "m2", "joined", "back")
    ]
    assert report.plain["members"][0]["objects"] == {"older": ["ConfigMap shop/changed"]}
    assert [line.split(":")[0].strip() for line in drift.in_words(report)] == ["m1", "m2"]
    assert "1 older" in drift.in_words(report)[0]
