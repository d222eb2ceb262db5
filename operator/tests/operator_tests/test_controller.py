# SPDX-License-Identifier: Apache-2.0
"""The operator's loop in front of a stub API server, with runs that last as long as a test says."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import controller, wishes
from karmada_operator.kinds import Key, Lane
from karmada_operator.orders import Outcome

from operator_tests.stand_ins import (
    FINALIZER,
    PREFIX,
    READY,
    FakeRun,
    condition,
    edited,
    live,
    operating,
    phase,
    reasons,
    widget,
)

pytestmark = pytest.mark.usefixtures("soon")


def test_edits_during_a_run_make_one_more(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        for generation in (2, 3, 4):
            edited(api, "x", generation=generation)
        until(lambda: (seen := operator.controller._seen(Key("Widget", "a", "x"))) and seen.generation == 4)
        run.end()
        second = operator.executor.next()
        assert not second.cancelled
        second.end()
        until(lambda: condition(api, "Progressing") == "False Idle")
        edited(api, "x", generation=5)
        operator.executor.next().end()
        assert operator.executor.order == ["x"] * 3


def test_deletion_in_the_middle_of_an_install(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        install = operator.executor.next()
        edited(api, "x", deletionTimestamp="2026-01-01T00:00:00Z")
        remove = operator.executor.next()
        assert install.cancelled == "the object is being deleted"
        assert remove.spec.playbook == "remove.yml"
        assert remove.spec.variables == {"karmada_confirm": "x", "karmada_confirm_dead": install.spec.run_id}
        until(lambda: phase(api) == "Deleting")
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]
        remove.end()
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])
        api.remove(PREFIX, "a", "x")
        where = {"kind": "Widget", "namespace": "a", "name": "x"}
        until(lambda: operator.metrics.registry.get_sample_value("karmada_instance_ready", where) is None)
        until(lambda: "Removed" in reasons(api))


def test_a_label_keeps_the_instance(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", finalizers=["other", FINALIZER], labels={wishes.KEEP_LABELS[0]: "true"}))
    with operating(cluster) as operator:
        operator.executor.next().end()
        edited(api, "x", deletionTimestamp="2026-01-01T00:00:00Z")
        until(lambda: live(api, "x")["metadata"]["finalizers"] == ["other"])
        assert operator.executor.started.empty()
        until(lambda: "Kept" in reasons(api))


def test_paused_means_nothing_is_done_and_a_run_under_way_ends(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        edited(api, "x", annotations={wishes.PAUSED: "true"})
        until(lambda: run.cancelled == "it was paused")
        until(lambda: condition(api, "Paused") == "True PausedByUser")
        edited(api, "x", generation=2)
        edited(api, "x", annotations={wishes.PAUSED: "perhaps"})
        until(lambda: condition(api, "Paused") == "True InvalidArgument")
        assert operator.executor.started.empty()
        edited(api, "x", annotations={})
        operator.executor.next().end()
        until(lambda: condition(api, "Paused") == "False NotPaused")


def test_many_at_once_and_none_is_lost(api: StubApi, cluster: Cluster) -> None:
    for number in range(18):
        api.put(PREFIX, widget(f"a{number}"))
    for number in range(2):
        api.put(PREFIX, widget(f"b{number}", namespace="b"))
    with operating(cluster) as operator:
        runs: list[FakeRun] = []
        for _ in range(20):
            run = operator.executor.next()
            runs.append(run)
            under_way = [each for each in runs if not each.over]
            assert len(under_way) <= 3
            if len(under_way) == 3:
                under_way[0].end()
        for each in runs:
            each.end()
        assert len(operator.executor.order) == len(set(operator.executor.order)) == 20
        # Those of the other namespace do not wait behind all eighteen.
        assert max(operator.executor.order.index(name) for name in ("b0", "b1")) < 12


def test_settled_objects_are_looked_at_one_after_the_other(api: StubApi, cluster: Cluster) -> None:
    for number in range(4):
        api.put(PREFIX, {**widget(f"x{number}", finalizers=[FINALIZER]), "status": READY})
    with operating(cluster) as operator:
        first = operator.executor.next()
        until(lambda: operator.controller._queue.depth() == {Lane.ROUTINE: 3})
        assert operator.executor.started.empty()
        first.task("karmada.installer.members")
        for _ in range(3):
            first.end(report=READY)
            first = operator.executor.next()
        first.end(report=READY)
        until(lambda: condition(api, "Progressing", first.spec.name) == "False Idle")
        assert live(api, "x0")["status"]["phase"] == "Completed"
        assert not {"Running", "InstallCRD"} & set(reasons(api)), "a look is no news"


@pytest.mark.parametrize("status_code", [409, 429, 500])
def test_writes_that_fail_are_repeated(api: StubApi, cluster: Cluster, status_code: int) -> None:
    api.put(PREFIX, widget("x"))
    api.faults.append(Fault("status", method="PATCH", status=status_code, times=6))
    api.faults.append(Fault("status", method="POST", path="events", status=500, times=3))
    with operating(cluster) as operator:
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")


def test_no_object_installs_into_a_namespace_that_does_not_allow_it(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REFUSED", 0.1)
    api.put(PREFIX, {**widget("x"), "spec": {"hostCluster": {"namespace": "b"}}})
    with operating(cluster) as operator:
        until(lambda: condition(api, "Paused") == "True MissingPermission")
        assert "finalizers" not in live(api, "x")["metadata"], "nothing was done, so nothing holds it"
        assert operator.executor.started.empty()
        api.faults.append(Fault("status", "GET", "/api/v1/namespaces/b", status=403, times=3))
        until(lambda: api.faults[0].times == 0)
        assert condition(api, "Paused") == "True MissingPermission"
        allowed = {"name": "b", "annotations": {wishes.ALLOWED_FROM: "other, a"}}
        api.put("api/v1/namespaces", {"kind": "Namespace", "metadata": allowed})
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Paused") == "False NotPaused")


def test_an_operator_that_breaks_one_looks_at_no_other(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "HELD", 0.05)
    for number in range(3):
        api.put(PREFIX, {**widget(f"x{number}", finalizers=[FINALIZER]), "status": READY})
    with operating(cluster) as operator:
        broken = operator.executor.next()
        broken.end(Outcome.FAILED, message="of the new operator's making")
        for _ in range(3):
            again = operator.executor.next()
            assert again.spec.name == broken.spec.name
            again.end(Outcome.FAILED)
        # An edit is the user's wish, and goes on.
        other = next(f"x{number}" for number in range(3) if f"x{number}" != broken.spec.name)
        edited(api, other, generation=2)
        found = [operator.executor.next()]
        while found[-1].spec.name != other:
            found[-1].end(Outcome.FAILED)
            found.append(operator.executor.next())
        found[-1].end()
        # Mended: the others have their turn.
        while {each.spec.name for each in found} != {"x0", "x1", "x2"}:
            found.append(operator.executor.next())
            found[-1].end(report=READY)


def test_a_removal_gives_up_members_whose_secrets_are_gone_and_says_so(api: StubApi, cluster: Cluster) -> None:
    api.put("api/v1/secrets", {"metadata": {"name": "k1", "namespace": "a"}, "data": {}})
    members = [{"name": "m1", "secretRef": {"name": "k1"}}, {"name": "m2", "secretRef": {"name": "k2"}}]
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"members": members}})
    with operating(cluster) as operator:
        first = operator.executor.next()
        assert first.spec.variables == {"karmada_confirm": "x", "uninstall_abandon_members": ["m2"]}
        until(lambda: "Left" in reasons(api))
        # The other one goes as well, and the namespace with it.
        api.remove("api/v1/secrets", "a", "k1")
        api.put("api/v1/namespaces", {"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        first.end(Outcome.FAILED)
        second = operator.executor.next()
        assert second.spec.variables["uninstall_abandon_members"] == ["m1", "m2"]
        second.end(Outcome.FAILED)
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])


def test_what_can_be_reached_no_more_is_left_and_its_object_goes(api: StubApi, cluster: Cluster) -> None:
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"hostCluster": {"secretRef": {"name": "gone"}}}})
    with operating(cluster) as operator:
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])
        until(lambda: {"Kept", "Left"} <= set(reasons(api)))
        assert operator.executor.started.empty()
