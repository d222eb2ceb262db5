# SPDX-License-Identifier: Apache-2.0
"""Variables that the sources of the inventory gave a host, without anything that was found or registered since.

Ansible's variables of a host are a mixture, in which facts (``ansible_facts`` of any answer), registered results and
``set_fact`` are stronger than the inventory. A step that decides what all hosts get, or which one gets the keys, asks
the inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .inventory_names import BROKEN, CONTROL, INSTANCES

DEPLOYMENT, CONNECTION, HOST = "karmada_deployment", "karmada_connection", "karmada_host"


def of_host(variables: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """Variables of a host from the sources of the inventory alone; empty if it is unknown there.

    ``variables`` are those of a task.
    """
    inventory = getattr(variables.get("hostvars"), "_inventory", None)
    # Of the host localhost, Ansible makes one that is in no source.
    found = inventory.hosts.get(host) if inventory is not None else None
    return found.vars if found is not None else {}


def of_control(variables: Mapping[str, Any], host: str = "") -> tuple[Any, Any]:
    """Document and connection that the inventory has loaded, each None if it has none.

    ``host`` is that of the control plane where it was chosen among several and is not called as an only one yet.

    A playbook of somebody's own, without our inventory, sets both as variables of its hosts: those are taken only if
    no source of the inventory has a document.
    """
    name = host or CONTROL
    known = of_host(variables, name)
    if DEPLOYMENT not in known:
        # Hosts of other plays have no document; with --limit, a play may consist of hosts of members only.
        hosts = variables.get("hostvars", {})
        known = hosts[name] if DEPLOYMENT not in variables and name in hosts else variables
    return known.get(DEPLOYMENT), known.get(CONNECTION)


def has_several(variables: Mapping[str, Any]) -> bool:
    """Return whether the inventory was asked for all control planes, of which a run works on one.

    Another one may be away now, by its labels or because somebody has disabled its host.
    """
    groups = variables.get("groups") or {}
    return bool(groups.get(INSTANCES) or groups.get(BROKEN))


def is_plain_host(variables: Mapping[str, Any]) -> bool:
    """Return whether the task is about a plain host: the inventory says which hosts are."""
    return HOST in of_host(variables, str(variables.get("inventory_hostname", "")))
