# SPDX-License-Identifier: Apache-2.0
"""Requests to one member of etcd by its JSON API: its status, the list of members, changes of it, maintenance.

Runs on a host with the Python of its distribution and nothing else (standard library, Python 3.9 or newer), and in the
engine, where connections go through a host cluster. How a request reaches the member is the caller's: a ``Post``.

The paths, and numbers of 64 bits as strings, are those of etcd 3.5, 3.6 and 3.7 (api/etcdserverpb/rpc.proto).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Sends a body to a path of the member and returns its answer: path, body, seconds to wait for the answer.
Post = Callable[[str, Mapping[str, Any], float], dict[str, Any]]

#: etcd itself gives up a request without a majority after seven seconds.
ANSWER_SECONDS = 10.0
#: A hash is computed over all keys, while the member answers others.
HASH_SECONDS = 60.0
#: A defragmentation copies the whole database, and the member answers nobody meanwhile.
DEFRAGMENT_SECONDS = 600.0

#: gRPC codes (google.golang.org/grpc/codes) that answers of etcd are told apart by.
INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED = 3, 4, 5, 8
FAILED_PRECONDITION, OUT_OF_RANGE, UNAVAILABLE = 9, 11, 14
#: Those after which the same change of members may succeed a little later: a learner that is behind, members that have
#: changed five seconds ago (``strict-reconfig-check``), an election.
LATER = frozenset({FAILED_PRECONDITION, UNAVAILABLE, DEADLINE_EXCEEDED})

#: What it says while it has not connected to all members for five seconds yet; it has changed nothing then.
SOON = "unhealthy cluster"


@dataclass(frozen=True)
class Member:
    """A member as etcd lists it. ``id`` is in hexadecimal digits, as etcd prints it.

    ``name`` is empty until the member has started for the first time.
    """

    id: str
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool


@dataclass(frozen=True)
class Members:
    """Answer about membership: the members after it, and of which cluster (``cluster_id``, hexadecimal)."""

    cluster_id: str
    members: tuple[Member, ...]
    #: the member that was added; empty if none was
    added: str = ""


@dataclass(frozen=True)
class Hash:
    """Hash over all keys of a member at ``revision``; members that agree have equal hashes at one revision.

    It covers what is not yet discarded: hashes with different ``compacted`` revisions cannot be compared.
    """

    revision: int
    value: int
    compacted: int = 0


@dataclass(frozen=True)
class Counted:
    """Numbers of keys of a member at ``revision``, by what was counted."""

    revision: int
    counts: Mapping[str, int]


def hexadecimal(number: Any) -> str:
    """64-bit number of an answer (a string of decimal digits, or absent for 0) as etcd prints IDs."""
    return f"{int(number or 0):x}"


def _decimal(identity: str) -> str:
    return str(int(identity, 16))


def members(post: Post) -> Members:
    """Members by a linearizable read, so that it fails without a majority instead of telling something old."""
    return _members(post("/v3/cluster/member/list", {"linearizable": True}, ANSWER_SECONDS))


def add_learner(post: Post, peer_urls: Sequence[str]) -> Members:
    """Add a member that has no vote yet; ``added`` of the result is its ID."""
    answer = post("/v3/cluster/member/add", {"peerURLs": list(peer_urls), "isLearner": True}, ANSWER_SECONDS)
    return _members(answer)


def promote(post: Post, identity: str) -> Members:
    """Give a learner its vote."""
    return _members(post("/v3/cluster/member/promote", {"ID": _decimal(identity)}, ANSWER_SECONDS))


def remove(post: Post, identity: str) -> Members:
    """Remove a member, which never can come back under this ID."""
    return _members(post("/v3/cluster/member/remove", {"ID": _decimal(identity)}, ANSWER_SECONDS))


def move_leader(post: Post, identity: str) -> None:
    """Have another member lead. Only the leader itself accepts this."""
    post("/v3/maintenance/transfer-leadership", {"targetID": _decimal(identity)}, ANSWER_SECONDS)


def status(post: Post) -> dict[str, Any]:
    """Status of this member, as it answers."""
    return post("/v3/maintenance/status", {}, ANSWER_SECONDS)


def acknowledged(post: Post) -> int:
    """Newest revision that a majority has acknowledged; the member that is asked has it then."""
    # A linearizable read of a key that cannot be there: it waits until the member has caught up.
    answer = post("/v3/kv/range", {"key": "AA==", "count_only": True}, ANSWER_SECONDS)
    return int((answer.get("header") or {}).get("revision") or 0)


def count(post: Post, begin: str, end: str, *, revision: int = 0) -> int:
    """Number of keys from one on and before another, both in base64; a linearizable read.

    With a ``revision`` it is that of this member alone, as it was then; a member that has discarded it refuses.
    """
    request: dict[str, Any] = {"key": begin, "range_end": end, "count_only": True}
    if revision:
        # What another member has proves nothing of the one that is asked.
        request |= {"revision": str(revision), "serializable": True}
    return int(post("/v3/kv/range", request, ANSWER_SECONDS).get("count") or 0)


def hash_at(post: Post, revision: int = 0) -> Hash:
    """Hash over this member's keys at a revision; 0 means its newest one."""
    answer = post("/v3/maintenance/hashkv", {"revision": str(revision)}, HASH_SECONDS)
    of = int(answer.get("hash_revision") or revision or (answer.get("header") or {}).get("revision") or 0)
    # etcd tells -1 where nothing was discarded yet.
    compacted = max(0, int(answer.get("compact_revision") or 0))
    return Hash(revision=of, value=int(answer.get("hash") or 0), compacted=compacted)


def alarms(post: Post) -> dict[str, tuple[str, ...]]:
    """Alarms that are raised: member ID (hexadecimal) → names, such as NOSPACE and CORRUPT."""
    found: dict[str, tuple[str, ...]] = {}
    for each in post("/v3/maintenance/alarm", {"action": "GET"}, ANSWER_SECONDS).get("alarms") or []:
        member = hexadecimal(each.get("memberID"))
        found[member] = (*found.get(member, ()), str(each.get("alarm", "NONE")))
    return found


def disarm(post: Post, identity: str, alarm: str) -> None:
    """Clear an alarm of a member."""
    post(
        "/v3/maintenance/alarm",
        {"action": "DEACTIVATE", "memberID": _decimal(identity), "alarm": alarm},
        ANSWER_SECONDS,
    )


def compact(post: Post, revision: int) -> None:
    """Discard what is older than a revision, and return only when the space within the database is free."""
    post("/v3/kv/compaction", {"revision": str(revision), "physical": True}, DEFRAGMENT_SECONDS)


def is_compacted_already(code: int, message: str) -> bool:
    """Return whether a compaction was refused because it is done: by somebody else, or by a run that was killed.

    The same code says that a revision is not there yet.
    """
    return code == OUT_OF_RANGE and "has been compacted" in message


def defragment(post: Post) -> None:
    """Give the free space of this member's database back to its disk."""
    post("/v3/maintenance/defragment", {}, DEFRAGMENT_SECONDS)


def _members(answer: Mapping[str, Any]) -> Members:
    added = answer.get("member") or {}
    return Members(
        cluster_id=hexadecimal((answer.get("header") or {}).get("cluster_id")),
        members=tuple(map(_member, answer.get("members") or [])),
        added=hexadecimal(added["ID"]) if added.get("ID") else "",
    )


def _member(found: Mapping[str, Any]) -> Member:
    return Member(
        id=hexadecimal(found.get("ID")),
        name=str(found.get("name") or ""),
        peer_urls=tuple(map(str, found.get("peerURLs") or ())),
        client_urls=tuple(map(str, found.get("clientURLs") or ())),
        learner=bool(found.get("isLearner")),
    )
