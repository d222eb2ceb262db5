# SPDX-License-Identifier: Apache-2.0
"""Variables that the sources of the inventory gave a host, without anything that was found or registered since.

Ansible's variables of a host are a mixture, in which facts (``ansible_facts`` of any answer), registered results and
``set_fact`` are stronger than the inventory. A step that decides what all hosts get, or which one gets the keys, asks
the inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .inventory_names import CONTROL

DEPLOYMENT, CONNECTION, HOST = "karmada_deployment", "karmada_connection", "karmada_host"


def of_host(variables: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """Variables of a host from the sources of the inventory alone; empty if it is unknown there.

    ``variables`` are those of a task.
    """
    inventory = getattr(variables.get("hostvars"), "_inventory", None)
    # Of the host localhost, Ansible makes one that is in no source.
    found = inventory.hosts.get(host) if inventory is not None else None
    return found.vars if found is not None else {}


def of_control(variables: Mapping[str, Any]) -> tuple[Any, Any]:
    """Document and connection that the inventory has loaded, each None if it has none.

    A playbook of somebody's own, without our inventory, sets both as variables of its hosts: those are taken only if
    no source of the inventory has a document.
    """
    known = of_host(variables, CONTROL)
    if DEPLOYMENT not in known:
        # Hosts of other plays have no document; with --limit, a play may consist of hosts of members only.
        hosts = variables.get("hostvars", {})
        known = hosts[CONTROL] if DEPLOYMENT not in variables and CONTROL in hosts else variables
    return known.get(DEPLOYMENT), known.get(CONNECTION)


def is_plain_host(variables: Mapping[str, Any]) -> bool:
    """Return whether the task is about a plain host: the inventory says which hosts are."""
    return HOST in of_host(variables, str(variables.get("inventory_hostname", "")))
