# SPDX-License-Identifier: Apache-2.0
"""A restore of what runs in pods: workloads are scaled, and members of etcd are reached through the host cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..api_object import Object
from ..backup import take
from ..backup.record import Purpose
from ..backup.targets import Target
from ..backup.verification import COUNTED
from ..components.table import ETCD, pod_components
from ..document.backups import Wanted
from ..etcd import access
from ..etcd import members as etcd_members
from ..etcd.client import EndpointStatus
from ..kube.progress import Progress
from ..kube.wait import wait_until
from ..labels import NAME_LABEL
from ..problems import Problem, ProblemsError, Reason
from ..render import workloads
from . import closed, delivery, held, partial
from .check import Asked, Chosen
from .means import FENCED, GOES_ON, LOOK_SECONDS, STAGES, Means
from .plan import Step


class InPods(Means):
    """Means of a control plane in pods, where nothing but the stages is left to the role."""

    tasks: ClassVar[Mapping[Step, str]] = {
        Step.START_SERVERS: STAGES,
        Step.START_ALL: STAGES,
        Step.FENCE: FENCED,
    }

    def running(self, components: frozenset[str]) -> frozenset[str]:
        """Components with pods."""
        return frozenset(map(_component, self._pods(components)))

    def back_up(self, series: Wanted, target: Target) -> str:
        """Back up what is there."""
        return take.backup(self.run, series, target, Purpose.REQUESTED).record.name

    def prepare(self, chosen: Chosen, keys: Sequence[Any]) -> None:
        """Make the data by a pod beside each member."""
        delivery.prepare(self.run, chosen, keys, self.timeout)
        self.run.go_on_with(self.run.state)

    def prepared(self) -> None:
        """Nothing to do: it is on record."""

    def forget(self) -> None:
        """Delete these pods."""
        delivery.forget(self.run)

    def stop(self, components: frozenset[str], step: Step) -> None:
        """Have no replicas of what is held."""
        wanted = [each.name for each in pod_components(self.run.spec, pushed=()) if each.name in components]
        self._apply(f"{self.run.operation}: {step}", wanted)

    def wait_until_stopped(self, components: frozenset[str]) -> None:
        """Return when none of their pods is left."""
        run = self.run
        began, progress = time.monotonic(), Progress(run.say, time.monotonic(), self.timeout)
        while left := [each["metadata"]["name"] for each in self._pods(components)]:
            if time.monotonic() - began > self.timeout:
                what = f"still there: {', '.join(left)} (after {self.timeout:.0f} s)"
                remedy = "see why they do not stop; if their node is lost, delete them by force; then run it again"
                raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.NOT_READY_IN_TIME), GOES_ON)
            progress.tell(f"{len(left)} pods are stopping", time.monotonic())
            time.sleep(LOOK_SECONDS)

    def configure_etcd(self) -> None:
        """Write their ConfigMap, and the number of pods."""
        self._apply("configure the members of etcd", [ETCD.name])

    def start_etcd(self) -> None:
        """Have all pods of etcd, and wait until they are ready."""
        run = self.run
        self._apply("start the members of etcd together", [ETCD.name])
        wait_until(run.host_cluster, [run.workload(ETCD.name)], timeout=self.timeout, progress=run.say)
        etcd_members.note(run)
        run.go_on_with(run.state)
        # One that has its vote names nobody but itself, should its data ever be gone. No pod is replaced for that.
        self.configure_etcd()

    def etcd_started(self) -> None:
        """Nothing to do."""

    def statuses(self) -> Sequence[EndpointStatus]:
        """Members as they answer here."""
        return access.connect(self.run).status()

    def hashes(self, statuses: Sequence[EndpointStatus], revision: int) -> Sequence[Hash]:
        """Hash of each, asked now."""
        client = access.connect(self.run)
        return [client.at(each.url).hash_at(revision) for each in statuses]

    def counts(self) -> Mapping[str, int]:
        """Numbers of keys, asked now."""
        client = access.connect(self.run)
        return {kind: client.count_below(prefix) for kind, prefix in COUNTED.items()}

    def write_authorities(self) -> None:
        """Write the Secrets with authorities."""
        run = self.run
        components = pod_components(run.spec, pushed=())
        made = run.apply_to_host_cluster(
            "restore: client authorities",
            lambda: workloads.file_set_secrets(run.instance, run.layout, run.material, components),
        )
        self.changes += [each for each in made if each.action != "unchanged"]

    def accepting_agents(self) -> list[str]:
        """Pods of API servers that accept them."""
        return closed.accepting_agents(self.run)

    def admitting(self, clusters: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Pods of API servers, asked now."""
        return partial.admitting(self.run, clusters)

    def settle(self, parts: held.Parts, asked: Asked) -> partial.Settled:
        """All of it."""
        return partial.settle(self.run, parts, self.timeout, asked.kept, asked.let_go)

    def settled(self, parts: held.Parts, *, last: bool) -> partial.Settled | None:
        """Nothing to do."""
        del parts, last
        return partial.Settled()

    def _apply(self, step: str, components: list[str]) -> None:
        made = self.run.apply_to_host_cluster(step, lambda: self.run.workloads(components))
        self.changes += [each for each in made if each.action != "unchanged"]

    def _pods(self, components: frozenset[str]) -> list[Object]:
        """Pods of these components that have not come to their end, those that are stopping included."""
        return [each for each in self.run.place.pods() if _component(each) in components and not closed.has_ended(each)]


def _component(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(NAME_LABEL, ""))
