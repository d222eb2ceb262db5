#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what the operator takes while nothing is to do: memory, and its share of a core, by the number of objects.

    operator_idle.py [--objects NUMBER]... [--seconds SECONDS] [--figures FILE]

A stub API server in this process has the objects, each with what a control plane has; the operator is a process
of its own. The objects are paused, so that no run is started and no control plane is asked for: probes of those that
answer come on top (docs/operator.md says how much). Exit code 1: more was taken than the operator is to take.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT / "molecule/shared/tools")]

from ansible_collections.karmada.installer.tests.unit.support.stub_api import KINDS, StubApi  # noqa: E402
from figures import keep_figure  # noqa: E402

GROUP = "installer.karmada.io"
OBJECTS = f"apis/{GROUP}/v1alpha1/karmadadeployments"
#: Number of objects → most MiB, and most hundredths of a core.
MOST = {10: (64, 0.5), 100: (96, 3.0), 1000: (160, 10.0)}
#: Workloads of a default control plane.
DEPLOYMENTS = (
    "apiserver",
    "aggregated-apiserver",
    "kube-controller-manager",
    "controller-manager",
    "scheduler",
    "webhook",
)
#: Other objects that are watched, by the path of their collection: kind, and how many a control plane has.
OTHERS = {
    "api/v1/services": ("Service", 5),
    "api/v1/configmaps": ("ConfigMap", 2),
    "api/v1/secrets": ("Secret", 14),
    "apis/policy/v1/poddisruptionbudgets": ("PodDisruptionBudget", 4),
    "apis/networking.k8s.io/v1/networkpolicies": ("NetworkPolicy", 3),
}
#: Seconds after which everything was listed and told on a busy machine; seconds in which what follows that is done.
PATIENCE, SETTLES = 300.0, 5.0


class Taken(NamedTuple):
    """Memory, what it has in common with others included, and hundredths of a core."""

    mib: float
    share: float


def fill(api: StubApi, number: int) -> None:
    """Put objects with their workloads there, as installations have left them."""
    api.types[f"{GROUP}/v1alpha1"] = [
        {"name": name, "kind": kind, "namespaced": True}
        for name, kind in (
            ("karmadadeployments", "KarmadaDeployment"),
            ("etcdbackups", "EtcdBackup"),
            ("etcdrestores", "EtcdRestore"),
        )
    ]
    api.types["events.k8s.io/v1"] = [{"name": "events", "kind": "Event", "namespaced": True}]
    KINDS.update(statefulsets="StatefulSet", etcdbackups="EtcdBackup", etcdrestores="EtcdRestore")
    api.put("api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "default"}})
    for index in range(number):
        name = f"kmd-{index:04d}"
        api.put("api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name}})
        meta = {"name": name, "namespace": name, "generation": 1, "finalizers": [f"{GROUP}/instance"]}
        annotations = {f"{GROUP}/paused": "true"}
        obj = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "KarmadaDeployment", "spec": {"mode": "Container"}}
        api.put(OBJECTS, {**obj, "metadata": {**meta, "annotations": annotations}})
        for suffix in DEPLOYMENTS:
            api.put("apis/apps/v1/deployments", _workload("Deployment", name, suffix))
        api.put("apis/apps/v1/statefulsets", _workload("StatefulSet", name, "etcd"))
        for prefix, (kind, count) in OTHERS.items():
            for each in range(count):
                api.put(prefix, _other(kind, name, f"{kind.lower()}-{each}"))
    # Or the stub would look through all of this for each watch, ten times a second.
    api.forget()


def _workload(kind: str, instance: str, suffix: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/managed-by": "karmada-installer",
        "app.kubernetes.io/part-of": "karmada",
        "app.kubernetes.io/name": suffix,
        "app.kubernetes.io/instance": instance,
    }
    meta = {"name": f"{instance}-{suffix}", "namespace": instance, "generation": 1, "labels": labels}
    status = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": {"replicas": 1}, "status": status}


def _other(kind: str, instance: str, suffix: str) -> dict[str, Any]:
    found = _workload(kind, instance, suffix)
    entry = {"manager": "karmada-installer", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}
    meta = {
        **found["metadata"],
        "annotations": {f"{GROUP}/applied-hash": "0" * 64},
        "managedFields": [{**entry, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:tls.crt": {}}}}],
    }
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, "data": {"tls.crt": "x" * 2000}}


@contextmanager
def operator(api: StubApi, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Operator as a process, which ends with this."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **api.kubeconfig()}))
    kubeconfig.chmod(0o600)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'collections'}",
        "K8S_AUTH_KUBECONFIG": str(kubeconfig),
    }
    words = ["--runs", str(folder / "runs"), "--listen=127.0.0.1", "--port=0", "--lease-namespace=default"]
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "karmada_operator", *words]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def ticks(pid: int) -> int:
    """Processor time of a process, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def memory(pid: int) -> float:
    """MiB of a process, programs and libraries that others use, too, included."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) / 1024


def is_told(api: StubApi, number: int) -> bool:
    """Return whether the status of each object says that it is paused."""
    with api.changed:
        found = [each for (prefix, _, _), each in api.objects.items() if prefix == OBJECTS]
    told = [each for each in found if (each.get("status") or {}).get("conditions")]
    return len(told) == number


def measure(number: int, seconds: float) -> Taken:
    """Memory and processor time with so many objects, when the operator has told something of each."""
    with StubApi() as api, tempfile.TemporaryDirectory() as name:
        fill(api, number)
        folder = Path(name)
        with operator(api, folder) as process:
            deadline = time.monotonic() + PATIENCE
            while not is_told(api, number):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"it has told of no more:\n{(folder / 'log').read_text()[-3000:]}")
                time.sleep(0.2)
            # What follows the first statuses is no idleness yet.
            time.sleep(SETTLES)
            before, began = ticks(process.pid), time.monotonic()
            time.sleep(seconds)
            used, took = ticks(process.pid) - before, time.monotonic() - began
            return Taken(memory(process.pid), 100 * used / os.sysconf("SC_CLK_TCK") / took)


def main() -> int:
    """Measure, print figures, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, action="append", help=f"default: {', '.join(map(str, MOST))}")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which processor time is measured")
    parser.add_argument("--figures", type=Path, help="file to which figures are added")
    options = parser.parse_args()
    code = 0
    for number in options.objects or MOST:
        found = measure(number, options.seconds)
        figure = f"{found.mib:.0f} MiB, {found.share:.2f} % of a core"
        print(f"{number} paused objects: {figure}", flush=True)
        if options.figures:
            keep_figure(options.figures, f"idle, {number} paused objects", figure)
        mib, share = MOST.get(number, (float("inf"), float("inf")))
        if found.mib > mib or found.share > share:
            print(f"that is more than {mib} MiB, or than {share} %")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
