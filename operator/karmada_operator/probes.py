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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import condition
from ansible_collections.karmada.installer.plugins.plugin_utils.components import table
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import SYSTEM_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.probes import (
    not_accepted,
    not_listed,
    not_refused,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import files_of
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError, NotFound
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.redaction import printable

from .executor import told as shown
from .health import Instance
from .renewals import CONTROLLERS, Renewals, place_of

#: Seconds between two probes of one control plane; between two looks at its members and at what rarely changes, which
#: are dearer; after a probe that leaves a doubt.
EVERY, SELDOM, AGAIN = 10.0, 60.0, 2.0
#: Seconds that one request may take. None is repeated: the next probe does that.
PATIENCE = 5.0
#: Probes in a row that have to fail before it is told.
FAILURES = 2
#: Probes in a row of one that has never answered from here before it is left to runs.
FEW_ATTEMPTS = 3
WORKERS = 4
#: Of these, at most so many probe what failed in the probe before, and what has been silent for longer: that takes all
#: of a request's time, and those that answer must not wait for it.
IN_DOUBT, SILENT = WORKERS - 1, WORKERS // 2
CLUSTER_API = "cluster.karmada.io/v1alpha1"
POLICY = ("policy.karmada.io/v1alpha1", "PropagationPolicy")
#: Servers of aggregated APIs beside that of Clusters, if the document names them.
FURTHER_SERVERS = frozenset(table.AGGREGATED_SERVERS) - {table.KARMADA_AGGREGATED_APISERVER.name}
LEASE = ("coordination.k8s.io/v1", "Lease")
#: Leases that are read by one request; where there are more, as of members in mode Pull, each is read alone.
FEW = 24
_LOG = logging.getLogger(__name__)


class Member(NamedTuple):
    """State of a member as its control plane sees it."""

    name: str
    ready: bool
    reason: str


@dataclass(frozen=True)
class Finding:
    """Result of a probe. ``trouble`` is empty if all answers; ``members`` is None until they have been listed.

    ``suspicion`` is a sign that something does not run that nothing here can see; another sign is another text.
    """

    trouble: str = ""
    members: tuple[Member, ...] | None = None
    suspicion: str = ""


@dataclass
class _Target:
    instance: Instance
    secret: str
    renewals: Renewals
    several: frozenset[str] = frozenset()
    unknown: bool = False
    client: Cluster | None = None
    finding: Finding = field(default_factory=Finding)
    failures: int = 0
    #: Failures when a worker took it; None while nobody probes it.
    taken: int | None = None
    seldom_at: float = 0.0
    #: Whether it has ever answered from here.
    heard: bool = False
    #: Whether it has policies for the webhook to judge, and more Leases than one request reads.
    judges: bool = False
    many: bool = False
    #: Further servers of aggregated APIs, each with a path that it answers.
    aggregated: Sequence[tuple[str, str]] = ()


Open = Callable[[Instance, str], Cluster | None]


class Probes:
    """Threads that probe control planes in turn."""

    def __init__(self, opened: Open, clock: Callable[[], float] = time.monotonic) -> None:
        self._open, self._clock = opened, clock
        self._changed = threading.Condition()
        self._targets: dict[Instance, _Target] = {}
        self._suspended: dict[Instance, tuple[str, frozenset[str]]] = {}
        #: (moment, tie-breaker, target); a target that is not followed any more is dropped when it is due.
        self._due: list[tuple[float, float, _Target]] = []
        #: What is due, and waits for another one that does not answer either.
        self._aside: list[tuple[float, float, _Target]] = []
        self._under_way: list[_Target] = []
        self._over = False
        self._listener: Callable[[Instance], None] = lambda _instance: None
        self.threads = [threading.Thread(target=self._work, name="probe", daemon=True) for _ in range(WORKERS)]

    def start(self) -> None:
        """Begin."""
        for each in self.threads:
            each.start()

    def stop(self) -> None:
        """End; requests under way end by themselves."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def listen(self, listener: Callable[[Instance], None]) -> None:
        """Have each changed finding told, as the instance that it is about."""
        self._listener = listener

    def follow(
        self, instance: Instance, secret: str, several: frozenset[str] = frozenset(), *, unknown: bool = False
    ) -> None:
        """Probe an instance from now on; ``secret`` is the name of the Secret with its kubeconfig.

        ``several`` are components of which more than one process runs, so that another one may take over. Of one that
        is ``unknown`` no members are told before its controllers were seen at work: somebody may have told that they
        are not.
        """
        with self._changed:
            self._suspended.pop(instance, None)
            renewals = Renewals(self._clock, several)
            target = self._targets[instance] = _Target(instance, secret, renewals, several, unknown)
            self._add(target, EVERY * random.random())  # noqa: S311 - spreads load

    def begin(self, instance: Instance, secret: str, several: frozenset[str]) -> None:
        """Probe an instance that is not known yet."""
        with self._changed:
            known = instance in self._targets or instance in self._suspended
        if not known:
            self.follow(instance, secret, several, unknown=True)

    def suspend(self, instance: Instance) -> None:
        """Probe it no more while a run changes it."""
        with self._changed:
            target = self._targets.pop(instance, None)
            if target:
                self._suspended[instance] = (target.secret, target.several)
        if target and target.client:
            target.client.close()

    def resume(self, instance: Instance) -> None:
        """Probe it again, if it was probed before."""
        with self._changed:
            before = self._suspended.pop(instance, None)
        if before:
            self.follow(instance, *before)

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
                    entry = heapq.heappop(self._due)
                    target = entry[2]
                    if self._targets.get(target.instance) is not target:
                        continue
                    if not self._room_for(target):
                        self._aside.append(entry)
                        continue
                    target.taken = target.failures
                    self._under_way.append(target)
                    return target
                self._changed.wait(min(self._due[0][0] - self._clock() if self._due else EVERY, EVERY))
        return None

    def _room_for(self, target: _Target) -> bool:
        """Return whether a worker may take a target now; the guard is held."""
        doubtful = [each.taken for each in self._under_way if each.taken]
        silent = sum(failures >= FAILURES for failures in doubtful)
        if target.failures >= FAILURES:
            return len(doubtful) < IN_DOUBT and silent < SILENT
        return not target.failures or len(doubtful) < IN_DOUBT

    def _left(self, target: _Target) -> None:
        """Give up the place of a target that was taken; the guard is held."""
        target.taken = None
        self._under_way = [each for each in self._under_way if each is not target]
        for each in self._aside:
            heapq.heappush(self._due, each)
        self._aside.clear()
        self._changed.notify_all()

    def _work(self) -> None:
        while (target := self._take()) is not None:
            self._probe(target)

    def _probe(self, target: _Target) -> None:
        """Probe a target that was taken, say when it is due again, and tell what is new."""
        try:
            found, pause = self._probed(target)
        except Exception:  # noqa: BLE001 - see below
            # One control plane whose answer we cannot read must not keep the others from being looked at.
            _LOG.exception("a probe failed", extra={"object": str(target.instance)})
            found, pause = target.finding, SELDOM
        with self._changed:
            self._left(target)
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
        """New finding about a target, and seconds until the next probe.

        A controller that is late has been so for several probes; what does not answer once may do so again.
        """
        members, answers, late, soon = target.finding.members, [], "", False
        try:
            if target.client is None:
                target.client = self._open(target.instance, target.secret)
            if target.client is None:
                return Finding(), SELDOM
            late, soon = target.renewals.judge(_leases(target.client, target))
            target.heard = True
            if self._clock() >= target.seldom_at:
                _look_closer(target.client, target)
                answers = _troubles(target.client, target, _misjudged, self._clock)
                if not answers and (late or target.renewals.settled or not target.unknown):
                    members = _members(target.client)
                    target.seldom_at = self._clock() + SELDOM
            else:
                answers = _troubles(target.client, target, not_refused, self._clock)
        except (ApiError, ProblemsError) as error:
            answers.append(str(error))
            if target.client:
                # Its Secret may say something else by now.
                target.client.close()
                target.client = None
        target.failures = target.failures + 1 if answers else 0
        if not target.heard:
            return Finding(), EVERY if target.failures < FEW_ATTEMPTS else SELDOM
        doubtful = 0 < target.failures < FAILURES
        if doubtful and not late:
            return target.finding, AGAIN
        told = shown("; ".join(filter(None, (late, *(() if doubtful else answers)))))
        return Finding(told, members, target.renewals.suspicion), AGAIN if doubtful or soon else EVERY


def _leases(control_plane: Cluster, target: _Target) -> Mapping[str, Mapping[str, Any]]:
    """Spec of each Lease of a controller that is there, by its name."""
    if not target.many:
        found = control_plane.some(*LEASE, FEW)
        target.many = len(found) >= FEW
        if not target.many:
            there = {(each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in found}
            return {name: there[key].get("spec") or {} for name in CONTROLLERS if (key := place_of(name)) in there}
    gotten = {name: control_plane.get(*LEASE, name, place_of(name)[0]) for name in CONTROLLERS}
    return {name: each.get("spec") or {} for name, each in gotten.items() if each is not None}


def _troubles(
    control_plane: Cluster,
    target: _Target,
    judged: Callable[[Cluster], str | None],
    clock: Callable[[], float],
) -> list[str]:
    """Reasons why parts of the control plane do not answer; empty if all do."""
    checks: list[tuple[str, Callable[[], str | None]]] = [
        ("the aggregated API does not answer", lambda: not_listed(control_plane)),
        *((f"{server} does not answer", partial(_silence, control_plane, path)) for server, path in target.aggregated),
    ]
    if target.judges:
        checks.append(("the admission webhook does not judge policies", lambda: judged(control_plane)))
    found, enough = [], clock() + PATIENCE
    for what, check in checks:
        if trouble := check():
            found.append(f"{what}: {trouble}")
            if clock() >= enough:
                # Where the API server itself waits for something, each further request would wait, too.
                break
    return found


def _misjudged(control_plane: Cluster) -> str | None:
    """Reason why the webhook does not judge policies, in the words of ``not_refused`` if that is it."""
    return not_refused(control_plane) or not_accepted(control_plane)


def _silence(control_plane: Cluster, path: str) -> str | None:
    """Reason why an API does not answer; None if it does, or if it was taken away since it was looked for."""
    try:
        control_plane.get_raw(path)
    except NotFound:
        return None
    except ApiError as error:
        return str(error)
    return None


def _look_closer(control_plane: Cluster, target: _Target) -> None:
    """See what is there to be probed. Raises ApiError, for an API server that is not ready, too."""
    control_plane.get_raw("/readyz")
    target.judges = control_plane.resource(*POLICY) is not None
    found = {}
    for row in control_plane.table("apiregistration.k8s.io/v1", "APIService"):
        version, _, group = str(row["Name"]).partition(".")
        namespace, _, server = str(row["Service"]).partition("/")
        if namespace == SYSTEM_NAMESPACE and server in FURTHER_SERVERS:
            found[server] = f"/apis/{group}/{version}"
    target.aggregated = sorted(found.items())


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
        return Cluster(access, "control plane").with_patience(retry_seconds=0, read_seconds=PATIENCE)

    return opened
