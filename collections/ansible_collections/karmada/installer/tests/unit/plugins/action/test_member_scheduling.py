# SPDX-License-Identifier: Apache-2.0
"""How cordon, drain and uncordon reach a control plane on plain hosts: with a kubeconfig, or by the state there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_scheduling import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import (
    CONTROL_PLANE_VARIABLE,
    Connection,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_hosts import OnHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import HOSTS, NAMES, Runs, remembered, seen

M1 = {
    "apiVersion": registration.CLUSTER_API,
    "kind": "Cluster",
    "metadata": {"name": "m1", "resourceVersion": "1", "labels": {}},
    "spec": {},
}
REFUSED = "No ED25519 host key is known for 192.0.2.1 and you have requested strict checking."


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of those whose certificates the control plane was asked with; it has the member m1."""
    monkeypatch.delenv(CONTROL_PLANE_VARIABLE, raising=False)
    found: list[str] = []

    def connect(place: Any, snapshot: Any) -> FakeCluster:
        found.extend(place.issued(snapshot).material.leaves)
        inside = FakeCluster("control plane")
        inside.put(M1)
        return inside

    monkeypatch.setattr(OnHosts, "connect", connect)
    return found


def looked_for(run: Run) -> list[str]:
    perform: Any = ActionModule.perform
    found = perform(None, run, {"state": "looked_for", "members": []})
    assert found.pop("changed") is False
    hosts: list[str] = found["hosts"]
    return hosts


def cordoned(run: Run) -> dict[str, Any]:
    perform: Any = ActionModule.perform
    found: dict[str, Any] = perform(None, run, {"state": "cordoned", "members": ["m1"], "timeout": 0, "confirm": ""})
    return found


def test_without_a_kubeconfig_the_hosts_of_the_control_plane_are_looked_at(runs: Runs, asked: list[str]) -> None:
    assert looked_for(runs.step()) == NAMES
    assert asked == []


@pytest.mark.parametrize("way", ["environment", "left", "object"])
def test_with_a_kubeconfig_none_is(
    way: str, runs: Runs, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = runs.step(), tmp_path / "prod.kubeconfig"
    run.connection = Connection(kubeconfig_output=str(left), object_uid="uid-1" if way == "object" else None)
    if way == "environment":
        # Also one that is not there: who has named it is told so.
        monkeypatch.setenv(CONTROL_PLANE_VARIABLE, str(tmp_path / "none"))
    elif way == "left":
        left.touch()
    assert looked_for(run) == []
    assert asked == []


def test_who_has_named_a_file_that_is_not_there_is_told_so(
    runs: Runs, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTROL_PLANE_VARIABLE, str(tmp_path / "none"))
    runs.see_all({**seen(Stored().after(remembered())), "answered": 1.0})
    with pytest.raises(ProblemsError) as refused:
        cordoned(runs.step())
    assert refused.value.problems[0].reason is Reason.KUBECONFIG_NOT_FOUND
    assert asked == []


def test_a_run_is_the_administrator_by_the_state_that_hosts_have_told(runs: Runs, asked: list[str]) -> None:
    runs.see_all({**seen(Stored().after(remembered())), "answered": 1.0})
    found = cordoned(runs.step())
    assert found["changes"] == ["changed Cluster m1"]
    assert asked == ["admin"]


def test_one_host_that_does_not_answer_is_not_needed(runs: Runs, asked: list[str]) -> None:
    runs.see_all({**seen(Stored().after(remembered())), "answered": 1.0})
    runs.see(cp2={"refusal": REFUSED, "stored": None})
    assert cordoned(runs.step())["changes"] == ["changed Cluster m1"]
    assert asked == ["admin"]


def test_where_nothing_is_installed_no_control_plane_is_asked(runs: Runs, asked: list[str]) -> None:
    runs.see_all({**seen(Stored()), "answered": 1.0})
    with pytest.raises(ProblemsError) as refused:
        cordoned(runs.step())
    (problem,) = refused.value.problems
    assert (problem.reason, problem.where) == (Reason.NOT_INSTALLED, f"hosts {', '.join(NAMES)}")
    assert asked == []


def test_hosts_that_cannot_be_looked_at_are_named_with_what_to_do(runs: Runs, asked: list[str]) -> None:
    runs.see(**{each["name"]: {"refusal": REFUSED} for each in HOSTS})
    with pytest.raises(ProblemsError) as refused:
        cordoned(runs.step())
    assert [each.where for each in refused.value.problems] == [f"host {e['name']} ({e['address']})" for e in HOSTS]
    assert all(each.remedy for each in refused.value.problems)
    assert asked == []
