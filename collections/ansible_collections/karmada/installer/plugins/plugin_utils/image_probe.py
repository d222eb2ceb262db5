# SPDX-License-Identifier: Apache-2.0
"""Can the nodes of the host cluster pull the images? A short-lived pod for each, removed whatever happens."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import kubernetes_layout
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.api_errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.instance import NAME_LABEL, Instance
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run

#: The name label of the pods, so that those of a run that was killed are found.
PROBE = "image-probe"
#: Reasons of a waiting container that are about its image; any other one means that the image is there.
_BEFORE_PULL = frozenset({"", "ContainerCreating", "PodInitializing"})
_FAILED = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
    }
)
#: What a component's pod has and a probe does not want.
_NOT_PROBED = ("volumes", "topologySpreadConstraints", "affinity")
_OF_CONTAINER = ("name", "image", "imagePullPolicy", "securityContext", "resources")


def pods(instance: Instance, workloads: list[Object], seconds: int) -> dict[str, Object]:
    """Image → pod that starts it once, as the first component that runs it would: same node, pull secrets, limits."""
    found: dict[str, Object] = {}
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        container = spec["containers"][0]
        image: str = container["image"]
        if image in found:
            continue
        kept = {key: value for key, value in spec.items() if key not in _NOT_PROBED}
        found[image] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{instance.name}-{PROBE}-{hashlib.sha256(image.encode()).hexdigest()[:10]}",
                "namespace": instance.namespace,
                "labels": instance.labels(PROBE),
            },
            "spec": {
                **kept,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                # Should this machine die, the pod ends by itself.
                "activeDeadlineSeconds": seconds + 30,
                "containers": [
                    {
                        **{key: container[key] for key in _OF_CONTAINER if key in container},
                        "command": [container["command"][0], "--version"],
                    }
                ],
            },
        }
    return found


def problems(run: Run, seconds: int = 120) -> list[Problem]:
    """Images that cannot be pulled, with the reason that the node gives. Makes pods and removes them."""
    where = f"namespace {run.namespace} of the host cluster"
    if run.host.get("v1", "Namespace", run.namespace) is None:
        return [
            Problem("it does not exist, and pulling images is tried in it", where, "create it, or do not ask for this")
        ]
    denied = run.host.can_i([("create", "", "pods", run.namespace)])
    if denied:
        return [Problem(f"the account may not: {denied[0]}", where, "grant it, or do not ask for pulling images")]
    layout = kubernetes_layout.layout(run.instance)
    workloads = [
        each
        for each in render.outline(run.instance, layout, run.state.etcd)
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    wanted = pods(run.instance, workloads, seconds)
    _remove(run)
    try:
        for pod in wanted.values():
            run.host.create(pod)
        return _outcome(run, wanted, seconds, where)
    finally:
        _remove(run)


def _outcome(run: Run, wanted: Mapping[str, Object], seconds: int, where: str) -> list[Problem]:
    waiting = {pod["metadata"]["name"]: image for image, pod in wanted.items()}
    told: dict[str, str] = {}
    failed: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while waiting and time.monotonic() < deadline:
        for pod in run.host.list("v1", "Pod", run.namespace, labels=_selector(run)):
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
            time.sleep(1)
    for name, image in waiting.items():
        failed[image] = f"nothing is known after {seconds} s" + (f" ({told[name]})" if told.get(name) else "")
    return [
        Problem(
            what=f"the image {image} cannot be pulled: {reason}",
            where=where,
            remedy="check spec.images and imageRepository, the pull secrets, and that the nodes reach the registry",
        )
        for image, reason in failed.items()
    ]


def verdict(pod: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether it is decided, and why the image cannot be pulled (empty: it can); undecided: what the pod waits for."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        waiting = state.get("waiting")
        if "running" in state or "terminated" in state:
            return True, ""
        if waiting and waiting.get("reason") in _FAILED:
            return True, " ".join((waiting.get("message") or waiting["reason"]).split())
        if waiting and waiting.get("reason", "") not in _BEFORE_PULL:
            return True, ""
    if status.get("phase") == "Failed":
        return True, status.get("message") or status.get("reason") or "the pod failed"
    unmet = [each for each in status.get("conditions") or [] if each.get("status") == "False" and each.get("message")]
    return False, unmet[0]["message"] if unmet else ""


def _selector(run: Run) -> str:
    return ",".join(f"{key}={value}" for key, value in run.instance.selector(PROBE).items())


def _remove(run: Run) -> None:
    """Remove every pod of a probe of this instance, that of a run that was killed too."""
    for pod in run.host.list("v1", "Pod", run.namespace, labels=_selector(run)):
        metadata = pod["metadata"]
        if (metadata.get("labels") or {}).get(NAME_LABEL) != PROBE:
            continue
        try:
            run.host.delete("v1", "Pod", metadata["name"], run.namespace, uid=metadata["uid"], grace_seconds=0)
        except ApiError as error:
            run.say(f"pod {run.namespace}/{metadata['name']} of the image probe is still there: {error}")
