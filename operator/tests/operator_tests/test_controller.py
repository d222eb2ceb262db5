# SPDX-License-Identifier: Apache-2.0
"""The operator's loop in front of a stub API server, with runs that last as long as a test says."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import controller, reconcile, wishes
from karmada_operator.executor import Outcome
from karmada_operator.kinds import Key, Lane

from operator_tests.stand_ins import (
    EVENTS,
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


def test_after_edits_during_a_run_the_next_waits_until_they_are_over(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STILL", "LONGEST_STILL"):
        monkeypatch.setattr(reconcile, name, 1000.0)
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        edited(api, "x", generation=2)
        until(lambda: (seen := operator.controller._seen(Key("Widget", "a", "x"))) and seen.generation == 2)
        run.end(Outcome.CANCELLED)
        until(lambda: condition(api, "Progressing") == "False BeingEdited")
        assert operator.executor.started.empty()
        monkeypatch.setattr(reconcile, "STILL", 0.0)
        edited(api, "x", generation=3)
        following = operator.executor.next()
        assert following.spec.generation == 3
        following.end(report=READY)
        until(lambda: condition(api, "Progressing") == "False Idle")


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


def test_who_waits_behind_others_is_told_to(api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "WAITS", 0.1)
    monkeypatch.setattr(controller, "LOOK", 0.1)
    for number in range(4):
        api.put(PREFIX, widget(f"x{number}"))
    with operating(cluster) as operator:
        runs = [operator.executor.next() for _ in range(3)]
        (last,) = {"x0", "x1", "x2", "x3"} - {each.spec.name for each in runs}
        until(lambda: condition(api, "Progressing", last) == "False Waiting")
        assert condition(api, "Ready", last) == "False NotInstalled"
        # One that runs, and was edited meanwhile, waits for nobody but itself.
        edited(api, runs[1].spec.name, generation=2)
        until(lambda: len(operator.controller._queue._waiting) == 2)
        runs[0].end(report=READY)
        assert operator.executor.next().spec.name == last
        until(lambda: condition(api, "Progressing", last) == "True Running")
        assert condition(api, "Progressing", runs[1].spec.name) == "True Running"


def test_a_removal_that_waits_is_told_to(api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "WAITS", 0.1)
    for number in range(3):
        api.put(PREFIX, widget(f"x{number}", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z"))
    with operating(cluster) as operator:
        runs = [operator.executor.next() for _ in range(2)]
        (last,) = {"x0", "x1", "x2"} - {each.spec.name for each in runs}
        until(lambda: condition(api, "Progressing", last) == "False Waiting")
        runs[0].end()
        assert operator.executor.next().spec.name == last
        until(lambda: condition(api, "Progressing", last) == "True Removing")


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


NOT_READY = {"type": "Ready", "status": "False", "reason": "NotReady", "message": "m1"}
STANDS = {**READY, "installed": True, "conditions": [NOT_READY]}


def test_one_that_is_not_ready_is_no_reason_to_break_all_others(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that is lost is nothing that the document asks to be changed: it waits for its turn as the others do."""
    monkeypatch.setattr(controller, "HELD", 0.05)
    for number in range(3):
        api.put(PREFIX, {**widget(f"x{number}", finalizers=[FINALIZER]), "status": STANDS})
    with operating(cluster) as operator:
        broken = operator.executor.next()
        until(lambda: operator.controller._queue.depth() == {Lane.ROUTINE: 2})
        broken.end(Outcome.FAILED, message="of the new operator's making")
        for _ in range(3):
            again = operator.executor.next()
            assert again.spec.name == broken.spec.name
            again.end(Outcome.FAILED)


def test_one_that_failed_before_this_operator_holds_no_other_back(api: StubApi, cluster: Cluster) -> None:
    degraded = {"type": "Degraded", "status": "True", "reason": "RunFailed", "message": "m1 is away"}
    status = {**STANDS, "conditions": [NOT_READY, degraded]}
    for number in range(2):
        api.put(PREFIX, {**widget(f"x{number}", finalizers=[FINALIZER]), "status": status})
    with operating(cluster) as operator:
        found = set()
        while found != {"x0", "x1"}:
            run = operator.executor.next()
            found.add(run.spec.name)
            run.end(Outcome.FAILED)


@pytest.mark.parametrize("thread", ["_writer", "_events", "_probes"])
def test_a_thread_that_has_ended_is_told(api: StubApi, cluster: Cluster, thread: str) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        operator.executor.next().end(report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        assert operator.controller.trouble() == ""
        getattr(operator.controller, thread).stop()
        until(lambda: "threads have ended" in operator.controller.trouble())


def test_a_loop_that_is_stuck_is_told(api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        operator.executor.next().end(report=READY)
        assert operator.controller.trouble() == ""
        monkeypatch.setattr(controller, "STUCK", -1.0)
        assert operator.controller.trouble().startswith("the loop has not come round")


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


def test_what_a_removal_waits_for_is_told_of_the_object_that_it_holds(api: StubApi, cluster: Cluster) -> None:
    """As the Secret of an external etcd, without which its keys cannot be deleted."""
    what = "spec.components.etcd.external.secretRef: there is no Secret a/etcd"
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"components": {"etcd": {"external": {"secretRef": {"name": "etcd"}}}}}})
    with operating(cluster) as operator:
        operator.executor.next().end(Outcome.FAILED, message=what, reason="SecretNotFound")
        until(lambda: condition(api, "Degraded") == "True SecretNotFound")
        told = {each["type"]: each["message"] for each in live(api, "x")["status"]["conditions"]}
        assert what in told["Degraded"]
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]


def test_what_can_be_reached_no_more_is_left_and_its_object_goes(api: StubApi, cluster: Cluster) -> None:
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"hostCluster": {"secretRef": {"name": "gone"}}}})
    with operating(cluster) as operator:
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])
        until(lambda: {"Kept", "Left"} <= set(reasons(api)))
        assert operator.executor.started.empty()


@pytest.mark.parametrize(
    ("namespace", "told"),
    [
        (None, "what joining put on m1"),
        ({"name": "far"}, "the control plane in namespace far; that namespace has no annotation"),
        ({"name": "far", "annotations": {wishes.ALLOWED_FROM: "b"}}, "the control plane in namespace far"),
    ],
    ids=["gone", "agreement withdrawn", "agreement with another"],
)
def test_another_namespace_that_is_gone_or_closed_holds_no_object(
    namespace: dict[str, Any] | None, told: str, api: StubApi, cluster: Cluster
) -> None:
    if namespace:
        api.put("api/v1/namespaces", {"kind": "Namespace", "metadata": namespace})
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"hostCluster": {"namespace": "far"}, "members": [{"name": "m1"}]}})
    with operating(cluster) as operator:
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])
        until(lambda: "Left" in reasons(api))
        assert operator.executor.started.empty()
    notes = [obj["note"] for (prefix, _, _), obj in api.objects.items() if prefix == EVENTS and obj["reason"] == "Left"]
    assert any(told in each for each in notes), notes


def test_another_namespace_that_is_going_is_not_held_after_one_attempt(api: StubApi, cluster: Cluster) -> None:
    agreed = {"name": "far", "annotations": {wishes.ALLOWED_FROM: "a"}}
    api.put("api/v1/namespaces", {"metadata": {**agreed, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"hostCluster": {"namespace": "far"}}})
    with operating(cluster) as operator:
        operator.executor.next().end(Outcome.FAILED)
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])


def test_another_namespace_that_cannot_be_seen_is_not_taken_for_gone(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REFUSED", 0.05)
    agreed = {"name": "far", "annotations": {wishes.ALLOWED_FROM: "a"}}
    api.put("api/v1/namespaces", {"metadata": agreed})
    api.faults.append(Fault("status", "GET", "/api/v1/namespaces/far", status=403, times=6))
    going = widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z")
    api.put(PREFIX, {**going, "spec": {"hostCluster": {"namespace": "far"}}})
    with operating(cluster) as operator:
        run = operator.executor.next()
        assert run.spec.playbook == "remove.yml"
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]
