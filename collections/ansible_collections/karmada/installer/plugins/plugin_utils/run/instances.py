# SPDX-License-Identifier: Apache-2.0
"""The one of several control planes that a run works on, chosen by ``karmada_instance``.

An inventory of several has none of the hosts that plays name. The first play makes them out of those of the chosen
one, so that everything after it finds one control plane, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..components.spec import Spec
from ..document import crd
from ..problems import Problem, Reason
from ..redaction import printable
from . import inventory_parts, inventory_variables
from .inventory_hosts import ALONE
from .inventory_names import BROKEN, CONTROL, INSTANCE_NAME, INSTANCE_NAMES, INSTANCES
from .selection import SHOWN

#: Variable that chooses.
CHOSEN = "karmada_instance"
#: What the inventory says for Ansible's own use, and of several only.
_NOT_ADOPTED = (ALONE, INSTANCE_NAMES, "karmada_phase", "karmada_version")


def are_there(variables: Mapping[str, Any]) -> bool:
    """Return whether the inventory has several control planes, or was asked for all that there are.

    ``variables`` are those of a task. A control plane that was made of one of them earlier in the run counts as none.
    """
    groups = variables.get("groups") or {}
    return bool(groups.get(INSTANCES) or groups.get(BROKEN)) or (INSTANCES in groups and CONTROL not in groups["all"])


def are_many(variables: Mapping[str, Any]) -> bool:
    """Return whether there is more than one, or one that cannot be read, and none was chosen."""
    groups = variables.get("groups") or {}
    chosen = str(variables.get("karmada_instance") or "").strip()
    there, broken = groups.get(INSTANCES) or (), groups.get(BROKEN) or ()
    return not chosen and not variables.get("ansible_limit") and len(there) + len(broken) > 1


def table(variables: Mapping[str, Any]) -> list[str]:
    """Lines that show all control planes, as the inventory has them; those that cannot be read come first."""
    rows = []
    for name, host in sorted(_named(variables, BROKEN).items()):
        problems = inventory_variables.of_host(variables, host).get("karmada_problems") or ()
        rows.append((name, "cannot be read", "; ".join(str(Problem.of(each)) for each in problems)))
    for name, host in sorted(_named(variables, INSTANCES).items()):
        known = inventory_variables.of_host(variables, host)
        spec = Spec(known["karmada_deployment"]["spec"])
        version, phase = known.get("karmada_version") or "newest", known.get("karmada_phase") or "no phase yet"
        count = len(spec.members)
        about = f"{version}, {spec.mode}, {count} member{'' if count == 1 else 's'}"
        rows.append((name, str(phase), about))
    known = {**_named(variables, BROKEN), **_named(variables, INSTANCES)}
    lost = sorted(_everybody(variables, known) - set(known)) if known else []
    rows += [(name, "not here", "its host is disabled, or in another slice of the inventory") for name in lost]
    rows = [(printable(name), printable(state), printable(about)) for name, state, about in rows]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{name:<{widths[0]}}  {state:<{widths[1]}}  {about}" for name, state, about in rows]


def adopted(variables: Mapping[str, Any]) -> tuple[list[Problem], list[str]]:
    """Problems with the choice, or the hosts of the chosen control plane, its own first."""
    if limit := variables.get("ansible_limit"):
        what = "it chooses among several control planes, and a run works on one as a whole"
        remedy = (
            f"leave it out; choose with -e {CHOSEN}=<namespace>/<name>, and members with -e karmada_members=<name>,…"
        )
        return [Problem(what, f"--limit {limit}", remedy, reason=Reason.INVALID_ARGUMENT)], []
    there, broken = _named(variables, INSTANCES), _named(variables, BROKEN)
    wanted, problem = _wanted(variables, [*there, *broken])
    if problem:
        return [problem], []
    if wanted in broken:
        told = inventory_variables.of_host(variables, broken[wanted])
        return [Problem.of(each) for each in told.get("karmada_problems", ())], []
    if wanted not in there:
        return [_no_choice(wanted, list(there), list(broken))], []
    hosts = [host for host in variables["hostvars"] if _is_of(variables, host, wanted)]
    if problem := inventory_parts.of_chosen(variables, wanted, there[wanted], _alone_names(variables, hosts)):
        return [problem], []
    return [], sorted(hosts, key=lambda host: (host != there[wanted], hosts.index(host)))


def _wanted(variables: Mapping[str, Any], present: list[str]) -> tuple[str, Problem | None]:
    """Name of the chosen one, or of the only one of the source; empty if none is. Or the problem with ``present``."""
    if part := inventory_parts.without_instances(variables):
        return "", part
    if wanted := str(variables.get(CHOSEN) or "").strip():
        return wanted, None
    everybody = _everybody(variables, {**_named(variables, INSTANCES), **_named(variables, BROKEN)})
    # That somebody has disabled the host of one, or it is in another slice, does not choose the one that is left.
    if lost := sorted(everybody - set(present)):
        return "", inventory_parts.without_others(present, lost, CHOSEN)
    return (present[0] if len(present) == 1 else ""), None


def another(variables: Mapping[str, Any]) -> Problem | None:
    """Problem of a choice in an inventory of one control plane that is another one."""
    wanted = str(variables.get("karmada_instance") or "").strip()
    metadata = (inventory_variables.of_control(variables)[0] or {}).get("metadata") or {}
    found = f"{metadata.get('namespace')}/{metadata.get('name')}"
    if not wanted or wanted == found:
        return None
    what = f"it is {crd.shown(wanted)}, and the inventory has {found}"
    return Problem(what, CHOSEN, "leave it out, or take the inventory of the other", reason=Reason.INVALID_ARGUMENT)


def alone(variables: Mapping[str, Any], host: str) -> tuple[str, list[str], dict[str, Any]]:
    """Name, groups and variables of a host where its control plane is the only one. Raises KeyError for any other."""
    found = inventory_variables.of_host(variables, host)
    own = found[ALONE]
    kept = {name: value for name, value in found.items() if name not in _NOT_ADOPTED}
    return str(own["name"]), [str(each) for each in own["groups"]], kept


def _named(variables: Mapping[str, Any], group: str) -> dict[str, str]:
    """Name → host, of those in a group."""
    hosts = (variables.get("groups") or {}).get(group) or ()
    return {str(inventory_variables.of_host(variables, host).get(INSTANCE_NAME)): str(host) for host in hosts}


def _everybody(variables: Mapping[str, Any], known: Mapping[str, str]) -> set[str]:
    """Names of all control planes of the sources that made these hosts (name → host).

    An inventory that an earlier version has stored does not say them.
    """
    found = set(known)
    for host in known.values():
        found.update(map(str, inventory_variables.of_host(variables, host).get(INSTANCE_NAMES) or ()))
    return found


def _alone_names(variables: Mapping[str, Any], hosts: list[str]) -> set[str]:
    """Names that hosts have where their control plane is the only one."""
    return {str(inventory_variables.of_host(variables, host)[ALONE]["name"]) for host in hosts}


def _is_of(variables: Mapping[str, Any], host: str, wanted: str) -> bool:
    known = inventory_variables.of_host(variables, host)
    return known.get(INSTANCE_NAME) == wanted and ALONE in known


def _no_choice(wanted: str, there: list[str], broken: list[str]) -> Problem:
    if not there and not broken:
        what, remedy = "the inventory has no control plane", "look at its namespace and its label_selector"
        return Problem(what, "inventory", remedy, reason=Reason.DOCUMENT_NOT_FOUND)
    listed = ", ".join([*there, *(f"{each} (broken)" for each in broken)][:SHOWN])
    listed += " …" if len(there) + len(broken) > SHOWN else ""
    near = crd.nearest(wanted, there) if wanted else None
    what = f"there is no {crd.shown(wanted)} in the inventory" if wanted else "the inventory has several control planes"
    remedy = (
        f"did you mean {near}?" if near else f"choose one with -e {CHOSEN}=<namespace>/<name>, in AWX by the survey"
    )
    return Problem(f"{what}; it has {listed}", CHOSEN, remedy, reason=Reason.INVALID_ARGUMENT)
