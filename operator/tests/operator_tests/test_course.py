# SPDX-License-Identifier: Apache-2.0
"""What is deleted and edited in the course of a run: by the run itself, or by somebody else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import course
from karmada_operator.health import Health, Verdict, host_clusters
from karmada_operator.kinds import Key
from karmada_operator.orders import HostCluster

from operator_tests.stand_ins import PREFIX, condition, edited, operating, widget
from operator_tests.test_health import (
    DELETED,
    DEPLOYMENTS,
    READY,
    REMOTE,
    X,
    _soon,
    far,
    remote,
    watched,
    workload,
    written,
)

# Fixtures of the tests of health, which pytest finds by name.
__all__ = ["_soon", "remote"]

WEBHOOK = Key("Deployment", "a", "x-webhook")
CHANGED = Verdict(drifted=("Deployment x-webhook was changed",))
#: Changes of a report, as of runs that delete nothing.
NOTHING: frozenset[tuple[str, str]] = frozenset()


def test_a_workload_is_marked_by_our_writes_alone() -> None:
    plain = workload("x-webhook", uid="u")
    mark = course.workload_of(plain).mark
    for moment, content in ((1, "d"), (2, "c")):
        assert course.workload_of({**plain, "metadata": {**plain["metadata"], **written(moment, content)}}).mark != mark
    edit = {"manager": "kubectl-edit", "operation": "Update", "time": "2026-01-01T00:09:00Z"}
    entries = [*plain["metadata"]["managedFields"], edit]
    assert course.workload_of({**plain, "metadata": {**plain["metadata"], "managedFields": entries}}).mark == mark


def test_a_report_says_what_was_deleted() -> None:
    deleted = {"action": "deleted", "kind": "Deployment", "name": "a/x-search"}
    report = {"changes": [{**deleted, "action": "created"}, deleted], "changesTotal": 2}
    assert course.deleted_by(report) == {("Deployment", "a/x-search")}
    assert course.deleted_by({}) == NOTHING
    assert course.deleted_by({**report, "changesTotal": 3}) is None, "another one may have been"


def test_what_somebody_deletes_during_a_run_is_not_taken_for_its_work(api: StubApi, cluster: Cluster) -> None:
    clock = [0.0]
    for name in ("x-webhook", "x-search", "x-scheduler"):
        api.put(DEPLOYMENTS, workload(name))
    with watched(api, cluster, clock) as found:
        found.suspend(X)
        api.put(DEPLOYMENTS, workload("x-descheduler"))
        until(lambda: len(found._there[X]) == 4)
        # The run takes one away that the document has no more; the others are another one's work.
        for name in ("x-search", "x-webhook", "x-descheduler"):
            api.remove(DEPLOYMENTS, "a", name)
        until(lambda: len(found._there[X]) == 1)
        found.settle(X, deleted=frozenset({("Deployment", "a/x-search")}))
        verdict = found.verdict(X)
        assert verdict
        assert verdict.drifted == ("Deployment x-descheduler was deleted", "Deployment x-webhook was deleted")
        # The next run makes one of them, and has never made the other: once is enough.
        found.suspend(X)
        api.put(DEPLOYMENTS, workload("x-webhook"))
        until(lambda: len(found._there[X]) == 2)
        found.settle(X, deleted=NOTHING)
        assert found.verdict(X) == Verdict()
        # Its last events have not come, but a deletion is none of them.
        api.remove(DEPLOYMENTS, "a", "x-webhook")
        until(lambda: found.verdict(X) == DELETED)


def test_what_a_run_deletes_may_be_seen_after_its_end(api: StubApi, cluster: Cluster) -> None:
    api.put(DEPLOYMENTS, workload("x-webhook"))
    api.put(DEPLOYMENTS, workload("x-search"))
    with watched(api, cluster, [0.0]) as found:
        found.suspend(X)
        found.settle(X, deleted=frozenset({("Deployment", "a/x-search")}))
        api.remove(DEPLOYMENTS, "a", "x-search")
        until(lambda: len(found._there[X]) == 1)
        assert found.verdict(X) == Verdict()


def test_what_somebody_edits_during_a_run_is_not_taken_for_its_work(api: StubApi, cluster: Cluster) -> None:
    clock = [0.0]
    api.put(DEPLOYMENTS, workload("x-webhook", uid="u"))
    with watched(api, cluster, clock) as found:

        def put(generation: int, moment: int, content: str = "c", ready: int = 1) -> None:
            api.put(DEPLOYMENTS, workload("x-webhook", generation, ready, uid="u", **written(moment, content)))
            until(lambda: found._there[X][WEBHOOK].generation == generation)
            until(lambda: found._there[X][WEBHOOK].mark == f"{content} 2026-01-01T00:00:{moment:02}Z")

        found.suspend(X)
        put(2, 2, "another")  # an upgrade
        put(2, 2, "another", ready=0)  # its rollout
        put(3, 2, "another")  # by hand
        found.settle(X, deleted=NOTHING)
        assert found.verdict(X) == CHANGED
        # The run for that puts it right, with what it wrote before: that is no edit.
        found.suspend(X)
        put(4, 4, "another")
        found.settle(X, deleted=NOTHING)
        assert found.verdict(X) == Verdict()
        # An edit that the run itself puts right needs no other one.
        found.suspend(X)
        put(5, 4, "another")
        put(6, 6, "another")
        found.settle(X, deleted=NOTHING)
        put(7, 7, "a late event of the run")
        assert found.verdict(X) == Verdict()
        put(8, 7, "a late event of the run")
        assert found.verdict(X) == CHANGED, "within the seconds of its last events"


def by_hand(moment: int, **more: Any) -> dict[str, Any]:
    """Entry that somebody else's edit of the spec leaves in the metadata at this second."""
    when = {"operation": "Update", "time": f"2026-01-01T00:00:{moment:02}Z"}
    return {"manager": "kubectl", **when, "fieldsV1": {"f:spec": {"f:replicas": {}}}, **more}


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        (by_hand(3), CHANGED),
        (by_hand(3, subresource="scale"), CHANGED),
        (by_hand(1), Verdict()),
        (by_hand(3, fieldsV1={"f:metadata": {"f:labels": {}}}), Verdict()),
        (by_hand(3, subresource="status", fieldsV1={"f:status": {}}), Verdict()),
    ],
    ids=["edited", "scaled", "before our write", "labelled", "status"],
)
def test_our_write_and_a_later_edit_that_are_seen_at_once(
    entry: dict[str, Any], verdict: Verdict, api: StubApi, cluster: Cluster
) -> None:
    """As where the watch had to list anew between them."""
    api.put(DEPLOYMENTS, workload("x-webhook", uid="u"))
    with watched(api, cluster, [0.0]) as found:
        # The second run puts that right.
        for moment, generation, told in ((2, 3, verdict), (4, 4, Verdict())):
            found.suspend(X)
            both = written(moment, "another")
            both["managedFields"].append(entry)
            api.put(DEPLOYMENTS, workload("x-webhook", generation, uid="u", **both))
            until(lambda: found._there[X][WEBHOOK].generation == generation)  # noqa: B023 - called in this turn
            found.settle(X, deleted=NOTHING)
            assert found.verdict(X) == told


def test_an_edit_of_before_anybody_looked_is_no_news(api: StubApi, cluster: Cluster) -> None:
    with watched(api, cluster, [0.0]) as found:
        found.suspend(X)
        old = written(2)
        old["managedFields"].append(by_hand(3))
        api.put(DEPLOYMENTS, workload("x-webhook", 3, uid="u", **old))
        until(lambda: found._there.get(X, {}).get(WEBHOOK) is not None)
        found.settle(X, deleted=NOTHING)
        assert found.verdict(X) == Verdict()


def test_who_edits_in_each_run_is_answered_once(api: StubApi, cluster: Cluster) -> None:
    """A controller that reacts to each write of ours must not have a run follow each run."""
    api.put(DEPLOYMENTS, workload("x-webhook", uid="u"))
    with watched(api, cluster, [0.0]) as found:
        verdicts, generation = [], 1
        for quiet in (False, False, False, True, False):
            found.suspend(X)
            for ours in (True,) if quiet else (True, False):
                generation += 1
                mark = written(generation if ours else generation - 1)
                api.put(DEPLOYMENTS, workload("x-webhook", generation, uid="u", **mark))
                until(lambda: found._there[X][WEBHOOK].generation == generation)  # noqa: B023 - called at once
            found.settle(X, deleted=NOTHING)
            verdicts.append(found.verdict(X))
        assert verdicts == [CHANGED, Verdict(), Verdict(), Verdict(), CHANGED]


def test_what_is_edited_and_deleted_elsewhere_during_a_run(api: StubApi, cluster: Cluster, remote: StubApi) -> None:
    for name in ("x-webhook", "x-scheduler", "x-search"):
        remote.put(DEPLOYMENTS, far(name, uid=name))
    found = Health(cluster, [None], lambda: 0.0, opened=host_clusters(cluster))

    def settled() -> Verdict | None:
        found.settle(X, REMOTE, deleted=frozenset({("Deployment", "far/x-search")}))
        until(lambda: found._elsewhere[X].complete)
        return found.verdict(X)

    assert settled() == Verdict()
    found.suspend(X)
    for name in ("x-webhook", "x-search"):
        remote.remove(DEPLOYMENTS, "far", name)
    remote.put(DEPLOYMENTS, far("x-scheduler", 2, uid="x-scheduler", **written(1)))
    until(lambda: {each.generation for each in found._elsewhere[X].there().values()} == {2})
    assert settled() == Verdict(DELETED.unready, ("Deployment x-scheduler was changed", *DELETED.drifted))
    # Of another place nothing is known: all of it is new.
    found.suspend(X)
    found.settle(X, HostCluster(secret="remote", namespace="b", insecure=True), deleted=NOTHING)
    until(lambda: found._elsewhere[X].complete)
    assert found.verdict(X) == Verdict()
    found.stop()


def test_after_a_restore_what_is_there_is_what_should_be_there(api: StubApi, cluster: Cluster) -> None:
    api.put(DEPLOYMENTS, workload("x-webhook", uid="u"))
    api.put(DEPLOYMENTS, workload("x-search"))
    with watched(api, cluster, [0.0]) as found:
        found.suspend(X)
        api.put(DEPLOYMENTS, workload("x-webhook", 2, uid="u", **written(1)))
        api.remove(DEPLOYMENTS, "a", "x-search")
        until(lambda: [each.generation for each in found._there[X].values()] == [2])
        found.settle(X, None)
        assert found.verdict(X) == Verdict()


def test_what_was_deleted_during_a_run_comes_back_by_one_more(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    api.put(DEPLOYMENTS, workload("x-webhook"))
    api.put(DEPLOYMENTS, workload("x-scheduler"))
    with operating(cluster) as operator:
        watched = operator.controller._health
        until(lambda: len(watched._there.get(X, ())) == 2)
        run = operator.executor.next()
        # After the step that wrote it.
        api.remove(DEPLOYMENTS, "a", "x-webhook")
        until(lambda: len(watched._there[X]) == 1)
        run.end(report=READY)
        again = operator.executor.next()
        api.put(DEPLOYMENTS, workload("x-webhook"))
        until(lambda: len(watched._there[X]) == 2)
        again.end(report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")
        until(lambda: condition(api, "Ready") == "True AllReady")
        assert operator.executor.started.empty()
        # A document without it: the run takes it away, and that is the end of it.
        edited(api, "x", generation=2)
        fewer = operator.executor.next()
        api.remove(DEPLOYMENTS, "a", "x-scheduler")
        until(lambda: len(watched._there[X]) == 1)
        change = {"action": "deleted", "kind": "Deployment", "name": "a/x-scheduler"}
        fewer.end(changed=1, report={**READY, "changes": [change], "changesTotal": 1})
        until(lambda: condition(api, "Progressing") == "False Idle")
        assert watched.verdict(X) == Verdict()
        assert operator.executor.started.empty()
