# SPDX-License-Identifier: Apache-2.0
"""Stages of a control plane: what each waits for, and whose pods are asked when it does not come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import control_plane as action_file
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import probes, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.causes import NO_SERVERS
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OPTIONAL, document, state

SERVERS = {
    "v1alpha1.cluster.karmada.io": "prod-aggregated-apiserver",
    "v1alpha1.search.karmada.io": "prod-search",
    "v1beta1.metrics.k8s.io": "prod-metrics-adapter",
    "v1beta1.custom.metrics.k8s.io": "prod-metrics-adapter",
    "v1beta2.custom.metrics.k8s.io": "prod-metrics-adapter",
    "karmada-system": "prod-apiserver",
}


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Object or probe that was waited for → workloads that serve it."""
    found: dict[str, list[str]] = {}

    def wait_until(_cluster: Any, targets: Iterable[Ref], *, served_by: Any, **_: Any) -> None:
        found.update({ref.name: [server.name for server in served_by[ref].workloads] for ref in targets})

    def probed(what: str) -> Any:
        def probe(_cluster: Any, _timeout: float, _say: Any, served_by: Any) -> None:
            found[what] = [server.name for server in served_by.workloads]

        return probe

    monkeypatch.setattr(action_file, "wait_until", wait_until)
    for each in ("aggregated_api_answers", "webhook_judges"):
        monkeypatch.setattr(probes, each, probed(each))
    return found


def perform(stage: str, *, wait: bool = True) -> None:
    control_plane = FakeCluster("control plane")
    run = fake_run(document({"components": OPTIONAL}), FakeCluster("host"), stored=state())
    run.__dict__["control_plane"] = control_plane
    # What is there already is waited for as well.
    for each in stages.objects(run, stage):
        control_plane.put(each)
    run.apply_to_control_plane = lambda _step, objects: stages_unchanged(objects())  # type: ignore[method-assign]
    run.remove_from_control_plane = lambda *_: []  # type: ignore[method-assign]
    object.__new__(action_file.ActionModule).perform(run, {"stage": stage, "wait": wait, "timeout": 300})


def stages_unchanged(objects: Iterable[Any]) -> list[Any]:
    return [action_file.Change(Ref.of(each), "unchanged") for each in objects]


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        ("rights", ["karmada-system"]),
        ("aggregation", ["v1alpha1.cluster.karmada.io"]),
        ("addons", [name for name in SERVERS if "search" in name or "metrics" in name]),
    ],
)
def test_what_is_waited_for_is_known_with_the_workload_that_serves_it(
    stage: str, what: list[str], waited: dict[str, list[str]]
) -> None:
    perform(stage)
    assert {name: [SERVERS[name]] for name in what}.items() <= waited.items()


def test_probes_know_the_workloads_that_answer_them(waited: dict[str, list[str]]) -> None:
    perform("aggregation")
    perform("admission")
    assert waited["aggregated_api_answers"] == ["prod-aggregated-apiserver"]
    assert waited["webhook_judges"] == ["prod-webhook"]


@pytest.mark.parametrize("stage", ["rights", "aggregation", "admission", "addons"])
def test_nothing_is_waited_for_or_tried_if_that_comes_later(stage: str, waited: dict[str, list[str]]) -> None:
    perform(stage, wait=False)
    assert waited == {}


def test_what_units_serve_is_asked_of_no_cluster() -> None:
    deployment = document({"mode": "Binary", "hosts": [{"name": "h1", "address": "192.0.2.1"}]})
    run = Run(deployment, Connection(), operation="test", holder="me", check=False, say=lambda _: None, place=OnHosts)
    assert run.servers("karmada-search") == NO_SERVERS
