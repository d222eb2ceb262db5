# SPDX-License-Identifier: Apache-2.0
"""The operator's loop in front of a stub API server, with runs that last as long as a test says."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import controller, inputs, reconcile, status, wishes
from karmada_operator.kinds import Key, Lane
from karmada_operator.reconcile import Outcome
from karmada_operator.watch import seen_of

from operator_tests.stand_ins import EVENTS, FINALIZER, PREFIX, FakeRun, condition, edited, live, operating, widget

READY = {
    "phase": "Completed",
    "observedGeneration": 1,
    "conditions": [{"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}],
    "members": [{"name": "m1", "ready": True}, {"name": "m2", "ready": False}],
    "certificates": [{"name": "ca", "notAfter": "2027-01-01T00:00:00Z"}],
}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "BETWEEN", 0.02)
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)


def reasons(api: StubApi) -> list[str]:
    return [obj["reason"] for (prefix, _, _), obj in sorted(api.objects.items(), key=version) if prefix == EVENTS]


def phase(api: StubApi) -> object:
    return live(api, "x").get("status", {}).get("phase")


def version(item: tuple[tuple[str, str, str], dict[str, object]]) -> int:
    return int(item[1]["metadata"]["resourceVersion"])  # type: ignore[index]  # an API object


def test_from_an_object_to_its_status(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER], "before anything is done"
        assert (run.spec.namespace, run.spec.name, run.spec.playbook, run.spec.check) == (
            "a",
            "x",
            "install.yml",
            False,
        )
        until(lambda: condition(api, "Progressing") == "True Running")
        assert live(api, "x")["status"]["phase"] == "Preflight"
        assert condition(api, "Ready") == "False NotInstalled"
        run.task("karmada.installer.members")
        until(lambda: phase(api) == "InstallCRD")
        run.end(changed=3, report=READY)
        until(lambda: condition(api, "Ready") == "True AllReady")
        until(lambda: condition(api, "Progressing") == "False Idle")
        assert live(api, "x")["status"]["phase"] == "Completed"
        assert live(api, "x")["status"]["lastRun"]["changed"] == 3
        until(lambda: reasons(api) == ["Running", "InstallCRD", "RunSucceeded"])
        sample = operator.metrics.registry.get_sample_value
        where = {"kind": "Widget", "namespace": "a", "name": "x"}
        until(lambda: sample("karmada_instance_ready", where) == 1)
        assert sample("karmada_instance_members", {**where, "ready": "true"}) == 1
        runs = {"kind": "Widget", "operation": "install", "outcome": "succeeded"}
        until(lambda: sample("karmada_operator_runs_total", runs) == 1)
        assert operator.executor.started.empty(), "its own writes start nothing"


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


def test_the_run_after_one_that_died_may_take_its_lock(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        lost = operator.executor.next()
        assert "karmada_confirm_dead" not in lost.spec.variables
        lost.end(Outcome.LOST)
        second = operator.executor.next()
        assert second.spec.variables == {"karmada_confirm_dead": lost.spec.run_id}
        second.end()
        until(lambda: condition(api, "Progressing") == "False Idle")
        edited(api, "x", generation=2)
        third = operator.executor.next()
        assert "karmada_confirm_dead" not in third.spec.variables, "the second has given its lock back"
        third.end()


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


def test_a_dry_run_tells_what_would_change(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", annotations={wishes.DRY_RUN: "true"}))
    with operating(cluster) as operator:
        run = operator.executor.next()
        assert run.spec.check
        run.end(changed=2)
        until(lambda: condition(api, "Drifted") == "True DryRun")
        edited(api, "x", annotations={})
        run = operator.executor.next()
        assert not run.spec.check
        run.end(report=READY)
        until(lambda: condition(api, "Drifted") == "False AsTheDocumentSays")


def test_failures_are_told_and_tried_again(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    problem = {"severity": "error", "reason": "ImageNotAvailable", "what": "no image", "where": "w", "remedy": "mend"}
    with operating(cluster) as operator:
        failure = {"failed_task": "Check", "phase": "Waiting", "reason": "ImageNotAvailable", "component": "etcd"}
        operator.executor.next().end(Outcome.FAILED, message="no image", problems=(problem,), **failure)
        until(lambda: condition(api, "Degraded") == "True ImageNotAvailable")
        last = live(api, "x")["status"]["lastRun"]
        assert (last["failedTask"], last["failedPhase"]) == ("Check", "Waiting")
        assert (last["reason"], last["component"]) == ("ImageNotAvailable", "etcd")
        degraded = next(each for each in live(api, "x")["status"]["conditions"] if each["type"] == "Degraded")
        assert degraded["message"] == "Check: etcd: no image"
        assert condition(api, "Ready") == "False ImageNotAvailable"
        assert live(api, "x")["status"]["problems"] == [problem]
        again = operator.executor.next()
        until(lambda: "RunFailed" in reasons(api))
        again.end(report=READY)
        until(lambda: condition(api, "Degraded") == "False LastRunSucceeded")
        assert condition(api, "Ready") == "True AllReady"
        assert operator.metrics.registry.get_sample_value("karmada_operator_retries_total", {"kind": "Widget"}) == 1


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


def test_who_does_not_lead_any_more_ends_its_runs_and_starts_none(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x"))
    with operating(cluster) as operator:
        run = operator.executor.next()
        operator.leading.set()
        until(lambda: run.cancelled == "the operator ends")
        api.put(PREFIX, widget("y"))
    assert operator.executor.order == ["x"]


def test_a_run_that_cannot_be_started_is_a_failure(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with operating(cluster) as operator:
        original, calls = operator.executor.start, []

        def start(spec: object) -> FakeRun:
            calls.append(spec)
            if len(calls) == 1:
                raise OSError("no room")
            return original(spec)  # type: ignore[arg-type]

        monkeypatch.setattr(operator.executor, "start", start)
        api.put(PREFIX, widget("x"))
        api.put(PREFIX, widget("y"))
        until(lambda: "RunFailed" in reasons(api))
        for each in [operator.executor.next(), operator.executor.next()]:
            each.end()


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


@pytest.mark.parametrize("host", [{}, {"namespace": "a"}, {"namespace": "b", "secretRef": {"name": "remote"}}])
def test_who_stays_at_home_or_brings_a_kubeconfig_needs_nobodys_leave(host: dict[str, object]) -> None:
    obj = {**widget("x", uid="u"), "spec": {"hostCluster": host}}
    assert seen_of(obj, FINALIZER).elsewhere == ""


def test_a_secret_that_the_document_names_starts_a_run_when_it_changes(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "EVERY", 0.1)

    def put(content: str) -> None:
        api.put("api/v1/secrets", {"metadata": {"name": "m1", "namespace": "a"}, "data": {"kubeconfig": content}})

    put("b25l")
    api.put(PREFIX, {**widget("x"), "spec": {"members": [{"name": "m1", "kubeconfigSecretRef": {"name": "m1"}}]}})
    with operating(cluster) as operator:
        first = operator.executor.next()
        # During the run, too.
        put("dHdv")
        first.end()
        operator.executor.next().end()
        until(lambda: condition(api, "Progressing") == "False Idle")
        api.faults.append(Fault("status", path="secrets/m1", status=403, times=2))
        until(lambda: api.faults[0].times == 0)
        assert operator.executor.started.empty(), "what cannot be looked at has not changed"
        put("dGhyZWU=")
        operator.executor.next().end()
    accepted = {each["Accept"] for each, (_, path) in zip(api.headers, api.requests, strict=True) if "secrets" in path}
    assert all("PartialObjectMetadata" in each for each in accepted)


def test_what_a_document_names() -> None:
    spec = {
        "hostCluster": {"secretRef": {"name": "host"}},
        "audit": {"configMapRef": {"name": "audit"}},
        "members": [
            {"kubeconfigSecretRef": {"name": "m1"}},
            {"kubeconfigSecretRef": {"name": "m1"}},
            {"secretRef": None},
        ],
    }
    assert inputs.references(spec) == (("ConfigMap", "audit"), ("Secret", "host"), ("Secret", "m1"))
    assert inputs.references(None) == ()


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


def test_a_removal_that_fails_says_what_holds_it(api: StubApi, cluster: Cluster) -> None:
    api.put(PREFIX, widget("x", finalizers=[FINALIZER], deletionTimestamp="2026-01-01T00:00:00Z"))
    with operating(cluster) as operator:
        operator.executor.next().end(Outcome.FAILED, message="member m1 does not answer", failed_task="Leave")
        until(lambda: condition(api, "Degraded") == "True RunFailed")
        assert live(api, "x")["status"]["phase"] == "Deleting"
        assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]
        operator.executor.next().end()
        until(lambda: live(api, "x")["metadata"]["finalizers"] == [])
