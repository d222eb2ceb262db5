# SPDX-License-Identifier: Apache-2.0
"""Proofs that a snapshot can be restored, each of which finds what the one before does not.

1. Its size and the checksum at its end (``module_utils/etcd_snapshot``).
2. ``etcdutl snapshot status`` reads it, and its revision is not older than that of the member before.
3. ``etcdutl snapshot restore`` makes a data folder of it, and an etcd of the same version serves that, on loopback,
   with keys and certificates of the moment.
4. Its content has the hash that a live member has at the same revision; or, where hashes cannot be compared because one
   of the two has discarded more than the other, its numbers of keys.

Beside these a few objects are looked at (sentinels): they have the form in which an API server writes them.

All of it happens on the machine that Ansible runs on and at low priority; members do nothing but send and hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.karmada.installer.plugins.module_utils import etcd_snapshot
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..etcd.client import EtcdError
from . import trial
from .record import Level
from .trial import Programs

#: Kind of object → prefix of its keys, for the counts of a record. Ours have etcd to themselves, so it is this prefix.
COUNTED: Mapping[str, bytes] = {
    "clusters": b"/registry/cluster.karmada.io/clusters/",
    "clusterPropagationPolicies": b"/registry/policy.karmada.io/clusterpropagationpolicies/",
    "propagationPolicies": b"/registry/policy.karmada.io/propagationpolicies/",
    "clusterResourceBindings": b"/registry/work.karmada.io/clusterresourcebindings/",
    "resourceBindings": b"/registry/work.karmada.io/resourcebindings/",
    "works": b"/registry/work.karmada.io/works/",
    "namespaces": b"/registry/namespaces/",
    "secrets": b"/registry/secrets/",
}


#: Kinds of which one object is looked at.
_LOOKED_AT = ("clusters", "works", "secrets")
#: How what an API server has written begins: encrypted, in protobuf, in JSON (of custom and aggregated resources), in
#: CBOR (which it may be told to use for those).
_ENCRYPTED = b"k8s:enc:"
_FORMS = (_ENCRYPTED, b"k8s\0", b"{", b"\xd9\xd9\xf7")
#: Bytes of an object that are kept.
_HEAD = 16


@dataclass(frozen=True)
class Content:
    """Content of a snapshot as an etcd that was restored from it serves it.

    ``sentinels`` has how one object of a kind begins, by the kind, where there is one.
    """

    cluster_id: str
    revision: int
    total_keys: int
    hash: Hash
    counts: Mapping[str, int]
    clusters: tuple[str, ...]
    sentinels: Mapping[str, bytes] = field(default_factory=dict)


def check(snapshot: Path, where: str) -> str:
    """First proof; returns the SHA-256 of the file in hex. Raises ProblemsError, and OSError if it cannot be read."""
    with snapshot.open("rb") as stream:
        try:
            return etcd_snapshot.check(stream)
        except etcd_snapshot.SnapshotError as error:
            raise trial.refused(str(error), where) from None


@dataclass(frozen=True)
class Status:
    """Answer of ``etcdutl`` about a snapshot: its revision, and its number of keys with all their revisions."""

    revision: int
    keys: int


def status(snapshot: Path, programs: Programs, where: str, least_revision: int = 0) -> Status:
    """Second proof. Raises ProblemsError."""
    said = trial.run([programs.etcdutl, "snapshot", "status", snapshot, "--write-out=json"], where)
    try:
        found = json.loads(said)
        revision, keys = int(found["revision"]), int(found["totalKey"])
    except (ValueError, KeyError, TypeError):
        raise trial.refused("etcdutl tells nothing of it", where) from None
    if revision < least_revision or keys < 1:
        what = f"it has {keys} keys at revision {revision}, and the member had revision {least_revision} before"
        raise trial.refused(what, where)
    return Status(revision, keys)


def restored(snapshot: Path, told: Status, programs: Programs, folder: Path, where: str) -> Content:
    """Third proof: content of a snapshot whose ``status`` is ``told``, served by an etcd that exists only meanwhile.

    ``folder`` is empty, for its owner only, and has room for the file once more; it is left with the data in it. Raises
    ProblemsError.
    """
    data = trial.data_of(snapshot, programs, folder, where)
    with trial.etcd(data, programs, folder, where) as client:
        try:
            found = client.status()[0]
            content = Content(
                cluster_id=found.cluster_id,
                revision=told.revision,
                total_keys=told.keys,
                hash=client.hash_at(told.revision),
                counts={kind: client.count_below(prefix) for kind, prefix in COUNTED.items()},
                clusters=tuple(sorted(client.names_below(COUNTED["clusters"]))),
                sentinels={
                    kind: one.value[:_HEAD] for kind in _LOOKED_AT if (one := client.first_below(COUNTED[kind]))
                },
            )
        except EtcdError as error:
            raise trial.refused(f"an etcd that was restored from it does not answer: {error}", where) from None
    return content


def compared(content: Content, live: Hash | None, counts: Mapping[str, int] | None = None) -> Level:
    """Fourth proof: the level that hash and numbers of keys of a live member, at the revision of the snapshot, give.

    The hash proves nothing if the member has discarded old revisions since; without numbers, too, nothing was compared,
    and the level is that of the third proof. Raises ValueError if the contents differ.
    """
    expected = content.hash
    if live is not None and (live.revision, live.compacted) == (expected.revision, expected.compacted):
        if live.value != expected.value:
            told = f"{live.value:08x} at the member and {expected.value:08x} in the snapshot"
            raise ValueError(f"at revision {live.revision} its content differs from that of a member: {told}")
        return Level.HASH
    if counts is None:
        return Level.RESTORED
    if differ := [kind for kind in COUNTED if counts.get(kind) != content.counts.get(kind)]:
        told = ", ".join(f"{counts.get(kind)} {kind} and not {content.counts.get(kind)}" for kind in differ)
        raise ValueError(f"at revision {content.revision} a member has other numbers of keys: {told}")
    return Level.COUNTS


def require_objects(content: Content, where: str) -> None:
    """Raise ProblemsError if an object that was looked at is none that an API server can have written."""
    for kind, head in content.sentinels.items():
        if not head.startswith(_FORMS):
            raise trial.refused(f"one of its {kind} is no object that an API server can read", where)


def is_in_plain(content: Content) -> bool:
    """Return whether the Secret that was looked at is not encrypted."""
    head = content.sentinels.get("secrets")
    return head is not None and not head.startswith(_ENCRYPTED)
