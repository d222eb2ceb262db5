# SPDX-License-Identifier: Apache-2.0
"""Workers of AWX in pods of a container group, as receptor starts, feeds and deletes them.

The pod is the one that AWX has by default, with the identity that OpenShift gives it. Private data of a job reaches it
by its stdin, attached once; what it sends back is its log. Read in the sources of AWX 24 (`podspec.py`) and of receptor
(`kubernetes.go`).
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from awx_credentials import INSIDE
from awx_runner import SOMEBODY, Awx

#: Seconds until a pod runs whose image is present, at most, for a machine with much else to do.
RUNS_SECONDS = 60
CONTAINER = "worker"


@dataclass(frozen=True)
class Group:
    """Container group: a namespace of a cluster, and the image of its pods.

    ``kept`` is a folder for what the cluster knows of each pod; ``started`` has the seconds that each took to run.
    """

    kubectl: str
    kubeconfig: Path
    namespace: str
    image: str
    kept: Path
    started: list[float] = field(default_factory=list)

    def command(self, *arguments: str) -> list[str]:
        """Words of kubectl in this namespace."""
        return [self.kubectl, f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}", *arguments]

    def output(self, *arguments: str, given: str = "") -> str:
        """Output of kubectl. Raises CalledProcessError."""
        return subprocess.run(
            self.command(*arguments), check=True, input=given, stdout=subprocess.PIPE, text=True
        ).stdout

    def start(self, name: str) -> None:
        """Start a pod, and wait until it runs."""
        began = time.monotonic()
        self.output("create", "--filename=-", given=json.dumps(self._definition(name)))
        running = "--for=jsonpath={.status.phase}=Running"
        self.output("wait", running, f"--timeout={RUNS_SECONDS}s", f"pod/{name}")
        self.started.append(time.monotonic() - began)

    def keep(self, name: str) -> None:
        """Keep what the cluster shows of a pod to whoever may look: its object, its log, its events."""
        about = f"--field-selector=involvedObject.name={name}"
        texts = {
            "object": self.output("get", f"pod/{name}", "--output=yaml", "--show-managed-fields"),
            "log": self.output("logs", name),
            "events": self.output("get", "events", about, "--output=yaml"),
        }
        kept = "\n".join(f"--- {what}\n{text}" for what, text in texts.items())
        (self.kept / f"{name}.log").write_text(kept, encoding="utf-8")

    def delete(self, name: str, *, wait: bool) -> None:
        """Delete a pod as receptor does, with the time that it is granted by default."""
        self.output("delete", f"pod/{name}", f"--wait={str(wait).lower()}")

    def _definition(self, name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"ansible-awx": "lab"}},
            "spec": {
                "serviceAccountName": "default",
                "automountServiceAccountToken": False,
                "restartPolicy": "Never",
                "securityContext": {
                    "runAsUser": SOMEBODY,
                    "runAsGroup": 0,
                    "runAsNonRoot": True,
                    "fsGroup": SOMEBODY,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": CONTAINER,
                        "image": self.image,
                        "args": ["ansible-runner", "worker", f"--private-data-dir={INSIDE}"],
                        "stdin": True,
                        "stdinOnce": True,
                        "resources": {"requests": {"cpu": "250m", "memory": "100Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        }


class Worker(subprocess.Popen[bytes]):
    """Worker in a pod. Here it is the process that follows the pod's log, which is what the worker sends back."""

    def __init__(self, group: Group, name: str, sent: IO[bytes]) -> None:
        self._group, self._name, self._there = group, name, True
        group.start(name)
        super().__init__(group.command("logs", "--follow", name), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        attached = group.command("attach", "--stdin", "--quiet", f"--container={CONTAINER}", name)
        self._attached = subprocess.Popen(attached, stdin=sent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def delete(self) -> datetime:
        """Delete the pod in the middle of its work, which is how AWX cancels a job in a container group; tells when."""
        self._there = False
        self._group.keep(self._name)
        when = datetime.now(UTC)
        self._group.delete(self._name, wait=False)
        return when

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        try:
            if self._there:
                self._group.keep(self._name)
                self._group.delete(self._name, wait=True)
        finally:
            self._attached.kill()
            self._attached.wait()


@dataclass(kw_only=True)
class AwxInPods(Awx):
    """AWX that has no place for workers but a container group; the collection is in its execution environment."""

    group: Group

    def _private_data(self) -> tuple[int, Path, Path]:
        number, private, unused = super()._private_data()
        unused.rmdir()
        self._number = number
        return number, private, Path(INSIDE)

    def _worker(self, inside: Path, sent: Any) -> Worker:  # noqa: ARG002 - it is the same folder in each pod
        return Worker(self.group, f"automation-job-{self._number}", sent)


def words(seconds: Sequence[float]) -> str:
    """Figures for people."""
    return ", ".join(f"{each:.1f}" for each in seconds)
