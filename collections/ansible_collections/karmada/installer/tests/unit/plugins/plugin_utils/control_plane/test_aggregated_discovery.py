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


def reads_again(run: Run, *registered: Change) -> bool:
    """Have it brought up to date, and see whether API servers were made to read; the APIService stays as it was."""
    control_plane: Any = run.control_plane
    log, before = len(control_plane.log), control_plane.get(REF.api_version, REF.kind, REF.name)
    aggregated_discovery.bring_up_to_date(run, registered, 0.1)
    after = control_plane.get(REF.api_version, REF.kind, REF.name)
    for each in (before, after):
        each["metadata"].pop("resourceVersion")
        each["metadata"].setdefault("annotations", {})
    assert after == before
    written = control_plane.log[log:]
    assert written in ([], [PATCHED, PATCHED])
    return bool(written)


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
    assert reads_again(run)
    assert not run.control_plane.unread_versions()
    # Once they know them there is nothing to do.
    assert not reads_again(run)


def test_they_read_when_they_like_if_no_controller_is_to_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.control_plane.unread = {API}  # type: ignore[attr-defined]
    monkeypatch.setattr(aggregated_discovery.differences, "differing", lambda _: iter(()))
    assert not reads_again(run)


def test_what_an_api_server_is_reading_already_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.control_plane.unread = {API}  # type: ignore[attr-defined]
    monkeypatch.setattr(
        aggregated_discovery.time,
        "sleep",
        lambda _: run.control_plane.unread.clear(),  # type: ignore[attr-defined]
    )
    assert not reads_again(run)


def test_an_api_that_controllers_do_not_need_is_not_looked_at(run: Run) -> None:
    run.control_plane.unread = {"metrics.k8s.io/v1beta1"}  # type: ignore[attr-defined]
    assert not reads_again(run)


def test_resources_that_no_api_server_can_read_end_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.control_plane, "unread_versions", lambda: {API})
    with pytest.raises(ProblemsError, match=rf"until the API server has read the resources of {API}: it lists"):
        reads_again(run)
    found = run.control_plane.get(REF.api_version, REF.kind, REF.name)
    assert found is not None
    assert found["metadata"].get("annotations", {}) == {}


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=2), timedelta(hours=-2)])
def test_one_of_several_api_servers_that_is_new_may_not_know_them(run: Run, ahead: timedelta) -> None:
    run.host_cluster.ahead = ahead  # type: ignore[attr-defined]
    start_api_server(run, "one", seconds_ago=3600)
    assert not reads_again(run)
    start_api_server(run, "two", seconds_ago=3600)
    assert not reads_again(run)
    start_api_server(run, "two", seconds_ago=20)
    # They read when the APIService changes.
    registered: list[Any] = [
        Change(REF, "created"),
        Change(Ref("v1", "Service", "other", "karmada-system"), "unchanged"),
    ]
    assert not reads_again(run, *registered)
    assert reads_again(run, Change(REF, "unchanged"))


def test_a_single_api_server_that_knows_them_is_not_asked_however_new_it_is(run: Run) -> None:
    start_api_server(run, "one", seconds_ago=1)
    assert not reads_again(run)
