# SPDX-License-Identifier: Apache-2.0
"""A member of etcd that still has its data while a majority of them is gone for good, as the source of a restore.

Without a majority etcd takes no writes and tells nothing that a majority would have to agree to, but a member that goes
on tells its own status and sends its own database as before. That is all it knows to be committed: the same that a copy
of its data has that is started with ``--force-new-cluster`` (``test_restore_survivor`` compares them), without such a
copy, and without anybody else who opens its files. One that was started again answers no client before it has a leader:
of that the database is copied (``survivor_copy``).

What it has is proved and kept as a backup in the target of the restore, signed and encrypted like any other, and
that one is restored. So a run that is killed goes on as each restore does, and what a member alone had is stored where
no disk of the control plane can take it along.

What only members had that are gone is lost. Who was told that a write had succeeded may not find it: that is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash

from ..backup import encryption, take, workplace
from ..backup.due import in_words
from ..backup.record import Purpose, Record
from ..components.etcd_state import EtcdState
from ..components.state import RELEASED, RestoreState
from ..components.table import ETCD
from ..document import restores
from ..etcd import access
from ..etcd.client import EndpointStatus, EtcdError
from ..problems import Problem, ProblemsError, Reason
from ..run.run import Run
from . import check, etcd_checks, survivor_copy
from .check import Asked, Place
from .impossible import impossible
from .survivor_copy import Copy

#: Age of an etcd that no backup tells anything of: the bump of the revision allows for so many years.
UNKNOWN_AGE = timedelta(days=3650)
#: Revision of an etcd in which nothing was ever written.
_EMPTY = 1
_LOST = (
    "the last writes before most members were lost may be missing: {name} has what it knew to be committed, "
    "and others may have acknowledged more"
)
NOTHING_CHANGED = "nothing was stopped, and nothing was changed"


@dataclass(frozen=True)
class Survivor:
    """A member that was found fit, with the ``statuses`` of all by name; ``told`` are sentences on what is lost.

    ``newest`` is the newest backup of the same etcd; None if there is none. ``since``: see ``source.Source``.
    """

    name: str
    statuses: Mapping[str, EndpointStatus]
    told: Sequence[str]
    newest: Record | None
    since: datetime
    copy: Copy | None = None

    @property
    def status(self) -> EndpointStatus:
        """Status that it has told itself, or the copy of its data."""
        return self.copy.status if self.copy else self.statuses[self.name]


def judged(run: Run, asked: Asked, place: Place, timeout: float) -> Survivor:
    """Survivor that the user names, found fit and confirmed. Nothing of the control plane is changed.

    Raises ProblemsError with all reasons why its data cannot be restored, or with what is lost if that was not
    confirmed by its name.
    """
    name, statuses = asked.survivor, seen(run)
    problems = [*_asked_for_another(place, name), *not_lost(name, statuses, run.place.where)]
    if not asked.keys:
        problems.append(check.no_key("what it has is kept encrypted until it is restored"))
    silent = name in statuses and statuses[name].cause is not None
    if silent and run.check:
        problems.append(_silent(name, statuses[name], run.place.where))
    if problems:
        raise ProblemsError(problems, NOTHING_CHANGED)
    if ETCD.is_on_hosts(run.spec):
        copy = Copy.of(asked.fetched) if asked.fetched else None
    else:
        copy = survivor_copy.taken(run, name, timeout) if silent else None
    try:
        found = _found(run, place, name, statuses, copy)
        _require_confirmed(name, found.told, asked, place)
    except BaseException:
        if copy:
            copy.remove()
        raise
    return found


def _found(run: Run, place: Place, name: str, statuses: Mapping[str, EndpointStatus], copy: Copy | None) -> Survivor:
    """Survivor whose data was looked at, with what is lost. Raises ProblemsError."""
    status, backups = copy.status if copy else statuses[name], check.own_backups(run, place)
    problems = [
        *unfit(run.state.etcd, name, status, run.instance.release.etcd, run.place.where),
        *superseded(status, backups, place.target.where),
        *etcd_checks.of_members(run).problems(run, status.db_size, status.db_size),
    ]
    if problems:
        raise ProblemsError(problems, NOTHING_CHANGED)
    newest = max(_of_same(status, backups), key=lambda each: each.revision, default=None)
    told = list(lost(name, {**statuses, name: status}, newest, run.now))
    if copy and not copy.settled:
        told.append(f"what {name} took last, because it does not run, and its log was not read")
    since = newest.start if newest else run.now - UNKNOWN_AGE
    return Survivor(name, statuses, told, newest, since, copy)


def sender(run: Run, asked: Asked, earlier: RestoreState | None) -> str:
    """Host whose data is to be copied before the survivor is judged; empty if none is, because a backup is restored, or
    a restore is under way or was carried out. Raises ProblemsError if nobody has to go on with what this member has.
    """
    if run.check or run.stored_state is None:
        return ""
    if earlier and check.goes_on(run, asked, earlier, run.state.etcd.generation):
        return ""
    asked = replace(asked, survivor=check.survivor(run, asked))
    if not asked.survivor:
        return ""
    place = check.opened(run, asked)
    if is_done(earlier, place, asked.survivor):
        return ""
    asked = asked.completed(run, place.wanted)
    problems = [*_asked_for_another(place, asked.survivor), *not_lost(asked.survivor, seen(run), run.place.where)]
    if not asked.keys:
        problems.append(check.no_key("what it has is kept encrypted until it is restored"))
    if problems:
        raise ProblemsError(problems, NOTHING_CHANGED)
    return asked.survivor


def is_done(earlier: RestoreState | None, place: Place, name: str) -> bool:
    """Return whether this restore of what a member had was carried out and released."""
    return earlier is not None and (earlier.step, earlier.name, earlier.survivor) == (RELEASED, place.wanted.name, name)


def backed_up(run: Run, survivor: Survivor, place: Place) -> Record:
    """Backup of what a survivor has, in the target. Raises ProblemsError; then there is none."""
    try:
        place.target.check()
        place.target.require_room(survivor.status.db_size)
        take.ensure_signing_key(run)
        if has_majority(seen(run)):
            what = "etcd has got its majority again meanwhile, and takes writes"
            raise ProblemsError(
                impossible(what, run.place.where, "see what it has, and take a backup"), NOTHING_CHANGED
            )
        if copy := survivor.copy:
            told = {"file": str(copy.path), "beginning": copy.beginning.plain}
            return _stored(run, survivor, place, told, copy.hash)
        return _asked_here(run, survivor, place)
    finally:
        if survivor.copy:
            survivor.copy.remove()


def _asked_here(run: Run, survivor: Survivor, place: Place) -> Record:
    """Backup of what a survivor sends that answers here."""
    with workplace.opened() as folder:
        try:
            workplace.require_room(folder, survivor.status.db_size * take.COPIES)
            beginning, member = take.Beginning.now(run.state), access.connect(run).at(survivor.status.url)
            run.say(f"snapshot of etcd member {survivor.name}, which is what is left of etcd")
            path = folder / take.PLAIN
            with open(path, "xb", opener=encryption.reader_only) as stream:
                member.snapshot(stream)
            found = take.hash_of(member, survivor.status.revision)
        except EtcdError as error:
            remedy = "see the log of this member, and run it again"
            problem = Problem(
                f"member {survivor.name} does not send its database: {error}",
                run.place.where,
                remedy,
                reason=Reason.ETCD_UNHEALTHY,
            )
            raise ProblemsError(problem, NOTHING_CHANGED) from None
        except OSError as error:
            raise workplace.unusable(error) from None
        told = {"file": str(path), "beginning": beginning.plain}
        return _stored(run, survivor, place, told, found)


def _stored(run: Run, survivor: Survivor, place: Place, fetched: Mapping[str, Any], found: Hash | None) -> Record:
    path, beginning = Path(fetched["file"]), take.Beginning.of(fetched["beginning"])
    others = list(survivor.statuses.values())
    # Of the rest of etcd nothing is left that could count.
    sent = take.Sent(path, survivor.status, others, survivor.status.revision, lambda _revision: found, lambda _: None)
    try:
        for each in take.stored(run, place.series, place.target, Purpose.SURVIVOR, beginning, sent, last=True):
            run.tell(each)
        return take.recorded(run, place.series, place.target, path.parent)
    except take.AnewError:
        raise take.each_time(run) from None


def seen(run: Run) -> dict[str, EndpointStatus]:
    """Members on record as they answer now, or have answered on their hosts: name → status."""
    return dict(etcd_checks.of_members(run).statuses_by_name(run))


# -- pure --------------------------------------------------------------------------------------------------------------


def not_lost(name: str, statuses: Mapping[str, EndpointStatus], where: str) -> Iterator[Problem]:
    """Reasons why nobody has to go on with what one member has, by what all have answered."""
    if name not in statuses:
        yield impossible(f"{name} is no member of etcd", where, f"name one of {', '.join(sorted(statuses))}")
        return
    answering = {each for each, status in statuses.items() if status.cause is None}
    if has_majority(statuses):
        what = f"etcd has its majority ({', '.join(sorted(answering))} answer), so nothing that it took is lost"
        yield impossible(what, where, "replace the lost members with karmada.installer.install, or restore a backup")
    elif len(answering) * 2 > len(statuses):
        what = f"most members have their data ({', '.join(sorted(answering))} answer), and only no leader"
        remedy = "have them reach one another, and nothing is lost"
        yield impossible(what, where, remedy)


def unfit(etcd: EtcdState, name: str, status: EndpointStatus, version: str, where: str) -> Iterator[Problem]:
    """Reasons why what this member has is no source of a restore. ``version``: that of etcd here."""
    record = etcd.member(name)
    on_record = record.id if record else ""
    remedy = "name another member, or restore a backup"
    if status.learner:
        yield impossible(f"{name} has not come to its vote", where, remedy)
    elif status.member_id and on_record and on_record != status.member_id:
        what = f"the data of {name} is not that of the member on record ({status.member_id}, not {on_record})"
        yield impossible(what, where, remedy)
    if status.revision <= _EMPTY:
        yield impossible(f"{name} has no data", where, remedy)
    if _minor(status.version) != _minor(version):
        what = f"{name} runs etcd {status.version}, and the control plane has {version}"
        yield impossible(what, where, "restore it by the version of the collection that has installed it")


def has_majority(statuses: Mapping[str, EndpointStatus]) -> bool:
    """Return whether a member that answers knows a leader."""
    return any(
        each.cause is None and not each.learner and "no leader" not in each.message for each in statuses.values()
    )


def superseded(status: EndpointStatus, backups: Sequence[Record], where: str) -> Iterator[Problem]:
    """Problem of a backup of the same etcd that has everything that this member has."""
    same = [each for each in _of_same(status, backups) if each.revision >= status.revision]
    if found := max(same, key=lambda each: each.revision, default=None):
        what = f"backup {found.name} has revision {found.revision}, and this member {status.revision}: it has no more"
        yield impossible(what, where, "restore that, without a survivor")


def _of_same(status: EndpointStatus, backups: Sequence[Record]) -> list[Record]:
    """Backups of the same etcd. A copy does not tell which that is; after a restore revisions are far above others."""
    return [each for each in backups if status.cluster_id in ("", each.cluster_id)]


def lost(name: str, statuses: Mapping[str, EndpointStatus], newest: Record | None, now: datetime) -> Iterator[str]:
    """Sentences for people on what is lost by going on with what this member has."""
    status = statuses[name]
    yield _LOST.format(name=name)
    if newest:
        age = in_words(max(now - newest.start, timedelta()))
        yield f"it has revision {status.revision}, and the newest backup ({newest.name}, {age} ago) {newest.revision}"
    else:
        yield f"it has revision {status.revision}, and there is no backup of this etcd to compare that with"
    newer = [each for each in by_age(statuses) if each != name and _age(statuses[each]) > _age(status)]
    if newer:
        of = statuses[newer[0]]
        yield (
            f"{newer[0]} is newer (term {of.term}, entry {of.index}, revision {of.revision}; {name}: term "
            f"{status.term}, entry {status.index}), and what it has beyond that is lost, too"
        )


def by_age(statuses: Mapping[str, EndpointStatus]) -> list[str]:
    """Members that answer, that with the newest entry of the log first."""
    answering = [name for name, each in statuses.items() if each.cause is None]
    return sorted(answering, key=lambda name: _age(statuses[name]), reverse=True)


def _age(status: EndpointStatus) -> tuple[int, int, int]:
    return status.term, status.index, status.revision


def _minor(version: str) -> list[str]:
    return version.removeprefix("v").split(".")[:2]


def _asked_for_another(place: Place, name: str) -> Iterator[Problem]:
    if place.wanted.backup:
        what = f"it names the backup {place.wanted.backup}, and {name} is named as survivor"
        yield impossible(what, f"{place.wanted.place}: spec.backup", "take one of the two out")


def _silent(name: str, status: EndpointStatus, where: str) -> Problem:
    what = f"member {name} does not answer: {status.message}"
    return impossible(what, where, "run it without check mode: it looks into a copy of its data, and asks before more")


def _require_confirmed(name: str, told: Sequence[str], asked: Asked, place: Place) -> None:
    if asked.confirm == name:
        return
    what = f"restoring what {name} has: {'; '.join(told)}"
    if asked.confirm:
        what = f"{asked.confirm} was confirmed, and the survivor is {name}. {what[0].upper()}{what[1:]}"
    remedy = f"if that is meant: -e restore_survivor={name} -e restore_confirm={name}"
    if place.wanted.survivor == name:
        remedy = f"if that is meant: spec.confirm of the {restores.KIND}, or -e restore_confirm={name}"
    problem = Problem(what, place.wanted.place, remedy, reason=Reason.RESTORE_NOT_CONFIRMED)
    raise ProblemsError(problem, NOTHING_CHANGED)
