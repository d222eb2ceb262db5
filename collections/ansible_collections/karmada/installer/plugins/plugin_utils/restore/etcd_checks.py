# SPDX-License-Identifier: Apache-2.0
"""Checks of members of etcd that are to take new data, by where these run: in pods or on plain hosts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..components.table import ETCD
from ..etcd.client import EndpointStatus
from ..problems import Problem
from ..run.run import Run
from . import check_in_pods, check_on_hosts


class EtcdChecks(Protocol):
    """Checks of members in pods, or of those on hosts. They read only."""

    def problems(self, run: Run, size: int, there: int) -> Iterator[Problem]:
        """Reasons why members cannot take a snapshot of ``size`` bytes beside the ``there`` bytes that they have."""

    def statuses(self, run: Run) -> Sequence[EndpointStatus]:
        """Members as they answer."""

    def statuses_by_name(self, run: Run) -> Mapping[str, EndpointStatus]:
        """Members on record as they answer, by name. Not for an external etcd, whose members have no names here."""

    def data_there(self, run: Run) -> Iterator[Problem]:
        """Data with which an etcd that is still to be made would begin, or a place where it would not last."""


def of_members(run: Run) -> EtcdChecks:
    """Checks for the members of this run, wherever their clients run."""
    return check_on_hosts if ETCD.is_on_hosts(run.spec) else check_in_pods
