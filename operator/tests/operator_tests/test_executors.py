# SPDX-License-Identifier: Apache-2.0
"""What every executor promises (``executor``): one suite for processes and Jobs, with real workers and playbooks.

What one of them does alone is in ``test_processes`` and ``test_jobs``: only Jobs outlive their operator, so only they
have to refuse a second run of an object; within one operator the work queue does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import manifest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi
from karmada_operator import jobs
from karmada_operator.executor import Ending, Executor, LeftBehind, Outcome, RunSpec, Task, parsed, told
from karmada_operator.jobs import JobExecutor
from karmada_operator.orders import Operation, Order
from karmada_operator.processes import ProcessExecutor

from operator_tests.kubelet import JOBS, PODS, TEMPLATE, Kubelet
from operator_tests.stand_ins import alive, alive_below, playbook

#: In the environment of the operator and of its pods, and in a proxy's address.
SECRET = "s3cr3t-0f-th3-0p3rat0r"
#: In the order and in the variables of a run.
WORD = "w0rd-0f-th3-0rd3r"
SLEEP = "- {name: Sleep, ansible.builtin.command: sleep 900}"


class Processes:
    """Runs as processes of this one."""

    outlive = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def executor(self) -> Executor:
        return ProcessExecutor(self._root, os.environ)

    def kill(self, run: Any) -> None:
        """Kill the worker of a run without a word."""
        os.kill(run.pid, signal.SIGKILL)

    def remains(self) -> list[object]:
        """What is left of runs."""
        return list(self._root.iterdir())


class Jobs:
    """Runs as Jobs of a stub API server."""

    outlive = True

    def __init__(self, api: StubApi, cluster: Cluster, kubelet: Kubelet) -> None:
        self._api, self._cluster, self._kubelet = api, cluster, kubelet

    def executor(self) -> Executor:
        return JobExecutor(self._cluster, "a", "karmada-operator", TEMPLATE)

    def kill(self, _run: Any) -> None:
        (pod,) = self._kubelet.pods.values()
        pod.process.send_signal(signal.SIGKILL)

    def remains(self) -> list[object]:
        return [key for key in list(self._api.objects) if key[0] in (JOBS, PODS)]


Place = Processes | Jobs


@pytest.fixture(params=["processes", "jobs"])
def place(
    request: pytest.FixtureRequest, api: StubApi, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{SECRET}@proxy:1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setattr(jobs, "LOOK", 0.05)
    if request.param == "processes":
        yield Processes(tmp_path / "runs")
    else:
        (tmp_path / "pods").mkdir()
        with Kubelet(api, tmp_path / "pods") as kubelet:
            yield Jobs(api, cluster, kubelet)
    # What a test has left below a worker that it killed: a container's end takes that along.
    for pid in alive_below(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def executor(place: Place) -> Executor:
    return place.executor()


def spec(tmp_path: Path, tasks: str, **more: Any) -> RunSpec:
    order = Order(Operation.INSTALL, "u1", 3, run_now=WORD).plain()
    # Of another test that runs at this moment, the executor would end what has its id.
    more = {"run_id": f"run-{uuid.uuid4().hex[:12]}", "kind": "Widget", "order": order, **more}
    return RunSpec(namespace="a", name="x", playbook=playbook(tmp_path, tasks), **more)


def followed(run: Any, on_task: Callable[[str], object] = lambda _task: None) -> tuple[list[str], Ending]:
    """Names of the tasks of a run as they begin, and its ending, behind which nothing comes."""
    tasks: list[str] = []
    following = run.follow()
    for each in following:
        if isinstance(each, Ending):
            assert next(following, None) is None
            return tasks, each
        assert isinstance(each, Task)
        if each.play:
            tasks.append(each.task)
            on_task(each.task)
    raise AssertionError("it did not end")


def test_a_run_tells_its_tasks_and_its_result_and_leaves_nothing(
    place: Place, executor: Executor, tmp_path: Path
) -> None:
    tasks = f"""
    - name: First
      ansible.builtin.copy: {{content: "{{{{ given[0] }}}}", dest: {tmp_path}/given}}
    - name: Report
      ansible.builtin.copy: {{content: '{{"phase": "Completed"}}', dest: "{{{{ lookup('env', 'HOME') }}}}/report.json"}}
    """
    found, ending = followed(executor.start(spec(tmp_path, tasks, variables={"given": [WORD]})))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert found == ["First", "Report"]
    assert (ending.ok, ending.changed, ending.failed) == (2, 2, 0)
    assert (ending.report, ending.seen_gone, ending.message) == ({"phase": "Completed"}, True, "")
    assert (tmp_path / "given").read_text() == WORD
    until(lambda: not place.remains(), "the end of what the run was")
    assert executor.left() == []


def test_order_and_secrets_are_nowhere_to_be_seen(executor: Executor, tmp_path: Path) -> None:
    """Neither in arguments nor in the environment of anything that works for the run."""
    code = f"""
import json, os, pathlib
seen, pid = [], os.getpid()
while pid not in (1, {os.getpid()}):
    here = pathlib.Path(f"/proc/{{pid}}")
    seen += [(here / name).read_text() for name in ("cmdline", "environ")]
    pid = int((here / "stat").read_text().rpartition(")")[2].split()[1])
pathlib.Path({str(tmp_path / "seen")!r}).write_text(json.dumps(seen))
"""
    (tmp_path / "look.py").write_text(code)
    tasks = f"- {{name: Look, ansible.builtin.command: {sys.executable} {tmp_path}/look.py}}"
    _, ending = followed(executor.start(spec(tmp_path, tasks, variables={"given": [WORD]})))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    seen = json.loads((tmp_path / "seen").read_text())
    assert any("ansible-playbook" in each for each in seen)
    assert any("karmada_operator.worker" in each for each in seen)
    assert any("KARMADA_RUN_ID=run-" in each for each in seen)
    # The environment in which a container begins is the kubelet's doing; no process that it starts has it.
    pod = [each for each in seen[-2:] if "A_SECRET=" in each]
    assert not [each for each in seen if each not in pod and ("s3cr3t" in each or WORD in each)]


def test_check_mode_reaches_the_playbook(executor: Executor, tmp_path: Path) -> None:
    file = tmp_path / "made"
    _, ending = followed(
        executor.start(spec(tmp_path, f"- ansible.builtin.copy: {{content: x, dest: {file}}}", check=True))
    )
    assert (ending.outcome, ending.changed) == (Outcome.SUCCEEDED, 1)
    assert not file.exists()


def test_a_failure_is_told_without_secrets_and_in_bounds(executor: Executor, tmp_path: Path) -> None:
    tasks = """
    - name: Breaks
      ansible.builtin.fail: {msg: "no way: password=hunter2hunter2 {{ 'x' * 5000 }}"}
    """
    _, ending = followed(executor.start(spec(tmp_path, tasks)))
    assert (ending.outcome, ending.failed_task, ending.failed) == (Outcome.FAILED, "Breaks", 1)
    assert ending.message.startswith("localhost: no way: password=<redacted>")
    assert len(ending.message) <= 1024


def test_a_playbook_that_is_not_there_is_a_failure(executor: Executor, tmp_path: Path) -> None:
    missing = replace(spec(tmp_path, "[]"), playbook=str(tmp_path / "none.yml"))
    _, ending = followed(executor.start(missing))
    assert ending.outcome is Outcome.FAILED
    assert "ansible-playbook ended with" in ending.message


def test_what_a_playbook_passes_on_of_backups_and_restores_comes_back(executor: Executor, tmp_path: Path) -> None:
    """Of the object of the run only, and numbers only of what differs on members."""
    tasks = """
    - name: Pass it on
      ansible.builtin.set_stats:
        data:
          karmada_backups_status:
            - {name: x, status: {count: 3, newest: {name: x-1}, conditions: []}}
            - {name: other, status: {count: 9}}
          karmada_restore_drift:
            members: [{member: m1, counts: {older: 2}, objects: {older: [ConfigMap a/b]}, trouble: ""}]
          karmada_restore_released:
            {restore: x, clusters: [{name: m1, namespaces: [], of_others: 1}], held: [m2], of_others: 1}
          of_others: 1
    """
    _, ending = followed(executor.start(spec(tmp_path, tasks)))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    drift = {"members": [{"member": "m1", "counts": {"older": 2}, "trouble": ""}]}
    released = {"clusters": [{"name": "m1", "namespaces": []}], "held": ["m2"]}
    assert ending.facts == {"count": 3, "newest": {"name": "x-1"}, "drift": drift, "released": released}


def test_a_run_for_what_belongs_to_a_control_plane_reads_that_ones_document(
    place: Place, api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.types[manifest.API_VERSION] = [{"name": "karmadadeployments", "kind": manifest.KIND, "namespaced": True}]
    meta = {"name": "prod", "namespace": "a", "generation": 7}
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND}
    made = api.put(f"apis/{manifest.API_VERSION}/karmadadeployments", {**head, "metadata": meta, "spec": {}})
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()))
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(tmp_path / "kubeconfig"))
    executor, tasks = place.executor(), "- {name: Reads, karmada.installer.require_document: {}}"
    named = spec(tmp_path, tasks, uid=made["metadata"]["uid"], deployment="prod")
    _, ending = followed(executor.start(named))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    _, ending = followed(executor.start(replace(named, run_id="run-2", uid="another")))
    assert ending.outcome is Outcome.CANCELLED


def test_a_run_for_another_generation_or_object_counts_as_cancelled(
    place: Place, api: StubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.types[manifest.API_VERSION] = [{"name": "karmadadeployments", "kind": manifest.KIND, "namespaced": True}]
    head = {"apiVersion": manifest.API_VERSION, "kind": manifest.KIND}
    meta = {"name": "x", "namespace": "a", "generation": 1}
    made = api.put(f"apis/{manifest.API_VERSION}/karmadadeployments", {**head, "metadata": meta, "spec": {}})
    (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig()))
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(tmp_path / "kubeconfig"))
    executor, uid = place.executor(), made["metadata"]["uid"]
    named = spec(tmp_path, "- {name: Reads, karmada.installer.require_document: {}}", uid=uid, generation=1)
    _, ending = followed(executor.start(named))
    assert ending.outcome is Outcome.SUCCEEDED, ending
    for other in (replace(named, run_id="run-2", generation=2), replace(named, run_id="run-3", uid="another")):
        _, ending = followed(executor.start(other))
        assert (ending.outcome, ending.seen_gone) == (Outcome.CANCELLED, True), ending
        assert ending.reasons == {Reason.DOCUMENT_CHANGED}, "what follows waits until the document is still"


def test_cancel_ends_everything_and_is_repeatable(place: Place, executor: Executor, tmp_path: Path) -> None:
    """A process that left its session and its parent, too."""
    detach = f"""
    - name: Detach
      ansible.builtin.shell: >-
        {sys.executable} -c 'import os, time;
        os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0);
        os.close(0); os.close(1); os.close(2); time.sleep(900)' {tmp_path}/mark
    - name: Sleep
      ansible.builtin.command: sleep 900
    """
    run = executor.start(spec(tmp_path, detach))

    asked: list[str] = []

    def cancel(task: str) -> None:
        # The last lines of a Job's log come again when it is looked at anew, as it is after a cancel.
        if task == "Sleep" and not asked:
            asked.append(task)
            # It is between two forks, maybe, and no list of processes has both.
            until(lambda: alive(f"{tmp_path}/mark"))
            run.cancel("nobody wants it")
            run.cancel("twice")

    _, ending = followed(run, cancel)
    assert (ending.outcome, ending.seen_gone) == (Outcome.CANCELLED, True)
    assert alive(f"{tmp_path}/mark") == []
    until(lambda: not place.remains(), "the end of what the run was")


def test_a_worker_that_is_killed_is_a_run_that_was_lost(place: Place, executor: Executor, tmp_path: Path) -> None:
    run = executor.start(spec(tmp_path, SLEEP))
    _, ending = followed(run, lambda task: place.kill(run) if task == "Sleep" else None)
    assert (ending.outcome, ending.seen_gone, ending.report) == (Outcome.LOST, True, None)
    assert "without a result" in ending.message
    assert "9" in ending.message, "how it was killed"
    until(lambda: not place.remains(), "the end of what the run was")


@pytest.mark.parametrize(
    ("limits", "outcome", "words"),
    [({"time_limit": 0.5}, Outcome.TIMED_OUT, "longer"), ({"memory_limit": 1}, Outcome.FAILED, "memory")],
    ids=["time", "memory"],
)
def test_limits_end_a_run(executor: Executor, tmp_path: Path, limits: Any, outcome: Outcome, words: str) -> None:
    _, ending = followed(executor.start(spec(tmp_path, SLEEP, **limits)))
    assert ending.outcome is outcome
    assert words in ending.message


def test_the_end_of_the_operator_ends_its_runs_or_leaves_them_to_the_next(
    place: Place, executor: Executor, tmp_path: Path
) -> None:
    wanted, begun, endings = spec(tmp_path, SLEEP), threading.Event(), []
    run = executor.start(wanted)

    def follow() -> None:
        try:
            endings.append(followed(run, lambda _task: begun.set())[1].outcome)
        except LeftBehind as error:
            endings.append(error)

    following = threading.Thread(target=follow)
    following.start()
    assert begun.wait(300)
    executor.close()
    following.join(300)
    left = place.executor().left()
    if place.outlive:
        assert isinstance(endings[0], LeftBehind)
        assert [each.spec for each in left] == [wanted]
        assert Order.of(left[0].spec.order).run_now == WORD
        left[0].run.cancel("nobody wants it")
        assert followed(left[0].run)[1].outcome is Outcome.CANCELLED
    else:
        assert endings == [Outcome.CANCELLED]
        assert left == []
    until(lambda: not place.remains(), "the end of what the run was")


def test_nothing_is_started_after_the_end(place: Place, executor: Executor, tmp_path: Path) -> None:
    executor.close()
    with pytest.raises(OSError, match="the operator ends"):
        executor.start(spec(tmp_path, SLEEP))
    assert place.remains() == []


# -- lines, which both of them read ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"event": "task"}', b'{"event": "result", "outcome": "well"}', b'{"event": "other"}']
)
def test_what_is_no_line_is_nothing(line: bytes) -> None:
    assert parsed(line) is None


def test_messages_are_one_line_without_secrets() -> None:
    assert told("a\nb \x1b[31m token=abcdefghijk") == "a b token=<redacted>"
