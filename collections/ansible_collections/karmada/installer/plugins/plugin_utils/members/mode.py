# SPDX-License-Identifier: Apache-2.0
"""A member that changes between push and pull, and stays registered and in use meanwhile. No I/O.

At most one component works on the member at a time: it ends before the mode of the Cluster changes, or before the next
begins. In between, its Works wait, and the workloads keep running.

==========  ============================================================================================
Push, Pull  the Cluster changes; karmada-controller-manager starts again, which ends its watches; the agent comes
Pull, Push  the agent ends and loses its rights; the Cluster changes; karmada-controller-manager starts again, which
            makes it look at everything that is propagated to the member
==========  ============================================================================================

From before the first of these steps until after the last, the record of the member has its former mode.
"""

from __future__ import annotations

from dataclasses import replace

from ..api_object import Object
from ..components.spec import MemberEntry
from ..components.state import FORMER_MODE, State
from . import registration


def of_cluster(live: Object | None) -> str:
    """Mode of a member in the control plane, by its Cluster; empty if there is none."""
    return str(((live or {}).get("spec") or {}).get("syncMode", ""))


def changes(entry: MemberEntry, live: Object | None) -> bool:
    """Return whether a registered member is listed in the other mode."""
    return of_cluster(live) not in ("", entry.mode)


def begun(state: State, entry: MemberEntry, live: Object | None) -> State:
    """State that records a change of mode which the Cluster shows; somebody else may have set that mode."""
    if not changes(entry, live):
        return state
    name = entry.name
    record = {**state.members[name], FORMER_MODE: of_cluster(live)}
    return replace(state, members={**state.members, name: record})


def waits_for_agent(entry: MemberEntry, state: State) -> bool:
    """Return whether a member that was in mode Push gets its agent once karmada-controller-manager has let go of it."""
    return entry.pulls and state.member(entry.name).former_mode == registration.PUSH


def was_pushed(entry: MemberEntry, state: State, live: Object | None) -> bool:
    """Return whether karmada-controller-manager may still work on this member, which is in mode Pull from now on."""
    return waits_for_agent(entry, state) or of_cluster(live) == registration.PUSH


def had_agent(entry: MemberEntry, state: State, live: Object | None) -> bool:
    """Return whether a member in mode Push may have an agent left from mode Pull."""
    known = state.member(entry.name)
    return not entry.pulls and (of_cluster(live) == registration.PULL or registration.may_have_agent(known))
