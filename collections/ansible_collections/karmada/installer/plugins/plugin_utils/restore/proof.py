# SPDX-License-Identifier: Apache-2.0
"""Proof that members of etcd are one new cluster with the content of a backup, by their own answers. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..components.state import RestoreState
from ..etcd.client import EndpointStatus, EtcdError
from ..etcd.health import common_revision
from .means import Means


def wrong_with_etcd(means: Means, restore: RestoreState) -> list[str]:
    """Sentences on what differs; empty if nothing does."""
    statuses = means.statuses()
    ill = [f"{each.url}: {each.message}" for each in statuses if not each.healthy]
    if ill or (ill := wrong_cluster(restore, statuses)):
        return ill
    if len(statuses) != len(restore.members) or any(each.revision < restore.bump for each in statuses):
        return [f"{len(statuses)} of {len(restore.members)} members have the data of the backup"]
    try:
        return _wrong_content(means, restore, statuses)
    except EtcdError as error:
        return [str(error)]


def wrong_cluster(restore: RestoreState, statuses: Iterable[EndpointStatus]) -> list[str]:
    """Sentence on members that are not of one cluster, or of one that was there before."""
    ids = {each.cluster_id for each in statuses}
    if len(ids) == 1 and not ids & set(restore.replaced):
        return []
    return [f"its members are of the cluster {', '.join(sorted(ids))}, which is not a new one"]


def _wrong_content(means: Means, restore: RestoreState, statuses: Sequence[EndpointStatus]) -> list[str]:
    revision = common_revision(statuses)
    hashes = means.hashes(statuses, revision)
    if len({each.compacted for each in hashes}) != 1:
        # Each discards old revisions when it comes to it, and a hash covers what is left.
        return [f"its members have not discarded the same revisions yet, before revision {revision}"]
    if len({each.value for each in hashes}) != 1:
        return [f"the content of its members differs at revision {revision}"]
    counts = means.counts()
    return [
        f"it has {counts[kind]} {kind}, and the backup has {number}"
        for kind, number in restore.counts.items()
        if kind in counts and counts[kind] != number
    ]
