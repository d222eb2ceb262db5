# SPDX-License-Identifier: Apache-2.0
"""Inventories that AWX has made of whole ones: what parts, as slices, lack, and what those of several have too much."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..components.spec import Spec
from ..problems import Problem, Reason
from . import inventory_variables
from .inventory_names import BROKEN, CONTROL, HOSTS, IN_PODS, INSTANCE_NAME, INSTANCES, MEMBERS, ON_HOSTS
from .selection import SHOWN

#: Groups that the inventory plugin makes for every control plane, be there hosts in them or not.
GROUPS = (IN_PODS, ON_HOSTS, HOSTS, MEMBERS)
_WHOLE = (
    "In AWX, give the job template the inventory that has the source, and not a smart or constructed one that was made "
    "of it; set Job slicing to 1"
)

_OWN = "Of several control planes each has an inventory of its own, or all have one source."


def missing(variables: Mapping[str, Any]) -> Problem | None:
    """Problem of an inventory that has a part of one control plane, or hosts of two; None for all or nothing of one.

    Ansible finds no hosts in the groups that are missing and ends with success. ``variables`` are those of a task.
    """
    groups = variables.get("groups") or {}
    there = [each for each in GROUPS if each in groups]
    if CONTROL not in groups.get("all", ()):
        if not there:
            return without_instances(variables)
        what = f"it has groups of a control plane, and not the host {CONTROL}"
        return _problem(what, f"{_WHOLE}, and switch {CONTROL} on if somebody has disabled it.")
    if len(there) < len(GROUPS):
        lacking = ", ".join(each for each in GROUPS if each not in groups)
        return _problem(f"it has the host {CONTROL}, and not its groups {lacking}", f"{_WHOLE}.")
    deployment, _connection = inventory_variables.of_control(variables)
    wanted = [host.name for host in Spec(deployment["spec"]).hosts] if deployment else []
    if lost := [name for name in wanted if name not in groups[HOSTS]]:
        return _lost_hosts(lost)
    # They would get what belongs to this control plane.
    if deployment and (others := [name for name in groups[HOSTS] if name not in wanted]):
        what = f"it has plain hosts that are not in the document: {_named(others)}"
        mine = f"Hosts of a control plane are those of its document (spec.hosts); take others out of {HOSTS}"
        return _problem(what, f"{mine}. {_WHOLE}. {_OWN}")
    return None


def without_instances(variables: Mapping[str, Any]) -> Problem | None:
    """Problem of an inventory that has hosts of several control planes, and none that stands for one of these."""
    groups = variables.get("groups") or {}
    if any(groups.get(each) for each in (INSTANCES, BROKEN)):
        return None
    if not any(_of(variables, each) for each in variables.get("hostvars") or ()):
        return None
    what = f"it has hosts of control planes, and none in their groups {INSTANCES} and {BROKEN}"
    return _problem(what, f"{_WHOLE}, and switch on what somebody has disabled.")


def without_others(there: Sequence[str], lost: Sequence[str], chosen: str) -> Problem:
    """Problem of an inventory that lacks control planes of its source, so that none is the only one.

    ``there`` and ``lost`` are their names, ``chosen`` is the variable that chooses.
    """
    what = f"it lacks control planes of its source: {_named(lost)}; it has {_named(there)}"
    return _problem(what, f"choose one with -e {chosen}=<namespace>/<name>, in AWX by the survey. {_WHOLE}.")


def of_chosen(variables: Mapping[str, Any], wanted: str, host: str, adopted: Collection[str]) -> Problem | None:
    """Problem of the control plane that was chosen of several, which a run would work on with a part, or with others.

    ``wanted`` is its name and ``host`` its host; ``adopted`` are the names that its hosts are to have in this run.
    """
    groups = variables.get("groups") or {}
    deployment = inventory_variables.of_host(variables, host).get(inventory_variables.DEPLOYMENT) or {}
    if lost := [each.name for each in Spec(deployment.get("spec") or {}).hosts if each.name not in adopted]:
        return _lost_hosts(lost)
    there = dict.fromkeys(each for group in (IN_PODS, ON_HOSTS, HOSTS) for each in groups.get(group) or ())
    if not (others := [each for each in there if _of(variables, each) != wanted]):
        return None
    if before := _of(variables, others[0]):
        what = f"this run has worked on {before} already, and a run works on one control plane"
        remedy = f"start ansible-playbook once for each; with several verbs in one playbook, choose {before} for all."
        return Problem(what, f"{wanted}", remedy, reason=Reason.INVALID_ARGUMENT)
    what = f"beside several control planes it has hosts of another one, which {wanted} would be worked on with"
    return _problem(f"{what}: {_named(others)}", f"{_WHOLE}. {_OWN}")


def _of(variables: Mapping[str, Any], host: str) -> str:
    """Name of the one of several control planes that a host is of; empty for hosts of a document or of nobody."""
    return str(inventory_variables.of_host(variables, host).get(INSTANCE_NAME) or "")


def _lost_hosts(lost: Sequence[str]) -> Problem:
    leave = "A host that is to leave is taken out of the document."
    what = f"it lacks plain hosts of the document: {_named(lost)}"
    return _problem(what, f"{_WHOLE}, and switch on what somebody has disabled. {leave}")


def _named(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:SHOWN]) + (", …" if len(hosts) > SHOWN else "")


def _problem(what: str, remedy: str) -> Problem:
    return Problem(what, "inventory", remedy, reason=Reason.DOCUMENT_NOT_LOADED)
