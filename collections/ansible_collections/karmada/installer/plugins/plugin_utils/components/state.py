# SPDX-License-Identifier: Apache-2.0
"""State that an instance keeps between runs, as data.

It is stored beside the instance (Container: Secret ``<name>-installer-state``), so that any machine can continue where
another stopped. Nothing here does I/O; ``run`` reads and writes it.

Every older format stays readable: a field that it lacks gets its default, one that it always had must be present. The
first run that writes anything writes the new format. A newer format is refused, because fields unknown to us would be
lost when we write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..problems import Problem, ProblemsError, Reason
from . import moving, stored_files
from .etcd_state import EtcdMemberState, EtcdState, LeftFolder
from .moving import Claim, HandOverState, TakeOverState
from .releases import is_digest
from .spec import MemberEntry, Spec
from .types import KeyPair

#: Field of a record: the member's mode before a change of mode that is not finished.
FORMER_MODE = "formerMode"


#: Increased when a field is added or changes its meaning. 2: version of the collection that wrote it. 3: prefix and
#: nodes of etcd. 4: plain hosts. 5: what leaving means for a member. 6: places of members on hosts. 7: members in a
#: file of their own; long files are packed. 8: digests of images, and restarts that are due for members. 9: UID of the
#: host cluster. 10: the object that manages it, and members of etcd. 11: the key that signs backups, and the newest.
#: 12: a restore. 13: what a restore has released of members. 14: a move to another place. 15: the move after which a
#: backup was taken. 16: the move with which this place began. 17: the restore that another one has begun upon. 18: the
#: revision from which etcd goes on after a restore. 19: the ID of the cluster that etcd's members are. 20: folders that
#: members of etcd in pods have left in their volumes.
FORMAT = 20
#: Most entries that a state is read with; what would have more is not written.
MOST_SERIES = 64
MOST_CLUSTERS = 4096
MOST_NAMESPACES = 1024
_BACKUP_KEY = "backup.key"
#: Version of this collection, as in galaxy.yml (which is absent once the collection is installed).
COLLECTION_VERSION = "0.1.0"


@dataclass(frozen=True)
class Journal:
    """The current operation, or the last one. Times are UTC, ISO 8601."""

    operation: str = ""
    run: str = ""
    started: str = ""
    finished: str = ""
    step: str = ""

    @property
    def interrupted(self) -> bool:
        """True if an operation was begun and not finished."""
        return bool(self.operation) and not self.finished


@dataclass(frozen=True)
class Manager:
    """KarmadaDeployment object from which runs of an instance start; all fields are empty where that is a file.

    ``cluster`` is the UID of the cluster that has the object; empty where the account could not read it.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    cluster: str = ""

    def __str__(self) -> str:
        return f"KarmadaDeployment {self.namespace}/{self.name}"


@dataclass(frozen=True)
class LastBackup:
    """The newest verified backup of a series. ``started`` is ISO 8601, UTC; ``size`` in bytes, ``duration`` in seconds.

    ``allowed`` is the age in seconds from which it is too old, by the schedule at that time; 0 if there was none.
    ``epoch`` is that of the claim in its keys, above which a place that takes it over begins.
    """

    name: str
    started: str
    size: int
    revision: int
    duration: int
    allowed: int = 0
    epoch: int = 0


#: Last steps of a restore: its data is that of the backup, or what it was before.
RELEASED, UNDONE = "Released", "Undone"
#: Last step of the release of a part; the rest of it is held.
PART_RELEASED = "PartReleased"


@dataclass(frozen=True)
class RestoreState:
    """A restore, from its decision on; its journal (``restore.plan``). It stays until another one takes its place.

    ``name`` is that of its EtcdRestore, ``series`` the EtcdBackup in whose target the backup lies. ``step`` is the last
    one that has come to its end, ``undoing`` whether it is taken back. ``generation``, ``token`` and ``bump`` (of the
    revision) are those of the new data, ``members`` the names of those who get it, ``prepared`` those who have it.
    ``revision`` is the one with which that begins; 0 if an earlier version did not note it.
    ``held`` are the components that must not run, ``closed`` whether API servers refuse certificates of agents.
    ``former`` is what etcd was before, ``replaced`` IDs of clusters that the new one must not have, ``counts`` the
    numbers of keys by kind that it must have. ``survivor`` is the member whose data is restored, if it is one's: the
    backup is of that, then. ``aside`` are folders of data that no member uses any more.
    ``parts`` are what was asked to be released first: cluster → namespaces on it, none for all of it
    (``restore.held``). ``former_restore`` is the restore that had given etcd what it was before, if only a part of that
    was released: the rest is held inside ``former``. Once this one is taken back, that is on record again, as one that
    ``came_back``, with the ``revision`` of this one, which clients have seen.
    """

    name: str
    series: str
    backup: str
    started: str
    token: str
    generation: int
    bump: int
    former: EtcdState
    members: tuple[str, ...] = ()
    prepared: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    closed: bool = False
    step: str = ""
    undoing: bool = False
    #: name of the backup of what was there, taken before anything stopped; empty if nothing answered
    before: str = ""
    replaced: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    aside: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    survivor: str = ""
    former_restore: RestoreState | None = None
    came_back: bool = False
    revision: int = 0

    @property
    def is_over(self) -> bool:
        """True if it holds nothing any more; only its old data may still be there."""
        return self.step in (RELEASED, UNDONE)


@dataclass(frozen=True, repr=False)
class State:
    """Memory of one instance. Has no representation, because it holds keys."""

    owner: str
    version: str
    etcd: EtcdState
    authorities: Mapping[str, KeyPair] = field(default_factory=dict)
    service_account_key: bytes = b""
    encryption_key: str = ""
    endpoint_host: str = ""
    #: the endpoint type to which that host belongs
    endpoint_type: str = ""
    #: endpoint types whose Ingress or Route may exist: noted before it is created, forgotten after it is gone
    passages: tuple[str, ...] = ()
    #: Service ranges of the control plane, chosen by the host cluster's IP families at the first install
    service_subnet: str = ""
    #: UID of the host cluster that last held this state; empty on plain hosts, and where it could not be read
    host_cluster: str = ""
    journal: Journal = field(default_factory=Journal)
    #: cluster ("host", "member/<name>") → object reference → UID of what we created there
    owned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: member name → how it was joined and is to leave (``registration.record``), needed when its entry is gone
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: plain host → its entry of the document, for hosts that may have something of ours; needed when the entry is gone
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: the last document that was carried out completely
    document: Mapping[str, Any] | None = None
    #: version of the collection that wrote the state; empty in format 1
    collection: str = ""
    #: member → place of its own components on hosts, so that none moves when another member leaves
    member_places: Mapping[str, int] = field(default_factory=dict)
    #: reference of an image without a digest → the digest to which its tag pointed when it was first used
    digests: Mapping[str, str] = field(default_factory=dict)
    #: component → number of restarts because it held connections to members that have changed
    restarts: Mapping[str, int] = field(default_factory=dict)
    #: components of these that have not restarted since: noted before a connection changes
    restarts_due: tuple[str, ...] = ()
    #: the object that manages the instance: the one from which the last run started that may write
    manager: Manager = field(default_factory=Manager)
    #: private key (PEM) that signs records of backups; empty before the first one
    backup_key: bytes = b""
    #: name of an EtcdBackup → its newest verified backup
    backups: Mapping[str, LastBackup] = field(default_factory=dict)
    #: the restore that is under way, or whose old data is still there
    restore: RestoreState | None = None
    #: what this place claims of members; of one that was never moved, nothing
    claim: Claim = field(default_factory=Claim)
    #: the move away from here, and the one to here
    handed_over: HandOverState | None = None
    taken_over: TakeOverState | None = None

    @property
    def held(self) -> frozenset[str]:
        """Components that must not run, because a restore holds them, or a hand-over."""
        return frozenset(name for each in (self.restore, self.handed_over) if each for name in each.held)

    @property
    def closed_to_agents(self) -> bool:
        """True if API servers must refuse certificates of agents."""
        return any(each.closed for each in (self.restore, self.handed_over) if each)

    @property
    def leads_members(self) -> bool:
        """False while members follow another place: this one was handed over, or has not been released yet."""
        return not (self.handed_over and self.handed_over.is_over) and not (
            self.taken_over and not self.taken_over.fenced
        )

    def may_be_taken_over(self, backup: LastBackup) -> bool:
        """Return whether members would follow another place that takes this backup over, should this place be lost.

        They refuse one that comes from before a move which they have on record. Not on record yet is that of a place
        which has taken over, and has not been released.
        """
        on_record = self.claim.epoch - bool(self.taken_over and not self.taken_over.fenced)
        return backup.epoch >= on_record

    def member(self, name: str) -> MemberEntry:
        """Record of a member, read as its entry of the document; nothing but its name where it has none."""
        return MemberEntry({"name": name, **self.members.get(name, {})})

    def pushed_members(self, spec: Spec) -> tuple[str, ...]:
        """Members of the document in mode Push: by their entry, or by their record until a run has changed the mode."""

        def was_pushed(name: str) -> bool:
            known = self.members.get(name, {})
            return bool(known.get(FORMER_MODE, known.get("mode")) == "Push")

        return tuple(entry.name for entry in spec.members if not entry.pulls or was_pushed(entry.name))

    def uids(self, cluster: str) -> frozenset[str]:
        """UIDs of the objects that we created in this cluster."""
        return frozenset(self.owned.get(cluster, {}).values())

    def with_owned(self, cluster: str, uids: Mapping[str, str]) -> State:
        """Copy of the state with these objects (reference → UID) recorded as created by us."""
        return replace(self, owned={**self.owned, cluster: {**self.owned.get(cluster, {}), **uids}})

    def without_owned(self, cluster: str, references: set[str]) -> State:
        """Copy of the state without these objects, which are gone."""
        kept = {ref: uid for ref, uid in self.owned.get(cluster, {}).items() if ref not in references}
        return replace(self, owned={**self.owned, cluster: kept})

    def without_member(self, name: str) -> State:
        """Copy of the state without a member that has left: no record of it, nor of objects created on it."""
        members = {member: record for member, record in self.members.items() if member != name}
        owned = {cluster: uids for cluster, uids in self.owned.items() if cluster != f"member/{name}"}
        taken = self.taken_over
        if taken and name in taken.unfenced:
            taken = replace(taken, unfenced=tuple(each for each in taken.unfenced if each != name))
        return replace(self, members=members, owned=owned, taken_over=taken)


def to_files(state: State) -> dict[str, bytes]:
    """File name → content, the form in which a state is stored."""
    plain = {
        "format": FORMAT,
        "collection": state.collection,
        "owner": state.owner,
        "version": state.version,
        "etcd": asdict(state.etcd),
        "endpointHost": state.endpoint_host,
        "serviceSubnet": state.service_subnet,
        "endpointType": state.endpoint_type,
        "passages": list(state.passages),
        "encryptionKey": state.encryption_key,
        "hosts": state.hosts,
        "memberPlaces": dict(state.member_places),
        "digests": dict(state.digests),
        "restarts": dict(state.restarts),
        "restartsDue": list(state.restarts_due),
        "hostCluster": state.host_cluster,
        "manager": asdict(state.manager),
        "backups": {name: asdict(each) for name, each in state.backups.items()},
        # Absent where there is none, as in most states.
        **({"restore": asdict(state.restore)} if state.restore else {}),
        **({"claim": str(state.claim)} if state.claim.epoch else {}),
        **({"handedOver": asdict(state.handed_over)} if state.handed_over else {}),
        **({"takenOver": asdict(state.taken_over)} if state.taken_over else {}),
    }
    files = {
        "instance.json": _json(plain),
        "journal.json": _json(asdict(state.journal)),
        "members.json": _json(state.members),
        "owned.json": _json(state.owned),
        "sa.key": state.service_account_key,
    }
    if state.backup_key:
        files[_BACKUP_KEY] = state.backup_key
    if state.document is not None:
        files["document.json"] = _json(state.document)
    for name, pair in state.authorities.items():
        files[f"{name}.crt"] = pair.certificate
        files[f"{name}.key"] = pair.key
    return stored_files.packed(files)


def from_files(files: Mapping[str, bytes], where: str) -> State:
    """State in stored files. Raises ProblemsError when it cannot be read; it is never replaced by a new one."""
    try:
        files = stored_files.unpacked(files)
        plain = stored_files.parsed(files["instance.json"])
        if plain["format"] not in range(1, FORMAT + 1):
            writer = plain.get("collection") or "another version"
            raise ValueError(
                f"{writer} of the collection wrote it, in format {plain['format']}; this one knows {FORMAT}"
            )
        authorities = {
            name.removesuffix(".key"): KeyPair(certificate=files[f"{name.removesuffix('.key')}.crt"], key=content)
            for name, content in files.items()
            if name.endswith("-ca.key")
        }
        document = files.get("document.json")
        carried_out = stored_files.parsed(document) if document else None
        owned = stored_files.parsed(files["owned.json"])
        # Without this record nothing could be removed, and a run that took it for empty would overwrite it.
        if not isinstance(owned, dict) or not all(isinstance(uids, dict) for uids in owned.values()):
            raise ValueError("owned.json is not a record of objects")
        # Formats before 7 keep members in the file of the instance.
        members = stored_files.parsed(files["members.json"]) if "members.json" in files else plain["members"]
        if not isinstance(members, dict):
            raise ValueError("members.json is not a record of members")
        claim = Claim.of(plain.get("claim", ""))
        return State(
            owner=plain["owner"],
            version=plain["version"],
            etcd=_etcd(plain["etcd"], document),
            authorities=authorities,
            service_account_key=files["sa.key"],
            encryption_key=plain["encryptionKey"],
            endpoint_host=plain["endpointHost"],
            service_subnet=plain["serviceSubnet"] if "serviceSubnet" in plain else _subnet_of(document),
            # The first version did not write it.
            endpoint_type=plain.get("endpointType", ""),
            passages=tuple(plain.get("passages", ())),
            journal=Journal(**stored_files.parsed(files["journal.json"])),
            owned=owned,
            members=members,
            hosts=plain["hosts"] if "hosts" in plain else _hosts_of(document),
            document=carried_out,
            collection=plain.get("collection", ""),
            member_places=plain.get("memberPlaces", {}),
            digests=_digests(plain.get("digests", {})),
            restarts=plain.get("restarts", {}),
            restarts_due=tuple(plain.get("restartsDue", ())),
            host_cluster=plain.get("hostCluster", ""),
            manager=Manager(**plain.get("manager", {})),
            backup_key=files.get(_BACKUP_KEY, b""),
            # Before format 15, as if the next take-over could use it: the next backup tells.
            backups={
                name: LastBackup(**{"epoch": claim.epoch, **each}) for name, each in plain.get("backups", {}).items()
            },
            restore=_restore(plain["restore"]) if "restore" in plain else None,
            claim=claim,
            handed_over=moving.hand_over_of(plain["handedOver"]) if "handedOver" in plain else None,
            taken_over=moving.take_over_of(plain["takenOver"]) if "takenOver" in plain else None,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ProblemsError(
            [
                Problem(
                    what=f"the installer's state cannot be read: {error}",
                    where=where,
                    remedy="restore it from a backup, or use the version of the collection that wrote it; without it "
                    "the keys of this control plane are lost, so nothing was changed",
                    reason=Reason.INVALID_STATE,
                )
            ]
        ) from None


def _etcd(found: Mapping[str, Any], document: bytes | None) -> EtcdState:
    """State of etcd; ``document``: the last one carried out. Raises TypeError for fields that it cannot have."""
    members = tuple(EtcdMemberState(**each) for each in found.get("members", ()))
    # Of format 20.
    left = tuple(LeftFolder(**each) for each in found.get("left", ()))
    etcd = EtcdState(**{**found, "nodes": tuple(found.get("nodes", ())), "members": members, "left": left})
    return etcd if members else replace(etcd, members=_first_members(etcd, document))


def _restore(found: Mapping[str, Any]) -> RestoreState:
    lists = {name: tuple(found[name]) for name in ("members", "prepared", "held", "replaced", "aside")}
    # Of format 13.
    parts = {cluster: tuple(namespaces) for cluster, namespaces in found.get("parts", {}).items()}
    # Of format 17.
    upon = _restore(found["former_restore"]) if found.get("former_restore") else None
    former = _etcd(found["former"], None)
    return RestoreState(**{**found, **lists, "parts": parts, "former": former, "former_restore": upon})


def _first_members(etcd: EtcdState, document: bytes | None) -> tuple[EtcdMemberState, ...]:
    """Members in pods of a control plane that an earlier version installed: those of its document, never others."""
    if not etcd.bootstrapped or not document or etcd.storage not in ("volumeClaim", "hostPath", "emptyDir"):
        return ()
    carried_out = json.loads(document)
    # With an etcd of somebody else there is none.
    count = carried_out["spec"]["components"]["etcd"].get("local", {}).get("replicas", 0)
    return tuple(EtcdMemberState(f"{carried_out['metadata']['name']}-etcd-{each}") for each in range(count))


def _digests(found: Any) -> dict[str, str]:
    """Record of image digests. Raises ValueError for anything else, since images are compared with it."""
    if not isinstance(found, dict) or not all(is_digest(each) for each in found.values()):
        raise ValueError("digests is not a record of images")
    return found


def _subnet_of(document: bytes | None) -> str:
    """Service range where earlier versions of this collection recorded it: in the document, as a default."""
    if not document:
        return ""
    subnet: str = json.loads(document)["spec"]["components"]["karmadaAPIServer"]["serviceSubnet"]
    return subnet


def _hosts_of(document: bytes | None) -> dict[str, Any]:
    """Plain hosts where earlier versions of this collection recorded them: in the document."""
    hosts = (json.loads(document)["spec"].get("hosts") or ()) if document else ()
    return {host["name"]: host for host in hosts}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
