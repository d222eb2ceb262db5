# SPDX-License-Identifier: Apache-2.0
"""Taking one backup: snapshot of a member, proofs, encryption, storing, reading back, and at last the record.

No lock is held while that lasts. It is held to write the record: by then nobody may have restored etcd or changed its
members, or it is begun anew.
"""

from __future__ import annotations

import base64
import io
import json
import platform
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..artifacts import programs as program_files
from ..artifacts.programs import ARCHITECTURES
from ..artifacts.tools import ETCDUTL
from ..components.image_pins import Held
from ..components.state import COLLECTION_VERSION, LastBackup, State, to_files
from ..components.table import ETCD, pod_components
from ..document.backups import Wanted
from ..document.schedule import longest_gap
from ..etcd import access, external
from ..etcd.client import EndpointStatus, EtcdClient, EtcdError
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import encryption, record, targets, verification, workplace
from .due import INTERVALS
from .record import KEYS, RECORD, SNAPSHOT, AuthorityRecord, Level, Purpose, Record, StoredFile, Versions
from .targets import Target
from .verification import Content, Programs

#: Attempts, each from the beginning: a member may discard old revisions meanwhile, and another run restore etcd.
ATTEMPTS = 2
#: Copies of a database that there are at a time: the snapshot, what is restored of it with its log, the encrypted one.
_COPIES = 3.2
_PLAIN = "snapshot.db"
_DISCARDED = "etcd has discarded old revisions meanwhile, so that its content cannot be compared"


@dataclass(frozen=True)
class Taken:
    """A backup that was taken: its record, and problems that stop nothing."""

    record: Record
    problems: tuple[Problem, ...] = ()


class _AnewError(Exception):
    """The attempt came to nothing by what happened meanwhile, which the message tells; another may succeed."""


def refuse(run: Run) -> None:
    """Raise ProblemsError if this etcd cannot be backed up from here."""
    if external.is_named(run):
        what, where = "etcd is not of this control plane", "spec.components.etcd.external"
        remedy = "whoever runs that etcd backs it up, as a whole"
        raise ProblemsError(Problem(what, where, remedy, reason=Reason.FIELD_WITHOUT_EFFECT))
    if ETCD not in pod_components(run.spec):
        what = "etcd on plain hosts cannot be backed up by this version of the collection"
        remedy = "take a snapshot by hand, as the guide on backups says"
        raise ProblemsError(Problem(what, "spec.hosts", remedy, reason=Reason.FIELD_WITHOUT_EFFECT))
    if run.stored_state is None:
        remedy = "run karmada.installer.install first"
        raise ProblemsError(Problem("there is no etcd yet", run.place.where, remedy, reason=Reason.NOT_INSTALLED))


def programs(run: Run) -> Programs:
    """etcd and etcdutl of the version that runs, on this machine. Raises ProblemsError."""
    source = run.artifact_source
    if source.kind == "URL" and not source.url and not run.spec.hosts:
        # Of a control plane in pods, that is where CRDs come from; its programs are in its images.
        source = replace(source, kind="Image")
    machine = platform.machine()
    found = program_files.programs(
        run.instance.release,
        ARCHITECTURES.get(machine, machine),
        (ETCD, ETCDUTL),
        run.spec,
        source,
        held=Held(run.state.digests),
    )
    # Files of the cache are not executable, and one that another process is writing is never seen.
    return Programs(found[ETCD.name].path, found[ETCDUTL.name].path)


def backup(run: Run, series: Wanted, target: Target, purpose: Purpose) -> Taken:
    """Take a backup of a series. Raises ProblemsError; nothing is in the target's list then."""
    to = encryption.recipients(series.recipients, f"{series.place}: spec.recipients")
    for attempt in range(1, ATTEMPTS + 1):
        with workplace.opened() as folder:
            begun = _Attempt(run, series, target, folder, last=attempt == ATTEMPTS)
            try:
                return begun.take(to, purpose)
            except _AnewError as error:
                _forget(target, begun.name)
                run.say(f"{error}; the backup is begun anew")
            except ProblemsError:
                _forget(target, begun.name)
                raise
            except OSError as error:
                _forget(target, begun.name)
                raise workplace.unusable(error) from None
    what = "etcd was changed by other runs each time"
    remedy = "run it again when no other run is at work"
    raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.LOCKED))


class _Attempt:
    """One attempt, in one folder. ``last``: what cannot be compared now is not compared at all."""

    def __init__(self, run: Run, series: Wanted, target: Target, folder: Path, *, last: bool) -> None:
        self.run, self.series, self.target, self.folder, self.last = run, series, target, folder, last
        self.where = f"etcd of {run.name}"
        self.begun = time.monotonic()
        self.start = datetime.now(UTC).replace(microsecond=0)
        self.state: State = run.state
        self.name = record.new_name(run.name, self.start, secrets.token_hex(3))
        self.problems: list[Problem] = []

    def take(self, to: Sequence[object], purpose: Purpose) -> Taken:
        run = self.run
        client = access.connect(run)
        statuses = client.status()
        sender, witness = self._chosen(statuses)
        workplace.require_room(self.folder, sender.db_size * _COPIES)
        tools = runnable(programs(run), self.folder)
        run.say(f"snapshot of etcd member {access.names(run).get(sender.url, sender.url)}")
        snapshot, digest = self._snapshot(client, sender)
        revision, _keys = verification.status(snapshot, tools, self.where, sender.revision)
        live = _hash(client.at(witness.url), revision)
        if live is None and not self.last:
            raise _AnewError(_DISCARDED)
        run.say(f"restoring it on trial ({snapshot.stat().st_size >> 20} MiB, revision {revision})")
        trial = self.folder / "trial"
        trial.mkdir(mode=0o700)
        content = verification.restored(snapshot, tools, trial, self.where)
        shutil.rmtree(trial)
        proof = self._compared(content, live)
        files = {
            SNAPSHOT: self._stored(SNAPSHOT, snapshot, to),
            KEYS: self._stored(KEYS, self._keys(), to),
        }
        if files[SNAPSHOT].plain_sha256 != digest:
            raise OSError("the snapshot has changed on the disk")
        made = Record(
            name=self.name,
            series=self.series.name,
            deployment=run.name,
            home=run.deployment["metadata"]["namespace"],
            owner=self.state.owner,
            purpose=purpose,
            started=self.start.isoformat(),
            duration_seconds=0,
            files=files,
            cluster_id=sender.cluster_id,
            revision=content.revision,
            hash=content.hash.value,
            total_keys=content.total_keys,
            versions=Versions(
                run.instance.release.karmada, run.instance.release.kubernetes, f"v{sender.version}", COLLECTION_VERSION
            ),
            levels=(Level.TRAILER, Level.STATUS, Level.RESTORED, proof),
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
            dirty=self._dirty(statuses),
        )
        return Taken(self._recorded(made), tuple(self.problems))

    def _chosen(self, statuses: Sequence[EndpointStatus]) -> tuple[EndpointStatus, EndpointStatus]:
        """Member that sends the snapshot, a follower if there is one, and another that proves it."""
        well = [
            each for each in statuses if each.cause is None and not each.learner and "no leader" not in each.message
        ]
        well.sort(key=lambda each: (bool(each.alarms), each.leader))
        if not well:
            said = "; ".join(f"{each.url}: {each.message}" for each in statuses)
            what = f"no member of etcd can be asked that has a leader: {said}"
            remedy = "mend etcd first, or restore it"
            raise ProblemsError(Problem(what, self.where, remedy, reason=Reason.ETCD_UNHEALTHY))
        return well[0], well[-1]

    def _snapshot(self, client: EtcdClient, sender: EndpointStatus) -> tuple[Path, str]:
        path = self.folder / _PLAIN
        try:
            with open(path, "xb", opener=encryption.reader_only) as stream:
                client.at(sender.url).snapshot(stream)
        except EtcdError as error:
            what = f"member {sender.url} sends no snapshot: {error}"
            remedy = "see the log of this member, and run again"
            raise ProblemsError(Problem(what, self.where, remedy, reason=Reason.ETCD_UNHEALTHY)) from None
        return path, verification.check(path, self.where)

    def _compared(self, content: Content, live: Hash | None) -> Level:
        try:
            proof = verification.compared(content, live) if live else Level.COUNTS
        except ValueError as error:
            remedy = "one member of etcd is corrupt, or the disk here; see the report's condition EtcdHealthy"
            raise ProblemsError(Problem(str(error), self.where, remedy, reason=Reason.INVALID_BACKUP)) from None
        if proof is Level.COUNTS:
            if not self.last:
                raise _AnewError(_DISCARDED)
            what = f"the content of {self.name} could not be compared with a member, which has discarded its revision"
            self.problems.append(Problem.warning(what, Reason.CHECK_SKIPPED, self.where))
        return proof

    def _keys(self) -> Path:
        """File with what a restore needs beside etcd: the state with all keys, and the document."""
        path = self.folder / "keys.json"
        files = {name: base64.b64encode(content).decode() for name, content in to_files(self.state).items()}
        with open(path, "xb", opener=encryption.reader_only) as stream:
            stream.write(
                json.dumps({"format": record.FORMAT, "state": files, "document": self.run.deployment}).encode()
            )
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

    def _recorded(self, made: Record) -> Record:
        """Sign and store the record, which makes it a backup, and note it in the state."""
        run = self.run
        with run.recording():
            if _generation(run.state) != _generation(self.state):
                raise _AnewError("another run has changed the members of etcd, or restored it")
            key = run.state.backup_key or record.new_signing_key()
            if not run.state.backup_key:
                # Noted before it signs anything: what nobody can verify is no backup.
                run.save(replace(run.state, backup_key=key))
            made = replace(made, duration_seconds=int(time.monotonic() - self.begun))
            text = record.signed(made, key)
            self.target.put(self.name, RECORD, io.BytesIO(text), len(text))
            expected = StoredFile(len(text), record.digest(text), 0, "")
            targets.read_back(self.target, self.name, RECORD, expected)
            allowed = INTERVALS * longest_gap(self.series.schedule, self.start)
            last = LastBackup(
                made.name, made.started, made.size, made.revision, made.duration_seconds, int(allowed.total_seconds())
            )
            run.save(replace(run.state, backups={**run.state.backups, self.series.name: last}))
        return made

    def _dirty(self, statuses: Sequence[EndpointStatus]) -> str:
        journal = self.state.journal
        told = [f"{journal.operation} had not come to its end ({journal.step})"] if journal.interrupted else []
        told += [f"{each.url} was not healthy ({each.message})" for each in statuses if not each.healthy]
        return "; ".join(told)[:1000]


def _forget(target: Target, name: str) -> None:
    """Delete what has been stored of an attempt, as far as possible: what has no record is swept later."""
    with suppress(ProblemsError):
        target.delete(name)


def runnable(found: Programs, folder: Path) -> Programs:
    """Copies that can be started: those of the cache are data, which nobody may start."""
    made = []
    for path, name in ((found.etcd, "etcd"), (found.etcdutl, "etcdutl")):
        shutil.copyfile(path, folder / name)
        (folder / name).chmod(0o700)
        made.append(folder / name)
    return Programs(*made)


def _hash(member: EtcdClient, revision: int) -> Hash | None:
    """Hash of a member at a revision; None if it has discarded it, or does not tell."""
    try:
        return member.hash_at(revision)
    except EtcdError:
        return None


def _generation(state: State) -> tuple[object, ...]:
    """Values of which one changes when etcd is restored or gets other members."""
    etcd = state.etcd
    return state.owner, etcd.token, etcd.generation, tuple((each.name, each.id) for each in etcd.members)
