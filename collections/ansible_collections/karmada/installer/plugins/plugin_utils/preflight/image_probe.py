# SPDX-License-Identifier: Apache-2.0
"""Trial pulls of all images in the host cluster, each by a short-lived pod that is removed in any case."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from ..api_object import Object
from ..components.instance import Instance
from ..problems import Problem, Reason
from ..render import cluster_layout
from ..render import workloads as render
from ..run.run import Run
from . import probe_pods

#: Name label of the pods, by which those of a killed run are found.
PROBE = "image-probe"
#: Waiting reasons before the pull. Those in ``probe_pods.UNPULLED`` concern the image, and any other one means that the
#: image is there.
_BEFORE_PULL = frozenset({"", "ContainerCreating", "PodInitializing"})


def pods(instance: Instance, workloads: list[Object], seconds: int) -> dict[str, Object]:
    """Image → pod that starts it once, like the first component that uses it: same node, pull secrets and limits."""
    found: dict[str, Object] = {}
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        first = spec["containers"][0]
        image: str = first["image"]
        if image in found:
            continue
        name = f"{instance.name}-{PROBE}-{hashlib.sha256(image.encode()).hexdigest()[:10]}"
        metadata = {"name": name, "namespace": instance.namespace, "labels": instance.labels(PROBE)}
        once = probe_pods.container(spec, command=[first["command"][0], "--version"])
        found[image] = probe_pods.pod(metadata, spec, [once], seconds)
    return found


def problems(run: Run, seconds: int = 120) -> list[Problem]:
    """Images that cannot be pulled, with the reason from the node. Creates pods and deletes them."""
    where = f"namespace {run.namespace} of the host cluster"
    if run.host_cluster.get("v1", "Namespace", run.namespace) is None:
        return [
            Problem(
                "it does not exist, and pulling images is tried in it",
                where,
                "create it, or do not ask for this",
                reason=Reason.OBJECT_NOT_FOUND,
            )
        ]
    denied = run.host_cluster.can_i([("create", "", "pods", run.namespace)])
    if denied:
        return [
            Problem(
                f"the account may not: {denied[0]}",
                where,
                "grant it, or do not ask for pulling images",
                reason=Reason.MISSING_PERMISSION,
            )
        ]
    layout = cluster_layout.layout(run.instance)
    workloads = [
        each
        for each in render.outline(run.instance, layout, run.state.etcd)
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    wanted = pods(run.instance, workloads, seconds)
    with probe_pods.removed(run.host_cluster, run.instance, PROBE, run.say):
        for pod in wanted.values():
            run.host_cluster.create(pod)
        return _outcome(run, wanted, seconds, where)


def _outcome(run: Run, wanted: Mapping[str, Object], seconds: int, where: str) -> list[Problem]:
    waiting = {pod["metadata"]["name"]: image for image, pod in wanted.items()}
    told: dict[str, str] = {}
    failed: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        for pod in probe_pods.all_of(run.host_cluster, run.instance, PROBE):
            name = pod["metadata"]["name"]
            if name not in waiting:
                continue
            done, reason = verdict(pod)
            told[name] = reason or told.get(name, "")
            if done:
                image = waiting.pop(name)
                if reason:
                    failed[image] = reason
        if waiting:
            probe_pods.pause(1)
    for name, image in waiting.items():
        failed[image] = f"nothing is known after {seconds} s" + (f" ({told[name]})" if told.get(name) else "")
    return [
        Problem(
            what=f"the image {image} cannot be pulled: {reason}",
            where=where,
            remedy="check spec.images and imageRepository, the pull secrets, and that the nodes reach the registry",
            reason=Reason.IMAGE_NOT_AVAILABLE,
        )
        for image, reason in failed.items()
    ]


def verdict(pod: Mapping[str, Any]) -> tuple[bool, str]:
    """True and the reason why the image cannot be pulled (empty: it can); False and what the pod still waits for."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        waiting = state.get("waiting")
        if "running" in state or "terminated" in state:
            return True, ""
        if waiting and waiting.get("reason") in probe_pods.UNPULLED:
            return True, " ".join((waiting.get("message") or waiting["reason"]).split())
        if waiting and waiting.get("reason", "") not in _BEFORE_PULL:
            return True, ""
    if status.get("phase") == "Failed":
        return True, status.get("message") or status.get("reason") or "the pod failed"
    return False, probe_pods.unmet(status)
