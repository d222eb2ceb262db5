# SPDX-License-Identifier: Apache-2.0
"""Which members a run works on: all, unless somebody has named some, with ``--limit`` or ``karmada_members``.

The control plane is one and the same for all of them, and so is what plain hosts have of them; only what joins, changes
and leaves is selected.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..problems import Problem, Reason
from .inventory_names import MEMBERS

if TYPE_CHECKING:
    from .run import Run

#: How many of the names that there are a message shows.
SHOWN = 20


def of_variables(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the members that were named, sorted; empty means all. ``variables`` are those of a task.

    ``karmada_members`` is a list, or a text with commas. It comes before ``--limit``, which counts if it has left
    members in the play; what else it names says nothing about members.
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
    """Whether this run works on the member of this name."""
    return not run.selected or name in run.selected


def entries(run: Run) -> list[Mapping[str, Any]]:
    """The members of the document that this run works on."""
    return [entry for entry in run.spec["members"] if holds(run, entry["name"])]


def problems(run: Run, registered: Callable[[], Collection[str]]) -> Iterable[Problem]:
    """Names that nobody has. ``registered`` gives those of the clusters in the control plane.

    A member that is not listed any more may be named: it leaves. Clusters of others, which a limit to all members
    holds, too, are left alone.
    """
    if not run.selected:
        return
    listed = [entry["name"] for entry in run.spec["members"]]
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
