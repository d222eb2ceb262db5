# SPDX-License-Identifier: Apache-2.0
"""A member that changes between push and pull, and stays registered and at work meanwhile. No I/O.

At no moment two work on the member: who does so ends before the mode of the Cluster changes, or before the next begins.
Until then its Works wait, and what they stand for goes on running.

==========  ============================================================================================
Push, Pull  the Cluster changes; karmada-controller-manager starts again, which ends its watches; the agent comes
Pull, Push  the agent ends and loses its rights; the Cluster changes; karmada-controller-manager starts again, which
            makes it look at everything that is propagated to the member
==========  ============================================================================================

The record of the member says from before the first of these steps until after the last which mode it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..api_object import Object
from ..components.state import FORMER_MODE, State
from ..components.types import pulls
from . import registration


def of_cluster(live: Object | None) -> str:
    """The mode that the control plane has a member in, by its Cluster; empty if there is none."""
    return str(((live or {}).get("spec") or {}).get("syncMode", ""))


def changes(entry: Mapping[str, Any], live: Object | None) -> bool:
    """Whether a member that is registered is listed in the other mode."""
    return of_cluster(live) not in ("", entry["mode"])


def begun(state: State, entry: Mapping[str, Any], live: Object | None) -> State:
    """The state with a change that the Cluster shows on record, whatever the record says: somebody may have set it."""
    if not changes(entry, live):
        return state
    name = entry["name"]
    record = {**state.members[name], FORMER_MODE: of_cluster(live)}
    return replace(state, members={**state.members, name: record})


def waits_for_agent(entry: Mapping[str, Any], state: State) -> bool:
    """Whether a member that was in mode Push gets its agent when karmada-controller-manager has let go of it."""
    return pulls(entry) and state.members.get(entry["name"], {}).get(FORMER_MODE) == registration.PUSH


def was_pushed(entry: Mapping[str, Any], state: State, live: Object | None) -> bool:
    """Whether karmada-controller-manager may be at work on this member yet, which is in mode Pull from now on."""
    return waits_for_agent(entry, state) or of_cluster(live) == registration.PUSH


def had_agent(entry: Mapping[str, Any], state: State, live: Object | None) -> bool:
    """Whether a member in mode Push may have an agent left from when it was in mode Pull."""
    known = state.members.get(entry["name"])
    return not pulls(entry) and (of_cluster(live) == registration.PULL or registration.may_have_agent(known))
