# SPDX-License-Identifier: Apache-2.0
"""Members are cordoned, drained and uncordoned by their taints, and it is told what is left on one that is drained."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import member_scheduling as action_module
from ansible_collections.karmada.installer.plugins.plugin_utils.members import elsewhere, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import scheduling as member_scheduling
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

EVICTS = {
    "components": {
        "karmadaControllerManager": {
            "featureGates": {"Failover": True},
            "extraArgs": {"enable-no-execute-taint-eviction": "true"},
        }
    }
}
THEIRS = {"key": "theirs", "effect": "NoSchedule"}
CORDON, DRAIN = "cluster.karmada.io/unschedulable:NoSchedule", "installer.karmada.io/drain:NoExecute"


def binding(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": member_scheduling.BINDING_API,
        "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "shop"},
        "spec": {"resource": {"kind": "Deployment", "namespace": "shop", "name": "web"}, **spec},
    }


def cluster(name: str, labels: Any = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": "1", "labels": labels or {}}
    return {"apiVersion": registration.CLUSTER_API, "kind": "Cluster", "metadata": metadata, "spec": spec}


class Site:
    """A control plane with one cluster and maybe others, and some bindings."""

    def __init__(self, *bindings: dict[str, Any], others: tuple[str, ...] = ()) -> None:
        self.inside = FakeCluster("control plane", *bindings)
        self.inside.put(cluster("m1", taints=[THEIRS]))
        for name in others:
            self.inside.put(cluster(name))
        self.said: list[str] = []

    def run(
        self,
        wanted: str,
        *names: str,
        check: bool = False,
        spec: Any = EVICTS,
        timeout: int = 0,
        selected: tuple[str, ...] = (),
        confirm: str = "",
    ) -> dict[str, Any]:
        run = fake_run(document(spec), FakeCluster("host cluster"), stored=state(), check=check)
        run.selected = selected
        run.__dict__["control_plane"] = self.inside
        run.say = self.said.append
        perform: Any = action_module.ActionModule.perform
        arguments = {"state": wanted, "members": list(names), "timeout": timeout, "confirm": confirm}
        found: dict[str, Any] = perform(None, run, arguments)
        self.told = run.told
        return found

    @property
    def bound(self) -> tuple[Any, Any]:
        """Members on which the object is placed, and what is being evicted."""
        (found,) = (each for (_, kind, *_), each in self.inside.objects.items() if kind == "ResourceBinding")
        return found["spec"].get("clusters"), found["spec"].get("gracefulEvictionTasks")

    @property
    def taints(self) -> list[str]:
        spec = self.inside.objects[registration.CLUSTER_API, "Cluster", None, "m1"]["spec"]
        return [f"{each['key']}:{each['effect']}" for each in spec.get("taints") or []]


def test_without_names_those_are_meant_that_the_run_has_selected() -> None:
    assert Site().run("cordoned", selected=("m1",))["changes"] == ["changed Cluster m1"]
    with pytest.raises(ProblemsError, match="m9"):
        Site().run("cordoned", "m9", selected=("m1",))


def test_cordon_drain_and_uncordon_keep_the_taints_of_others_and_change_nothing_twice() -> None:
    site = Site()
    steps = {
        "cordoned": ["theirs:NoSchedule", CORDON],
        "drained": ["theirs:NoSchedule", CORDON, DRAIN],
        "uncordoned": ["theirs:NoSchedule"],
    }
    for wanted, taints in steps.items():
        assert site.run(wanted, "m1")["changes"] == ["changed Cluster m1"]
        assert site.taints == taints
        site.inside.log.clear()
        assert site.run(wanted, "m1")["changed"] is False
        assert site.inside.log == []


def test_check_mode_shows_the_taint_and_what_would_go_and_writes_nothing() -> None:
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    found = site.run("drained", "m1", check=True)
    assert "key: installer.karmada.io/drain" in found["diff"][0]["after"]
    assert found["left"] == ["m1: ResourceBinding shop/web-deployment of Deployment shop/web (not moved yet)"]
    assert (site.inside.log, "failed" in found, site.told) == ([], False, [])
    assert found["now"] == ["m1 would be drained; 1 workload still runs there"]


@pytest.mark.parametrize(
    ("names", "part"),
    [((), "no member is named"), (("m1", "m3"), "no cluster is registered under the name m3. Name one of: m1")],
)
def test_names_are_refused_before_anything_is_changed(names: tuple[str, ...], part: str) -> None:
    site = Site()
    with pytest.raises(ProblemsError) as caught:
        site.run("cordoned", *names)
    assert part in str(caught.value)
    assert site.inside.log == []


@pytest.mark.parametrize(
    ("gates", "flags", "lacks"),
    [
        ({}, {}, ["Failover: true", "enable-no-execute"]),
        ({"Failover": True}, {}, ["enable-no-execute"]),
        ({"AllBeta": True}, {"enable-no-execute-taint-eviction": "false"}, ["enable-no-execute"]),
        ({"AllBeta": True, "Failover": False}, {"enable-no-execute-taint-eviction": "true"}, ["Failover: true"]),
    ],
)
def test_a_drain_by_which_nothing_would_go_is_refused(
    gates: dict[str, bool], flags: dict[str, str], lacks: list[str]
) -> None:
    site = Site()
    spec = {"components": {"karmadaControllerManager": {"featureGates": gates, "extraArgs": flags}}}
    with pytest.raises(ProblemsError) as caught:
        site.run("drained", "m1", spec=spec)
    (problem,) = caught.value.problems
    assert [part for part in ("Failover: true", "enable-no-execute") if part in problem.remedy] == lacks
    assert site.inside.log == []


def test_what_is_left_when_the_time_is_over_is_told_with_the_reason() -> None:
    site = Site(binding(clusters=[{"name": "m1", "replicas": 2}, {"name": "m2"}]))
    found = site.run("drained", "m1")
    assert (found["failed"], found["changed"]) == (True, True)
    assert "m1: ResourceBinding shop/web-deployment of Deployment shop/web (not moved yet)" in found["msg"]
    assert "uncordon to take them away" in found["msg"]


def test_it_is_waited_for_what_goes_and_not_for_what_may_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    going = binding(clusters=[{"name": "m1"}])
    site = Site(going, others=("m2",))
    stays = {"metadata": {"name": "base", "namespace": "shop"}}
    site.inside.put(
        {**binding(clusters=[{"name": "m1"}], placement={"clusterTolerations": [{"operator": "Exists"}]}), **stays}
    )

    def moved(_seconds: float) -> None:
        site.inside.objects[member_scheduling.BINDING_API, "ResourceBinding", "shop", "web-deployment"]["spec"][
            "clusters"
        ] = [{"name": "m2"}]

    monkeypatch.setattr(action_module.time, "sleep", moved)
    found = site.run("drained", "m1", timeout=60)
    assert "failed" not in found
    assert found["left"] == ["m1: ResourceBinding shop/base of Deployment shop/web (its policy tolerates the taint)"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"clusters": [{"name": "m2"}]}, None),
        ({}, None),
        ({"clusters": [{"name": "m1"}]}, "not moved yet"),
        ({"gracefulEvictionTasks": [{"fromCluster": "m1"}]}, "healthy elsewhere"),
        ({"gracefulEvictionTasks": [{"fromCluster": "m2"}]}, None),
        ({"requiredBy": [{"name": "web", "clusters": [{"name": "m1"}]}]}, "needed by web"),
    ],
)
def test_what_is_placed_on_a_member(spec: dict[str, Any], why: str | None) -> None:
    found = member_scheduling.placed_on("m1", [binding(**spec)])
    assert [why in each.why for each in found] == ([True] if why else [])


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"operator": "Exists", "effect": "NoSchedule"}], False),
        ([{"key": "installer.karmada.io/drain", "operator": "Exists", "effect": "NoExecute"}], True),
        ([{"key": "installer.karmada.io/drain"}], True),
        ([{"key": "installer.karmada.io/drain", "value": "x"}], False),
        ([{"key": "cluster.karmada.io/not-ready", "operator": "Exists"}], False),
        ([{"operator": "Exists", "tolerationSeconds": 30}], False),
    ],
)
def test_tolerations_of_a_drain(tolerations: list[dict[str, Any]], expected: bool) -> None:
    assert member_scheduling.tolerates(tolerations) is expected


# -- no other place ----------------------------------------------------------------------------------------------------


def test_the_last_line_says_how_members_are_now() -> None:
    config = binding(clusters=[{"name": "m1"}])
    config["spec"]["resource"] = {"kind": "ConfigMap", "namespace": "shop", "name": "settings"}
    config["metadata"] = {"name": "settings", "namespace": "shop"}
    site = Site(binding(clusters=[{"name": "m1"}]), config)
    assert site.run("cordoned", "m1")["now"] == ["m1 is cordoned; 1 workload and 1 other object still run there"]
    assert site.run("uncordoned", "m1", check=True)["now"][0].startswith("m1 would be used again; ")
    assert Site().run("drained", "m1")["now"] == ["m1 is drained; nothing runs there"]


def test_a_drain_that_would_take_a_last_replica_away_is_refused_before_anything_is_changed() -> None:
    only_here = binding(clusters=[{"name": "m1"}], placement={"clusterAffinity": {"clusterNames": ["m1"]}})
    site = Site(only_here, others=("m2",))
    with pytest.raises(ProblemsError) as caught:
        site.run("drained", "m1")
    (problem,) = caught.value.problems
    assert "Deployment shop/web (its policy chooses no other cluster)" in problem.what
    assert "-e karmada_confirm_drain=m1" in problem.remedy
    assert site.inside.log == []
    # A check tells it, and goes on; so does who has asked for it by name.
    assert site.run("drained", "m1", check=True)["changed"]
    assert [each.severity.value for each in site.told] == ["warning"]
    site.run("drained", "m1", confirm="m9, m1")
    assert DRAIN in site.taints


@pytest.mark.parametrize(
    ("placement", "why"),
    [
        ({}, ""),
        ({"clusterAffinity": {"exclude": ["m2"]}}, "its policy chooses no other cluster"),
        ({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "a"}}}}, ""),
        ({"clusterAffinity": {"labelSelector": {"matchLabels": {"tier": "b"}}}}, "its policy chooses no other cluster"),
        ({"clusterAffinities": [{"clusterNames": ["m1"]}, {"clusterNames": ["m2"]}]}, ""),
        (
            {
                "clusterAffinity": {
                    "fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z1"]}]}
                }
            },
            "its policy chooses no other cluster",
        ),
        ({"clusterAffinity": {"labelSelector": {"matchExpressions": [{"key": "tier", "operator": "Later"}]}}}, ""),
        ({"clusterTolerations": [{"operator": "Exists"}]}, ""),
    ],
)
def test_where_else_a_policy_lets_an_object_go(placement: dict[str, Any], why: str) -> None:
    clusters = [cluster("m1"), cluster("m2", {"tier": "a"}, zones=["z1"])]
    found = elsewhere.foreseen([binding(clusters=[{"name": "m1"}], placement=placement)], ["m1"], clusters)
    assert [each.why for each in found] == ([why] if why else [])


def test_taints_of_others_and_members_that_leave_are_no_place() -> None:
    tainted = cluster("m2", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}])
    leaving = cluster("m3")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    wanted = binding(clusters=[{"name": "m1"}])
    (found,) = elsewhere.foreseen([wanted], ["m1"], [cluster("m1"), tainted, leaving])
    assert found.why == "m2 has the taint a, m3 leaves"
    tolerated = {"clusterTolerations": [{"key": "a", "operator": "Equal", "value": "b"}]}
    assert elsewhere.foreseen([{**wanted, "spec": {**wanted["spec"], "placement": tolerated}}], ["m1"], [tainted]) == []
    (alone,) = elsewhere.foreseen([wanted], ["m1"], [cluster("m1")])
    assert alone.why == "there is no other cluster"
    assert elsewhere.foreseen([binding(clusters=[{"name": "m1"}, {"name": "m2"}])], ["m1"], [tainted]) == []


def evicted(**spec: Any) -> dict[str, Any]:
    """A binding that is on its way from m1, and for which the scheduler has looked in vain."""
    condition = {
        "type": "Scheduled",
        "status": "False",
        "reason": "NoClusterFit",
        "message": "0/2 clusters are available",
    }
    task = {"fromCluster": "m1", "producer": "TaintManager"}
    return {**binding(gracefulEvictionTasks=[task], **spec), "status": {"conditions": [condition]}}


def moving(site: Site, monkeypatch: pytest.MonkeyPatch, *steps: Any) -> None:
    """After each look the next of these bindings takes the place of the one before."""
    left = iter(steps)

    def sleep(_seconds: float) -> None:
        site.inside.put(next(left))

    monkeypatch.setattr(action_module.time, "sleep", sleep)


@pytest.mark.parametrize("before", [(), ("cordoned",)])
def test_the_scheduler_that_finds_no_place_ends_a_drain_and_the_last_replica_stays(
    before: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    for state_before in before:
        site.run(state_before, "m1")
    there = site.taints
    # Karmada evicts it once more, for its controller has not seen yet that the taint is gone.
    moving(site, monkeypatch, evicted(), evicted(), evicted(), binding(clusters=[{"name": "m1"}]))
    with pytest.raises(ProblemsError) as caught:
        site.run("drained", "m1", timeout=600)
    assert "Deployment shop/web (NoClusterFit: 0/2 clusters are available)" in str(caught.value)
    assert "taken away again" in str(caught.value)
    assert site.taints == there


def test_what_has_no_other_place_is_on_its_member_again_when_a_drain_ends_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler passes over a member as long as something is being evicted from it, and after that it is gone."""
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    steps = iter((evicted(), evicted()))
    monkeypatch.setattr(action_module.time, "sleep", lambda _: [site.inside.put(each) for each in [*steps][:1]])
    with pytest.raises(ProblemsError):
        site.run("drained", "m1", timeout=600)
    assert site.bound == ([{"name": "m1"}], None)


def test_uncordoned_in_the_middle_of_a_drain_what_has_no_other_place_stays() -> None:
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    site.run("drained", "m1", confirm="m1")
    site.inside.put(evicted())
    seen = site.run("uncordoned", "m1", check=True)["changes"]
    assert site.bound[0] is None
    assert (
        site.run("uncordoned", "m1")["changes"]
        == seen
        == ["changed Cluster m1", "changed ResourceBinding shop/web-deployment"]
    )
    assert site.bound == ([{"name": "m1"}], None)
    assert site.run("uncordoned", "m1")["changes"] == []


def test_a_member_that_was_not_drained_is_uncordoned_without_a_look_at_what_others_evict() -> None:
    site = Site(evicted(), others=("m2",))
    site.run("cordoned", "m1")
    assert site.run("uncordoned", "m1")["changes"] == ["changed Cluster m1"]


def test_what_karmada_evicts_from_a_member_that_is_not_ready_is_left_to_karmada() -> None:
    site = Site(evicted(), others=("m2",))
    not_ready = {"key": "cluster.karmada.io/not-ready", "effect": "NoExecute"}
    site.inside.put(cluster("m1", taints=[not_ready, *map(dict, member_scheduling.TAINTS["drained"][0])]))
    assert site.run("uncordoned", "m1")["changes"] == ["changed Cluster m1"]


TASK = {"fromCluster": "m1", "producer": "TaintManager"}
DIVIDED = {"replicas": 4, "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}


@pytest.mark.parametrize(
    ("spec", "failed", "clusters"),
    [
        ({"gracefulEvictionTasks": [TASK]}, True, [{"name": "m1"}]),
        ({"gracefulEvictionTasks": [TASK]}, False, [{"name": "m1"}]),
        ({"gracefulEvictionTasks": [TASK], "clusters": [{"name": "m2"}]}, False, None),
        ({"gracefulEvictionTasks": [TASK], "clusters": [{"name": "m2"}]}, True, [{"name": "m2"}, {"name": "m1"}]),
        ({"gracefulEvictionTasks": [{**TASK, "producer": "Others"}]}, True, None),
        ({"gracefulEvictionTasks": [{**TASK, "fromCluster": "m2"}]}, True, None),
        (
            {
                "gracefulEvictionTasks": [{**TASK, "replicas": 3}],
                "clusters": [{"name": "m2", "replicas": 2}],
                **DIVIDED,
            },
            True,
            [{"name": "m2", "replicas": 2}, {"name": "m1", "replicas": 2}],
        ),
        (
            {
                "gracefulEvictionTasks": [{**TASK, "replicas": 3}],
                "clusters": [{"name": "m2", "replicas": 4}],
                **DIVIDED,
            },
            False,
            None,
        ),
        ({"clusters": [{"name": "m1"}]}, True, None),
    ],
    ids=[
        "no place",
        "not looked for yet",
        "placed elsewhere",
        "a copy without a place",
        "of others",
        "of another member",
        "replicas that lack",
        "replicas that moved",
        "nothing is evicted",
    ],
)
def test_what_is_evicted_is_placed_again_where_nothing_has_taken_its_place(
    spec: dict[str, Any], failed: bool, clusters: list[Any] | None
) -> None:
    seen = {**binding(**spec), "status": {"conditions": [{"type": "Scheduled", "status": str(not failed)}]}}
    patch = member_scheduling.eviction_undone(seen, {"m1"})
    assert patch == (clusters and {"spec": {"clusters": clusters, "gracefulEvictionTasks": None}})


def test_who_has_asked_for_it_by_name_is_told_once_and_the_drain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    moving(site, monkeypatch, evicted(), evicted(), evicted(), binding(clusters=[]))
    found = site.run("drained", "m1", timeout=600, confirm="m1")
    assert "failed" not in found
    (line,) = [line for line in site.said if "NoClusterFit" in line]
    assert line.startswith("the scheduler finds no other place for Deployment shop/web (NoClusterFit: 0/2 clusters")
    assert line.endswith("as was confirmed")


def test_one_that_others_run_too_is_told_and_does_not_end_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(binding(clusters=[{"name": "m1"}, {"name": "m2"}]), others=("m2",))
    partly = evicted(clusters=[{"name": "m2"}])
    moving(site, monkeypatch, partly, partly, binding(clusters=[{"name": "m2"}]))
    assert "failed" not in site.run("drained", "m1", timeout=600)
    assert len([line for line in site.said if "NoClusterFit" in line]) == 1


def test_a_condition_of_one_moment_is_not_taken_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(binding(clusters=[{"name": "m1"}]), others=("m2",))
    moving(site, monkeypatch, evicted(), binding(clusters=[{"name": "m2"}]))
    assert "failed" not in site.run("drained", "m1", timeout=600)
    assert DRAIN in site.taints
