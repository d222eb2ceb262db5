# SPDX-License-Identifier: Apache-2.0
"""Means of a restore, which differ by where components run; all else of its steps is in ``carry_out``.

A step has a begin and an end. Where tasks of the role do its work (``tasks``), a caller takes these in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..backup.targets import Target
from ..document.backups import Wanted
from ..etcd.client import EndpointStatus
from ..kube.apply import Change
from ..run.run import Run
from . import held
from .check import Asked, Chosen
from .partial import Settled
from .plan import STOPS, Step

#: Tasks of the role: the stages of the role control_plane.
STAGES = "stages"
#: Tasks of the role: members are joined anew, which raises the mark on them.
FENCED = "fenced"
#: What a step that fails says of those before it.
GOES_ON = "what was done before stays, and the next run goes on from there"
#: Seconds between two looks at what is waited for.
LOOK_SECONDS = 0.5


@contextmanager
def writing(run: Run, step: str) -> Iterator[None]:
    """Write, with the lock and this step in the journal. What hosts keep of it a later step brings to them."""
    with run.writing(step):
        if run.store.later:
            # They were locked by the first step of the run, and nobody has noted this one.
            run.save(run.journaled(step))
            run.go_on_with(run.state)
        yield


class Means(ABC):
    """Means of one run. ``changes`` gets what they have changed; ``timeout`` is in seconds, for each step."""

    #: Step → tasks of the role that do its work.
    tasks: ClassVar[Mapping[Step, str]]

    #: Step of a restore → components that it stops. A hand-over always needs etcd after the API servers have stopped.
    stops: ClassVar[Mapping[Step, frozenset[str]]] = STOPS

    #: False where members of etcd are looked at on their hosts, so that what they have told does not change by asking
    #: once more within a step. Then one look is enough for all steps up to the next one with tasks, too, because those
    #: before it change nothing on hosts.
    asks_again: ClassVar[bool] = True
    #: False where API servers are looked at like that, too.
    asks_servers_again: ClassVar[bool] = True

    def __init__(self, run: Run, timeout: float, changes: list[Change]) -> None:
        self.run, self.timeout, self.changes = run, timeout, changes

    def writing(self, step: str) -> AbstractContextManager[None]:
        """Write, with the lock and this step in the journal."""
        return writing(self.run, step)

    @abstractmethod
    def running(self, components: frozenset[str]) -> frozenset[str]:
        """Components, of these, that run or are stopping."""

    @abstractmethod
    def back_up(self, series: Wanted, target: Target) -> str:
        """Back up what is there, and return its name; empty if tasks of the role do that. Raises ProblemsError."""

    @abstractmethod
    def prepare(self, chosen: Chosen, keys: Sequence[Any]) -> None:
        """Make the new data of every member, and put on record that it is there. Raises ProblemsError."""

    @abstractmethod
    def prepared(self) -> None:
        """See that it is there, and put that on record, if ``prepare`` does not. Raises ProblemsError."""

    @abstractmethod
    def forget(self) -> None:
        """Take away what makes new data; what it has made stays."""

    @abstractmethod
    def stop(self, components: frozenset[str], step: Step) -> None:
        """Have what is held stop."""

    @abstractmethod
    def wait_until_stopped(self, components: frozenset[str]) -> None:
        """Return when none of these is left. Raises ProblemsError."""

    @abstractmethod
    def configure_etcd(self) -> None:
        """Write the configuration of members of etcd, by the state."""

    @abstractmethod
    def start_etcd(self) -> None:
        """Start all members of etcd together, and put on record who they are."""

    @abstractmethod
    def etcd_started(self) -> None:
        """Put on record who they are, if ``start_etcd`` does not."""

    @abstractmethod
    def statuses(self) -> Sequence[EndpointStatus]:
        """Members of etcd as they answer."""

    @abstractmethod
    def hashes(self, statuses: Sequence[EndpointStatus], revision: int) -> Sequence[Hash]:
        """Hash of the content of each member at a revision. Raises EtcdError."""

    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Numbers of keys in etcd, by kind. Raises EtcdError."""

    @abstractmethod
    def write_authorities(self) -> None:
        """Write whose certificates API servers accept, before those start that read it: agents' too, or not."""

    @abstractmethod
    def accepting_agents(self) -> list[str]:
        """API servers that accept certificates of agents, each asked by itself. Raises ApiError if one is silent."""

    @abstractmethod
    def admitting(self, clusters: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Pairs of an API server and a cluster whose Works it would take although they are not suspended.

        Each API server is asked by itself. Raises ApiError if one is silent.
        """

    @abstractmethod
    def settle(self, parts: held.Parts, asked: Asked) -> Settled:
        """Hold what these parts leave, and let go the rest, if tasks of the role do not have that done.

        Raises ProblemsError.
        """

    @abstractmethod
    def settled(self, parts: held.Parts, *, last: bool) -> Settled | None:
        """Do what is left of that after these tasks; None if hosts are to be looked at again before.

        Raises ProblemsError, also instead of that if this is the ``last`` attempt.
        """
