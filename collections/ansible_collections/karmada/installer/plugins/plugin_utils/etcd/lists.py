# SPDX-License-Identifier: Apache-2.0
"""Lists of the members of etcd, as healthy members give them, side by side. No I/O.

Each list is a linearizable read, so those of one cluster are equal but for a change between two answers. One that
somebody has forced to go on alone (``--force-new-cluster``) keeps its cluster's ID, leads itself and calls itself
healthy: only its list tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Members

#: What to do about lists that differ. Whom to stop is for somebody who knows where the data is that counts.
REMEDY = (
    "see whether somebody is changing members, or has forced one to go on alone (--force-new-cluster); if so, stop the "
    "side whose data does not count, before clients write to both, and run the playbook again"
)

#: How members of another cluster come about.
BY_OTHERS = "somebody has restored all of it by hand, or begun it anew"
#: What to do about members of another cluster. All of its data is with them, so none of them is to be removed.
OTHER_CLUSTER_REMEDY = (
    "remove none of its members: see who has restored it or begun it anew, and whether its data is what you want; if "
    "so, back it up (karmada.installer.backup) and restore that backup (karmada.installer.restore), which puts its "
    "members on record; if not, restore an earlier backup"
)


def agreed(lists: Collection[Members]) -> Members | None:
    """List that most members give; None if none gives one."""
    counted = Counter(each.members for each in lists)
    most = counted.most_common(1)[0][0] if counted else None
    return next((each for each in lists if each.members == most), None)


def other_cluster(clusters: Collection[str], known: str) -> str:
    """Sentence on members whose IDs of their cluster are these, where another one is on record; empty if it is that."""
    others = sorted({*clusters} - {""})
    if not known or not others or known in others:
        return ""
    return (
        f"the members of etcd are the cluster {', '.join(others)}, and the one of this control plane is {known}: "
        + BY_OTHERS
    )


def difference(lists: Mapping[str, Collection[str]], names: Mapping[str, str]) -> str:
    """Difference of lists, in words; empty if there is none.

    ``lists`` are the IDs that each member lists, by its name; ``names`` are those of members, by ID.
    """
    tellers: dict[frozenset[str], list[str]] = {}
    for teller, listed in lists.items():
        tellers.setdefault(frozenset(listed), []).append(teller)
    if len(tellers) < 2:
        return ""
    told = [
        f"{', '.join(who)} {'lists' if len(who) == 1 else 'list'} "
        f"{', '.join(sorted(names.get(identity) or f'ID {identity}' for identity in listed))}"
        for listed, who in tellers.items()
    ]
    return f"healthy members list different members: {'; '.join(told)}. What is written to one may not be in the others"
