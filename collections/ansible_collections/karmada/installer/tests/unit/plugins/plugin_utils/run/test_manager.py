# SPDX-License-Identifier: Apache-2.0
"""Which runs may work on an instance that an object manages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Manager
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight.findings import findings, uninstall_problems
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run import manager
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, deployment, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

CLUSTER, OTHER = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
FIRST = Manager("team-a", "prod", "uid-a", CLUSTER)


def an_object(of: Manager = FIRST, **annotations: str) -> dict[str, Any]:
    metadata = {"name": of.name, "namespace": of.namespace, "uid": of.uid, "annotations": annotations}
    return {"apiVersion": "installer.karmada.io/v1alpha1", "kind": "KarmadaDeployment", "metadata": metadata}


def paused(of: Manager = FIRST) -> dict[str, Any]:
    return an_object(of, **{"installer.karmada.io/paused": "true"})


def host_cluster(*objects: dict[str, Any], uid: str = CLUSTER) -> FakeCluster:
    kube_system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}}
    return FakeCluster("host", kube_system, *objects)


def a_run(host: FakeCluster, source: Manager | None = None, managed_by: Manager = FIRST, **more: Any) -> Run:
    """A run on an installed instance; ``source`` is the object that it starts from, None a file."""
    wanted = document(namespace=source.namespace if source else "team-a")
    wanted["spec"]["hostCluster"]["namespace"] = "karmada"
    run = fake_run(wanted, host, stored=replace(state(), manager=managed_by), **more)
    run.connection = Connection(object_uid=source.uid if source else None)
    return run


def judged(run: Run) -> manager.Verdict:
    return manager.verdict(run, run.stored_state)


def test_a_file_is_refused_while_the_object_is_there_and_says_what_to_do() -> None:
    run = a_run(host_cluster(an_object()))
    (problem,) = judged(run).problems
    assert problem.reason is Reason.MANAGED_BY_OBJECT
    assert "KarmadaDeployment team-a/prod manages it" in problem.what
    assert "kubectl annotate kmd --namespace team-a prod installer.karmada.io/paused=true" in problem.remedy
    assert "installer.karmada.io/disable-cascading-deletion=true" in problem.remedy
    assert problem in findings(run).problems
    assert problem in uninstall_problems(a_run(host_cluster(an_object())))


def test_a_file_may_work_while_the_object_is_paused_which_stays_on_record() -> None:
    verdict = judged(a_run(host_cluster(paused())))
    assert verdict == manager.Verdict(FIRST)
    assert judged(a_run(host_cluster(an_object(**{"installer.karmada.io/paused": "false"})))).problems


def test_a_file_takes_over_what_an_object_has_left() -> None:
    assert judged(a_run(host_cluster())) == manager.Verdict(Manager())
    unknown_cluster = replace(FIRST, cluster="")
    assert judged(a_run(host_cluster(), managed_by=unknown_cluster)) == manager.Verdict(Manager())
    remade = replace(FIRST, uid="uid-of-another-time")
    assert judged(a_run(host_cluster(an_object(remade)))).problems, "one that was made again manages it as well"


def test_nobody_asks_where_no_object_is_on_record() -> None:
    silent = host_cluster()
    run = a_run(silent, managed_by=Manager())
    assert run.stored_state
    silent.dead = True
    assert judged(run) == manager.Verdict(Manager())


@pytest.mark.parametrize("why", ["another cluster", "may not read", "no answer"])
def test_where_the_object_cannot_be_seen_its_uid_has_to_be_named(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_cluster(uid=OTHER if why == "another cluster" else CLUSTER)
    run = a_run(host)
    assert run.stored_state
    if why == "may not read":

        def forbidden(_: Any, *wanted: Any) -> Any:
            raise Forbidden("host", "GET", "/", 403, "Forbidden", f"may not read {wanted[1]}")

        monkeypatch.setattr(FakeCluster, "get", forbidden)
    host.dead = why == "no answer"
    (problem,) = judged(run).problems
    assert problem.reason is Reason.MANAGED_BY_OBJECT
    assert "cannot be seen" in problem.what
    assert "-e karmada_confirm_manager=uid-a" in problem.remedy
    run.confirmed_manager = "uid-of-another"
    assert judged(run).problems
    run.confirmed_manager = FIRST.uid
    assert judged(run) == manager.Verdict(Manager())


def test_of_two_objects_for_one_instance_the_second_is_refused_even_if_the_first_is_paused() -> None:
    second = Manager("team-b", "prod", "uid-b", CLUSTER)
    for first in (an_object(), paused()):
        (problem,) = judged(a_run(host_cluster(first, an_object(second)), second)).problems
        assert "team-a/prod manages it" in problem.what
        assert "team-b/prod" in problem.what
    assert judged(a_run(host_cluster(an_object(second)), second)) == manager.Verdict(second)
    assert judged(a_run(host_cluster(an_object()), FIRST)) == manager.Verdict(FIRST)


def test_an_object_that_was_made_again_goes_on_unless_the_former_is_of_another_cluster() -> None:
    again = replace(FIRST, uid="uid-again")
    assert judged(a_run(host_cluster(an_object(again)), again)) == manager.Verdict(again)
    elsewhere = host_cluster(an_object(again), uid=OTHER)
    (problem,) = judged(a_run(elsewhere, again)).problems
    assert "is another cluster" in problem.what


@pytest.mark.usefixtures("unlocked")
def test_an_object_takes_over_what_runs_from_files_made_and_says_so_once() -> None:
    host = host_cluster(an_object())
    run = a_run(host, FIRST, managed_by=Manager())
    assert manager.is_new(run, run.stored_state or state())
    with run.writing("finish"):
        assert run.state.manager == FIRST
    assert not manager.is_new(run, run.state)
    assert a_run_again(host, FIRST).stored_state == run.state


def a_run_again(host: FakeCluster, source: Manager | None) -> Run:
    """A later run on what is stored in a cluster."""
    run = a_run(FakeCluster("other"), source)
    run.place.__dict__["host_cluster"] = host
    return run


@pytest.mark.usefixtures("unlocked")
def test_the_journal_asks_again_because_preflight_saw_another_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found no object on record. The one that comes second to the lock changes nothing, and gives it back."""
    released = []
    monkeypatch.setattr(NoLock, "release", lambda _: released.append(True))
    host = host_cluster(an_object())
    by_file = a_run(host, managed_by=Manager())
    by_file.holder = "the second"
    assert judged(by_file).problems == ()
    with a_run_again(host, FIRST).writing("start"):
        pass
    written = len(host.log)
    with pytest.raises(ProblemsError, match="team-a/prod manages it"), by_file.writing("start"):
        pass
    assert len(host.log) == written
    assert released


def test_on_hosts_the_object_is_on_record_before_anything_changes(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "home", host_cluster(an_object()))
    runs.see_all(seen(Stored(4).after(remembered())))
    run = runs.step(in_team_a())
    run.connection = Connection(object_uid=FIRST.uid)
    assert run.begin()
    assert runs.step(in_team_a()).state.manager == FIRST
    refused = runs.step(in_team_a())
    assert refused.stored_state is not None
    assert judged(refused).problems


def in_team_a() -> dict[str, Any]:
    found = deployment()
    return {**found, "metadata": {**found["metadata"], "namespace": "team-a"}}
