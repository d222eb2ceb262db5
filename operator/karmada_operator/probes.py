# SPDX-License-Identifier: Apache-2.0
"""Probes of control planes between runs: does the API server answer, does the aggregated API, are members Ready.

Each control plane whose kubeconfig is a Secret beside its object is asked; of one installed elsewhere, runs tell.
Nothing is written here; what has changed is told to a listener.
"""

from __future__ import annotations

import heapq
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import files_of
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError

from .executor import told as shown
from .health import Instance

#: Seconds between two probes of one control plane; between two lists of its members; after the first probe that failed.
EVERY, MEMBERS_EVERY, AGAIN = 10.0, 60.0, 2.0
#: Seconds that one request may take.
PATIENCE = 5.0
#: Probes in a row that have to fail before it is told.
FAILURES = 2
WORKERS = 4
CLUSTER_API = "cluster.karmada.io/v1alpha1"
_LOG = logging.getLogger(__name__)


class Member(NamedTuple):
    """State of a member as its control plane sees it."""

    name: str
    ready: bool
    reason: str


@dataclass(frozen=True)
class Finding:
    """What a probe has found. ``trouble`` is empty if all answers; ``members`` is None until they have been listed."""

    trouble: str = ""
    members: tuple[Member, ...] | None = None


@dataclass
class _Target:
    instance: Instance
    secret: str
    client: Cluster | None = None
    finding: Finding = field(default_factory=Finding)
    failures: int = 0
    list_at: float = 0.0


Open = Callable[[Instance, str], Cluster | None]


class Probes:
    """Threads that probe control planes in turn."""

    def __init__(self, opened: Open, clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = opened, clock
        self._changed = threading.Condition()
        self._targets: dict[Instance, _Target] = {}
        #: (moment, tie-breaker, target); a target that is not followed any more is dropped when it is due.
        self._due: list[tuple[float, float, _Target]] = []
        self._over = False
        self._listener: Callable[[Instance], None] = lambda _instance: None
        self._threads = [threading.Thread(target=self._work, name="probe", daemon=True) for _ in range(WORKERS)]

    def start(self) -> None:
        """Begin."""
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """End; requests under way end by themselves."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def listen(self, listener: Callable[[Instance], None]) -> None:
        """Have each changed finding told, as the instance that it is about."""
        self._listener = listener

    def follow(self, instance: Instance, secret: str) -> None:
        """Probe an instance from now on; ``secret`` is the name of the Secret with its kubeconfig."""
        with self._changed:
            target = self._targets[instance] = _Target(instance, secret)
            self._add(target, EVERY * random.random())  # noqa: S311 - spreads load

    def forget(self, instance: Instance) -> None:
        """Probe it no more: a run is changing it, or it is gone."""
        with self._changed:
            target = self._targets.pop(instance, None)
        if target and target.client:
            target.client.close()

    def finding(self, instance: Instance) -> Finding:
        """Newest finding; an empty one if it is not probed."""
        with self._changed:
            target = self._targets.get(instance)
            return target.finding if target else Finding()

    def _add(self, target: _Target, seconds: float) -> None:
        heapq.heappush(self._due, (self._clock() + seconds, random.random(), target))  # noqa: S311 - as above
        self._changed.notify()

    def _take(self) -> _Target | None:
        """The next target that is due; None at the end."""
        with self._changed:
            while not self._over:
                if self._due and self._due[0][0] <= self._clock():
                    target = heapq.heappop(self._due)[2]
                    if self._targets.get(target.instance) is target:
                        return target
                    continue
                self._changed.wait(min(self._due[0][0] - self._clock() if self._due else EVERY, EVERY))
        return None

    def _work(self) -> None:
        while (target := self._take()) is not None:
            try:
                found, pause = self._probed(target)
            except Exception:  # noqa: BLE001 - see below
                # One control plane whose answer we cannot read must not keep the others from being looked at.
                _LOG.exception("a probe failed", extra={"object": str(target.instance)})
                found, pause = target.finding, MEMBERS_EVERY
            with self._changed:
                followed = self._targets.get(target.instance) is target
                news, target.finding = followed and found != target.finding, found
                if followed:
                    self._add(target, pause * random.uniform(0.9, 1.1))  # noqa: S311 - as above
            if not followed and target.client:
                # Opened while it was forgotten.
                target.client.close()
            if news:
                self._listener(target.instance)

    def _probed(self, target: _Target) -> tuple[Finding, float]:
        """New finding about a target, and seconds until the next probe."""
        members = target.finding.members
        try:
            if target.client is None:
                target.client = self._open(target.instance, target.secret)
            if target.client is None:
                return Finding(), MEMBERS_EVERY
            trouble = _trouble(target.client)
            if not trouble and self._clock() >= target.list_at:
                members, target.list_at = _members(target.client), self._clock() + MEMBERS_EVERY
        except (ApiError, ProblemsError) as error:
            trouble = str(error)
            if target.client:
                # Its Secret may say something else by now.
                target.client.close()
                target.client = None
        if not trouble:
            target.failures = 0
            return Finding("", members), EVERY
        target.failures += 1
        if target.failures < FAILURES:
            return target.finding, AGAIN
        return Finding(shown(trouble), members), EVERY


def _trouble(control_plane: Cluster) -> str:
    """Reason why the control plane does not answer fully; empty if it does."""
    control_plane.get_raw("/readyz")
    service = control_plane.get("apiregistration.k8s.io/v1", "APIService", "v1alpha1.cluster.karmada.io") or {}
    for each in (service.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Available":
            return (
                "" if each.get("status") == "True" else f"aggregated API: {each.get('message') or each.get('reason')}"
            )
    return "aggregated API: it is not registered"


def _members(control_plane: Cluster) -> tuple[Member, ...]:
    found = []
    for each in control_plane.list(CLUSTER_API, "Cluster"):
        conditions = (each.get("status") or {}).get("conditions") or ()
        ready: Object = next((one for one in conditions if one.get("type") == "Ready"), {})
        found.append(
            Member(str(each["metadata"]["name"]), ready.get("status") == "True", str(ready.get("reason") or "Unknown"))
        )
    return tuple(sorted(found))


def beside_objects(cluster: Cluster) -> Open:
    """Way to open control planes whose kubeconfig is a Secret of the cluster that the operator watches."""

    def opened(instance: Instance, secret: str) -> Cluster | None:
        found = cluster.get("v1", "Secret", secret, instance.namespace)
        if found is None:
            return None
        access = kubeconfig.from_secret(files_of(found.get("data")), None, f"Secret {instance.namespace}/{secret}")
        return Cluster(access, "control plane").with_patience(retry_seconds=PATIENCE, read_seconds=PATIENCE)

    return opened
