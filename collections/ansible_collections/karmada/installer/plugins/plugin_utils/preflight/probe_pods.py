# SPDX-License-Identifier: Apache-2.0
"""Pods that live for a moment to find something out: placed as those of a component are, removed whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..api_object import Object
from ..components.instance import Instance
from ..kube.cluster import Cluster
from ..kube.errors import ApiError
from ..labels import NAME_LABEL

#: Reasons of a waiting container that are about its image.
UNPULLED = frozenset(
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
#: How much longer than its run a pod may live, should that be killed.
_GRACE_SECONDS = 30


def container(of_component: Mapping[str, Any], **more: Any) -> Object:
    """A container as the first one of this pod's spec, with the same limits, that reads none of its files."""
    (first, *_others) = of_component["containers"]
    return {**{key: first[key] for key in _OF_CONTAINER if key in first}, **more}


def pod(metadata: Object, of_component: Mapping[str, Any], containers: Sequence[Object], seconds: int) -> Object:
    """A pod that runs these once, where those with this spec run. Should this machine die, it ends by itself."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            **{key: value for key, value in of_component.items() if key not in _NOT_PROBED},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": seconds + _GRACE_SECONDS,
            "containers": list(containers),
        },
    }


@contextmanager
def removed(cluster: Cluster, instance: Instance, probe: str, say: Callable[[str], None]) -> Iterator[None]:
    """No pod of this probe of this instance is there before, left by a killed run, or afterwards."""
    _remove(cluster, instance, probe, say)
    try:
        yield
    finally:
        _remove(cluster, instance, probe, say)


def all_of(cluster: Cluster, instance: Instance, probe: str) -> list[Object]:
    """The pods of a probe, by the name label that they have."""
    labels = ",".join(f"{key}={value}" for key, value in instance.selector(probe).items())
    return cluster.list("v1", "Pod", instance.namespace, labels=labels)


def _remove(cluster: Cluster, instance: Instance, probe: str, say: Callable[[str], None]) -> None:
    for each in all_of(cluster, instance, probe):
        metadata = each["metadata"]
        if (metadata.get("labels") or {}).get(NAME_LABEL) != probe:
            continue
        try:
            cluster.delete("v1", "Pod", metadata["name"], instance.namespace, uid=metadata["uid"], grace_seconds=0)
        except ApiError as error:
            say(f"pod {instance.namespace}/{metadata['name']} of the {probe} is still there: {error}")


def unmet(status: Mapping[str, Any]) -> str:
    """What a pod waits for, as its conditions say; empty if they do not."""
    found = [each for each in status.get("conditions") or [] if each.get("status") == "False" and each.get("message")]
    return str(found[0]["message"]) if found else ""


def pause(seconds: float) -> None:
    """Between two looks."""
    time.sleep(seconds)
