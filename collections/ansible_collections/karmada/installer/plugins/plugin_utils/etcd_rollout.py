# SPDX-License-Identifier: Apache-2.0
"""Which etcd member to replace next so that all run what the StatefulSet says now. No I/O.

The StatefulSet never replaces a pod by itself (OnDelete): a member is replaced only while all others are healthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.readiness import reason_not_ready

Object = dict[str, Any]

REVISION_LABEL = "controller-revision-hash"


def outdated(stateful_set: Object, pods: Sequence[Object]) -> list[Object]:
    """Pods of an older revision, those that are not ready first: replacing them costs nothing. Then by ordinal."""
    update = stateful_set.get("status", {}).get("updateRevision", "")
    old = [pod for pod in pods if update and pod["metadata"].get("labels", {}).get(REVISION_LABEL) != update]
    return sorted(old, key=lambda pod: (reason_not_ready(pod) is None, ordinal(pod)))


def ordinal(pod: Object) -> int:
    """The number at the end of a pod's name; as a number, because 10 comes after 2."""
    return int(pod["metadata"]["name"].rpartition("-")[2])


def reason_not_to_replace(pod: Object, pods: Sequence[Object], storage: str) -> str | None:
    """Why this pod must stay for now, or None.

    A pod that holds its member's data must never go. One of several may go only while every other is ready, so that a
    majority remains.
    """
    if storage == "emptyDir":
        return "its data is in the pod (emptyDir) and would be lost with it"
    others = [each for each in pods if each["metadata"]["name"] != pod["metadata"]["name"]]
    waiting = [each["metadata"]["name"] for each in others if reason_not_ready(each)]
    return f"{', '.join(waiting)} must be ready first" if waiting else None
