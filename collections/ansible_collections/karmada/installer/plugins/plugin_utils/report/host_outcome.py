# SPDX-License-Identifier: Apache-2.0
"""Outcome of an unfinished run on each plain host, in words. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..components.hosts import Host
from ..problems import Problem, Reason
from ..run import host_access
from ..run.host_observation import HostObservation


class Reached(Enum):
    """Progress of a run as a whole, with its consequence for the reader."""

    NO_CHANGE = "nothing was changed"
    PART = "a part was changed; run again when every host answers, it goes on from there"
    END = "all of it was changed as the document says, and is not noted everywhere; run again when every host answers"


def problems(
    hosts: Mapping[str, Host], observed: Mapping[str, HostObservation], reached: Reached, user: str = ""
) -> list[Problem]:
    """Progress of each host; none if the run finished, or if it did not begin and the reason was reported."""
    lost = {name for name, each in observed.items() if each.lost and not each.refusal}
    told = hosts if reached is Reached.PART else lost
    return [_of(host, observed[name], user) for name, host in hosts.items() if name in told]


def _of(host: Host, observed: HostObservation, user: str) -> Problem:
    where = f"host {host.name} ({host.address})"
    so_far = f'done up to "{observed.done}"' if observed.done else "nothing was changed there"
    if lost := observed.lost:
        why = host_access.problem(lost.reason, host=host.name, address=host.address, user=user)
        when = (
            "at the end of that"
            if lost.step == observed.done
            else f'in "{lost.step}", and what of that is done is not known'
        )
        return Problem(f"{so_far}; it was lost {when}: {why.what}", where, why.remedy, reason=Reason.HOST_STEP_FAILED)
    if observed.stopped:
        text = f'{so_far}; it failed in "{observed.stopped}"'
        return Problem(text, where, "see the error of that step", reason=Reason.HOST_STEP_FAILED)
    return Problem(so_far, where, "", reason=Reason.HOST_STEP_FAILED)
