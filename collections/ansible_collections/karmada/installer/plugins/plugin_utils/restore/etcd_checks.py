# SPDX-License-Identifier: Apache-2.0
"""Checks of members of etcd that are to take new data, for the place of a run: in pods or on plain hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..etcd.client import EndpointStatus
from ..problems import Problem
from ..run.run import Run
from . import check_in_pods, check_on_hosts


class EtcdChecks(Protocol):
    """Checks of one kind of place. They read only."""

    def problems(self, run: Run, size: int, there: int) -> Iterator[Problem]:
        """Reasons why members cannot take a snapshot of ``size`` bytes beside the ``there`` bytes that they have."""

    def statuses(self, run: Run) -> Sequence[EndpointStatus]:
        """Members as they answer."""

    def statuses_by_name(self, run: Run) -> Mapping[str, EndpointStatus]:
        """Members on record as they answer, by name. Not for an external etcd, whose members have no names here."""

    def data_there(self, run: Run) -> Iterator[Problem]:
        """Data with which an etcd that is still to be made would begin, or a place where it would not last."""


def of_place(run: Run) -> EtcdChecks:
    """Checks for the place of this run."""
    return check_in_pods if run.place.in_pods else check_on_hosts
