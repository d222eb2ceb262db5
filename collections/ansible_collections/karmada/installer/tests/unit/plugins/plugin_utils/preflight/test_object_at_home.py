# SPDX-License-Identifier: Apache-2.0
"""A document that is an object, and a kubeconfig that leads to another cluster than the one that has the object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import admin_kubeconfig as publish
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings, host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import manager
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.preflight_samples import SYSTEM, host
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi

OBJECTS = f"apis/{manifest.API_VERSION}/karmadadeployments"
OURS, ANOTHER = "uid-at-the-update", "uid-of-another"
#: An object, or none.
There = dict[str, Any] | None
REMEDY = (
    "Use the kubeconfig with which the inventory was made. In AWX, give the job template and the inventory source the "
    "same credential. If the object was deleted or made anew since, update the inventory."
)


@pytest.fixture(autouse=True)
def no_crds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crd_files, "crds", lambda *_: [])


def an_object(uid: str) -> dict[str, Any]:
    metadata = {"name": "prod", "namespace": "karmada", "uid": uid}
    return {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND, "metadata": metadata}


def a_run(cluster: Any, spec: dict[str, Any] | None = None, **more: Any) -> Run:
    """A run from an object, as a stored inventory has it, whose kubeconfig leads to this cluster."""
    run = fake_run(document(spec), cluster, **more)
    run.connection = Connection(object_uid=OURS)
    return run


def of_object(found: Iterable[Problem]) -> list[Problem]:
    return [each for each in found if each.reason in (Reason.DOCUMENT_NOT_FOUND, Reason.DOCUMENT_CHANGED)]


# -- what a server answers ----------------------------------------------------------------------------------------


def served(api: StubApi) -> Cluster:
    """Client of a server that knows objects of this kind."""
    api.types[manifest.API_VERSION] = [{"name": "karmadadeployments", "kind": manifest.KIND, "namespaced": True}]
    return cluster_of(api.kubeconfig(), name="host cluster")


@pytest.fixture
def server(api: StubApi) -> Iterator[Cluster]:
    with served(api) as found:
        yield found


def test_the_object_of_the_run_is_read_by_its_name_and_is_no_problem(api: StubApi, server: Cluster) -> None:
    api.put(OBJECTS, an_object(OURS))
    assert manager.not_at_home(a_run(server)) == ()
    assert ("GET", f"/apis/{manifest.API_VERSION}/namespaces/karmada/karmadadeployments/prod") in api.requests
    assert api.writes() == []


def test_a_cluster_that_has_none_of_that_name_is_refused(api: StubApi, server: Cluster) -> None:
    (problem,) = manager.not_at_home(a_run(server))
    assert problem == Problem(
        f"KarmadaDeployment karmada/prod, from which the inventory was made ({OURS}), is not there",
        f"host cluster at {api.url}",
        REMEDY,
        reason=Reason.DOCUMENT_NOT_FOUND,
    )


def test_a_cluster_that_has_another_of_that_name_is_refused(api: StubApi, server: Cluster) -> None:
    """As where the same repository is applied to several clusters."""
    api.put(OBJECTS, an_object(ANOTHER))
    (problem,) = manager.not_at_home(a_run(server))
    assert problem == Problem(
        f"KarmadaDeployment karmada/prod is another object there ({ANOTHER}) than the one from which the inventory was "
        f"made ({OURS})",
        f"host cluster at {api.url}",
        REMEDY,
        reason=Reason.DOCUMENT_CHANGED,
    )


def test_an_account_that_may_not_read_the_object_is_not_stopped_where_there_may_be_one(
    api: StubApi, server: Cluster
) -> None:
    api.faults.append(Fault("status", "GET", "karmadadeployments/prod", status=403))
    assert manager.not_at_home(a_run(server)) == ()
    assert api.faults[0].times == 0, "it was asked for"


def test_a_cluster_without_the_kind_is_refused_whatever_the_account_may_read(api: StubApi) -> None:
    """Everybody may read which kinds there are."""
    api.faults.append(Fault("status", "GET", "karmadadeployments", status=403, times=99))
    with cluster_of(api.kubeconfig(), name="host cluster") as cluster:
        (problem,) = manager.not_at_home(a_run(cluster))
    assert problem.reason is Reason.DOCUMENT_NOT_FOUND


def test_a_document_from_a_file_is_looked_for_nowhere(api: StubApi, server: Cluster) -> None:
    run = a_run(server)
    run.connection = Connection()
    assert manager.not_at_home(run) == ()
    assert api.requests == []


# -- what a run makes of it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("there", [None, an_object(ANOTHER)], ids=["none", "another"])
def test_preflight_refuses_and_tells_nothing_else_of_that_cluster(there: There, check: bool) -> None:
    """What the account may not do there would be granted by whoever reads of it."""
    cluster = host(SYSTEM, *([there] if there else []))
    cluster.denied = {("create", "secrets"), ("get", "secrets")}
    for found in (findings.findings(a_run(cluster, check=check)).problems, findings.uninstall_problems(a_run(cluster))):
        assert len(found) == 1
        assert of_object(found) == found
    assert cluster.log == []


def test_preflight_refuses_a_cluster_that_could_take_a_second_control_plane() -> None:
    assert findings.findings(a_run(host(SYSTEM, an_object(OURS)))).problems == []
    assert len(of_object(findings.findings(a_run(host(SYSTEM))).problems)) == 1


@pytest.mark.parametrize("there", [None, an_object(ANOTHER), an_object(OURS)], ids=["none", "another", "ours"])
def test_the_object_is_looked_for_at_home_if_the_control_plane_is_in_another_cluster(there: There) -> None:
    """``spec.hostCluster.secretRef`` leads there, and that cluster has no objects of this kind."""
    run = a_run(host(SYSTEM), {"hostCluster": {"secretRef": {"name": "far"}}})
    run.__dict__["home"] = FakeCluster("home cluster", *([there] if there else []))
    found = of_object(findings.findings(run).problems)
    assert [each.where for each in found] == (
        [] if there == an_object(OURS) else ["home cluster at https://192.0.2.1:6443"]
    )


def test_the_journal_asks_for_the_object_too() -> None:
    """Not every playbook checks first, and what is recorded is which object manages the control plane, and where."""
    cluster = host(SYSTEM)
    run = a_run(cluster)
    with pytest.raises(ProblemsError, match="is not there"):
        run.journaled("start")
    cluster.put(an_object(OURS))
    assert run.journaled("start").manager == manager.Manager("karmada", "prod", OURS, "id-1")


# -- plain hosts --------------------------------------------------------------------------------------------------


@pytest.fixture
def on_hosts(tmp_path: Path) -> Callable[..., Run]:
    """A step on hosts as an installation has left them, from an object, with this home cluster."""
    runs = Runs(tmp_path / "run")

    def step(*objects: Any, stored: State | None = None, check: bool = False) -> Run:
        runs.see_all(seen(Stored(4).after(stored or remembered())))
        run = runs.step(deployment(), check=check)
        run.connection = Connection(object_uid=OURS)
        run.__dict__["home"] = FakeCluster("home cluster", SYSTEM, *objects)
        return run

    return step


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("look", [findings.findings, findings.uninstall_problems])
def test_on_hosts_the_object_is_looked_for_as_well(
    look: Callable[[Run], Any], check: bool, on_hosts: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What else preflight asks of hosts has tests of its own.
    monkeypatch.setattr(host_preflight, "problems", lambda *_: [])

    def found(*objects: Any) -> list[Problem]:
        told = look(on_hosts(*objects, check=check))
        return of_object(told if isinstance(told, list) else told.problems)

    assert [each.reason for each in found()] == [Reason.DOCUMENT_NOT_FOUND]
    assert [each.reason for each in found(an_object(ANOTHER))] == [Reason.DOCUMENT_CHANGED]
    assert found(an_object(OURS)) == []


def test_the_administrators_kubeconfig_is_put_beside_no_object_that_is_not_there(on_hosts: Callable[..., Run]) -> None:
    perform: Any = partial(publish.ActionModule.perform, None, arguments={})
    for objects in ((), (an_object(ANOTHER),)):
        run = on_hosts(*objects)
        home: Any = run.home
        with pytest.raises(ProblemsError, match="from which the inventory was made"):
            perform(run)
        assert home.log == []
    run = on_hosts(an_object(OURS))
    home = run.home
    perform(run)
    assert home.log == ["apply Secret prod-admin-config"]
