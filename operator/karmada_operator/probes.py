# SPDX-License-Identifier: Apache-2.0
"""Probes of control planes between runs: do the API server, the aggregated API and the webhook answer, do controllers
work, are members Ready.

Each control plane whose kubeconfig is a Secret beside its object is asked, wherever it runs; one that cannot be reached
from here is left to runs. Nothing is written here; what has changed is told to a listener.
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

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import condition
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import SYSTEM_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.probes import not_judged, not_listed
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import files_of
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable

from .executor import told as shown
from .health import Instance

#: Seconds between two probes of one control plane; between two looks at its members and its webhook, which are dearer;
#: after the first probe that failed.
EVERY, SELDOM, AGAIN = 10.0, 60.0, 2.0
#: Seconds that one request may take.
PATIENCE = 5.0
#: Probes in a row that have to fail before it is told.
FAILURES = 2
WORKERS = 4
CLUSTER_API = "cluster.karmada.io/v1alpha1"
POLICY = ("policy.karmada.io/v1alpha1", "PropagationPolicy")
#: Leases of the controllers that every control plane has.
LEASES = (
    ("kube-system", "kube-controller-manager"),
    (SYSTEM_NAMESPACE, "karmada-controller-manager"),
    (SYSTEM_NAMESPACE, "karmada-scheduler"),
)
_LOG = logging.getLogger(__name__)


class Member(NamedTuple):
    """State of a member as its control plane sees it."""

    name: str
    ready: bool
    reason: str


@dataclass(frozen=True)
class Finding:
    """Result of a probe. ``trouble`` is empty if all answers; ``members`` is None until they have been listed."""

    trouble: str = ""
    members: tuple[Member, ...] | None = None


class Renewals:
    """Renewals of the Leases of controllers, by a clock of our own: theirs may be another one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def trouble(self, control_plane: Cluster) -> str:
        """Controllers that hold no Lease, or have not renewed it for its duration; empty if there are none.

        A Lease that is not there belongs to none, or to one that has never worked: runs wait for that.
        """
        late = []
        for namespace, name in LEASES:
            lease = control_plane.get("coordination.k8s.io/v1", "Lease", name, namespace)
            if lease is None:
                continue
            spec = lease.get("spec") or {}
            renewed, since = self._seen.get(name, ("", 0.0))
            if spec.get("renewTime") != renewed:
                self._seen[name] = (str(spec.get("renewTime")), self._clock())
            elif self._clock() - since > float(spec.get("leaseDurationSeconds") or 15):
                late.append(name)
        return f"at work no more, by their Leases: {', '.join(late)}" if late else ""


@dataclass
class _Target:
    instance: Instance
    secret: str
    renewals: Renewals
    client: Cluster | None = None
    finding: Finding = field(default_factory=Finding)
    failures: int = 0
    seldom_at: float = 0.0
    #: Whether it has ever answered from here.
    heard: bool = False


Open = Callable[[Instance, str], Cluster | None]


class Probes:
    """Threads that probe control planes in turn."""

    def __init__(self, opened: Open, clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = opened, clock
        self._changed = threading.Condition()
        self._targets: dict[Instance, _Target] = {}
        self._suspended: dict[Instance, str] = {}
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
            self._suspended.pop(instance, None)
            target = self._targets[instance] = _Target(instance, secret, Renewals(self._clock))
            self._add(target, EVERY * random.random())  # noqa: S311 - spreads load

    def suspend(self, instance: Instance) -> None:
        """Probe it no more while a run changes it."""
        with self._changed:
            target = self._targets.pop(instance, None)
            if target:
                self._suspended[instance] = target.secret
        if target and target.client:
            target.client.close()

    def resume(self, instance: Instance) -> None:
        """Probe it again, if it was probed before."""
        with self._changed:
            secret = self._suspended.pop(instance, "")
        if secret:
            self.follow(instance, secret)

    def forget(self, instance: Instance) -> None:
        """Probe it no more: it is gone."""
        self.suspend(instance)
        with self._changed:
            self._suspended.pop(instance, None)

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
                found, pause = target.finding, SELDOM
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
                return Finding(), SELDOM
            trouble = _trouble(target.client, target.renewals)
            target.heard = True
            if not trouble and self._clock() >= target.seldom_at:
                trouble = _webhook_trouble(target.client)
                members = _members(target.client)
                target.seldom_at = self._clock() + (AGAIN if trouble else SELDOM)
        except (ApiError, ProblemsError) as error:
            trouble = str(error) if target.heard else ""
            if target.client:
                # Its Secret may say something else by now.
                target.client.close()
                target.client = None
        if not target.heard:
            return Finding(), SELDOM
        if not trouble:
            target.failures = 0
            return Finding("", members), EVERY
        target.failures += 1
        if target.failures < FAILURES:
            return target.finding, AGAIN
        return Finding(shown(trouble), members), EVERY


def _trouble(control_plane: Cluster, renewals: Renewals) -> str:
    """Reason why the control plane does not answer fully; empty if it does."""
    control_plane.get_raw("/readyz")
    if trouble := not_listed(control_plane):
        return f"the aggregated API does not answer: {trouble}"
    return renewals.trouble(control_plane)


def _webhook_trouble(control_plane: Cluster) -> str:
    if control_plane.resource(*POLICY) is None:
        return ""
    trouble = not_judged(control_plane)
    return f"the admission webhook does not judge policies: {trouble}" if trouble else ""


def _members(control_plane: Cluster) -> tuple[Member, ...]:
    found = []
    for row in control_plane.table(CLUSTER_API, "Cluster"):
        name, ready = str(row["Name"]), row.get("Ready") == "True"
        # The table does not say why.
        lost = None if ready else control_plane.get(CLUSTER_API, "Cluster", name)
        reason = "ClusterReady" if ready else str(condition(lost or {}, "Ready").get("reason") or "Unknown")
        found.append(Member(name, ready, printable(reason, 100)))
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
