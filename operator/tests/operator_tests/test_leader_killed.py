# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of the leading operator at points of the flow: the next leader comes to the same end, with no run doubled.

The operator is the whole process, with either executor; the API server is a stub, which kills it as a request arrives.
What a run does is short, and is written down (``quick_worker``).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from ansible_collections.karmada.installer.tests.unit.support.moments import until
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi

from operator_tests.kubelet import JOBS, TEMPLATE, Kubelet
from operator_tests.stand_ins import FINALIZER, KIND, PREFIX, alive_below, condition, live, widget

LEASES = "apis/coordination.k8s.io/v1/leases"
#: Moments for each executor, drawn from all; 0: every one.
MOMENTS = int(os.environ.get("LEADER_MOMENTS", "10"))


@dataclass(frozen=True)
class Moment:
    """First request with ``method`` and ``path`` once the run has got to ``stage``; ``done``: it is carried out.

    Without a method: as soon as the run has got there.
    """

    name: str
    method: str = ""
    path: str = ""
    done: bool = False
    stage: str = ""


STATUS, EVENTS = "/widgets/x/status", "/events"
WITH_BOTH = (
    Moment("lease-not-taken", "POST", "/leases"),
    Moment("objects-not-listed", "GET", "/widgets"),
    Moment("finalizer-not-written", "PATCH", "/widgets/x"),
    Moment("finalizer-written", "PATCH", "/widgets/x", done=True),
    Moment("start-event-not-sent", "POST", EVENTS),
    Moment("start-event-sent", "POST", EVENTS, done=True),
    Moment("start-not-told", "PATCH", STATUS),
    Moment("start-told", "PATCH", STATUS, done=True),
    Moment("run-begun", stage="began"),
    Moment("task-not-told", "PATCH", STATUS, stage="began"),
    Moment("task-told", "PATCH", STATUS, stage="began", done=True),
    Moment("result-said", stage="ended"),
    Moment("result-not-told", "PATCH", STATUS, stage="ended"),
    Moment("result-told", "PATCH", STATUS, stage="ended", done=True),
    Moment("end-event-sent", "POST", EVENTS, stage="ended", done=True),
)
WITH_JOBS = (
    *WITH_BOTH,
    Moment("job-not-made", "POST", "/jobs"),
    Moment("job-made", "POST", "/jobs", done=True),
    Moment("pod-not-seen", "GET", "/pods"),
    Moment("log-not-followed", "GET", "/log"),
    Moment("job-not-removed", "DELETE", "/jobs"),
    Moment("job-removed", "DELETE", "/jobs", done=True),
)


def drawn(moments: tuple[Moment, ...]) -> list[Moment]:
    """The same ones in every process that runs these tests."""
    return list(moments) if not 0 < MOMENTS < len(moments) else random.Random(19).sample(moments, MOMENTS)


class Site:
    """An object on a stub API server, and leaders that see to it one after the other."""

    def __init__(self, api: StubApi, folder: Path, *, jobs: bool) -> None:
        self.api, self.folder = api, folder
        self.worker = folder / "python"
        self.worker.write_text(
            f'#!/bin/sh\nexec {sys.executable} -S {Path(__file__).with_name("quick_worker.py")} {folder} "$@"\n'
        )
        self.worker.chmod(0o755)
        (folder / "kubeconfig").write_text(json.dumps(api.kubeconfig()))
        group, _, version = KIND.api_version.partition("/")
        row = {"group": group, "version": version, "kind": KIND.kind, "playbook": KIND.playbook}
        row["finalizer"] = {"name": FINALIZER, "playbook": KIND.finalizer_playbook}  # type: ignore[assignment]
        (folder / "watches.yaml").write_text(yaml.safe_dump([row]))
        self._arguments = ["--watches", str(folder / "watches.yaml"), "--namespace", "a", "--lease-namespace", "a"]
        self._arguments += ["--runs", str(folder / "runs"), "--listen", "127.0.0.1", "--port", "0"]
        if jobs:
            (folder / "job.yaml").write_text(yaml.safe_dump(TEMPLATE))
            self._arguments += ["--jobs", str(folder / "job.yaml")]

    @contextmanager
    def leader(self) -> Iterator[subprocess.Popen[bytes]]:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "K8S_AUTH_KUBECONFIG": str(self.folder / "kubeconfig"),
        }
        command = [sys.executable, "-m", "operator_tests.leader", str(self.worker), *self._arguments]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            print((self.folder / "log").read_text()[-4000:])  # noqa: T201 - shown with a failure

    def trace(self, word: str) -> list[str]:
        """Ids of runs with this word of their workers."""
        file = self.folder / "trace"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(word)]

    def jobs(self) -> list[str]:
        return [name for prefix, _, name in list(self.api.objects) if prefix == JOBS]

    def kill_at(self, moment: Moment) -> None:
        """Have a leader begin, kill it at this moment, and wait until what ends with it has ended."""
        killed, carried_out = threading.Event(), threading.Event()
        with self.leader() as process:

            def on_request(method: str, path: str) -> None:
                if killed.is_set() or method != moment.method:
                    return
                if not path.partition("?")[0].endswith(moment.path) and moment.path != "/jobs":
                    return
                if moment.path not in path or (moment.stage and not self.trace(moment.stage)):
                    return
                killed.set()
                process.kill()
                process.wait()
                if not moment.done:
                    carried_out.set()
                    raise ConnectionError("nobody is there any more")
                threading.Timer(0.1, carried_out.set).start()

            self.api.on_request = on_request
            if moment.method:
                until(carried_out.is_set, moment.name)
            else:
                until(lambda: self.trace(moment.stage), moment.name)
                process.kill()
                process.wait()
            self.api.on_request = lambda _method, _path: None

    def end(self) -> dict[str, object]:
        """Status that is the same whatever happened on the way."""
        found = live(self.api, "x").get("status", {})
        run = found.get("lastRun", {})
        kinds = ("Degraded", "Drifted", "Paused", "Progressing", "Ready")
        return {
            "phase": found.get("phase"),
            "generation": found.get("observedGeneration"),
            "run": [run.get(key) for key in ("outcome", "ok", "changed", "failed")],
            "conditions": {kind: condition(self.api, kind) for kind in kinds},
        }


SAME_END = {
    "phase": "Completed",
    "generation": 1,
    "run": ["succeeded", 3, 1, 0],
    "conditions": {
        "Degraded": "False LastRunSucceeded",
        "Drifted": "False AsTheDocumentSays",
        "Paused": "False NotPaused",
        "Progressing": "False Idle",
        "Ready": "True AllReady",
    },
}


@pytest.mark.parametrize("moment", drawn(WITH_BOTH), ids=lambda each: each.name)
def test_runs_that_are_processes_are_begun_anew(api: StubApi, tmp_path: Path, moment: Moment) -> None:
    site = Site(api, tmp_path, jobs=False)
    api.put(PREFIX, widget("x"))
    site.kill_at(moment)
    until(lambda: not alive_below(tmp_path), "the end of the run, which ends with its operator")
    begun = site.trace("began")
    with site.leader():
        api.objects.pop((LEASES, "a", "karmada-operator"), None)  # it has run out
        until(lambda: site.end() == SAME_END, "the end")
        until(lambda: live(api, "x")["status"]["lastRun"]["id"] not in begun, "a run of its own")
    assert len(site.trace("began")) == len(begun) + 1, "one run of each leader, and no more"
    assert site.trace("doubled") == []
    assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("moment", drawn(WITH_JOBS), ids=lambda each: each.name)
def test_runs_that_are_jobs_go_on(api: StubApi, tmp_path: Path, moment: Moment) -> None:
    site = Site(api, tmp_path, jobs=True)
    api.put(PREFIX, widget("x"))
    with Kubelet(api, tmp_path, [str(site.worker)]):
        site.kill_at(moment)
        left = site.jobs()
        begun = [] if left else site.trace("began")
        with site.leader():
            api.objects.pop((LEASES, "a", "karmada-operator"), None)  # it has run out
            until(
                lambda: len(site.trace("ended")) == len(begun) + 1 and not site.jobs() and site.end() == SAME_END,
                "the end",
            )
            until(lambda: live(api, "x")["status"]["lastRun"]["id"] not in begun, "the run that was left, or a new one")
    assert len(site.trace("began")) == len(begun) + 1, "a run that was left is not done again"
    assert live(api, "x")["status"]["lastRun"]["id"] == site.trace("began")[-1]
    assert site.trace("doubled") == []
    assert live(api, "x")["metadata"]["finalizers"] == [FINALIZER]


def test_who_is_asked_to_end_tells_what_became_of_its_run_before_another_one_may_lead(
    api: StubApi, tmp_path: Path
) -> None:
    site, asked = Site(api, tmp_path, jobs=False), threading.Event()
    api.put(PREFIX, widget("x"))
    with site.leader() as process:

        def on_request(method: str, path: str) -> None:
            if method == "PATCH" and STATUS in path and site.trace("began") and not asked.is_set():
                asked.set()
                process.terminate()
                # By then the run has ended, and that waits to be told.
                time.sleep(2)

        api.on_request = on_request
        until(asked.is_set, "a status of the run")
        process.wait(300)
    wrote = [(method, path.partition("?")[0]) for method, path in api.requests if method in ("PATCH", "PUT")]
    told = max(place for place, (_method, path) in enumerate(wrote) if path.endswith(STATUS))
    released = max(place for place, (method, path) in enumerate(wrote) if method == "PUT" and "/leases/" in path)
    assert live(api, "x")["status"]["lastRun"]["outcome"] in ("cancelled", "succeeded"), "it has ended by then"
    assert told < released
