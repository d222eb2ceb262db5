# SPDX-License-Identifier: Apache-2.0
"""Members are cordoned, drained and uncordoned by their taints, and it is told what is left on one that is drained."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import member_scheduling as action_module
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
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


class Site:
    """A control plane with one cluster, and some bindings."""

    def __init__(self, *bindings: dict[str, Any]) -> None:
        self.inside = FakeCluster("control plane", *bindings)
        self.inside.put(
            {
                "apiVersion": registration.CLUSTER_API,
                "kind": "Cluster",
                "metadata": {"name": "m1", "resourceVersion": "1"},
                "spec": {"taints": [THEIRS]},
            }
        )
        self.said: list[str] = []

    def run(
        self,
        wanted: str,
        *names: str,
        check: bool = False,
        spec: Any = EVICTS,
        timeout: int = 0,
        selected: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        run = fake_run(document(spec), FakeCluster("host cluster"), stored=state(), check=check)
        run.selected = selected
        run.__dict__["control_plane"] = self.inside
        run.say = self.said.append
        perform: Any = action_module.ActionModule.perform
        found: dict[str, Any] = perform(None, run, {"state": wanted, "members": list(names), "timeout": timeout})
        return found

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
    site = Site(binding(clusters=[{"name": "m1"}]))
    found = site.run("drained", "m1", check=True)
    assert "key: installer.karmada.io/drain" in found["diff"][0]["after"]
    assert found["left"] == ["m1: ResourceBinding shop/web-deployment of Deployment shop/web (not moved yet)"]
    assert (site.inside.log, "failed" in found) == ([], False)


@pytest.mark.parametrize(
    ("names", "part"),
    [((), "no member is named"), (("m1", "m3"), "no cluster is registered under the name m3. name one of: m1")],
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
    site = Site(going)
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
