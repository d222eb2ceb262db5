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


def agreed(lists: Collection[Members]) -> Members | None:
    """List that most members give; None if none gives one."""
    counted = Counter(each.members for each in lists)
    most = counted.most_common(1)[0][0] if counted else None
    return next((each for each in lists if each.members == most), None)


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
