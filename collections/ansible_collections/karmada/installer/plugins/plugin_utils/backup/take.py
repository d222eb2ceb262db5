# SPDX-License-Identifier: Apache-2.0
"""Taking one backup: snapshot of a member, proofs, encryption, storing, reading back, and at last the record.

No lock is held while that lasts. It is held to write the record: by then nobody may have restored etcd or changed its
members, or it is begun anew.
"""

from __future__ import annotations

import io
import json
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..artifacts import programs as program_files
from ..artifacts.programs import ARCHITECTURES
from ..artifacts.tools import ETCDUTL
from ..components.image_pins import Held
from ..components.state import COLLECTION_VERSION, MOST_SERIES, LastBackup, State, to_files
from ..components.table import ETCD
from ..components.types import Component
from ..document.backups import Wanted
from ..document.schedule import longest_gap
from ..encoding import base64_files
from ..etcd import access, external
from ..etcd.client import EndpointStatus, EtcdClient, EtcdError
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import encryption, record, targets, verification, workplace
from .due import INTERVALS
from .record import KEYS, RECORD, SNAPSHOT, AuthorityRecord, Level, Purpose, Record, StoredFile, Versions
from .series import refuse_held
from .targets import Target
from .trial import Programs
from .verification import Content

#: Attempts, each from the beginning: a member may discard old revisions meanwhile, and another run restore etcd.
ATTEMPTS = 2
#: Copies of a database that there are at a time: the snapshot, what is restored of it with its log, the encrypted one.
COPIES = 3.2
#: Seconds within which members that can have a leader have one; an election takes two or three of etcd.
ELECTION_SECONDS = 15.0
_LOOK_SECONDS = 0.2
#: Name of the database in the folder of an attempt.
PLAIN = "snapshot.db"
_DRAFT = "draft.json"
_DISCARDED = "etcd has discarded old revisions meanwhile, so that its content cannot be compared"


@dataclass(frozen=True)
class Beginning:
    """When an attempt began: before anything was asked of a member.

    ``clock`` is that of this machine which only runs on, in seconds. ``generation`` tells whether etcd is still the
    same one at the end: a digest, of no secret.
    """

    start: datetime
    clock: float
    generation: str

    @classmethod
    def now(cls, state: State) -> Beginning:
        """The moment, with the state that it has."""
        found = record.digest(json.dumps(generation(state)).encode())
        return cls(datetime.now(UTC).replace(microsecond=0), time.monotonic(), found)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Beginning:
        """From its plain form."""
        return cls(datetime.fromisoformat(plain["start"]), float(plain["clock"]), str(plain["generation"]))

    @property
    def plain(self) -> dict[str, Any]:
        """JSON form, which steps hand on."""
        return {"start": self.start.isoformat(), "clock": self.clock, "generation": self.generation}


@dataclass(frozen=True)
class Sent:
    """A database as a member has sent it, in a file of this machine that is deleted once it is encrypted.

    ``sender`` and ``statuses`` are of before; ``acknowledged`` is the revision that a majority had then. ``hash_at``
    asks another member, if there is one, for the hash of its content at a revision, ``counts_at`` for its numbers of
    keys (``verification.COUNTED``); None if it does not tell.
    """

    path: Path
    sender: EndpointStatus
    statuses: Sequence[EndpointStatus]
    acknowledged: int
    hash_at: Callable[[int], Hash | None]
    counts_at: Callable[[int], Mapping[str, int] | None]


@dataclass(frozen=True)
class Taken:
    """A backup that was taken: its record, and problems that stop nothing."""

    record: Record
    problems: tuple[Problem, ...] = ()


def ensure_signing_key(run: Run) -> None:
    """Note the key that signs records before anything is taken, so that the keys in each backup have it, too."""
    if run.state.backup_key:
        return
    with run.recording():
        if not run.state.backup_key:
            run.save(replace(run.state, backup_key=record.new_signing_key()))


class AnewError(Exception):
    """The attempt came to nothing by what happened meanwhile, which the message tells; another may succeed."""


def refuse(run: Run) -> None:
    """Raise ProblemsError if this etcd cannot be backed up from here."""
    if external.is_named(run):
        what, where = "etcd is not of this control plane", "spec.components.etcd.external"
        remedy = "whoever runs that etcd backs it up, as a whole"
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.FIELD_WITHOUT_EFFECT))
    if run.stored_state is None:
        remedy = "run karmada.installer.install first"
        raise ProblemsError(Problem("there is no etcd yet", run.place.where, remedy, reason=Reason.NOT_INSTALLED))


def programs(run: Run) -> Programs:
    """etcd and etcdutl of the version that runs, on this machine. Raises ProblemsError."""
    found = program_paths(run, ETCD, ETCDUTL)
    return Programs(found[ETCD.name], found[ETCDUTL.name])


def program_paths(run: Run, *components: Component) -> dict[str, Path]:
    """Files of the cache of this machine with programs of the versions that run, by component. Raises ProblemsError."""
    source = run.artifact_source
    if source.kind == "URL" and not source.url and not run.spec.hosts:
        # Of a control plane in pods, that is where CRDs come from; its programs are in its images.
        source = replace(source, kind="Image")
    machine = platform.machine()
    found = program_files.programs(
        run.instance.release,
        ARCHITECTURES.get(machine, machine),
        components,
        run.spec,
        source,
        held=Held(run.state.digests),
    )
    # Files of the cache are not executable, and one that another process is writing is never seen.
    return {name: each.path for name, each in found.items()}


def backup(run: Run, series: Wanted, target: Target, purpose: Purpose, known: Collection[str] | None = None) -> Taken:
    """Take a backup of a series from members that answer here. Raises ProblemsError; nothing is in the list then.

    ``known`` are the names of all EtcdBackups, as far as they can be listed: of others nothing stays on record.
    """
    ensure_signing_key(run)
    for attempt in range(1, ATTEMPTS + 1):
        refuse_held(run, purpose)
        with workplace.opened() as folder:
            begun = _Attempt(run, series, target, folder, Beginning.now(run.state), last=attempt == ATTEMPTS)
            try:
                with _forgetting(target, begun.name):
                    draft = begun.take(begun.fetched(), purpose)
                    made = _recorded(run, series, target, begun.beginning, draft, known)
                    return Taken(made, tuple(begun.problems))
            except AnewError as error:
                run.say(f"{error}; the backup is begun anew")
    raise each_time(run)


def each_time(run: Run) -> ProblemsError:
    """Error of the last attempt, if that has to be begun anew, too."""
    what, remedy = "etcd was changed by other runs each time", "run it again when no other run is at work"
    return ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.LOCKED))


def stored(
    run: Run, series: Wanted, target: Target, purpose: Purpose, beginning: Beginning, sent: Sent, *, last: bool
) -> tuple[Problem, ...]:
    """Prove and store a database that was sent already, in the folder where that lies; ``recorded`` is to follow.

    Returns problems that stop nothing. Raises ProblemsError, and AnewError if another attempt may succeed and this is
    not the ``last`` one; nothing of it is in the target then.
    """
    begun = _Attempt(run, series, target, sent.path.parent, beginning, last=last)
    with _forgetting(target, begun.name):
        draft = begun.take(sent, purpose)
        content = {"record": record.signed(draft, run.state.backup_key).decode(), "beginning": beginning.plain}
        with open(sent.path.parent / _DRAFT, "x", opener=encryption.reader_only) as stream:
            json.dump(content, stream)
    return tuple(begun.problems)


def recorded(run: Run, series: Wanted, target: Target, folder: Path, known: Collection[str] | None = None) -> Record:
    """Make a backup of what ``stored`` has stored and noted in a folder, with the lock held and the state read again.

    ``known`` is as for ``backup``. Raises ProblemsError, and AnewError if another attempt may succeed; nothing of it is
    in the target then.
    """
    found = _draft(folder)
    made = record.opened(found["record"].encode(), str(folder))
    with _forgetting(target, made.name):
        return _recorded(run, series, target, Beginning.of(found["beginning"]), made, known)


def discard(target: Target, folder: Path) -> None:
    """Delete from the target what ``stored`` has stored and noted in a folder."""
    _forget(target, record.opened(_draft(folder)["record"].encode(), str(folder)).name)


def _draft(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / _DRAFT).read_text())
    return found


@contextmanager
def _forgetting(target: Target, name: str) -> Iterator[None]:
    """Delete what an attempt that fails has stored."""
    try:
        yield
    except (AnewError, ProblemsError):
        _forget(target, name)
        raise
    except OSError as error:
        _forget(target, name)
        raise workplace.unusable(error) from None


class _Attempt:
    """One attempt, in one folder. ``last``: what cannot be compared now is not compared at all."""

    def __init__(
        self, run: Run, series: Wanted, target: Target, folder: Path, beginning: Beginning, *, last: bool
    ) -> None:
        self.run, self.series, self.target, self.folder, self.last = run, series, target, folder, last
        self.where = f"etcd of {run.name}"
        self.beginning = beginning
        self.state: State = run.state
        self.name = record.new_name(run.name, beginning.start, secrets.token_hex(3))
        self.problems: list[Problem] = []

    def fetched(self) -> Sent:
        """The database of a member that answers here, in the folder of this attempt."""
        run, client = self.run, access.connect(self.run)
        statuses = client.status()
        sender, witness = chosen(statuses, self.where)
        workplace.require_room(self.folder, sender.db_size * COPIES)
        self.target.require_room(sender.db_size)
        run.say(f"snapshot of etcd member {access.names(run).get(sender.url, sender.url)}")
        path, acknowledged = self._snapshot(client.at(sender.url), sender)
        other = client.at(witness.url)
        return Sent(path, sender, statuses, acknowledged, partial(hash_of, other), partial(counts_of, other))

    def take(self, sent: Sent, purpose: Purpose) -> Record:
        """Prove, encrypt and store what was sent; returns the record that it may get, without a duration.

        Raises AnewError if it came to nothing by what happened meanwhile.
        """
        run, sender, snapshot = self.run, sent.sender, sent.path
        to = encryption.recipients(self.series.recipients, f"{self.series.place}: spec.recipients")
        tools = runnable(programs(run), self.folder)
        digest = verification.check(snapshot, self.where)
        status = verification.status(snapshot, tools, self.where, sent.acknowledged)
        live = sent.hash_at(status.revision)
        if live is None and not self.last:
            raise AnewError(_DISCARDED)
        run.say(f"restoring it on trial ({snapshot.stat().st_size >> 20} MiB, revision {status.revision})")
        trial = self.folder / "trial"
        trial.mkdir(mode=0o700)
        content = verification.restored(snapshot, status, tools, trial, self.where)
        shutil.rmtree(trial)
        proof = self._compared(content, live, sent)
        self._look_at_sentinels(content)
        files = {
            SNAPSHOT: self._stored(SNAPSHOT, snapshot, to),
            KEYS: self._stored(KEYS, self._keys(), to),
        }
        if files[SNAPSHOT].plain_sha256 != digest:
            raise OSError("the snapshot has changed on the disk")
        return Record(
            name=self.name,
            series=self.series.name,
            deployment=run.name,
            home=run.deployment["metadata"]["namespace"],
            owner=self.state.owner,
            purpose=purpose,
            started=self.beginning.start.isoformat(),
            duration_seconds=0,
            files=files,
            cluster_id=sender.cluster_id,
            revision=content.revision,
            hash=content.hash.value,
            total_keys=content.total_keys,
            versions=Versions(
                run.instance.release.karmada, run.instance.release.kubernetes, f"v{sender.version}", COLLECTION_VERSION
            ),
            levels=tuple(dict.fromkeys((Level.TRAILER, Level.STATUS, Level.RESTORED, proof))),
            recipients=self.series.recipients,
            counts=content.counts,
            members=tuple(each.name for each in self.state.etcd.members),
            clusters=content.clusters,
            authorities={
                name: AuthorityRecord(x509.fingerprint(pair.certificate), x509.expiry(pair.certificate).isoformat())
                for name, pair in self.state.authorities.items()
            },
            encryption_provider=run.spec.encryption_provider,
            mode=run.spec.mode,
            host_cluster=self.state.host_cluster,
            pins=self.state.digests,
            dirty=self._dirty(sent.statuses),
            claim=str(self.state.claim),
        )

    def _snapshot(self, member: EtcdClient, sender: EndpointStatus) -> tuple[Path, int]:
        """The database of a member, and the revision that was acknowledged before it was sent.

        A follower may lack what a majority has acknowledged until it has asked for it.
        """
        path = self.folder / PLAIN
        try:
            acknowledged = _acknowledged(member)
            with open(path, "xb", opener=encryption.reader_only) as stream:
                member.snapshot(stream)
        except EtcdError as error:
            what = f"member {sender.url} sends no snapshot: {error}"
            remedy = "see the log of this member, and run again"
            raise ProblemsError(Problem(what, self.where, remedy, reason=Reason.ETCD_UNHEALTHY)) from None
        return path, acknowledged

    def _compared(self, content: Content, live: Hash | None, sent: Sent) -> Level:
        try:
            proof = verification.compared(content, live)
            if proof is Level.RESTORED:
                if not self.last:
                    raise AnewError(_DISCARDED)
                proof = verification.compared(content, live, sent.counts_at(content.revision))
        except ValueError as error:
            remedy = "one member of etcd is corrupt, or the disk here; see the report's condition EtcdHealthy"
            raise ProblemsError(Problem(str(error), self.where, remedy, reason=Reason.INVALID_BACKUP)) from None
        if proof is not Level.HASH:
            what = (
                f"{self.name} was restored on trial, and not compared with a member, which has discarded its revision"
            )
            if proof is Level.COUNTS:
                what = f"of {self.name} only numbers of keys were compared with a member, which has discarded revisions"
            self.problems.append(Problem.warning(what, Reason.CHECK_SKIPPED, self.where))
        return proof

    def _look_at_sentinels(self, content: Content) -> None:
        verification.require_objects(content, self.where)
        if self.run.spec.encryption_provider != "identity" and verification.is_in_plain(content):
            # It is what there is, so it is a backup.
            what = (
                f"a Secret in {self.name} is not encrypted, although spec.encryption asks for it: see the API servers"
            )
            self.problems.append(Problem.warning(what, Reason.INVALID_SECRET, self.where))

    def _keys(self) -> Path:
        """File with what a restore needs beside etcd: the state with all keys, and the document."""
        path = self.folder / "keys.json"
        plain = {"format": record.FORMAT, "state": base64_files(to_files(self.state)), "document": self.run.deployment}
        with open(path, "xb", opener=encryption.reader_only) as stream:
            stream.write(json.dumps(plain).encode())
        return path

    def _stored(self, file: str, plain: Path, to: Sequence[object]) -> StoredFile:
        """Encrypt a file, delete the plain one, store it and read it back."""
        path = self.folder / file
        with plain.open("rb") as source, open(path, "xb", opener=encryption.reader_only) as sink:
            stored = encryption.encrypt(source, sink, to)
        plain.unlink()
        self.run.say(f"storing {self.name}/{file} ({stored.size >> 20} MiB) in {self.target.where}")
        with path.open("rb") as source:
            self.target.put(self.name, file, source, stored.size)
        path.unlink()
        targets.read_back(self.target, self.name, file, stored)
        return stored

    def _dirty(self, statuses: Sequence[EndpointStatus]) -> str:
        journal = self.state.journal
        others = journal.interrupted and journal.run != self.run.holder
        told = [f"{journal.operation} had not come to its end ({journal.step})"] if others else []
        told += [f"{each.url} was not healthy ({each.message})" for each in statuses if not each.healthy]
        return "; ".join(told)[:1000]


def _recorded(
    run: Run, series: Wanted, target: Target, beginning: Beginning, made: Record, known: Collection[str] | None
) -> Record:
    """Sign and store the record, which makes it a backup, and note it in the state."""
    with run.recording():
        if Beginning.now(run.state).generation != beginning.generation:
            raise AnewError("another run has changed the members of etcd, or restored it")
        made = replace(made, duration_seconds=int(time.monotonic() - beginning.clock))
        text = record.signed(made, run.state.backup_key)
        target.put(made.name, RECORD, io.BytesIO(text), len(text))
        expected = StoredFile(len(text), record.digest(text), 0, "")
        targets.read_back(target, made.name, RECORD, expected)
        last = last_of(series, made, run.state.claim.epoch)
        run.save(replace(run.state, backups=with_last(run.state.backups, series.name, last, known)))
    return made


def with_last(
    before: Mapping[str, LastBackup], series: str, last: LastBackup, known: Collection[str] | None
) -> dict[str, LastBackup]:
    """Newest backups by series with this one, and without series that have no document any more.

    Where documents cannot be listed, or are too many, the ones that were backed up last are kept.
    """
    others = {name: each for name, each in before.items() if name != series and (known is None or name in known)}
    newest = sorted(others, key=lambda name: others[name].started, reverse=True)[: MOST_SERIES - 1]
    return {**{name: each for name, each in others.items() if name in newest}, series: last}


def last_of(series: Wanted, made: Record, epoch: int) -> LastBackup:
    """Record of the state about the newest backup of a series; ``epoch`` is that of the claim in its keys."""
    allowed = INTERVALS * longest_gap(series.schedule, made.start)
    return LastBackup(
        made.name, made.started, made.size, made.revision, made.duration_seconds, int(allowed.total_seconds()), epoch
    )


def chosen(statuses: Sequence[EndpointStatus], where: str) -> tuple[EndpointStatus, EndpointStatus]:
    """Member that sends its database, a follower if there is one, and another that proves it. Raises ProblemsError."""
    well = [each for each in statuses if each.cause is None and not each.learner and "no leader" not in each.message]
    well.sort(key=lambda each: (bool(each.alarms), each.leader))
    if not well:
        said = "; ".join(f"{each.url}: {each.message}" for each in statuses)
        what = f"no member of etcd can be asked that has a leader: {said}"
        remedy = "mend etcd first, or restore it"
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.ETCD_UNHEALTHY))
    return well[0], well[-1]


def _forget(target: Target, name: str) -> None:
    """Delete what has been stored of an attempt, as far as possible: what has no record is swept later."""
    with suppress(ProblemsError):
        target.delete(name)


def runnable(found: Programs, folder: Path) -> Programs:
    """Copies that can be started: those of the cache are data, which nobody may start."""
    return Programs(startable(found.etcd, folder / "etcd"), startable(found.etcdutl, folder / "etcdutl"))


def startable(path: Path, copy: Path) -> Path:
    """Copy of a program that can be started; returns ``copy``."""
    shutil.copyfile(path, copy)
    copy.chmod(0o700)
    return copy


def _acknowledged(member: EtcdClient) -> int:
    """Newest revision that a majority has acknowledged, also while the members elect a leader. Raises EtcdError."""
    until = time.monotonic() + ELECTION_SECONDS
    while True:
        try:
            return member.revision()
        except EtcdError as error:
            if error.code not in etcd_requests.LATER or time.monotonic() > until:
                raise
            time.sleep(_LOOK_SECONDS)


def hash_of(member: EtcdClient, revision: int) -> Hash | None:
    """Hash of a member at a revision; None if it has discarded it, or does not tell."""
    try:
        return member.hash_at(revision)
    except EtcdError:
        return None


def counts_of(member: EtcdClient, revision: int) -> dict[str, int] | None:
    """Numbers of keys of a member at a revision; None if it has discarded it, or does not tell."""
    try:
        return {kind: member.count_below(prefix, revision) for kind, prefix in verification.COUNTED.items()}
    except EtcdError:
        return None


def generation(state: State) -> tuple[object, ...]:
    """Return values of which one changes when etcd is restored or gets other members."""
    etcd = state.etcd
    return state.owner, etcd.token, etcd.generation, tuple((each.name, each.id) for each in etcd.members)
