# SPDX-License-Identifier: Apache-2.0
"""Everything that is asked before a restore begins: which backup, is it good, does it fit, what is lost. Reads only.

All problems are collected, so that one does not hide another. Nothing has stopped by then, and nothing is on record.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..backup import encryption, verify, workplace
from ..backup import series as backup_series
from ..backup.due import in_words
from ..backup.record import KEYS, SNAPSHOT, AuthorityRecord, Record
from ..backup.series import Found
from ..backup.targets import Target
from ..components.state import PART_RELEASED, RELEASED, RestoreState
from ..components.table import ETCD_CA
from ..document import manifest, restores
from ..document.backups import KIND as BACKUP_KIND
from ..document.backups import Wanted
from ..document.restores import Part, WantedRestore
from ..etcd.client import EndpointStatus
from ..kube.errors import ApiError
from ..members.registration import CLUSTER_API
from ..pki import x509
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import etcd_checks
from .impossible import impossible
from .plan import is_released, may_begin_anew

_EXAMPLE = """\
apiVersion: installer.karmada.io/v1alpha1
kind: EtcdRestore
metadata: {name: back}
spec:
  deploymentRef: {name: prod}
  backupRef: {name: nightly}"""


@dataclass(frozen=True)
class Asked:
    """Wishes of the user: the documents that there are, and words of the command line, which win over a document."""

    restores: Sequence[Mapping[str, Any]] = ()
    backups: Sequence[Mapping[str, Any]] = ()
    name: str = ""
    confirm: str = ""
    #: Pull members whose agents are somebody else's, and stopped by them.
    foreign_agents: Sequence[str] = ()
    #: Private keys of recipients.
    keys: Sequence[Any] = field(default=(), repr=False)
    #: Member of etcd whose data is restored instead of a backup, and the copy of it that has come from a plain host.
    survivor: str = ""
    fetched: Mapping[str, Any] = field(default_factory=dict)
    #: Name of the backup that is restored, once more, where there can be none of what is there.
    without_backup: str = ""
    #: What a release is about, all of it without parts; and Works that were being deleted, by what becomes of objects.
    parts: Sequence[Part] = ()
    kept: Sequence[str] = ()
    let_go: Sequence[str] = ()
    #: Of a move to here (``take_over``): the public key that signed the backup, the control plane that was not handed
    #: over, and members that are out of reach.
    signer: str = ""
    take_over: str = ""
    unfenced: Sequence[str] = ()

    def completed(self, run: Run, wanted: WantedRestore) -> Asked:
        """Wishes with what the document says where the command line says nothing. Raises ProblemsError."""
        keys = self.keys
        if not keys and wanted.secret:
            where = f"{wanted.place}: spec.identitySecretRef"
            text = run.secret(wanted.secret, where).get(restores.IDENTITY)
            if text is None:
                what, remedy = f"has no key {restores.IDENTITY}", "put what age-keygen wrote there"
                missing = Problem(what, f"Secret {run.full_name(wanted.secret)}", remedy, reason=Reason.INVALID_SECRET)
                raise ProblemsError(missing)
            keys = encryption.identities(text.decode(errors="replace"), f"Secret {run.full_name(wanted.secret)}")
        return replace(
            self,
            confirm=self.confirm or wanted.confirm,
            foreign_agents=self.foreign_agents or wanted.foreign_agents,
            keys=keys,
        )


@dataclass(frozen=True)
class Place:
    """Target of a restore, and the documents that led to it."""

    wanted: WantedRestore
    series: Wanted
    target: Target


@dataclass(frozen=True)
class Chosen(Place):
    """A backup, where it lies, and the documents that led to it.

    ``known`` are the backups of this control plane that lie there, of every series and of every place that it had.
    """

    record: Record
    known: tuple[Record, ...] = ()

    @property
    def where(self) -> str:
        """Place of the backup for people."""
        return f"{self.target.where.rstrip('/')}/{self.record.name}"


@dataclass(frozen=True)
class Live:
    """The control plane as it is before the restore, as far as it answers. None: it does not."""

    statuses: Sequence[EndpointStatus] = ()
    clusters: Mapping[str, str] | None = None

    @property
    def revision(self) -> int:
        """Newest revision that a member has told; 0 if none has."""
        return max((each.revision for each in self.statuses), default=0)


def opened(run: Run, asked: Asked) -> Place:
    """Target of the restore that is meant. Raises ProblemsError if it is not certain which."""
    wanted = _wanted(run, asked)
    all_series = {each.name: each for each in backup_series.wanted(run, asked.backups)}
    if wanted.series not in all_series:
        what = f"there is no {BACKUP_KIND} {wanted.series} for {run.name}"
        remedy = f"name one of {', '.join(all_series)}" if all_series else "write it beside the document"
        raise ProblemsError(impossible(what, f"{wanted.place}: spec.backupRef.name", remedy))
    series = all_series[wanted.series]
    return Place(wanted, series, backup_series.opened(run, series))


def own_backups(run: Run, place: Place) -> list[Record]:
    """Backups of the series of a restore, of this control plane. Raises ProblemsError if they cannot be listed."""
    found = backup_series.found(place.target, backup_series.signer(run))
    return list(backup_series.own(found, place.series.name, run.state).values())


def choose(run: Run, asked: Asked, backup: str = "") -> Chosen:
    """Backup that is to be restored, by default that of the document.

    Raises ProblemsError if it is not certain which, or it is not ours.
    """
    place = opened(run, asked)
    wanted, series, target = place.wanted, place.series, place.target
    moves = run.stored_state is None
    found = backup_series.found(target, asked.signer if moves else backup_series.signer(run))
    own = backup_series.own(found, series.name, None if moves else run.state)
    if moves and not asked.signer:
        raise ProblemsError(_nobody_signed(run, found, backup or wanted.backup, target), "nothing was changed")
    name = backup or wanted.backup or (asked.confirm if moves else "")
    # A place that was left may go on to back up: then the newest is not of the last place.
    last = max((each.of_place.epoch for each in own.values()), default=0) if moves else 0
    newest = backup_series.newest({key: each for key, each in own.items() if each.of_place.epoch >= last}, run.now)
    name = name or (newest.name if newest else "")
    if name in own:
        of = own[name].owner
        known = tuple(each.record for each in found if each.record and each.ours and each.record.owner == of)
        return Chosen(wanted, series, target, own[name], known)
    there = next((each for each in found if each.name == name), None)
    if there is None:
        what = f"there is no backup {name}" if name else "there is no backup yet"
        what += f" that {asked.signer} has signed" if moves else ""
    elif there.record is None:
        what = f"{name} is of no use: {there.trouble}"
    elif not there.ours and moves:
        what = f"{name} is signed by {there.signer}, and not by the key that was named ({asked.signer})"
    elif not there.ours:
        what = f"{name} is not signed by this control plane, so that anybody may have written it"
    elif (there.record.series, there.record.owner) == (series.name, run.state.owner):
        what = f"{name} was taken at another place of this control plane, and is none of what this one has come from"
    else:
        what = f"{name} is of another series or of another control plane ({there.record.series})"
    remedy = "see which there are: karmada.installer.backup_list"
    raise ProblemsError(Problem(what, target.where, remedy, reason=Reason.INVALID_BACKUP))


def _nobody_signed(run: Run, found: Sequence[Found], name: str, target: Target) -> Problem:
    """Problem of a place that knows no control plane, and was not told whose backup is meant."""
    signers = sorted({each.signer for each in found if each.record and name in ("", each.name)})
    what = f"no control plane {run.name} is here. To move one to here, name the key that has signed its backup"
    what += f"; signed is {name or 'what lies there'} by {', '.join(signers)}" if signers else ""
    remedy = (
        "compare that with what karmada.installer.hand_over or backup_list have told where it was, and name it: "
        "-e restore_signer=KEY"
    )
    return Problem(what, target.where, remedy, reason=Reason.CONFIRMATION_REQUIRED)


def goes_on(run: Run, asked: Asked, under_way: RestoreState, generation: int) -> bool:
    """Return whether the restore under way is to be gone on with, and not another one begun upon it.

    Raises ProblemsError if the user means another backup than that of one that no other may take the place of.
    """
    if under_way.step != PART_RELEASED and may_begin_anew(under_way, generation):
        return False
    if not (other := _meant(run, asked, under_way)):
        return True
    if under_way.step == PART_RELEASED:
        return False
    what = f"{under_way.survivor or under_way.backup} is being restored ({under_way.name}), and {other} is meant now"
    remedy = "take that back first: karmada.installer.restore_undo"
    if is_released(under_way):
        # There is no way back from there.
        remedy = "have its release come to its end first: karmada.installer.release"
    raise ProblemsError(impossible(what, run.place.where, remedy), "nothing was changed")


def _meant(run: Run, asked: Asked, under_way: RestoreState) -> str:
    """Name of what the user means if that is not the restore under way; empty if it is."""
    document = _all_wanted(run, asked).get(asked.name or under_way.name)
    meant = asked.confirm or ((document.backup or document.confirm) if document else "")
    name = asked.name or under_way.name
    same = ("", under_way.backup, under_way.survivor)
    member = asked.survivor or (document.survivor if document else "")
    is_same = name == under_way.name and meant in same and member in ("", under_way.survivor)
    return "" if is_same else member or meant or name


def is_done(earlier: RestoreState, chosen: Chosen) -> bool:
    """Return whether an EtcdRestore was carried out and released, so that running it again has nothing to do."""
    return (earlier.step, earlier.name, earlier.backup) == (RELEASED, chosen.wanted.name, chosen.record.name)


def _all_wanted(run: Run, asked: Asked) -> dict[str, WantedRestore]:
    if run.connection.object_uid is None:
        documents = asked.restores
    else:
        home = run.deployment["metadata"]["namespace"]
        documents = restores.of_objects(run.home.list(manifest.API_VERSION, restores.KIND, home), run.deployment)
    return {each.name: each for each in map(WantedRestore.of, documents)}


def survivor(run: Run, asked: Asked) -> str:
    """Member of etcd whose data is to be restored, by the command line or the document; empty if a backup is.

    Where it is not certain which document is meant, ``opened`` and ``choose`` tell so.
    """
    if asked.survivor:
        return asked.survivor
    found = _all_wanted(run, asked)
    name = asked.name or (next(iter(found)) if len(found) == 1 else "")
    return found[name].survivor if name in found else ""


def _wanted(run: Run, asked: Asked) -> WantedRestore:
    found = _all_wanted(run, asked)
    if not found:
        what = f"there is no {restores.KIND} for {run.name}"
        remedy = f"write one beside the document, or create one in its namespace. For example:\n{_EXAMPLE}"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.DOCUMENT_NOT_FOUND))
    if asked.name in found:
        return found[asked.name]
    if asked.name or len(found) > 1:
        what = f"{asked.name} is no {restores.KIND}" if asked.name else f"there are {len(found)}: {', '.join(found)}"
        remedy = f"name one with -e restore_name={next(iter(found))}"
        raise ProblemsError(Problem(what, "restore_name", remedy, reason=Reason.INVALID_ARGUMENT))
    (only,) = found.values()
    return only


def refuse_move(run: Run) -> None:
    """Raise ProblemsError if what runs as this control plane does cannot move, neither from here nor to here."""
    if run.place.etcd_apart:
        what = "its etcd is on plain hosts, and the rest of it in pods: nothing can move that yet"
        remedy = "move between places where all of it runs in pods, or all of it on hosts; a restore in its place works"
        raise ProblemsError(impossible(what, run.place.where, remedy), "nothing was stopped, and nothing was changed")


def look(run: Run) -> Live:
    """See what answers of the control plane that is there."""
    found = etcd_checks.of_members(run).statuses(run)
    statuses = [each for each in found if each.cause is None]
    try:
        with_modes = {
            each["metadata"]["name"]: str(each["spec"].get("syncMode", ""))
            for each in run.control_plane.list(CLUSTER_API, "Cluster")
        }
    except (ApiError, ProblemsError):
        return Live(statuses)
    return Live(statuses, with_modes)


def refuse(run: Run, chosen: Chosen, live: Live, asked: Asked) -> None:
    """Raise ProblemsError with all reasons why this backup cannot be restored here, damage of it included."""
    of_members, size = etcd_checks.of_members(run), chosen.record.files[SNAPSHOT].plain_size
    refuse_backup(
        run,
        chosen,
        live,
        asked,
        [
            *_etcd(run),
            *of_members.problems(run, size, max((each.db_size for each in live.statuses), default=0)),
            *_mode(run, chosen),
        ],
    )


def refuse_backup(run: Run, chosen: Chosen, live: Live, asked: Asked, others: Sequence[Problem]) -> None:
    """Raise ProblemsError with all reasons that lie in the backup and in the keys here, and with the ``others``."""
    problems = [
        *others,
        *_versions(run, chosen),
        *_authorities(run, chosen),
        *_foreign_agents(run, chosen.record, live, asked.foreign_agents),
    ]
    if not asked.keys:
        problems.append(no_key("it is encrypted"))
    else:
        run.say(f"fetching {chosen.record.name}, and restoring it on trial")
        try:
            verify.verify(run, chosen.target, chosen.record, asked.keys)
            _same_keys(run, chosen, asked.keys)
        except ProblemsError as error:
            problems += error.problems
    if problems:
        raise ProblemsError(problems, "nothing was stopped, and nothing was changed")


def _etcd(run: Run) -> Iterator[Problem]:
    if not run.state.etcd.bootstrapped or not run.state.etcd.members:
        yield impossible("its etcd has never worked", run.place.where, "run karmada.installer.install first")


def _versions(run: Run, chosen: Chosen) -> Iterator[Problem]:
    """Versions that read what other versions wrote: of Karmada and Kubernetes the same, of etcd the same minor."""
    here, then = run.instance.release, chosen.record.versions
    for what, now, before in (
        ("Karmada", here.karmada, then.karmada),
        ("Kubernetes", here.kubernetes, then.kubernetes),
    ):
        if now.split(".")[:2] != before.split(".")[:2] or (what == "Karmada" and now != before):
            remedy = "install the version of the backup first, or use another backup"
            yield impossible(f"it is of {what} {before}, and the control plane has {now}", chosen.where, remedy)
    if chosen.record.encryption_provider != run.spec.encryption_provider:
        then_by, now_by = chosen.record.encryption_provider, run.spec.encryption_provider
        what = f"its Secrets are encrypted by {then_by}, and those of the control plane by {now_by}"
        yield impossible(what, chosen.where, "set spec.encryption.provider as it was, or use another backup")


def _mode(run: Run, chosen: Chosen) -> Iterator[Problem]:
    if chosen.record.mode != run.spec.mode:
        remedy = "use a backup of this control plane as it runs now"
        yield impossible(
            f"it is of mode {chosen.record.mode}, and the control plane has {run.spec.mode}", chosen.where, remedy
        )


def _authorities(run: Run, chosen: Chosen) -> Iterator[Problem]:
    """Authorities that others have replaced, or that have ended: what is in the backup was issued by them."""
    for name, pair in run.state.authorities.items():
        known = chosen.record.authorities.get(name)
        # Nothing in a backup was issued by that of etcd, and the place that it came from had another one.
        if name == ETCD_CA:
            known = AuthorityRecord(x509.fingerprint(pair.certificate), "")
        if known is None or known.fingerprint != x509.fingerprint(pair.certificate):
            what = f"it was taken with another authority {name}, so that what was issued by that would be refused"
            yield impossible(what, chosen.where, "use a backup that was taken after the authority was replaced")
        elif x509.expiry(pair.certificate) <= run.now:
            yield impossible(f"authority {name} has ended", run.place.where, "renew it first")


def _foreign_agents(run: Run, record: Record, live: Live, named: Sequence[str]) -> Iterator[Problem]:
    """Members in mode Pull whose agents are not ours: nobody knows with what they log in."""
    if live.clusters is None:
        pulling = set(record.clusters)
        what = "others have registered it, and nobody can tell whether an agent of theirs works there: no API answers"
    else:
        pulling = {name for name, mode in live.clusters.items() if mode == "Pull"}
        what = "its agent was installed by somebody else, so that it may not be locked out by certificates"
    for name in sorted(pulling - run.state.members.keys() - set(named)):
        remedy = f"""stop the agent there, and name the member: -e '{{"restore_foreign_agents": ["{name}"]}}'"""
        yield impossible(what, f"member {name}", remedy)


def _same_keys(run: Run, chosen: Chosen, keys: Sequence[Any]) -> None:
    """Raise ProblemsError unless keys that content of etcd needs (encryption, tokens) are the same in the backup."""
    with workplace.opened() as folder:
        file = verify.decrypted(chosen.target, chosen.record, KEYS, keys, folder, chosen.where)
        then = verify.state_of(file, chosen.where)
    pairs = {
        "the key that encrypts Secrets": (then.encryption_key.encode(), run.state.encryption_key.encode()),
        "the key that signs tokens of service accounts": (then.service_account_key, run.state.service_account_key),
    }
    wrong = [name for name, (before, now) in pairs.items() if not hmac.compare_digest(before, now)]
    if wrong:
        remedy = "use a backup that was taken since it was replaced"
        raise ProblemsError([impossible(f"{name} was another one", chosen.where, remedy) for name in wrong])


def no_key(why: str) -> Problem:
    """Problem of a restore without a private key."""
    remedy = (
        f"name a Secret with a private key of a recipient (spec.identitySecretRef of the {restores.KIND}), "
        "or a file with it: -e restore_identity=FILE, in AWX by a credential of the type Karmada backup key"
    )
    return impossible(f"{why}, and no private key is here", "restore_identity", remedy)


def require_named(under_way: RestoreState, name: str, where: str) -> None:
    """Raise ProblemsError if the restore on record is not that of the EtcdRestore that is meant."""
    if name not in ("", under_way.name):
        remedy = f"decide upon {under_way.name} first"
        raise ProblemsError(impossible(f"the restore of it is {under_way.name}, not {name}", where, remedy))


def loss(run: Run, chosen: Chosen, live: Live) -> list[str]:
    """Sentences for people on what is lost by going back to this backup."""
    record = chosen.record
    told = [f"everything since {record.started.replace('+00:00', ' UTC')} ({in_words(run.now - record.start)} ago)"]
    if live.revision:
        told.append(f"{max(0, live.revision - record.revision)} revisions of etcd")
    else:
        told.append("how many revisions nobody can tell: no member of etcd answers")
    if record.dirty:
        told.append(f"the backup is of a moment when {record.dirty}")
    told += _differing_clusters(record.clusters, live.clusters)
    return told


def _differing_clusters(before: Iterable[str], now: Mapping[str, str] | None) -> Iterator[str]:
    if now is None:
        yield "which clusters have joined or left since nobody can tell: the API server does not answer"
        return
    if joined := sorted(now.keys() - set(before)):
        yield f"the registrations of {', '.join(joined)}, which joined since"
    if left := sorted(set(before) - now.keys()):
        yield f"that {', '.join(left)} left: they come back, with credentials that may be dead"


def require_confirmed(chosen: Chosen, told: Sequence[str], confirm: str) -> None:
    """Raise ProblemsError unless the name of the backup was confirmed; the message says what is lost."""
    name = chosen.record.name
    if confirm == name:
        return
    what = f"restoring {name} loses {'; '.join(told)}"
    if confirm:
        what = f"{confirm} was confirmed, and the backup is {name}. {what[0].upper()}{what[1:]}"
    remedy = f"if that is meant: spec.confirm of the {restores.KIND}, or -e restore_confirm={name}"
    if confirm:
        remedy += f"; if {confirm} is meant, name it in spec.backup, too"
    raise ProblemsError(
        Problem(what, chosen.wanted.place, remedy, reason=Reason.RESTORE_NOT_CONFIRMED),
        "nothing was stopped, and nothing was changed",
    )
