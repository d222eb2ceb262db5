# SPDX-License-Identifier: Apache-2.0
"""Runs as Jobs: what they do beyond the contract (``test_executors``), with real workers behind a stub API server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator import jobs
from karmada_operator.executor import Ending, LeftBehind, Outcome, RunSpec, Task, UnderWay
from karmada_operator.jobs import JobExecutor
from karmada_operator.kinds import Key
from karmada_operator.orders import Operation, Order

from operator_tests.kubelet import JOBS, PODS, TEMPLATE, Kubelet
from operator_tests.stand_ins import playbook

SLEEP = "- {name: Sleep, ansible.builtin.command: sleep 900}"


@pytest.fixture
def kubelet(api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kubelet]:
    monkeypatch.setattr(jobs, "LOOK", 0.05)
    with Kubelet(api, tmp_path) as found:
        yield found


@pytest.fixture
def executor(cluster: Cluster, kubelet: Kubelet) -> JobExecutor:
    assert kubelet.starts
    return JobExecutor(cluster, "a", "karmada-operator", TEMPLATE)


def spec(tmp_path: Path, tasks: str, **more: Any) -> RunSpec:
    order = Order(Operation.INSTALL, "u1", 3, confirmations=(("leave", ("m1", "m2")),))
    more = {"run_id": "run-1", "kind": "Widget", "order": order.plain(), **more}
    return RunSpec(namespace="a", name="x.y", playbook=playbook(tmp_path, tasks), **more)


def followed(run: Any, on_task: Callable[[Task], object] = lambda _task: None) -> tuple[list[Task], Ending]:
    tasks: list[Task] = []
    for each in run.follow():
        if isinstance(each, Ending):
            return tasks, each
        tasks.append(each)
        on_task(each)
    raise AssertionError("it did not end")


def there(api: StubApi, prefix: str) -> list[dict[str, Any]]:
    return [obj for (where, *_), obj in api.objects.items() if where == prefix]


def test_a_pod_that_does_not_start_says_why(executor: JobExecutor, kubelet: Kubelet, tmp_path: Path) -> None:
    kubelet.starts = False
    told: list[Task] = []

    def start(task: Task) -> None:
        told.append(task)
        if "ErrImagePull" in task.waits:
            kubelet.starts = True

    _, ending = followed(executor.start(spec(tmp_path, "- ansible.builtin.debug: {msg: x}")), start)
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert told[0].task == "The pod of the run starts"


def test_a_result_is_the_end_before_the_kubelet_has_seen_one(
    executor: JobExecutor, kubelet: Kubelet, api: StubApi, tmp_path: Path
) -> None:
    """That takes a second or two, and whoever waits for the object waits for that."""
    kubelet.tells = False
    found: list[Ending] = []
    run = executor.start(spec(tmp_path, "- ansible.builtin.debug: {msg: x}"))
    threading.Thread(target=lambda: found.append(followed(run)[1]), daemon=True).start()
    until(lambda: found)
    assert (found[0].outcome, found[0].ok, found[0].seen_gone) == (Outcome.SUCCEEDED, 1, True)
    until(lambda: not there(api, JOBS))


def test_a_connection_that_is_lost_loses_nothing_that_matters(
    executor: JobExecutor, kubelet: Kubelet, api: StubApi, tmp_path: Path
) -> None:
    kubelet.cut = 1
    api.faults.insert(0, Fault("status", "GET", "/pods", status=500, times=3))
    tasks = "- {name: One, ansible.builtin.debug: {msg: x}}\n- {name: Two, ansible.builtin.debug: {msg: x}}"
    _, ending = followed(executor.start(spec(tmp_path, tasks)))
    assert (ending.outcome, ending.ok) == (Outcome.SUCCEEDED, 2)


@pytest.mark.parametrize(
    ("failed", "words"), [("", "its pod is gone"), ("it was active for too long", "it was active for too long")]
)
def test_a_pod_that_vanishes_is_not_taken_for_dead(
    executor: JobExecutor, api: StubApi, tmp_path: Path, failed: str, words: str
) -> None:
    """Its node may be cut off, and the run may still change things: the lock of the instance has to fall silent."""
    run = executor.start(spec(tmp_path, SLEEP))

    def vanish(task: Task) -> None:
        if task.task == "Sleep":
            (pod,) = there(api, PODS)
            api.remove(PODS, "a", pod["metadata"]["name"])
            if failed:
                (job,) = there(api, JOBS)
                why = {"type": "Failed", "status": "True", "message": failed}
                api.put(JOBS, {**job, "status": {"conditions": [why]}})
            else:
                api.objects = {key: obj for key, obj in api.objects.items() if key[0] != JOBS}
            run.look()

    _, ending = followed(run, vanish)
    assert (ending.outcome, ending.seen_gone) == (Outcome.LOST, False)
    assert words in ending.message


RUNNING: dict[str, Any] = {"running": {}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
OVER = {"terminated": {"reason": "Error", "exitCode": 137}}


@pytest.mark.parametrize(
    ("state", "before", "gone"),
    [
        (RUNNING, jobs.Pod(), True),
        # The state of its container was taken away with the node.
        (None, jobs.Pod("p", runs=True), True),
        (None, jobs.Pod("p", waits="ErrImagePull"), False),
        (WAITING, jobs.Pod(), False),
        (OVER, jobs.Pod("p", runs=True), False),
    ],
)
def test_a_pod_that_is_called_failed_while_its_container_runs_is_not_taken_for_dead(
    state: dict[str, Any] | None, before: jobs.Pod, gone: bool
) -> None:
    """Pods of a node that is gone are marked as failed by the cluster, which sees none of their containers end."""
    statuses = [] if state is None else [{"name": "run", "state": state}]
    status = {"phase": "Failed", "reason": "NodeLost", "containerStatuses": statuses}
    found = jobs.seen_of({"metadata": {"name": "p"}, "status": status}, before)
    assert found.ended
    assert found.gone is gone


def test_a_run_whose_node_is_lost_may_go_on(executor: JobExecutor, api: StubApi, tmp_path: Path) -> None:
    run = executor.start(spec(tmp_path, SLEEP))

    def lose(task: Task) -> None:
        if task.task == "Sleep":
            (pod,) = there(api, PODS)
            status = {"phase": "Failed", "containerStatuses": [{"name": "run", "state": RUNNING}]}
            api.put(PODS, {**pod, "status": status})
            run.look()

    _, ending = followed(run, lose)
    assert (ending.outcome, ending.seen_gone) == (Outcome.LOST, False)


@pytest.mark.parametrize("cancelled", [True, False], ids=["cancelled", "evicted"])
def test_a_run_ends_whose_pod_does_not_go_because_its_node_is_lost(
    executor: JobExecutor,
    kubelet: Kubelet,
    api: StubApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cancelled: bool,
) -> None:
    """As long as its Node stays, such a pod is there, and is said to run. It may: the lock has to fall silent."""
    monkeypatch.setattr(jobs, "UNREAD", 0.2)
    run = executor.start(spec(tmp_path, SLEEP))

    def lose(task: Task) -> None:
        if task.task == "Sleep":
            kubelet.lost = True
            if cancelled:
                run.cancel("it is paused")
            else:
                kubelet.delete(*there(api, PODS))
                run.look()

    _, ending = followed(run, lose)
    assert (ending.outcome, ending.seen_gone) == (Outcome.CANCELLED if cancelled else Outcome.LOST, False)
    assert ("its node may be lost" in ending.message) is not cancelled
    assert there(api, JOBS) == []
    (pod,) = there(api, PODS)
    assert "running" in str(pod["status"])


def test_a_pod_that_is_deleted_has_its_grace_period_and_a_minute(
    executor: JobExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of when it was seen to go: clocks of others, and how long its node was lost before, do not count."""
    run, clock, pod = (
        jobs.JobRun(executor, spec(tmp_path, "[]"), {"metadata": {"uid": "u"}}),
        [0.0],
        jobs.Pod("p", True),
    )
    monkeypatch.setattr(jobs.time, "monotonic", lambda: clock[0])
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 40}
    ended = jobs.Pod("p", ended="Error, exit code 1")
    for clock[0], gone in ((1000.0, False), (1099.0, False), (1101.0, True)):
        assert run._unless_lost({}, pod) == pod
        assert run._unless_lost(meta, ended) == ended
        found = run._unless_lost(meta, pod)
        assert (bool(found.ended), found.gone, found.runs) == (gone, gone, not gone)


def test_a_job_that_waits_for_a_pod_on_a_lost_node_makes_room(
    executor: JobExecutor, kubelet: Kubelet, api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator that has cancelled it may have ended since, and nobody follows it any more."""
    monkeypatch.setattr(jobs, "GONE", 0.2)
    kubelet.starts = False
    before = jobs.job_of(TEMPLATE, spec(tmp_path, SLEEP), "a", "karmada-operator")
    api.put(JOBS, {**before, "metadata": {**before["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    wanted = spec(tmp_path, "- ansible.builtin.debug: {msg: x}", run_id="run-2")
    with pytest.raises(OSError, match="does not go"):
        executor.start(wanted)
    kubelet.starts = True
    _, ending = followed(executor.start(wanted))
    assert ending.outcome is Outcome.SUCCEEDED, ending


def test_a_run_goes_on_when_its_operator_ends_and_the_next_one_hears_its_result(
    cluster: Cluster, executor: JobExecutor, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    tasks = f"""
    - name: Wait
      ansible.builtin.wait_for: {{path: {go}}}
    """
    wanted, outcomes = spec(tmp_path, tasks), []
    run, begun = executor.start(wanted), threading.Event()

    def follow() -> None:
        try:
            followed(run, lambda task: begun.set() if task.task == "Wait" else None)
        except LeftBehind as error:
            outcomes.append(str(error))

    following = threading.Thread(target=follow)
    following.start()
    assert begun.wait(300)
    executor.close()
    following.join(300)
    assert "goes on" in outcomes[0]
    following_one = JobExecutor(cluster, "a", "karmada-operator", TEMPLATE)
    (left,) = following_one.left()
    assert left.spec == wanted
    assert Order.of(left.spec.order) == Order(Operation.INSTALL, "u1", 3, confirmations=(("leave", ("m1", "m2")),))
    assert following_one.left() == [], "it is followed by now"
    assert JobExecutor(cluster, "a", "another-operator", TEMPLATE).left() == []
    go.touch()
    told, ending = followed(left.run)
    assert (ending.outcome, [each.task for each in told if each.task == "Wait"]) == (Outcome.SUCCEEDED, ["Wait"])


def test_a_second_run_of_an_object_is_refused_by_the_api_server(
    cluster: Cluster, executor: JobExecutor, api: StubApi, tmp_path: Path
) -> None:
    first = executor.start(spec(tmp_path, SLEEP))
    with pytest.raises(UnderWay, match="is under way"):
        JobExecutor(cluster, "a", "karmada-operator", TEMPLATE).start(spec(tmp_path, SLEEP, run_id="run-2"))
    first.cancel("over")
    followed(first)
    until(lambda: not there(api, JOBS), "its removal")


def test_a_job_that_has_ended_makes_room(executor: JobExecutor, api: StubApi, tmp_path: Path) -> None:
    wanted = spec(tmp_path, "- ansible.builtin.debug: {msg: x}", run_id="run-2")
    before = jobs.job_of(TEMPLATE, spec(tmp_path, "[]"), "a", "karmada-operator")
    api.put(JOBS, {**before, "status": {"conditions": [{"type": "Failed", "status": "True"}]}})
    _, ending = followed(executor.start(wanted))
    assert ending.outcome is Outcome.SUCCEEDED, ending


def test_an_answer_that_was_lost_makes_no_second_run(executor: JobExecutor, api: StubApi, tmp_path: Path) -> None:
    api.faults.insert(0, Fault("reset-after", "POST", "/jobs"))
    _, ending = followed(executor.start(spec(tmp_path, "- ansible.builtin.debug: {msg: x}")))
    assert ending.outcome is Outcome.SUCCEEDED, ending


def test_a_job_that_cannot_be_made_is_no_run(executor: JobExecutor, api: StubApi, tmp_path: Path) -> None:
    api.faults.insert(0, Fault("status", "POST", "/jobs", status=403))
    with pytest.raises(OSError, match="injected"):
        executor.start(spec(tmp_path, SLEEP))


def test_a_job_has_its_run_in_an_annotation_and_a_name_of_its_object(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "[]", time_limit=100.0)
    job = jobs.job_of(TEMPLATE, wanted, "a", "karmada-operator")
    assert "metadata" not in TEMPLATE["spec"]["template"]  # type: ignore[index,operator]
    assert RunSpec.of(job["spec"]["template"]["metadata"]["annotations"][jobs.RUN]) == wanted
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 710)
    names = {jobs.name_of(Key("Widget", namespace, name)) for namespace in "ab" for name in ("x", "x.y", "y" * 253)}
    assert len(names) == 6
    assert all(len(name) <= 63 and "." not in name for name in names)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "Pod"}, "no template of a Job with a container run"),
        ({"spec": {}}, "KeyError"),
        ({"spec": {"template": {"spec": {"containers": [{"name": "other"}]}}}}, "a container run"),
    ],
)
def test_what_is_no_template_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({**TEMPLATE, **change}))
    with pytest.raises(ValueError, match=words):
        jobs.load(file)
    file.write_text(json.dumps(TEMPLATE))
    assert jobs.load(file) == TEMPLATE


def test_a_job_of_others_is_not_followed(executor: JobExecutor, api: StubApi, kubelet: Kubelet) -> None:
    kubelet.starts = False
    labels = {jobs.OPERATOR: "karmada-operator"}
    when = "2026-01-01T00:00:00Z"
    meta = {"name": "odd", "namespace": "a", "labels": labels, "creationTimestamp": when}
    api.put(JOBS, {"kind": "Job", "metadata": {**meta, "annotations": {jobs.RUN: "[]"}}, "spec": {}})
    assert executor.left() == []
