# SPDX-License-Identifier: Apache-2.0
"""API servers read the resources of the aggregated API again if one may not know them; otherwise nothing is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import aggregated_discovery, stages
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

API = "cluster.karmada.io/v1alpha1"
REF = Ref("apiregistration.k8s.io/v1", "APIService", "v1alpha1.cluster.karmada.io")
PATCHED = "patch APIService v1alpha1.cluster.karmada.io"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(aggregated_discovery, "_READING_SECONDS", 0.05)
    monkeypatch.setattr(aggregated_discovery, "_LOOK_SECONDS", 0.01)
    made = fake_run(document(), FakeCluster("host"), stored=state())
    made.__dict__["control_plane"] = control_plane = FakeCluster("control plane")
    for each in stages.objects(made, "aggregation"):
        control_plane.put(each)
    return made


def bring_up_to_date(run: Run, *registered: Change) -> list[Change]:
    return aggregated_discovery.bring_up_to_date(run, registered, 0.1)


def start_api_server(run: Run, name: str, seconds_ago: float) -> None:
    started = (datetime.now(UTC) + run.host_cluster.ahead - timedelta(seconds=seconds_ago)).isoformat()  # type: ignore[attr-defined]
    run.host_cluster.put(  # type: ignore[attr-defined]
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": run.namespace,
                "labels": dict(each.split("=") for each in run.instance.pod_selector("karmada-apiserver").split(",")),
            },
            "status": {"containerStatuses": [{"state": {"running": {"startedAt": started}}}]},
        }
    )


def test_api_servers_that_do_not_know_the_resources_read_them_again(run: Run) -> None:
    run.control_plane.unread = {API}  # type: ignore[attr-defined]
    (change,) = bring_up_to_date(run)
    assert (change.ref, change.action) == (REF, "changed")
    assert aggregated_discovery.READ_AGAIN in change.diff["after"]
    assert run.control_plane.log == [PATCHED]  # type: ignore[attr-defined]
    assert not run.control_plane.unread_versions()
    # Once they know them there is nothing to do.
    assert bring_up_to_date(run) == []
    assert run.control_plane.log == [PATCHED]  # type: ignore[attr-defined]


def test_what_an_api_server_is_reading_already_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.control_plane.unread = {API}  # type: ignore[attr-defined]
    monkeypatch.setattr(
        aggregated_discovery.time,
        "sleep",
        lambda _: run.control_plane.unread.clear(),  # type: ignore[attr-defined]
    )
    assert bring_up_to_date(run) == []
    assert run.control_plane.log == []  # type: ignore[attr-defined]


def test_an_api_that_controllers_do_not_need_is_not_looked_at(run: Run) -> None:
    run.control_plane.unread = {"metrics.k8s.io/v1beta1"}  # type: ignore[attr-defined]
    assert bring_up_to_date(run) == []


def test_resources_that_no_api_server_can_read_end_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.control_plane, "unread_versions", lambda: {API})
    with pytest.raises(ProblemsError, match=rf"until the API server has read the resources of {API}: it lists"):
        bring_up_to_date(run)


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=2), timedelta(hours=-2)])
def test_one_of_several_api_servers_that_is_new_may_not_know_them(run: Run, ahead: timedelta) -> None:
    run.host_cluster.ahead = ahead  # type: ignore[attr-defined]
    start_api_server(run, "one", seconds_ago=3600)
    assert bring_up_to_date(run) == []
    start_api_server(run, "two", seconds_ago=3600)
    assert bring_up_to_date(run) == []
    start_api_server(run, "two", seconds_ago=20)
    # They read when the APIService changes.
    registered: list[Any] = [
        Change(REF, "created"),
        Change(Ref("v1", "Service", "other", "karmada-system"), "unchanged"),
    ]
    assert bring_up_to_date(run, *registered) == []
    assert [each.ref for each in bring_up_to_date(run, Change(REF, "unchanged"))] == [REF]


def test_a_single_api_server_that_knows_them_is_not_asked_however_new_it_is(run: Run) -> None:
    start_api_server(run, "one", seconds_ago=1)
    assert bring_up_to_date(run) == []
    assert run.control_plane.log == []  # type: ignore[attr-defined]
