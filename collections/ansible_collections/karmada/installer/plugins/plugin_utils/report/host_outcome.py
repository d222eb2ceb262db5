# SPDX-License-Identifier: Apache-2.0
"""What a run on plain hosts that did not come to its end has left on each of them, in words. No I/O.

``observed`` is host name → what the steps noted (see ``host_action``):

* ``done``: the last task that has changed something there, or found it right
* ``stopped``: the task that the host itself could not carry out
* ``lost``: ``{step, reason}`` of the task in which the host was lost
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..components.hosts import Host
from ..problems import Problem
from ..run import host_access


class Reached(Enum):
    """How far a run came, and what follows from it for who reads of it."""

    NO_CHANGE = "nothing was changed"
    PART = "a part was changed; run again when every host answers, it goes on from there"
    END = "all of it was changed as the document says, and is not noted everywhere; run again when every host answers"


def problems(
    hosts: Mapping[str, Host], observed: Mapping[str, Mapping[str, Any]], reached: Reached, user: str = ""
) -> list[Problem]:
    """How far each host has come; none if the run came to its end, or if what kept it from beginning was told."""
    lost = {name for name, each in observed.items() if each.get("lost") and not each.get("refusal")}
    told = hosts if reached is Reached.PART else lost
    return [_of(host, observed.get(name) or {}, user) for name, host in hosts.items() if name in told]


def _of(host: Host, observed: Mapping[str, Any], user: str) -> Problem:
    where = f"host {host.name} ({host.address})"
    done, stopped, lost = (observed.get(key) for key in ("done", "stopped", "lost"))
    so_far = f'done up to "{done}"' if done else "nothing was changed there"
    if lost:
        why = host_access.problem(lost["reason"], host=host.name, address=host.address, user=user)
        return Problem(
            f'{so_far}; it was lost in "{lost["step"]}", and what of that is done is not known: {why.what}',
            where,
            why.remedy,
        )
    if stopped:
        return Problem(f'{so_far}; it failed in "{stopped}"', where, "see the error of that step")
    return Problem(so_far, where, "")
