# SPDX-License-Identifier: Apache-2.0
"""The clusters of the benchmark's own lab, and what can be asked of them without either side's help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import audit
import snapshot

from karmada_bench.command import BenchError

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "lab/lab"
CLEAN = ROOT / "molecule/shared/tools/clean.py"
HOST, MEMBER = "host", "member1"
KARMADA = "v1.18.2"
NAMESPACE = "karmada-system"
#: What karmadactl leaves on a member: (kinds, names).
LEFT_BY_JOIN = (
    ("clusterrole,clusterrolebinding", (f"karmada-controller-manager:karmada-{MEMBER}", "karmada-impersonator")),
    ("namespace", ("karmada-cluster",)),
)
#: Says what is not as it should be, given the kubeconfig of the control plane.
Check = Callable[[Path], Iterable[str]]
#: How long what follows what was removed (volumes after their claims) may take before it counts as left.
SETTLE_SECONDS = 15.0
POLL_SECONDS = 0.1

_POLICY: dict[str, Any] = {
    "apiVersion": "policy.karmada.io/v1alpha1",
    "kind": "PropagationPolicy",
    "metadata": {"name": "bench", "namespace": "default"},
    "spec": {
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "bench"}],
        "placement": {"clusterAffinity": {"clusterNames": [MEMBER]}},
    },
}
# Spreading by a label and by a field at once is what only the webhook knows to be wrong.
_SPREAD_BY_BOTH = {"spreadByField": "cluster", "spreadByLabel": "tier", "maxGroups": 1, "minGroups": 1}
_BAD_POLICY = {**_POLICY, "spec": {**_POLICY["spec"], "placement": {"spreadConstraints": [_SPREAD_BY_BOTH]}}}
_APPLICATION = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "bench", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "bench"}},
        "template": {
            "metadata": {"labels": {"app": "bench"}},
            "spec": {
                "containers": [{"name": "httpd", "image": "docker.io/library/httpd:lab"}],
                "terminationGracePeriodSeconds": 1,
            },
        },
    },
}
_POLICIES = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies"
_DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class Clusters:
    """The lab's clusters; kubeconfigs and everything else that is written is in ``work``."""

    def __init__(self, work: Path, lab_state: Path) -> None:
        self.work = work
        #: How other programs find the lab.
        self.settings = {"KARMADA_LAB_STATE": str(lab_state)}
        self._environment = {**os.environ, **self.settings}
        self.kubectl = self.lab("artifacts", "path", "kubectl")
        self.karmadactl = self.lab("artifacts", "path", "karmadactl")
        self.artifacts = Path(self.lab("artifacts", "dir"))
        self._empty: snapshot.Snapshot = {}
        # The witness asks this program.
        os.environ["KUBECTL"] = self.kubectl

    def lab(self, *arguments: str) -> str:
        """The answer of the lab; what it says beside that goes to the screen."""
        done = subprocess.run(
            [str(LAB), *arguments], env=self._environment, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            raise BenchError(f"lab {' '.join(arguments)} ended with {done.returncode}")
        return done.stdout.strip()

    def bring_up(self, hosts: Iterable[str]) -> None:
        """New clusters and plain hosts, whatever a run left that was killed."""
        self.lab("down")
        plain = [f"--host={name}" for name in hosts]
        self.lab("up", f"--cluster={HOST}", f"--cluster={MEMBER}", f"--images=karmada:{KARMADA}", *plain)
        for name in (HOST, MEMBER):
            self.kubeconfig(name).unlink(missing_ok=True)
            self.lab("kubeconfig", name, "--output", str(self.kubeconfig(name)))
        snapshot.wait_until_gone(self._snapshot_arguments(), snapshot.SECONDS_TO_GO)
        self._empty = self._snapshot()

    def kubeconfig(self, name: str) -> Path:
        """Kubeconfig of a cluster of the lab."""
        return self.work / f"{name}.kubeconfig"

    def image(self, part: str) -> str:
        """The image in the host cluster whose name has this in it."""
        images = json.loads(self.lab("status", "--json"))["clusters"][HOST]["images"]
        [found] = [each for each in images if part in each]
        return str(found)

    # -- what both sides have to bring about -----------------------------------------------------------------------

    def missing(self, control_plane: Path, workloads: Check | None = None) -> list[str]:
        """Functions that a control plane lacks yet, of what an installation is for; empty when it does all of it.

        ``workloads`` looks at what runs it, where that is not the host cluster.
        """
        checks: list[Check] = [
            workloads or self._workloads,
            self._api_service,
            self._listing,
            self._good_policy,
            self._bad_policy,
        ]
        with ThreadPoolExecutor(len(checks)) as pool:
            return [each for found in pool.map(lambda check: list(check(control_plane)), checks) for each in found]

    def wait_until_complete(self, control_plane: Path, workloads: Check | None = None) -> list[str]:
        """Wait until nothing is missing; returns what was at first."""
        first = now = self.missing(control_plane, workloads)
        deadline = time.monotonic() + 180
        while now:
            if time.monotonic() > deadline:
                raise BenchError(f"this is still missing: {'; '.join(now)}")
            time.sleep(POLL_SECONDS)
            now = self.missing(control_plane, workloads)
        return first

    def _workloads(self, _control_plane: Path) -> Iterator[str]:
        for kind in ("deployments", "statefulsets"):
            answer = self._get(self.kubeconfig(HOST), f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}")
            for each in (answer or {}).get("items", []):
                if each.get("status", {}).get("readyReplicas", 0) < each["spec"].get("replicas", 1):
                    yield f"{each['metadata']['name']} is not ready"

    def _api_service(self, control_plane: Path) -> Iterator[str]:
        found = self._get(control_plane, "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.cluster.karmada.io")
        if not _is_true(found, "Available"):
            yield "the APIService is not Available"

    def _listing(self, control_plane: Path) -> Iterator[str]:
        if self._get(control_plane, "/apis/cluster.karmada.io/v1alpha1/clusters") is None:
            yield "clusters cannot be listed"

    def _good_policy(self, control_plane: Path) -> Iterator[str]:
        done = self._create(control_plane, f"{_POLICIES}?dryRun=All", _POLICY)
        if done.returncode != 0:
            yield "a good policy is refused"

    def _bad_policy(self, control_plane: Path) -> Iterator[str]:
        done = self._create(control_plane, f"{_POLICIES}?dryRun=All", _BAD_POLICY)
        if done.returncode == 0:
            yield "a bad policy is accepted"
        elif "denied the request" not in done.stderr:
            yield "a bad policy is not judged by the webhook"

    def wait_until_joined(self, control_plane: Path) -> None:
        """Wait until the control plane finds the member Ready."""
        path = f"/apis/cluster.karmada.io/v1alpha1/clusters/{MEMBER}"
        _until(lambda: _is_true(self._get(control_plane, path), "Ready"), f"{MEMBER} is Ready")

    def propagate(self, control_plane: Path) -> float:
        """Seconds from creating an application and its policy to two replicas that are ready."""
        started = time.monotonic()
        for path, each in ((_DEPLOYMENTS, _APPLICATION), (_POLICIES, _POLICY)):
            done = self._create(control_plane, path, each)
            if done.returncode != 0:
                raise BenchError(f"the application could not be created: {done.stderr.strip()}")
        _until(
            lambda: (
                (self._get(control_plane, f"{_DEPLOYMENTS}/bench") or {}).get("status", {}).get("readyReplicas") == 2
            ),
            "two replicas are ready",
        )
        return time.monotonic() - started

    def withdraw(self, control_plane: Path) -> None:
        """Remove application and policy, and wait until the member has let go of it."""
        for path in (_POLICIES, _DEPLOYMENTS):
            self._kubectl(control_plane, "delete", "--raw", f"{path}/bench")
        member = self.kubeconfig(MEMBER)
        pods = "/api/v1/namespaces/default/pods?labelSelector=app%3Dbench"
        _until(
            lambda: (
                self._is_gone(member, f"{_DEPLOYMENTS}/bench")
                and not (self._get(member, pods) or {"items": ["unknown"]})["items"]
            ),
            "the application is gone from the member",
        )

    def wait_until_gone(self) -> None:
        """Wait until the namespace of the control plane is gone."""
        path = f"/api/v1/namespaces/{NAMESPACE}"
        _until(lambda: self._is_gone(self.kubeconfig(HOST), path), f"the namespace {NAMESPACE} is gone")

    # -- witnesses -------------------------------------------------------------------------------------------------

    def audit_marks(self) -> dict[Path, str]:
        """Positions of the audit logs of the clusters now."""
        logs = (Path(self.lab("audit-log", name)) for name in (HOST, MEMBER))
        return {log: audit.mark(log) for log in logs}

    def writes_since(self, marks: Mapping[Path, str]) -> list[str]:
        """Writes of the installer to the clusters of the lab since then."""
        return [
            line for log, mark in marks.items() for line in audit.writes(audit.lines_since(log, mark), audit.OUR_AGENT)
        ]

    def writes_inside(self) -> list[str]:
        """Writes of the installer to the control plane since its API server began, by the log of its pod."""
        log = self._kubectl(self.kubeconfig(HOST), "logs", f"--namespace={NAMESPACE}", "deployment/karmada-apiserver")
        return list(writes_in_log(log.stdout))

    def left(self) -> list[str]:
        """Differences of the clusters from what they were at first, when what goes by itself has gone."""
        return snapshot.settle(
            self._empty,
            self.work / "after.json",
            self._snapshot_arguments(),
            SETTLE_SECONDS,
            by_structure=False,
        )

    def clean(self) -> None:
        """Make the clusters what they were at first. Raises BenchError when they are not after that."""
        subprocess.run(
            [sys.executable, str(CLEAN), HOST, MEMBER], env=self._environment, stdout=subprocess.DEVNULL, check=True
        )
        self._kubectl(self.kubeconfig(HOST), "delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
        for kinds, names in LEFT_BY_JOIN:
            self._kubectl(self.kubeconfig(MEMBER), "delete", kinds, *names, "--ignore-not-found", "--timeout=120s")
        left = snapshot.settle(
            self._empty, self.work / "after.json", self._snapshot_arguments(), 60, by_structure=False
        )
        if left:
            raise BenchError("the clusters are not clean again:\n" + "\n".join(left))

    def _snapshot_arguments(self) -> dict[str, str]:
        return {name: str(self.kubeconfig(name)) for name in (HOST, MEMBER)}

    def _snapshot(self) -> snapshot.Snapshot:
        return snapshot.take(self._snapshot_arguments(), by_structure=False)

    # -- requests --------------------------------------------------------------------------------------------------

    def _kubectl(self, kubeconfig: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.kubectl, f"--kubeconfig={kubeconfig}", *arguments],
            input=given, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def _get(self, kubeconfig: Path, path: str) -> dict[str, Any] | None:
        """The answer; None when there is none."""
        done = self._kubectl(kubeconfig, "get", "--raw", path)
        if done.returncode != 0:
            return None
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _is_gone(self, kubeconfig: Path, path: str) -> bool:
        """Return whether the API server says so; one that does not answer says nothing."""
        done = self._kubectl(kubeconfig, "get", "--raw", path)
        return done.returncode != 0 and "(NotFound)" in done.stderr

    def _create(self, kubeconfig: Path, path: str, each: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return self._kubectl(kubeconfig, "create", "--raw", path, "--filename=-", given=json.dumps(each))


def writes_in_log(log: str) -> Iterator[str]:
    """Writes of the installer, by the log of an API server that has its audit events between its other lines."""
    events = (f"{line}\n" for line in log.splitlines() if line.startswith('{"kind":"Event"'))
    return audit.writes(events, audit.OUR_AGENT)


def _is_true(each: Mapping[str, Any] | None, condition: str) -> bool:
    conditions = ((each or {}).get("status") or {}).get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _until(question: Callable[[], bool], what: str, timeout: float = 180) -> None:
    deadline = time.monotonic() + timeout
    while not question():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {timeout:.0f} s in vain until {what}")
        time.sleep(POLL_SECONDS)
