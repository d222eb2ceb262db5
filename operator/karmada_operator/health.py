# SPDX-License-Identifier: Apache-2.0
"""Health of control planes, between runs: which workloads are not ready, and which objects somebody else has changed.

Objects of all instances in pods are watched by our label: Deployments and StatefulSets, and of what else a control
plane has there (``OTHERS``) the metadata only, so that no content of a Secret is ever here. What is there when a run
has ended, and its last events have come, is what should be there, unless somebody else has deleted or edited it
meanwhile (``course``): ``Health`` compares uid and generation with that, so our own writes are no drift. A repair is
another run; nothing is written here.

Objects that are not beside their object, in another cluster or namespace, are watched for each instance alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import files_of
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import host_cluster, kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import (
    FIELD_MANAGER,
    INSTANCE_LABEL,
    MANAGED_BY_LABEL,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

from .course import Course, Piece, Snapshot, piece_of, workload_of
from .kinds import Key
from .orders import BESIDE_THE_OBJECT, HostCluster, Part
from .watch import Watcher

WORKLOADS = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"))
#: What is watched beside workloads. One that is gone makes no component unready by itself: probes tell what does not
#: answer any more.
OTHERS = (
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
)
_KINDS_WITH_PODS = frozenset(kind for _, kind in WORKLOADS)
LABELS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
#: Seconds after the end of a run in which its last events come.
SETTLE = 3.0
_LOG = logging.getLogger(__name__)


class Instance(NamedTuple):
    """A control plane, by its object."""

    namespace: str
    name: str

    @property
    def kubeconfig(self) -> Key:
        """Secret with its administrator's kubeconfig, which is beside its object wherever it runs."""
        return Key("Secret", self.namespace, f"{self.name}-admin-config")


@dataclass(frozen=True)
class Verdict:
    """Troubles of an instance, each in words, and how its components are."""

    unready: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    parts: tuple[Part, ...] = field(default=(), compare=False)


def judge(baseline: Snapshot, now: Snapshot) -> Verdict:
    """Compare what is there with what a run has left. Objects that came since are somebody else's, and ignored."""
    drifted, unready, parts = [], [], []
    for key, before in sorted(baseline.items()):
        live, name = now.get(key), f"{key.kind} {key.name}"
        if live is None:
            drifted.append(f"{name} was deleted")
            if key.kind not in _KINDS_WITH_PODS:
                continue
            unready.append(f"{name} is gone")
            parts.append(Part(before.component, 0, unready[-1], gone=True))
            continue
        if live.uid != before.uid:
            drifted.append(f"{name} was made anew")
        elif live.generation != before.generation:
            drifted.append(f"{name} was changed")
        if key.kind not in _KINDS_WITH_PODS:
            continue
        if live.trouble:
            unready.append(f"{name}: {live.trouble}")
        parts.append(Part(live.component, live.ready, live.trouble))
    return Verdict(tuple(unready), tuple(drifted), tuple(parts))


def _watchers(
    cluster: Cluster,
    namespace: str | None,
    labels: str,
    changed: Callable[[Key], None],
    listed: Callable[[], None],
) -> dict[str, Watcher[Piece]]:
    """Watchers of the objects with these labels that a control plane has, by kind.

    Only those of workloads are needed: a kubeconfig may have no right to watch the others.
    """
    scope: dict[str, Any] = {"namespace": namespace, "labels": labels, "listed": listed}
    found = {kind: Watcher(cluster, group, kind, workload_of, changed, **scope) for group, kind in WORKLOADS}
    scope |= {"metadata_only": True, "optional": True}
    return {**found, **{kind: Watcher(cluster, group, kind, piece_of, changed, **scope) for group, kind in OTHERS}}


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
    """Watches of the objects of one instance that are not beside the one that describes it.

    ``changed`` and ``listed`` are called from their threads. ``complete`` is for the owner: all was there once.
    """

    def __init__(
        self,
        cluster: Cluster,
        instance: Instance,
        host: HostCluster,
        changed: Callable[[Key], None],
        listed: Callable[[], None],
    ) -> None:
        self._cluster, self._own, self.host = cluster, bool(host.secret), host
        self.complete = False
        labels = f"{LABELS},{INSTANCE_LABEL}={instance.name}"
        self._by_kind = _watchers(cluster, host.namespace or instance.namespace, labels, changed, listed)
        self._watchers = [*self._by_kind.values()]

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

    def get(self, key: Key) -> Piece | None:
        """Object that is there; None if it is not."""
        return self._by_kind[key.kind].get(key)

    def there(self) -> Snapshot:
        """All objects that are there."""
        known = [(key, each.get(key)) for each in self._watchers for key in each.known()]
        return {key: found for key, found in known if found is not None}


class Health:
    """Watches of objects of instances, in some namespaces or in all (None), and what runs have left there.

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
        #: What has become of objects since their last run began; followed until its last events have come.
        self._courses: dict[Instance, Course] = {}
        self._elsewhere: dict[Instance, _Elsewhere] = {}
        self._listener: Callable[[Instance], None] = lambda _instance: None
        #: Whether it was told that everything beside objects has been listed.
        self._told_listed = False
        self._places = {place: _watchers(cluster, place, LABELS, self._changed, self._listed) for place in namespaces}
        self.watchers = [each for by_kind in self._places.values() for each in by_kind.values()]
        #: Those elsewhere that were asked for before everything beside objects has been listed.
        self._early: set[Instance] = set()
        self._instances: dict[Key, Instance] = {}
        self._there: dict[Instance, Snapshot] = {}

    def listen(self, listener: Callable[[Instance], None]) -> None:
        """Have each change told, as the instance that it belongs to."""
        self._listener = listener

    def begin(self, instance: Instance, host: HostCluster = BESIDE_THE_OBJECT) -> None:
        """Judge an instance of which nothing is known yet by what is there: an earlier operator has left that.

        Nothing while that has not been listed; who listens is told of it then.
        """
        with self._guard:
            if instance in self._baselines or instance in self._suspended:
                return
            if not self._all_listed:
                # Elsewhere, too: the Secret with its kubeconfig is beside the object, and nothing else need be.
                if host != BESIDE_THE_OBJECT:
                    self._early.add(instance)
                return
        self.settle(instance, host, first=True)

    def settle(
        self,
        instance: Instance,
        host: HostCluster | None = BESIDE_THE_OBJECT,
        *,
        deleted: frozenset[tuple[str, str]] | None = None,
        first: bool = False,
    ) -> None:
        """Take the objects of an instance, with their changes within SETTLE seconds, as what a run has left.

        ``host`` is where they are, None for where they were. Elsewhere they are watched anew, with the kubeconfig that
        is there now; the SETTLE seconds begin when all have been listed. ``deleted``: see ``course.deleted_by``; what
        else has gone since the run began, and what somebody else has edited, is no work of the run. None: all is.
        ``first``: unless something is known of it, or a run is changing it.
        """
        found = None if host is None or host == BESIDE_THE_OBJECT else self._opened(instance, host)
        with self._guard:
            if first and (instance in self._baselines or instance in self._suspended):
                return
            before = self._elsewhere.pop(instance, None) if host is not None else None
            if found is not None:
                self._elsewhere[instance] = found
            self._suspended.discard(instance)
            self._until[instance] = self._clock() + SETTLE
            moved = (before.host if before else BESIDE_THE_OBJECT) != (found.host if found else BESIDE_THE_OBJECT)
            course = self._courses.get(instance)
            if course is None or deleted is None or (host is not None and moved):
                course = self._courses[instance] = Course(self._now(instance))
            course.deleted = deleted
            # Elsewhere, nothing has been listed anew yet.
            self._baselines[instance] = course.left(self._now(instance)) if found is None else {}
        if before is not None:
            before.stop()
        if found is not None:
            found.start()

    def suspend(self, instance: Instance) -> None:
        """Judge an instance no more while a run changes it."""
        with self._guard:
            self._suspended.add(instance)
            before = self._courses.get(instance)
            self._courses[instance] = Course(self._now(instance), before.edited if before else frozenset())

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
            self._courses.pop(instance, None)
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

    @property
    def _all_listed(self) -> bool:
        return all(each.synced.is_set() for each in self.watchers)

    def _listed(self) -> None:
        with self._guard:
            if self._told_listed or not self._all_listed:
                return
            self._told_listed = True
            there = {*self._there, *self._early}
            self._early.clear()
        for each in there:
            self._listener(each)

    def _now(self, instance: Instance) -> Snapshot:
        """Objects of an instance that are there; the guard is held."""
        elsewhere, beside = self._elsewhere.get(instance), self._there.get(instance, {})
        if elsewhere is None:
            return dict(beside)
        # What else is beside the object may be of an instance that was moved away.
        kubeconfig = beside.get(instance.kubeconfig)
        return {**elsewhere.there(), **({instance.kubeconfig: kubeconfig} if kubeconfig else {})}

    def _opened(self, instance: Instance, host: HostCluster) -> _Elsewhere | None:
        """Watches elsewhere that have not begun; None where that cannot be reached, and probes are all there is."""
        try:
            cluster = self._open(instance, host)
        except (ApiError, ProblemsError) as error:
            _LOG.warning("its objects cannot be watched: %s", error, extra={"object": "/".join(instance)})
            return None
        if cluster is None:
            return None
        found = _Elsewhere(
            cluster,
            instance,
            host,
            lambda key: self._changed_elsewhere(instance, found, key),
            lambda: self._listed_elsewhere(instance, found),
        )
        return found

    def _listed_elsewhere(self, instance: Instance, elsewhere: _Elsewhere) -> None:
        with self._guard:
            if self._elsewhere.get(instance) is not elsewhere or elsewhere.complete or not elsewhere.synced:
                return
            elsewhere.complete = True
            self._until[instance] = self._clock() + SETTLE
            if instance not in self._suspended:
                self._baselines[instance] = self._courses[instance].left(self._now(instance))
        self._listener(instance)

    def _changed_elsewhere(self, instance: Instance, elsewhere: _Elsewhere, key: Key) -> None:
        with self._guard:
            if self._elsewhere.get(instance) is not elsewhere:
                return
            self._followed(instance, key, elsewhere.get(key), listed=elsewhere.complete)
        self._listener(instance)

    def _followed(self, instance: Instance, key: Key, live: Piece | None, *, listed: bool = True) -> None:
        """Take what has become of an object as a part of a run, while one is under way or has just ended.

        The guard is held. ``listed``: whether all that is there was listed since.
        """
        soon = not listed or self._clock() < self._until.get(instance, 0.0)
        course = self._courses.get(instance)
        if course is None or not (soon or instance in self._suspended):
            return
        course.see(key, live)
        if instance not in self._suspended:
            now = self._now(instance)
            self._baselines[instance] = course.left(now) if listed else now

    def _changed(self, key: Key) -> None:
        place = key.namespace if key.namespace in self._places else None
        live = self._places[place][key.kind].get(key)
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
            elsewhere = self._elsewhere.get(instance)
            if elsewhere is None:
                self._followed(instance, key, live)
            elif key == instance.kubeconfig:
                self._followed(instance, key, live, listed=elsewhere.complete)
        self._listener(instance)
