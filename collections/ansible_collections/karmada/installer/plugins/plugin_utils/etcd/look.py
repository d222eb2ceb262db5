# SPDX-License-Identifier: Apache-2.0
"""Questions to the members of etcd for their health: few, all members at once, and none that costs them much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from .client import EndpointStatus, EtcdClient, EtcdError
from .health import Seen, common_revision, lists_differ

#: Largest database whose content is hashed, in bytes. A member reads all of it for that, some 500 MB in a second, while
#: it serves others; a report that people asked for may take that time, the end of another run may not.
HASHED_BYTES_IN_REPORT, HASHED_BYTES = 2 * 1024**3, 128 * 1024**2

T = TypeVar("T")


def look(
    client: EtcdClient,
    names: Mapping[str, str],
    disks: Callable[[], Mapping[str, bool]],
    *,
    hashed_bytes: int = HASHED_BYTES,
) -> list[Seen]:
    """Every member of the client as it answers: its status, whom it lists, and its hash at a revision that all have.

    ``names`` and ``disks`` (whether the data of a member is there, asked only if one is silent) are by URL. Three
    requests to each member at most, each to all at once; one that knows no leader is not asked for the list, which it
    could not give. Lists that differ are asked for once more: a change of members may have come between two answers.
    """
    statuses = client.status()
    known_disks = disks() if any(each.cause for each in statuses) else {}
    seen = [Seen(names.get(each.url, each.url), each, disk=known_disks.get(each.url)) for each in statuses]
    led = [each.cause is None and "no leader" not in each.message for each in statuses]
    revision = revision_to_hash(statuses, hashed_bytes)

    def completed(number: int) -> Seen:
        one = client.at(statuses[number].url)
        known = _answer(one.members) if led[number] else None
        answers = revision and statuses[number].cause is None
        found = _answer(lambda: one.hash_at(revision)) if answers else None
        return replace(seen[number], known=known, hash=found)

    def asked_again(found: Seen) -> Seen:
        return replace(found, known=_answer(client.at(found.status.url).members) if found.known else None)

    with ThreadPoolExecutor(max(1, len(seen))) as pool:
        found = list(pool.map(completed, range(len(seen))))
        return list(pool.map(asked_again, found)) if lists_differ(found) else found


def revision_to_hash(statuses: Sequence[EndpointStatus], hashed_bytes: int) -> int:
    """Revision at which to compare members; 0 where there is nobody to compare with, or too much to read."""
    answered = [each for each in statuses if each.cause is None]
    if len(answered) < 2 or max(each.db_size for each in answered) > hashed_bytes:
        return 0
    return common_revision(answered)


def _answer(ask: Callable[[], T]) -> T | None:
    """Answer, or None: a compaction may have come between, and what is not answered is not compared."""
    try:
        return ask()
    except EtcdError:
        return None
