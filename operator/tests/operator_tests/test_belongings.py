# SPDX-License-Identifier: Apache-2.0
"""The operator's loop with what belongs to a control plane: backups, restores, and who comes before whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import KINDS, StubApi
from karmada_operator import backups, reconcile, schedules, wishes
from karmada_operator.executor import Left, Outcome, RunSpec, Task
from karmada_operator.kinds import Key, load
from karmada_operator.orders import Operation, Order
from karmada_operator.telling import STEP

from operator_tests.stand_ins import (
    EVENTS,
    FINALIZER,
    GROUP,
    KIND,
    PREFIX,
    READY,
    FakeExecutor,
    FakeRun,
    edited,
    live,
    operating,
)
from operator_tests.test_backups import RECIPIENT

BACKUPS, RESTORES = (f"apis/{GROUP}/{each}" for each in ("etcdbackups", "etcdrestores"))
#: The schemas' own fields; the stub has everything in one version.
TABLE = {
    "Widget": KIND,
    **{name: replace(kind, api_version=GROUP) for name, kind in load().items() if kind.belongs},
}
BACKUP = "x-20261125t020000z-1f3a9c"
INSTALLED = {**READY, "installed": True, "observedGeneration": 1}
QUARANTINED = {**INSTALLED, "phase": "Quarantined", "conditions": []}
DRIFT = {"members": [{"member": "m1", "counts": {"older": 2, "same": 1}}]}

pytestmark = pytest.mark.usefixtures("soon", "kinds")


@pytest.fixture
def kinds(api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EtcdBackup", "EtcdRestore"):
        plural = f"{name.lower()}s"
        monkeypatch.setitem(KINDS, plural, name)
        api.types[GROUP].append({"name": plural, "kind": name, "namespaced": True})
    # The document's own version is another one than that of the stub.
    monkeypatch.setattr(backups, "_wanted", wanted_of(backups._wanted))


def wanted_of(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda obj: original({**obj, "apiVersion": "installer.karmada.io/v1alpha1"})


def put(api: StubApi, prefix: str, name: str, spec: dict[str, Any], **meta: Any) -> None:
    kind = "EtcdBackup" if prefix == BACKUPS else "EtcdRestore"
    metadata = {"name": name, "namespace": "a", "generation": 1, **meta}
    api.put(prefix, {"apiVersion": GROUP, "kind": kind, "metadata": metadata, "spec": spec})


def control_plane(api: StubApi, status: dict[str, Any] = INSTALLED) -> None:
    meta = {"name": "x", "namespace": "a", "generation": 1, "finalizers": [FINALIZER]}
    api.put(PREFIX, {"apiVersion": GROUP, "kind": "Widget", "metadata": meta, "status": status})


def backup(api: StubApi, **meta: Any) -> None:
    target = {"s3": {"bucket": "backups", "secretRef": {"name": "store"}}}
    put(api, BACKUPS, "hourly", {"deploymentRef": {"name": "x"}, "recipients": [RECIPIENT], "target": target}, **meta)


def restore(api: StubApi, name: str = "back", **fields: Any) -> None:
    """Make it, or edit its spec as its user."""
    before = api.objects.get((RESTORES, "a", name), {"metadata": {}, "spec": {}})
    spec = {"deploymentRef": {"name": "x"}, "backupRef": {"name": "hourly"}, **before["spec"], **fields}
    generation = before["metadata"].get("generation", 0) + 1
    with api.changed:
        meta = {**before["metadata"], "name": name, "namespace": "a", "generation": generation}
        api.put(RESTORES, {**before, "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": meta, "spec": spec})


def of(api: StubApi, prefix: str, name: str) -> dict[str, Any]:
    return dict(api.objects.get((prefix, "a", name), {}).get("status", {}))


def condition(status: dict[str, Any], kind: str) -> str:
    found = [f"{each['status']} {each['reason']}" for each in status.get("conditions", ()) if each["type"] == kind]
    return found[0] if found else ""


def reasons(api: StubApi, kind: str) -> list[str]:
    found = [each for (prefix, _, _), each in list(api.objects.items()) if prefix == EVENTS]
    return [each["reason"] for each in found if each["regarding"]["kind"] == kind]


def taken(moment: datetime) -> dict[str, Any]:
    newest = {
        "name": "x-1",
        "startTime": schedules.text_of(moment),
        "sizeBytes": 7,
        "revision": 1,
        "durationSeconds": 2,
    }
    return {"count": 1, "newest": newest}


def step(run: FakeRun) -> None:
    run.said.put(Task("P", "karmada.installer.restore", STEP, "Installing"))


def settled(operator: Any) -> None:
    """Let the first look at the control plane come to its end."""
    first = operator.executor.next()
    assert first.spec.playbook == "install.yml"
    first.end(report=INSTALLED)


def next_beside(operator: Any) -> Any:
    """The next run for a belonging; the first look at the control plane, which may come before it, succeeds."""
    while (run := operator.executor.next()).spec.playbook == "install.yml":
        run.end(report=INSTALLED)
    return run


def test_a_backup_is_taken_when_it_is_due_and_its_age_is_told(api: StubApi, cluster: Cluster) -> None:
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        backup(api)
        run = operator.executor.next()
        assert (run.spec.name, run.spec.deployment, run.spec.uid) == ("hourly", "x", live(api, "x")["metadata"]["uid"])
        assert run.spec.generation == 0
        assert run.spec.variables == {"backup_only": "hourly"}
        until(lambda: condition(of(api, BACKUPS, "hourly"), "Progressing") == "True BackingUp")
        now = datetime.now(UTC)
        run.end(changed=1, facts=taken(now))
        until(lambda: condition(of(api, BACKUPS, "hourly"), "BackupHealthy") == "True Recent")
        status = of(api, BACKUPS, "hourly")
        assert (status["count"], status["observedGeneration"]) == (1, 1)
        until(lambda: "nextTime" in of(api, BACKUPS, "hourly"))
        where = {"kind": "EtcdBackup", "namespace": "a", "name": "hourly"}
        sample = operator.metrics.registry.get_sample_value
        until(lambda: sample("karmada_backup_healthy", where) == 1)
        age = sample("karmada_backup_age_seconds", where)
        assert age is not None
        assert age >= (datetime.now(UTC) - now).total_seconds() - 1
        until(lambda: "BackupTaken" in reasons(api, "EtcdBackup"))
        assert operator.executor.started.empty()
        # On demand, by a word.
        with api.changed:
            found = api.objects[BACKUPS, "a", "hourly"]
            asked = {**found["metadata"], "annotations": {wishes.RUN_NOW: "now"}}
            api.put(BACKUPS, {**found, "metadata": asked})
        run = operator.executor.next()
        assert run.spec.variables == {"backup_now": "hourly"}
        run.end(changed=1, facts=taken(datetime.now(UTC)))
        until(lambda: of(api, BACKUPS, "hourly").get("requested") == "now")
        api.remove(BACKUPS, "a", "hourly")
        until(lambda: sample("karmada_backup_healthy", where) is None)


def test_missed_ones_are_told_and_a_failure_is_tried_again(api: StubApi, cluster: Cluster) -> None:
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        backup(api)
        old = taken(datetime.now(UTC) - timedelta(hours=5))
        operator.executor.next().end(facts=old)
        # Who ends says nothing more, and the next one goes by the status.
        until(lambda: condition(of(api, BACKUPS, "hourly"), "BackupHealthy") == "False TooOld")
        # Another run of this process is for another moment: that of an operator that has just started is not.
    with operating(cluster, kinds=TABLE) as operator:
        run = next_beside(operator)
        until(lambda: condition(of(api, BACKUPS, "hourly"), "BackupMissed") == "True Missed")
        until(lambda: "BackupMissed" in reasons(api, "EtcdBackup"))
        run.end(Outcome.FAILED, message="no store", reason="BackupTargetUnusable")
        until(lambda: condition(of(api, BACKUPS, "hourly"), "Degraded") == "True BackupTargetUnusable")
        until(lambda: condition(of(api, BACKUPS, "hourly"), "BackupHealthy") == "False TooOld")
        next_beside(operator).end(changed=1, facts=taken(datetime.now(UTC)))
        until(lambda: condition(of(api, BACKUPS, "hourly"), "BackupHealthy") == "True Recent")


def test_before_the_control_plane_is_there_its_backups_wait(api: StubApi, cluster: Cluster) -> None:
    backup(api)
    with operating(cluster, kinds=TABLE) as operator:
        until(lambda: condition(of(api, BACKUPS, "hourly"), "Progressing") == "False NoDeployment")
        control_plane(api, {})
        install = operator.executor.next()
        until(lambda: condition(of(api, BACKUPS, "hourly"), "Progressing") == "False NotInstalled")
        install.end(report=INSTALLED)
        operator.executor.next().end(changed=1, facts=taken(datetime.now(UTC)))


def test_a_restore_comes_before_an_install_and_that_before_a_backup(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine its next attempt would be due before the install has begun, and would come first again.
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 3600.0)
    # An install that waits for further edits is not due, and keeps nobody back.
    monkeypatch.setattr(reconcile, "STILL", 0.0)
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        first = operator.executor.next()
        backup(api)
        edited(api, "x", generation=2)
        restore(api)
        until(lambda: sum(operator.controller._queue.depth().values()) >= 3)
        first.end(report=INSTALLED)
        judged = operator.executor.next()
        assert judged.spec.playbook == "karmada.installer.restore"
        judged.end(Outcome.FAILED, reason="RestoreNotConfirmed", message="restoring x-1 loses everything")
        install = operator.executor.next()
        assert install.spec.playbook == "install.yml"
        install.end(report={**INSTALLED, "observedGeneration": 2})
        last = operator.executor.next()
        assert last.spec.playbook == "karmada.installer.backup"
        last.end(changed=1, facts=taken(datetime.now(UTC)))


def test_from_a_restore_to_its_release_while_an_edit_waits(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "LOOK_AT_QUARANTINE", 3600.0)
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        restore(api)
        run = operator.executor.next()
        assert run.spec.variables == {"restore_name": "back"}
        problem = {"severity": "error", "reason": "RestoreNotConfirmed"}
        judged = run.spec.run_id
        run.end(Outcome.FAILED, reason="RestoreNotConfirmed", message=f"restoring {BACKUP} loses", problems=(problem,))
        until(lambda: of(api, RESTORES, "back").get("phase") == "AwaitsConfirmation")
        assert condition(of(api, RESTORES, "back"), "Confirmed") == "False NotConfirmed"
        assert condition(of(api, RESTORES, "back"), "Degraded") == "False AwaitsConfirmation"
        restore(api, confirm=BACKUP)
        run = operator.executor.next()
        step(run)
        until(lambda: of(api, RESTORES, "back").get("phase") == "Restoring")
        until(lambda: live(api, "x")["status"]["phase"] == "Quarantined")
        # It is edited while it is restored, and so is the restore.
        edited(api, "x", generation=2)
        restore(api, decision="Release")
        until(lambda: of(api, RESTORES, "back").get("observedGeneration") == 2)
        run.end(changed=9, report=QUARANTINED, facts={"drift": DRIFT})
        until(lambda: of(api, RESTORES, "back").get("phase") == "Quarantined")
        until(lambda: condition(of(api, RESTORES, "back"), "Progressing") == "False DecidedTooEarly")
        status = of(api, RESTORES, "back")
        assert status["drift"] == [{"member": "m1", "older": 2, "same": 1}]
        assert (status["backup"], status["quarantinedGeneration"], status["earlierDecision"]) == (BACKUP, 3, "Release")
        # Other edits are no decision: those who only take the key away have not read the drift.
        restore(api, identitySecretRef={"name": "key"})
        restore(api, identitySecretRef=None)
        key = Key("EtcdRestore", "a", "back")
        until(lambda: getattr(operator.controller._decider.seen(key), "generation", 0) == 5)
        assert getattr(operator.controller._decide(key), "reason", "") == "DecidedTooEarly"
        until(lambda: condition(live(api, "x")["status"], "Progressing") == "False Quarantined")
        assert operator.executor.started.empty(), "neither an install nor a release"
        restore(api, decision="")
        restore(api, decision="Release")
        run = operator.executor.next()
        assert run.spec.playbook == "karmada.installer.release"
        assert run.spec.variables == {"restore_name": "back", "karmada_confirm_dead": judged}
        until(lambda: of(api, RESTORES, "back").get("phase") == "Releasing")
        run.end(changed=3, report=INSTALLED)
        until(lambda: condition(of(api, RESTORES, "back"), "Ready") == "True Released")
        install = operator.executor.next()
        assert (install.spec.playbook, install.spec.generation) == ("install.yml", 2)
        install.end(report={**INSTALLED, "observedGeneration": 2})
        wanted = {"AwaitsConfirmation", "Quarantined", "Released"}
        until(lambda: wanted <= set(reasons(api, "EtcdRestore")))


def test_an_install_that_is_refused_in_quarantine_waits_for_its_end(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "LOOK_AGAIN", 2.0)
    monkeypatch.setattr(reconcile, "LOOK_AT_QUARANTINE", 3.0)
    control_plane(api)
    with operating(cluster, kinds={**TABLE, "Widget": replace(KIND, report_playbook="report.yml")}) as operator:
        refused = {"severity": "error", "reason": "Quarantined"}
        told = {"reason": "Quarantined", "message": "it is being restored from y", "problems": (refused,)}
        operator.executor.next().end(Outcome.FAILED, **told)
        until(lambda: live(api, "x")["status"]["phase"] == "Quarantined")
        until(lambda: condition(live(api, "x")["status"], "Progressing") == "False Quarantined")
        assert condition(live(api, "x")["status"], "Degraded") == ""
        # Somebody else restores it, and releases it with a playbook: looks find that.
        for report in (QUARANTINED, INSTALLED):
            look = operator.executor.next()
            assert look.spec.playbook == "report.yml"
            look.end(report=report)
        install = operator.executor.next()
        assert install.spec.playbook == "install.yml"
        install.end(report=INSTALLED)


def test_a_control_plane_that_was_handed_over_is_not_installed_again_and_again(
    api: StubApi, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "FIRST_RETRY", 0.05)
    control_plane(api)
    holds = {"type": "Held", "status": "True", "reason": "HandedOver", "message": "it is at another place"}
    with operating(cluster, kinds={**TABLE, "Widget": replace(KIND, report_playbook="report.yml")}) as operator:
        refused = {"severity": "error", "reason": "Moved"}
        told = {"reason": "Moved", "message": "it was handed over", "problems": (refused,)}
        operator.executor.next().end(Outcome.FAILED, **told)
        look = operator.executor.next()
        assert look.spec.playbook == "report.yml", "and no attempt"
        look.end(report={**QUARANTINED, "conditions": [holds]})
        until(lambda: condition(live(api, "x")["status"], "Held") == "True HandedOver")
        assert live(api, "x")["status"]["phase"] == "Quarantined"
        until(lambda: condition(live(api, "x")["status"], "Progressing") == "False HandedOver")
        assert condition(live(api, "x")["status"], "Degraded") == "False Quarantined"
        memory = operator.controller._memories.of(Key("Widget", "a", "x"))
        assert (memory.moved, memory.failures) == (None, 1), "once that is over, the next attempt need not wait"
    assert operator.executor.started.empty()


def test_a_second_restore_waits_for_the_first_and_a_deleted_one_takes_nothing_back(
    api: StubApi, cluster: Cluster
) -> None:
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        restore(api, confirm=BACKUP)
        run = operator.executor.next()
        step(run)
        until(lambda: of(api, RESTORES, "back").get("phase") == "Restoring")
        restore(api, "forth", confirm=BACKUP)
        until(lambda: condition(of(api, RESTORES, "forth"), "Progressing") == "False AnotherRestore")
        api.remove(RESTORES, "a", "back")
        until(lambda: operator.controller._decider.seen(("EtcdRestore", "a", "back")) is None)  # type: ignore[arg-type]
        assert not run.cancelled, "half a restore helps nobody"
        run.end(changed=9, report=QUARANTINED, facts={"drift": DRIFT})
        until(lambda: "LeftInQuarantine" in reasons(api, "Widget"))
        until(lambda: live(api, "x")["status"]["phase"] == "Quarantined")


def left_over(kind: str, name: str, playbook: str, operation: Operation) -> tuple[FakeExecutor, FakeRun]:
    """A run of an earlier operator for an object that is not there any more."""
    order = Order(operation, "u-gone", 1)
    spec = RunSpec("run-of-before", "a", name, playbook, deployment="x", kind=kind, order=order.plain())
    executor, run = FakeExecutor(), FakeRun(spec)
    executor.left_over = [Left(spec, run, datetime(2026, 1, 1, tzinfo=UTC))]
    return executor, run


def test_a_restore_goes_on_although_its_object_went_while_nobody_led(api: StubApi, cluster: Cluster) -> None:
    control_plane(api)
    executor, run = left_over("EtcdRestore", "back", "karmada.installer.restore", Operation.RESTORE)
    # The first look at the control plane may come before it.
    executor.at_once = lambda look: look.end(report=INSTALLED)
    with operating(cluster, executor, kinds=TABLE) as operator:
        key = Key("EtcdRestore", "a", "back")
        until(lambda: operator.controller._memories.of(key).running is not None)
        step(run)
        until(lambda: live(api, "x")["status"]["phase"] == "Quarantined")
        assert not run.cancelled, "half a restore helps nobody"
        run.end(changed=9, report=QUARANTINED, facts={"drift": DRIFT})
        until(lambda: "LeftInQuarantine" in reasons(api, "Widget"))
        assert live(api, "x")["status"]["phase"] == "Quarantined"


def test_a_backup_whose_object_went_while_nobody_led_is_ended(api: StubApi, cluster: Cluster) -> None:
    control_plane(api)
    executor, run = left_over("EtcdBackup", "hourly", "karmada.installer.backup", Operation.BACK_UP)
    executor.at_once = lambda look: look.end(report=INSTALLED)
    with operating(cluster, executor, kinds=TABLE):
        until(lambda: run.cancelled == "the object is gone")


def test_the_lock_of_a_run_that_died_is_taken_by_the_next_one_of_its_control_plane(
    api: StubApi, cluster: Cluster
) -> None:
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        first = operator.executor.next()
        restore(api)
        until(lambda: sum(operator.controller._queue.depth().values()) >= 1)
        first.end(Outcome.LOST)
        run = operator.executor.next()
        assert run.spec.variables == {"restore_name": "back", "karmada_confirm_dead": first.spec.run_id}
        run.end(Outcome.FAILED)


def test_annotations_that_cannot_be_used_start_nothing(api: StubApi, cluster: Cluster) -> None:
    control_plane(api)
    with operating(cluster, kinds=TABLE) as operator:
        settled(operator)
        backup(api, annotations={wishes.RUN_NOW: "{{ lookup('pipe', 'id') }}"})
        restore(api)
        judged = operator.executor.next()
        judged.end(Outcome.FAILED)
        until(lambda: condition(of(api, BACKUPS, "hourly"), "Paused") == "True InvalidArgument")
        until(lambda: "Refused" in reasons(api, "EtcdBackup"))
