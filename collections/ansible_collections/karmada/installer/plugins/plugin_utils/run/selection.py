# SPDX-License-Identifier: Apache-2.0
"""Selection of the members that a run works on: all, unless ``--limit`` or ``karmada_members`` names some.

The control plane serves all members alike, and so do their components on plain hosts; only joining, changing and
leaving are restricted to the selection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..components.spec import MemberEntry
from ..problems import Problem, Reason
from .inventory_names import MEMBERS

if TYPE_CHECKING:
    from .run import Run

#: Number of existing names that a message lists.
SHOWN = 20


def of_variables(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the selected members, sorted; empty means all. ``variables`` are those of a task.

    ``karmada_members`` is a list, or a string with commas. It takes precedence over ``--limit``, which counts if it
    leaves members in the play; the other hosts in it do not matter.
    """
    named = variables.get("karmada_members") or ()
    if isinstance(named, str):
        named = named.split(",")
    names = {str(name).strip() for name in named} - {""}
    if not names and variables.get("ansible_limit"):
        members = set((variables.get("groups") or {}).get(MEMBERS, ()))
        hosts = [name for name in variables.get("ansible_play_hosts_all") or () if name in members]
        names = {str(variables["hostvars"][name]["karmada_member_name"]) for name in hosts}
    return tuple(sorted(names))


def holds(run: Run, name: str) -> bool:
    """Return whether this run works on this member."""
    return not run.selected or name in run.selected


def entries(run: Run) -> list[MemberEntry]:
    """Members of the document that this run works on."""
    return [entry for entry in run.spec.members if holds(run, entry.name)]


def problems(run: Run, registered: Callable[[], Collection[str]]) -> Iterable[Problem]:
    """Selected names that no member has. ``registered`` returns the names of the clusters in the control plane.

    A member that is no longer listed may be selected: it leaves. Clusters of others, which a limit to all members
    includes, are left alone.
    """
    if not run.selected:
        return
    listed = list(run.spec.member_by_name)
    unknown = sorted({*run.selected} - {*listed} - {*run.state.members})
    unknown = [name for name in unknown if name not in registered()] if unknown else []
    if not unknown:
        return
    more = f", and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    yield Problem(
        what=f"there is no member {', '.join(unknown)} in the document, and none that would leave",
        where="karmada_members",
        remedy=f"name some of these: {', '.join(listed[:SHOWN])}{more}" if listed else "leave it out",
        reason=Reason.INVALID_ARGUMENT,
    )
