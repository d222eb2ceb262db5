# SPDX-License-Identifier: Apache-2.0
"""Names of hosts and groups in the inventory by which steps find their targets; the inventory plugin makes them.

An inventory of one control plane has the names of the document. One of several has each host under a name of its own,
in other groups, so that no play of a verb finds any: the first play makes those of the chosen control plane, under the
names of the document (``instances``).
"""

from __future__ import annotations

import re

#: Host that has the document in its variables.
CONTROL = "karmada_control"
#: Groups of all plain hosts of the document and of all members.
HOSTS, MEMBERS = "karmada_hosts", "karmada_members"
#: Host of an inventory without a document; no play asks for it.
NO_DOCUMENT = "karmada_no_document"
#: Group of hosts that have left the document; empty until a run finds some and adds them.
LEAVING = "karmada_hosts_leaving"
#: Groups that plays work on, one for each mode.
ON_HOSTS, IN_PODS = "karmada_on_hosts", "karmada_in_pods"
#: Role of plain hosts → their group.
ROLE_GROUPS = {
    "etcd": "karmada_etcd",
    "controlPlane": "karmada_control_plane",
    "loadBalancer": "karmada_load_balancer",
    "agent": "karmada_agent",
}
#: Groups of members, by what the next run does with them.
JOIN, KEEP, LEAVE = f"{MEMBERS}_join", f"{MEMBERS}_keep", f"{MEMBERS}_leave"
#: Mode of members → their group.
MODE_GROUPS = {"Push": f"{MEMBERS}_push", "Pull": f"{MEMBERS}_pull"}
#: Host names that Ansible reserves. A member with one gets a host name with an underscore instead, which cannot clash,
#: as names of members are DNS labels.
RESERVED = ("localhost", "all", "ungrouped")

#: Groups of an inventory of several control planes: a host for each, those that cannot be read, all members, all hosts.
INSTANCES, BROKEN = "karmada_instances", "karmada_broken"
ALL_MEMBERS, ALL_HOSTS = "karmada_all_members", "karmada_all_hosts"
#: Variable by which each host of several control planes says whose it is, and those of the control planes which there
#: are in the source: an inventory that AWX has made of a whole one may lack some.
INSTANCE_NAME, INSTANCE_NAMES = "karmada_instance_name", "karmada_instance_names"

_UNFIT = re.compile(r"[^A-Za-z0-9_]")


def of_instance(namespace: str, name: str) -> str:
    """Host that stands for one of several control planes. Namespaces have no dot, so no two are the same."""
    return f"{namespace}.{name}"


def within(instance: str, host: str) -> str:
    """Host of one of several control planes; ``instance`` is the host that stands for it."""
    return f"{host}@{instance}"


def group(*words: str) -> str:
    """Group of those that have something in common, as a name that Ansible takes: ``karmada_namespace_prod``."""
    return "_".join(("karmada", *(_UNFIT.sub("_", word) for word in words)))
