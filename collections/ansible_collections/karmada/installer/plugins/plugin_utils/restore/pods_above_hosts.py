# SPDX-License-Identifier: Apache-2.0
"""A restore of what runs in pods, with members of etcd as units of plain hosts beneath them.

Each side has the means that it has elsewhere: the pods those of ``InPods``, and the members those of ``OnHosts``. Only
their order is said here: pods have stopped before tasks of the role stop members, in one step where one stops both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..backup.targets import Target
from ..components.table import ETCD
from ..document.backups import Wanted
from ..etcd.client import EndpointStatus
from ..kube.apply import Change
from ..run.run import Run
from . import held, on_hosts, partial
from .check import Asked, Chosen
from .in_pods import InPods
from .means import STAGES, Means
from .on_hosts import OnHosts
from .plan import Step


class PodsAboveHosts(Means):
    """Means of a control plane in pods whose etcd is on plain hosts. The state is in the host cluster."""

    tasks: ClassVar[Mapping[Step, str]] = {
        Step.BACK_UP: on_hosts.BACKED_UP,
        Step.PREPARE: on_hosts.PREPARED,
        Step.STOP_ETCD: on_hosts.STOPPED,
        Step.START_ETCD: on_hosts.ETCD_RESTORED,
        Step.PROVE: on_hosts.COUNTS,
        Step.START_SERVERS: STAGES,
        Step.START_ALL: STAGES,
        Step.BACK_UP_AGAIN: on_hosts.BACKED_UP,
        Step.STOP_ALL: on_hosts.STOPPED,
        Step.START_FORMER: on_hosts.ETCD_STARTED,
    }
    #: Members are looked at on their hosts, and pods now.
    asks_again: ClassVar[bool] = False

    def __init__(self, run: Run, timeout: float, changes: list[Change]) -> None:
        super().__init__(run, timeout, changes)
        self._pods, self._members = InPods(run, timeout, changes), OnHosts(run, timeout, changes)

    def running(self, components: frozenset[str]) -> frozenset[str]:
        """Components with pods now, and etcd if a member ran when its host was looked at. Raises ProblemsError if one
        could not be.
        """
        return self._members.running(components) | self._pods.running(components)

    def back_up(self, series: Wanted, target: Target) -> str:
        """Leave it to the role, if a member can be asked. Raises ProblemsError."""
        return self._members.back_up(series, target)

    def prepare(self, chosen: Chosen, keys: Sequence[Any]) -> None:
        """Begin anew with the next generation where a host has something in the folder of this one."""
        self._members.prepare(chosen, keys)

    def prepared(self) -> None:
        """Put on record that the data is there, once every host has told so. Raises ProblemsError."""
        self._members.prepared()

    def forget(self) -> None:
        """Nothing to do: no pod makes new data, and hosts are cleared by who locks them."""

    def stop(self, components: frozenset[str], step: Step) -> None:
        """Have no replicas of what is held, and no pod left where members are to stop, too. Raises ProblemsError.

        An API server whose etcd stops first takes a minute to give up.
        """
        self._pods.stop(components, step)
        if ETCD.name in components:
            self._pods.wait_until_stopped(components)

    def wait_until_stopped(self, components: frozenset[str]) -> None:
        """Return when no pod of these is left; members were waited for on their hosts. Raises ProblemsError."""
        self._pods.wait_until_stopped(components)
        self._members.wait_until_stopped(components)

    def configure_etcd(self) -> None:
        """Leave it to the start: the file of a member is written before its unit starts."""

    def start_etcd(self) -> None:
        """Leave it to the role."""

    def etcd_started(self) -> None:
        """Put on record who the members are, as they have answered on their hosts."""
        self._members.etcd_started()

    def statuses(self) -> Sequence[EndpointStatus]:
        """Members as they have answered on their hosts."""
        return self._members.statuses()

    def hashes(self, statuses: Sequence[EndpointStatus], revision: int) -> Sequence[Hash]:
        """Hash of each as it has answered on its host."""
        return self._members.hashes(statuses, revision)

    def counts(self) -> Mapping[str, int]:
        """Numbers of keys as a member has counted them."""
        return self._members.counts()

    def write_authorities(self) -> None:
        """Write the Secrets with authorities."""
        self._pods.write_authorities()

    def accepting_agents(self) -> list[str]:
        """Pods of API servers that accept them."""
        return self._pods.accepting_agents()

    def admitting(self, clusters: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Pods of API servers, asked now."""
        return self._pods.admitting(clusters)

    def settle(self, parts: held.Parts, asked: Asked) -> partial.Settled:
        """All of it."""
        return self._pods.settle(parts, asked)

    def settled(self, parts: held.Parts, *, last: bool) -> partial.Settled | None:
        """Nothing to do."""
        return self._pods.settled(parts, last=last)
