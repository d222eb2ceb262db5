# SPDX-License-Identifier: Apache-2.0
"""One list of checks for pods and hosts: none hides another, and those of pods have nothing to say of hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Manager
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.no_cluster import NoCluster
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import (
    endpoint_checks,
    endpoint_look,
    findings,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import corpus_files
from ansible_collections.karmada.installer.tests.unit.support.host_facts import machine
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import installed, problems
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Object,
    Runs,
    deployment,
    remembered,
)

NOTHING_STORED = Stored()
Check = Callable[[Run], Iterable[Problem]]

#: All but the one that looks at a name, which is no matter of the host cluster.
OF_PLACE = [check for check in findings.OF_PLACE if check is not endpoint_checks.leads]
GOOD_ON_HOSTS = [file for file in corpus_files.good() if "mode: Binary" in file.text]


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name service, and programs that can be had."""
    monkeypatch.setattr(endpoint_look, "look", lambda *_: endpoint_look.Seen(("192.0.2.1",)))
    monkeypatch.setattr(host_programs, "problems", lambda _run, _hosts: [])


def on_hosts(folder: Path, stored: Stored = NOTHING_STORED, **spec: object) -> Run:
    """Run on hosts that can take a control plane, each with this state."""
    runs = Runs(folder)
    for number, host in enumerate(HOSTS, 1):
        only_which = "controlPlane" not in host["roles"]
        kept = {**stored.plain, "files": {}} if only_which and stored.serial else stored.plain
        runs.see(**{host["name"]: {**machine(number, host["address"]), "stored": kept, "files": {}}})
    return runs.step(deployment(**spec))


def told(run: Run) -> list[Problem]:
    return list(dict.fromkeys(findings.findings(run).all))


def test_hosts_that_can_take_a_control_plane_have_no_problem(tmp_path: Path) -> None:
    assert told(on_hosts(tmp_path)) == []
    assert told(on_hosts(tmp_path, Stored(4).after(remembered()))) == []


@pytest.mark.parametrize("file", GOOD_ON_HOSTS, ids=str)
@pytest.mark.parametrize("check", OF_PLACE, ids=lambda check: f"{check.__module__[-16:]}.{check.__name__}")
def test_every_check_passes_where_there_is_no_host_cluster(
    check: Check, file: corpus_files.CorpusFile, tmp_path: Path
) -> None:
    """And gives no hint: of what it may ask, nothing is there."""
    run = Runs(tmp_path).step(manifest.resolve(manifest.parse(file.text)))
    run.__dict__["config_maps"] = lambda *_: {"policy.yaml": "{apiVersion: audit.k8s.io/v1, kind: Policy}"}
    assert isinstance(run.host_cluster, NoCluster)
    assert list(check(run)) == []
    assert run.told == []


def test_a_host_that_cannot_be_looked_at_hides_nothing(tmp_path: Path) -> None:
    run = on_hosts(tmp_path, components={"karmadaScheduler": {"replicas": 2, "extraArgs": {"no-such": "1"}}})
    run.place.observed["cp2"] = replace(run.observed["cp2"], facts=None, refusal="timed out")
    where = [each.where for each in told(run)]
    assert sorted(where) == [
        "host cp2 (192.0.2.2)",
        "spec.components.karmadaScheduler.extraArgs.no-such",
        "spec.components.karmadaScheduler.replicas",
    ]


def test_a_release_that_cannot_be_followed_hides_nothing() -> None:
    later = {
        "version": "v1.18.1",
        "hostCluster": {"domain": "elsewhere.example"},
        "components": {"karmadaWebhook": {"priorityClassName": "gold"}},
    }
    assert [each.where for each in problems(installed({"version": "v1.18.2"}, later))] == [
        "spec.version",
        "spec.hostCluster.domain",
        "spec.components.karmadaWebhook.priorityClassName",
    ]


def test_a_release_that_cannot_be_followed_hides_nothing_on_hosts(tmp_path: Path) -> None:
    """Hosts with agents are looked at for members, which are no reason to end without the rest."""
    stored = Stored(4).after(remembered(version="v1.18.2"))
    gateway = {"name": "gw1", "address": "192.0.2.9", "roles": ["agent"]}
    spec: Object = {
        "version": "v1.18.1",
        "hosts": [*HOSTS, gateway],
        "hostCluster": {"domain": "elsewhere.example"},
        "components": {"karmadaScheduler": {"replicas": 2}},
    }
    run = on_hosts(tmp_path, stored, **spec)
    assert {"spec.version", "spec.hostCluster.domain", "spec.components.karmadaScheduler.replicas"} <= {
        each.where for each in told(run)
    }


def test_what_another_one_manages_is_no_concern_of_a_run_on_hosts_either(tmp_path: Path) -> None:
    managed = remembered(manager=Manager("team-a", "prod", "uid-a", "cluster"))
    run = on_hosts(tmp_path, Stored(4).after(managed), components={"karmadaScheduler": {"replicas": 2}})
    (problem,) = told(run)
    assert problem.reason is Reason.MANAGED_BY_OBJECT


def test_a_namespace_of_a_host_cluster_that_is_none_is_refused_until_it_cannot_be_taken_out(tmp_path: Path) -> None:
    elsewhere: Object = {"hostCluster": {"namespace": "elsewhere"}}
    (problem,) = told(on_hosts(tmp_path, **elsewhere))
    assert (problem.where, problem.what) == ("spec.hostCluster.namespace", "has no meaning in mode Binary")
    before = Stored(4).after(remembered(document=deployment(**elsewhere)))
    run = on_hosts(tmp_path, before, **elsewhere)
    assert told(run) == []
    assert [*map(str, run.told)] == [
        "spec.hostCluster.namespace: has no meaning in mode Binary; leave it as it was at the install"
    ]
    (problem,) = told(on_hosts(tmp_path, before))
    assert problem.reason is Reason.IMMUTABLE_SETTING
