# SPDX-License-Identifier: Apache-2.0
"""Stand-in for what makes pods of Jobs on a stub API server, and runs them: real workers, as processes of this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from karmada_operator.jobs import CONTAINER, RUN

JOBS, PODS = "apis/batch/v1/jobs", "api/v1/pods"
TEMPLATE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"template": {"spec": {"containers": [{"name": CONTAINER, "image": "operator"}]}}},
}
WORKER = (sys.executable, "-m", "karmada_operator.worker")


class Pod:
    """A worker, and what it has printed."""

    def __init__(self, folder: Path, order: str, worker: Sequence[str]) -> None:
        (folder / "order").write_text(order)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(folder),
            "A_SECRET": "s3cr3t-0f-th3-p0d",
        }
        self.process = subprocess.Popen(
            [*worker, f"--order={folder / 'order'}"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[bytes] = []
        self.changed = threading.Condition()
        self.over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        self.process.wait()
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def log(self, tail: int | None, cut: int | None) -> Iterator[bytes]:
        """Lines as they come; the connection is lost after ``cut`` of them."""
        sent = 0 if tail is None else max(0, len(self.lines) - tail)
        first = sent
        while True:
            with self.changed:
                while sent >= len(self.lines) and not self.over:
                    self.changed.wait(0.1)
                    if sent >= len(self.lines) and not self.over:
                        # Nothing is sent, and whoever has gone away is noticed.
                        break
                more, over = self.lines[sent:], self.over
            for each in more:
                if cut is not None and sent - first >= cut:
                    return
                yield each
                sent += 1
            if not more and over:
                return
            if not more:
                yield b""


class Kubelet:
    """``with Kubelet(api, folder) as kubelet``: pods of all Jobs that there are, with ``worker`` as their program.

    ``starts``: whether they start. ``tells``: whether it says that a container has ended. ``lost``: its node is; it
    does nothing any more, and its pods run on.
    """

    def __init__(self, api: StubApi, folder: Path, worker: Sequence[str] = WORKER) -> None:
        self._api, self._folder, self._worker = api, folder, worker
        self.pods: dict[str, Pod] = {}
        self.starts, self.tells, self.lost = True, True, False
        #: lines after which the next log that is followed breaks off
        self.cut: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        api.faults.append(Fault("raw", "GET", "/log", pieces=self._pieces, last=True, times=10**6))

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for each in self.pods.values():
            each.process.send_signal(signal.SIGTERM)
            each.process.wait()

    def _pieces(self, path: str) -> Iterator[bytes]:
        if self.lost:
            yield b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
            return
        pod = self.pods[path.partition("/pods/")[2].partition("/")[0]]
        tail = int(path.partition("tailLines=")[2].partition("&")[0] or -1)
        cut, self.cut = self.cut, None
        yield b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        for line in pod.log(tail if tail >= 0 else None, cut):
            if line:
                yield b"%x\r\n%s\r\n" % (len(line), line)
        yield b"0\r\n\r\n"

    def _work(self) -> None:
        while not self._over.wait(0.02):
            with self._api.changed:
                jobs = {job["metadata"]["uid"]: job for (where, *_), job in self._api.objects.items() if where == JOBS}
                pods = [pod for (where, *_), pod in self._api.objects.items() if where == PODS]
            owned = {pod["metadata"]["ownerReferences"][0]["uid"]: pod for pod in pods}
            for uid, job in jobs.items():
                self._tend(job, owned.get(uid))
            for uid, pod in owned.items():
                if uid not in jobs:
                    self._end(pod)

    def _tend(self, job: dict[str, Any], pod: dict[str, Any] | None) -> None:
        meta = job["metadata"]
        name = f"{meta['name']}-{meta['uid'][:5]}"
        if pod is None:
            self._api.put(JOBS, {**job, "metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}})
            labels = {"batch.kubernetes.io/job-name": meta["name"]}
            owner = {"kind": "Job", "name": meta["name"], "uid": meta["uid"]}
            made = {
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "labels": labels,
                    "ownerReferences": [owner],
                },
            }
            self._api.put(PODS, {**made, "status": _waiting("ErrImagePull")})
        elif self.starts and name not in self.pods:
            folder = self._folder / name
            folder.mkdir()
            self.pods[name] = Pod(folder, job["spec"]["template"]["metadata"]["annotations"][RUN], self._worker)
            self._api.put(PODS, {**pod, "status": _state({"running": {}})})
        elif self.tells and name in self.pods and self.pods[name].over and "terminated" not in str(pod["status"]):
            code = self.pods[name].process.returncode
            self._api.put(PODS, {**pod, "status": _state({"terminated": {"reason": "Error", "exitCode": code}})})

    def delete(self, pod: dict[str, Any]) -> None:
        """What the API server does to a pod that is deleted."""
        # This one does not kill what has not ended by then.
        goes = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0 if self.lost else 3600}
        self._api.put(PODS, {**pod, "metadata": {**pod["metadata"], **goes}})

    def _end(self, pod: dict[str, Any]) -> None:
        """What the kubelet does to a pod that is deleted: SIGTERM, and when its container has ended it is gone."""
        meta = pod["metadata"]
        found = self.pods.get(meta["name"])
        if found is not None and (self.lost or not found.over):
            if not meta.get("deletionTimestamp"):
                self.delete(pod)
                if not self.lost:
                    found.process.send_signal(signal.SIGTERM)
            return
        self._api.remove(PODS, meta["namespace"], meta["name"])


def _state(state: dict[str, Any]) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": CONTAINER, "state": state}]}


def _waiting(reason: str) -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"name": CONTAINER, "state": {"waiting": {"reason": reason}}}]}
