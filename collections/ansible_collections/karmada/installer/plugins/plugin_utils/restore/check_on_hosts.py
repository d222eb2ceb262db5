# SPDX-License-Identifier: Apache-2.0
"""Reasons why members of etcd on plain hosts cannot take new data beside the old. Reads only what hosts have told."""

from __future__ import annotations

from collections.abc import Iterator

from ..components import hosts as component_hosts
from ..etcd import on_hosts as etcd_on_hosts
from ..etcd.client import EndpointStatus
from ..problems import Problem
from ..render import units
from ..run.run import Run
from .impossible import impossible
from .new_data import COPIES, members


def problems(run: Run, size: int, there: int) -> Iterator[Problem]:
    """Reasons, for a snapshot of ``size`` bytes.

    The size of the data that is there, ``there``, is not used: hosts tell how much of a disk is free.
    """
    del there
    yield from in_trouble(run)
    yield from _members(run)
    yield from _room(run, size)


def in_trouble(run: Run) -> list[Problem]:
    """Hosts that cannot be looked at: something that nobody has stopped may run there."""
    found = (run.place.trouble_of(name) for name, host in run.hosts.items() if not host.is_of_members)
    return [problem for problem in found if problem]


def _members(run: Run) -> Iterator[Problem]:
    """Members that are to come or to go, which a restore would do on the way."""
    wanted = {host.name for host in component_hosts.hosts_of(run.spec, component_hosts.ETCD_ROLE)}
    if set(members(run.state)) != wanted:
        what = (
            f"its members of etcd are {', '.join(members(run.state))}, and by the document {', '.join(sorted(wanted))}"
        )
        yield impossible(what, "spec.hosts", "name the hosts that have members now; change them after the restore")
    if run.leaving:
        what = f"{', '.join(run.leaving)} left the document, and may run something of it still"
        yield impossible(what, "spec.hosts", "run karmada.installer.install first, or name them again")


def _room(run: Run, size: int) -> Iterator[Problem]:
    # It lies there, too, until the data is made of it.
    needed = int(size * (COPIES + 1))
    for name in members(run.state):
        facts = run.observed[name].facts if name in run.observed else None
        free = facts.free.get(units.DATA) if facts else None
        if free is not None and free < needed:
            what = (
                f"{free >> 20} MiB are free below {units.DATA}, and {needed >> 20} MiB are needed beside what is there"
            )
            remedy = "free space there"
            if run.state.restore and run.state.restore.is_over and run.state.restore.aside:
                remedy += ": karmada.installer.restore_cleanup removes old data of etcd"
            yield impossible(what, f"host {name}", remedy)


def statuses(run: Run) -> list[EndpointStatus]:
    """Members on record as they have answered on their hosts."""
    return list(statuses_by_name(run).values())


def statuses_by_name(run: Run) -> dict[str, EndpointStatus]:
    """Members on record as they have answered on their hosts, by name."""
    known = [name for name in members(run.state) if name in run.hosts]
    return {name: etcd_on_hosts.answer(run, run.hosts[name]).status for name in known}


def data_there(run: Run) -> Iterator[Problem]:
    """Nothing: preflight looks at the folders of hosts."""
    del run
    yield from ()
