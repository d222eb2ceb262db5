# SPDX-License-Identifier: Apache-2.0
"""Another host cluster than the one of the last report or of the state: asked for by name, or not worked in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State, from_files, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join
from ansible_collections.karmada.installer.plugins.plugin_utils.members.registration import (
    account,
    marked,
    role,
    role_with_all_rights,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report.observe import observe
from ansible_collections.karmada.installer.plugins.plugin_utils.report.report import status
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import SYSTEM, host
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

HERE, THERE = "id-1", "00000000-0000-0000-0000-000000000002"


@pytest.fixture(autouse=True)
def no_crds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd_files, "crds", lambda *_: [])


def run_with(
    report: Any,
    tmp_path: Path,
    cluster: FakeCluster | None = None,
    stored: State | None = None,
    spec: dict[str, Any] | None = None,
) -> Run:
    run = fake_run(document(spec), cluster or host(SYSTEM), stored=stored)
    path = tmp_path / "prod.report.json"
    run.connection = replace(Connection(), report_output=str(path))
    if report is not None:
        path.write_text(report if isinstance(report, str) else json.dumps(report))
    return run


def told(found: Iterable[Problem]) -> list[Problem]:
    return [each for each in found if each.reason is Reason.OTHER_HOST_CLUSTER]


def test_a_document_whose_report_names_another_cluster_is_refused_there(tmp_path: Path) -> None:
    run = run_with({"hostClusterUID": THERE}, tmp_path)
    for found in (findings.findings(run).problems, findings.uninstall_problems(run)):
        (problem,) = told(found)
        assert problem.what == (
            f"it is another cluster ({HERE}) than the one that control plane prod is in by "
            f"the report {tmp_path / 'prod.report.json'} ({THERE})"
        )
        assert problem.where == "host cluster at https://192.0.2.1:6443"
        assert f"-e karmada_confirm_host_cluster={HERE}" in problem.remedy


def test_what_follows_from_the_wrong_cluster_is_not_told_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of the control plane that was meant seems to be another one's, and its remedy is to uninstall that."""
    foreign = role_with_all_rights(role("member1"), account("member1"))
    member = FakeCluster("member member1", SYSTEM, *marked(foreign, "another", "karmada/prod"))
    monkeypatch.setattr(join, "connected", lambda *_: nullcontext(member))
    spec = {"members": [{"name": "member1", "secretRef": {"name": "member1"}}]}

    def found(cluster: str) -> list[Problem]:
        return findings.findings(run_with({"hostClusterUID": cluster}, tmp_path, spec=spec)).all

    assert [each.reason for each in found(HERE)] == [Reason.OTHER_CONTROL_PLANE]
    assert [each.reason for each in found(THERE)] == [Reason.OTHER_HOST_CLUSTER]


def test_a_state_that_came_from_another_cluster_is_refused(tmp_path: Path) -> None:
    """Restored from a backup, with the namespace of the control plane and without the rest."""
    run = run_with(None, tmp_path, stored=replace(state(), host_cluster=THERE))
    (problem,) = told(findings.findings(run).problems)
    assert f"by the installer's state there ({THERE})" in problem.what


@pytest.mark.parametrize("confirmed", ["", THERE, "prod", "true"])
def test_only_the_name_of_the_cluster_that_answers_confirms_it(confirmed: str, tmp_path: Path) -> None:
    run = run_with({"hostClusterUID": THERE}, tmp_path)
    assert told(findings.findings(run, (), confirmed).problems)
    assert told(findings.uninstall_problems(run, (), confirmed))
    assert not told(findings.findings(run, (), HERE).problems)
    assert not told(findings.uninstall_problems(run, (), HERE))


@pytest.mark.parametrize(
    "report",
    [None, {}, {"hostClusterUID": HERE}, {"hostClusterUID": ""}, {"hostClusterUID": None}, "[]", "no JSON", ""],
)
def test_the_known_cluster_and_an_unknown_one_are_no_problem(report: Any, tmp_path: Path) -> None:
    assert not told(findings.findings(run_with(report, tmp_path)).problems)


def test_an_account_that_may_not_read_the_identity_is_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, get = host(), FakeCluster.get

    def refused(each: FakeCluster, api_version: str, kind: str, name: str, namespace: str | None = None) -> Any:
        if name == "kube-system":
            raise Forbidden("host", "GET", "/", 403, "Forbidden", "no")
        return get(each, api_version, kind, name, namespace)

    monkeypatch.setattr(FakeCluster, "get", refused)
    run = run_with({"hostClusterUID": THERE}, tmp_path, cluster)
    assert not told(findings.findings(run).problems)
    assert "hostClusterUID" not in status(observe(run))
    assert run.journaled("step").host_cluster == ""


def test_report_and_state_name_the_host_cluster(tmp_path: Path) -> None:
    run = run_with(None, tmp_path)
    assert status(observe(run))["hostClusterUID"] == HERE
    assert run.journaled("step").host_cluster == HERE
    kept = replace(state(), host_cluster=HERE)
    assert from_files(to_files(kept), "here").host_cluster == HERE
