# SPDX-License-Identifier: Apache-2.0
"""Inventories that AWX has made of whole ones: what parts, as slices, lack, and what those of several have too much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..components.spec import Spec
from ..problems import Problem, Reason
from . import inventory_variables
from .inventory_names import CONTROL, HOSTS, IN_PODS, MEMBERS, ON_HOSTS
from .selection import SHOWN

#: Groups that the inventory plugin makes for every control plane, be there hosts in them or not.
GROUPS = (IN_PODS, ON_HOSTS, HOSTS, MEMBERS)
_WHOLE = (
    "In AWX, give the job template the inventory that has the source, and not a smart or constructed one that was made "
    "of it; set Job slicing to 1"
)


def missing(variables: Mapping[str, Any]) -> Problem | None:
    """Problem of an inventory that has a part of one control plane, or hosts of two; None for all or nothing of one.

    Ansible finds no hosts in the groups that are missing and ends with success. ``variables`` are those of a task.
    """
    groups = variables.get("groups") or {}
    there = [each for each in GROUPS if each in groups]
    if CONTROL not in groups.get("all", ()):
        if not there:
            return None
        what = f"it has groups of a control plane, and not the host {CONTROL}"
        return _problem(what, f"{_WHOLE}, and switch {CONTROL} on if somebody has disabled it.")
    if len(there) < len(GROUPS):
        lacking = ", ".join(each for each in GROUPS if each not in groups)
        return _problem(f"it has the host {CONTROL}, and not its groups {lacking}", f"{_WHOLE}.")
    deployment, _connection = inventory_variables.of_control(variables)
    wanted = [host.name for host in Spec(deployment["spec"]).hosts] if deployment else []
    if lost := [name for name in wanted if name not in groups[HOSTS]]:
        what = f"it lacks plain hosts of the document: {_named(lost)}"
        leave = "A host that is to leave is taken out of the document."
        return _problem(what, f"{_WHOLE}, and switch on what somebody has disabled. {leave}")
    # They would get what belongs to this control plane.
    if deployment and (others := [name for name in groups[HOSTS] if name not in wanted]):
        what = f"it has plain hosts that are not in the document: {_named(others)}"
        return _problem(
            what, f"{_WHOLE}. Of several control planes each has an inventory of its own, or all have one source."
        )
    return None


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:SHOWN]) + (", …" if len(hosts) > SHOWN else "")


def _problem(what: str, remedy: str) -> Problem:
    return Problem(what, "inventory", remedy, reason=Reason.DOCUMENT_NOT_LOADED)
