# SPDX-License-Identifier: Apache-2.0
"""Health of control planes in pods, between runs: which workloads are not ready, and which somebody else has changed.

Deployments and StatefulSets of all instances are watched by our label. What is there when a run has ended, and its
last events have come, is what should be there: ``Health`` compares uid and generation with that, so our own writes
are no drift. A repair is another run; nothing is written here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
)

from .kinds import Key
from .watch import Watcher

KINDS = ("Deployment", "StatefulSet")
LABELS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
#: Seconds after the end of a run in which its last events come.
SETTLE = 3.0


class Instance(NamedTuple):
    """A control plane in pods."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Workload:
    """Parts of a Deployment or StatefulSet that are kept. ``trouble`` says why it is not ready, empty if it is."""

    uid: str
    generation: int
    instance: str
    trouble: str
    version: str = field(default="", compare=False)


@dataclass(frozen=True)
class Verdict:
    """Troubles of an instance, each in words."""

    unready: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()


Snapshot = dict[Key, Workload]


def workload_of(obj: Object) -> Workload:
    """Parts of a workload that are kept."""
    meta = obj["metadata"]
    return Workload(
        uid=str(meta["uid"]),
        generation=int(meta.get("generation") or 0),
        instance=str((meta.get("labels") or {}).get(INSTANCE_LABEL, "")),
        trouble=reason_not_ready(obj) or ("it is scaled to no pods" if obj["spec"].get("replicas") == 0 else ""),
        version=str(meta.get("resourceVersion", "")),
    )


def judge(baseline: Snapshot, now: Snapshot) -> Verdict:
    """Compare what is there with what a run has left. Objects that came since are somebody else's, and ignored."""
    drifted, unready = [], []
    for key, before in sorted(baseline.items()):
        live, name = now.get(key), f"{key.kind} {key.name}"
        if live is None:
            drifted.append(f"{name} was deleted")
            unready.append(f"{name} is gone")
            continue
        if live.uid != before.uid:
            drifted.append(f"{name} was made anew")
        elif live.generation != before.generation:
            drifted.append(f"{name} was changed")
        if live.trouble:
            unready.append(f"{name}: {live.trouble}")
    return Verdict(tuple(unready), tuple(drifted))


class Health:
    """Watches of workloads, in some namespaces or in all (None), and what runs have left there."""

    def __init__(
        self, cluster: Cluster, namespaces: Sequence[str | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._baselines: dict[Instance, Snapshot] = {}
        self._until: dict[Instance, float] = {}
        self._suspended: set[Instance] = set()
        self._listener: Callable[[Instance], None] = lambda _instance: None
        self.watchers = [
            Watcher(cluster, "apps/v1", kind, workload_of, self._changed, namespace=place, labels=LABELS)
            for kind in KINDS
            for place in namespaces
        ]
        self._instances: dict[Key, Instance] = {}
        self._there: dict[Instance, Snapshot] = {}

    def listen(self, listener: Callable[[Instance], None]) -> None:
        """Have each change told, as the instance that it belongs to."""
        self._listener = listener

    def settle(self, instance: Instance) -> None:
        """Take the objects of an instance, with their changes within SETTLE seconds, as what a run has left."""
        with self._guard:
            self._suspended.discard(instance)
            self._until[instance] = self._clock() + SETTLE
            self._baselines[instance] = dict(self._there.get(instance, {}))

    def suspend(self, instance: Instance) -> None:
        """Judge an instance no more while a run changes it."""
        with self._guard:
            self._suspended.add(instance)

    def resume(self, instance: Instance) -> None:
        """Judge it by what an earlier run has left: this one did not come to its end."""
        with self._guard:
            self._suspended.discard(instance)

    def forget(self, instance: Instance) -> None:
        """Judge an instance no more: it is gone."""
        with self._guard:
            self._suspended.discard(instance)
            self._baselines.pop(instance, None)
            self._until.pop(instance, None)

    def verdict(self, instance: Instance) -> Verdict | None:
        """Verdict on an instance; None while nobody knows what should be there."""
        with self._guard:
            if instance not in self._baselines or instance in self._suspended:
                return None
            return judge(self._baselines[instance], self._there.get(instance, {}))

    def _changed(self, key: Key) -> None:
        live = next((found for each in self.watchers if (found := each.get(key)) is not None), None)
        with self._guard:
            before = self._instances.pop(key, None)
            if before is not None:
                self._there[before].pop(key, None)
            instance = before if live is None else Instance(key.namespace, live.instance)
            if instance is None:
                return
            if live is not None:
                self._instances[key] = instance
                self._there.setdefault(instance, {})[key] = live
            if not self._there[instance]:
                del self._there[instance]
            if self._clock() < self._until.get(instance, 0.0):
                self._baselines[instance] = dict(self._there.get(instance, {}))
        self._listener(instance)
