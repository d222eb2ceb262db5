# SPDX-License-Identifier: Apache-2.0
"""Health of control planes in pods, between runs: which workloads are not ready, and which somebody else has changed.

Deployments and StatefulSets of all instances are watched by our label. What is there when a run has ended, and its
last events have come, is what should be there: ``Health`` compares uid and generation with that, so our own writes
are no drift. A repair is another run; nothing is written here.

Workloads that are not beside their object, in another cluster or namespace, are watched for each instance alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import files_of
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import host_cluster, kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

from .kinds import Key
from .orders import BESIDE_THE_OBJECT, HostCluster
from .watch import Watcher

KINDS = ("Deployment", "StatefulSet")
LABELS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
#: Seconds after the end of a run in which its last events come.
SETTLE = 3.0
_LOG = logging.getLogger(__name__)


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


#: Client of the host cluster of an instance; None if the Secret with its kubeconfig is gone.
Open = Callable[[Instance, HostCluster], Cluster | None]


def host_clusters(cluster: Cluster) -> Open:
    """Way to open host clusters whose kubeconfig is a Secret of the cluster that the operator watches.

    What it gives raises ApiError, and ProblemsError for a kubeconfig that a run would refuse, too.
    """

    def opened(instance: Instance, host: HostCluster) -> Cluster | None:
        if not host.secret:
            return cluster
        found = cluster.get("v1", "Secret", host.secret, instance.namespace)
        if found is None:
            return None
        where = f"Secret {instance.namespace}/{host.secret}"
        access = kubeconfig.from_secret(files_of(found.get("data")), host.context or None, where)
        host_cluster.refuse_unverified(access, where, allowed=host.insecure)
        return Cluster(access, "host cluster")

    return opened


class _Elsewhere:
    """Watches of the workloads of one instance that are not beside its object.

    ``changed`` and ``listed`` are called from their threads. ``complete`` is for the owner: all was there once.
    """

    def __init__(self, cluster: Cluster, instance: Instance, host: HostCluster) -> None:
        self._cluster, self._own = cluster, bool(host.secret)
        self.changed: Callable[[], None] = lambda: None
        self.listed: Callable[[], None] = lambda: None
        self.complete = False
        self._watchers = [
            Watcher(
                cluster,
                "apps/v1",
                kind,
                workload_of,
                lambda _key: self.changed(),
                namespace=host.namespace or instance.namespace,
                labels=f"{LABELS},{INSTANCE_LABEL}={instance.name}",
                listed=lambda: self.listed(),  # noqa: PLW0108 - it is set later
            )
            for kind in KINDS
        ]

    def start(self) -> None:
        for each in self._watchers:
            each.start()

    def stop(self) -> None:
        """End the threads; requests under way end by themselves."""
        for each in self._watchers:
            each.stop()
        if self._own:
            self._cluster.close()

    @property
    def synced(self) -> bool:
        return all(each.synced.is_set() for each in self._watchers)

    def there(self) -> Snapshot:
        known = [(key, each.get(key)) for each in self._watchers for key in each.known()]
        return {key: workload for key, workload in known if workload is not None}


class Health:
    """Watches of workloads, in some namespaces or in all (None), and what runs have left there.

    ``opened`` leads to host clusters elsewhere; without it, nothing is watched there.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: Sequence[str | None],
        clock: Callable[[], float] = time.monotonic,
        *,
        opened: Open = lambda _instance, _host: None,
    ) -> None:
        self._clock, self._open = clock, opened
        self._guard = threading.Lock()
        self._baselines: dict[Instance, Snapshot] = {}
        self._until: dict[Instance, float] = {}
        self._suspended: set[Instance] = set()
        self._elsewhere: dict[Instance, _Elsewhere] = {}
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

    def settle(self, instance: Instance, host: HostCluster | None = BESIDE_THE_OBJECT) -> None:
        """Take the objects of an instance, with their changes within SETTLE seconds, as what a run has left.

        ``host`` is where they are, None for where they were. Elsewhere they are watched anew, with the kubeconfig that
        is there now; the SETTLE seconds begin when all have been listed.
        """
        found = None if host is None or host == BESIDE_THE_OBJECT else self._opened(instance, host)
        with self._guard:
            before = self._elsewhere.pop(instance, None) if host is not None else None
            if found is not None:
                self._elsewhere[instance] = found
            self._suspended.discard(instance)
            self._until[instance] = self._clock() + SETTLE
            self._baselines[instance] = self._now(instance)
        if before is not None:
            before.stop()
        if found is not None:
            found.start()

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
            elsewhere = self._elsewhere.pop(instance, None)
        if elsewhere is not None:
            elsewhere.stop()

    def stop(self) -> None:
        """End the watches elsewhere; the others are their owner's."""
        with self._guard:
            elsewhere = list(self._elsewhere.values())
            self._elsewhere.clear()
        for each in elsewhere:
            each.stop()

    def verdict(self, instance: Instance) -> Verdict | None:
        """Verdict on an instance; None while nobody knows what should be there."""
        with self._guard:
            if instance not in self._baselines or instance in self._suspended:
                return None
            return judge(self._baselines[instance], self._now(instance))

    def _now(self, instance: Instance) -> Snapshot:
        """Workloads of an instance that are there; the guard is held."""
        elsewhere = self._elsewhere.get(instance)
        return dict(self._there.get(instance, {})) if elsewhere is None else elsewhere.there()

    def _opened(self, instance: Instance, host: HostCluster) -> _Elsewhere | None:
        """Watches elsewhere that have not begun; None where that cannot be reached, and probes are all there is."""
        try:
            cluster = self._open(instance, host)
        except (ApiError, ProblemsError) as error:
            _LOG.warning("its workloads cannot be watched: %s", error, extra={"object": "/".join(instance)})
            return None
        if cluster is None:
            return None
        found = _Elsewhere(cluster, instance, host)
        found.changed = lambda: self._changed_elsewhere(instance, found)
        found.listed = lambda: self._listed_elsewhere(instance, found)
        return found

    def _listed_elsewhere(self, instance: Instance, elsewhere: _Elsewhere) -> None:
        with self._guard:
            if self._elsewhere.get(instance) is not elsewhere or elsewhere.complete or not elsewhere.synced:
                return
            elsewhere.complete = True
            self._until[instance] = self._clock() + SETTLE
            self._baselines[instance] = elsewhere.there()
        self._listener(instance)

    def _changed_elsewhere(self, instance: Instance, elsewhere: _Elsewhere) -> None:
        with self._guard:
            if self._elsewhere.get(instance) is not elsewhere:
                return
            if not elsewhere.complete or self._clock() < self._until[instance]:
                self._baselines[instance] = elsewhere.there()
        self._listener(instance)

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
