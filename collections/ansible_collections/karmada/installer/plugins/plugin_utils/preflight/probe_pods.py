# SPDX-License-Identifier: Apache-2.0
"""Short-lived probe pods: scheduled like those of a component, and removed in any case."""

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
from ..render.pods import once

#: Waiting reasons of a container that concern its image.
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
#: Fields of a component's pod that a probe does not need.
_NOT_PROBED = ("volumes", "topologySpreadConstraints", "affinity")
_OF_CONTAINER = ("name", "image", "imagePullPolicy", "securityContext", "resources")
#: Seconds that a pod may outlive its run, if that is killed.
_GRACE_SECONDS = 30


def container(of_component: Mapping[str, Any], **more: Any) -> Object:
    """Container like the first one of this pod spec, with its limits, but without its files."""
    (first, *_others) = of_component["containers"]
    return {**{key: first[key] for key in _OF_CONTAINER if key in first}, **more}


def pod(metadata: Object, of_component: Mapping[str, Any], containers: Sequence[Object], seconds: int) -> Object:
    """Pod that runs these containers once, scheduled like pods with this spec. It ends by itself if this run dies."""
    like = {key: value for key, value in of_component.items() if key not in _NOT_PROBED}
    return once(metadata, like, activeDeadlineSeconds=seconds + _GRACE_SECONDS, containers=list(containers))


@contextmanager
def removed(cluster: Cluster, instance: Instance, probe: str, say: Callable[[str], None]) -> Iterator[None]:
    """Delete the probe's pods of this instance before, which a killed run may have left, and afterwards."""
    _remove(cluster, instance, probe, say)
    try:
        yield
    finally:
        _remove(cluster, instance, probe, say)


def all_of(cluster: Cluster, instance: Instance, probe: str) -> list[Object]:
    """Pods of a probe, by their name label."""
    return cluster.list("v1", "Pod", instance.namespace, labels=instance.pod_selector(probe))


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
    """Message of the first condition that a pod does not meet; empty if there is none."""
    found = [each for each in status.get("conditions") or [] if each.get("status") == "False" and each.get("message")]
    return str(found[0]["message"]) if found else ""


def pause(seconds: float) -> None:
    """Pause between two looks."""
    time.sleep(seconds)
