# SPDX-License-Identifier: Apache-2.0
"""Backups of a control plane. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    drill,
    due,
    encryption,
    series,
    take,
    verify,
    workplace,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Purpose, Record
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.take import Beginning, Sent, Taken
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD, pod_components
from ansible_collections.karmada.installer.plugins.plugin_utils.document import object_kind
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import KIND, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import (
    Problem,
    ProblemsError,
    Reason,
    number_of,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_access
from ansible_collections.karmada.installer.plugins.plugin_utils.run.delegated_host import DelegableAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

TAKEN, LISTED, VERIFIED, DRILLED = "taken", "listed", "verified", "drilled"
#: State that tells which host the others have to be delegated to.
PLACED = "placed"
#: States for members of etcd on plain hosts, where TAKEN only says what is due: before a database is fetched, with what
#: was fetched, and to make a backup of what was stored. Their hosts are locked for the first and the last of them.
BEGUN, STORED, RECORDED = "begun", "stored", "recorded"
#: What a user writes when there is nothing yet.
EXAMPLE = f"""\
apiVersion: {object_kind.API_VERSION}
kind: {KIND}
metadata: {{name: nightly}}
spec:
  deploymentRef: {{name: prod}}
  recipients: [age1...]
  target: {{directory: {{}}}}"""


class ActionModule(DelegableAction):
    """Take what is due, list what there is, verify one, or drill with one."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {
            "type": "str",
            "choices": [PLACED, TAKEN, BEGUN, STORED, RECORDED, LISTED, VERIFIED, DRILLED],
            "default": TAKEN,
        },
        "backups": {"type": "list", "elements": "dict", "default": []},
        "restores": {"type": "list", "elements": "dict", "default": []},
        "now": {"type": "str", "default": ""},
        "only": {"type": "str", "default": ""},
        "name": {"type": "str", "default": ""},
        "identity": {"type": "path", "default": ""},
        "snapshot": {"type": "dict", "default": {}},
        "sender": {"type": "str", "default": ""},
        "witness": {"type": "str", "default": ""},
        "last": {"type": "bool", "default": True},
        "at_once": {"type": "bool", "default": False},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Work on each EtcdBackup; the failure of one keeps no other from its work."""
        inner = {PLACED: _placed, BEGUN: _begun, STORED: _of_fetched, RECORDED: _of_fetched}
        if step := inner.get(arguments["state"]):
            return step(run, arguments)
        _refuse(run)
        alone = _alone(arguments)
        wanted = _wanted(run, arguments, alone)
        if not run.check:
            # Also where nothing is due: what a killed run has left here is not encrypted.
            workplace.sweep()
        if arguments["state"] == LISTED:
            return {"changed": False, "backups": [_listed(run, each) for each in wanted]}
        if arguments["state"] == VERIFIED:
            return {"changed": False, "verified": _verified(run, wanted, arguments["name"], arguments["identity"])}
        if arguments["state"] == DRILLED:
            return {"changed": False, "drilled": _drilled(run, wanted, arguments["name"], arguments["identity"])}
        if problem := series.at_risk(run, wanted, arguments["backups"]):
            run.tell(problem)
        # One that is asked for is taken alone.
        if alone:
            wanted = [_named(run, wanted, alone, "backup_now" if arguments["now"] else "backup_only")]
        return _taken(run, wanted, arguments, at_once=bool(arguments["now"]))


def _alone(arguments: dict[str, Any]) -> str:
    """Name of the only EtcdBackup that is asked for; empty if all are."""
    name: str = arguments["now"] or arguments["only"]
    return name


def _taken(run: Run, wanted: list[Wanted], arguments: dict[str, Any], *, at_once: bool) -> dict[str, Any]:
    """Take backups that are due. Of members on plain hosts, tell which are due and which hosts are to take them."""
    changes, known = list[str](), series.names(run, arguments["backups"])
    done, problems = [], list[Problem]()
    here, due_on_hosts = ETCD in pod_components(run.spec), list[str]()
    for each in wanted:
        try:
            target = series.opened(run, each)
            if is_due := _is_due(run, each, target, at_once=at_once):
                if run.check:
                    changes.append(f"created Backup {each.name}")
                else:
                    # It writes, so it is not done where nothing is due.
                    target.check()
                    if not here:
                        # In pods that is asked when the member that sends it is chosen.
                        target.require_room(max(each.status.db_size for each in on_hosts.seen(run)))
            if is_due and here and not run.check:
                taken = take.backup(run, each, target, _purpose(at_once), known=known)
                _conclude(run, each, target, taken, arguments["restores"], changes)
            elif is_due and not run.check:
                due_on_hosts.append(each.name)
            found = _status(run, each, target, _own(run, each, target))
        except ProblemsError as error:
            problems += error.problems
        else:
            done.append(found)
    if due_on_hosts:
        # Without one that can, no host is locked.
        _chosen(run)
        # The others are taken first; then the role fails with these.
        told = {"on_hosts": due_on_hosts, "troubles": _troubles(run, problems)}
        return {"changed": False, "changes": [], "backups": done, **told}
    if problems:
        raise ProblemsError(problems, f"done nevertheless: {', '.join(changes)}" if changes else "")
    return {"changed": bool(changes), "changes": changes, "backups": done}


def _purpose(at_once: bool) -> Purpose:
    return Purpose.REQUESTED if at_once else Purpose.SCHEDULED


def _is_due(run: Run, wanted: Wanted, target: Target, *, at_once: bool) -> bool:
    """Return whether a backup of one series is to be taken; tell of missed ones, or of the next one if none is due."""
    # Before a first byte is fetched or sent.
    encryption.recipients(wanted.recipients, f"{wanted.place}: spec.recipients")
    listed = series.found(target, series.signer(run))
    series.refuse_left(listed, run.state, target)
    verdict = due.due(wanted, series.starts(series.own(listed, wanted.name, run.state)).values(), run.now)
    if verdict.missed:
        what = f"{wanted.place} has missed {number_of(verdict.missed, 'backup')}"
        run.tell(Problem.warning(what, Reason.BACKUP_MISSED, target.where))
    if at_once:
        return True
    if series.waits(run.state):
        # What a quarantine has may be taken back, and would be the newest of the series then.
        run.say(f"no backup of {wanted.name} is taken: {series.HELD}")
        return False
    if verdict.since is not None:
        return True
    run.say(f"no backup of {wanted.name} is due{_until(verdict.next)}")
    return False


def _conclude(
    run: Run, wanted: Wanted, target: Target, taken: Taken, restores: Iterable[Mapping[str, Any]], changes: list[str]
) -> None:
    """Tell of a backup that was taken, and delete what is not kept any more. ``restores`` are those of a file."""
    changes.append(f"created Backup {taken.record.name}")
    for each in taken.problems:
        run.tell(each)
    # The clock of a machine may have been ahead once: then the newest by its start is not the one of now.
    kept = {taken.record.name, *series.in_use(run.state), *series.meant(run, restores)}
    gone = series.delete_old(target, wanted, _own(run, wanted, target), kept, run.now)
    changes += [f"deleted Backup {name}" for name in gone.names]
    for problem in gone.problems:
        run.tell(Problem.warning(problem.what, Reason.BACKUP_NOT_DELETED, problem.where))


def _refuse(run: Run) -> None:
    """Raise ProblemsError if this etcd cannot be backed up, or nothing is known of it because no host answers."""
    if run.stored_state is None and (unheard := _unheard(run)):
        raise ProblemsError(unheard)
    take.refuse(run)


def _unheard(run: Run) -> list[Problem]:
    """Hosts of the control plane that could not be looked at, each with the reason."""
    return [
        host_access.problem(run.observed[name].refusal, host=name, address=host.address, user=run.spec.ssh_user)
        for name, host in run.hosts.items()
        if run.observed[name].refusal and not host.is_of_members
    ]


def _require_hosts(run: Run) -> None:
    """Raise ProblemsError if another run has a host. One that does not answer is no reason to have no backup."""
    if taken := [each for each in _unheard(run) if each.reason is Reason.LOCKED]:
        raise ProblemsError(taken)


def _chosen(run: Run) -> tuple[str, str]:
    """Host whose member sends its database, and the one whose member proves it. Raises ProblemsError."""
    seen = on_hosts.seen(run)
    sender, witness = take.chosen([each.status for each in seen], f"etcd of {run.name}")
    by_url = {each.status.url: each.name for each in seen}
    return by_url[sender.url], by_url[witness.url]


def _troubles(run: Run, problems: Iterable[Problem]) -> list[str]:
    """Tell of problems at once, and return them for the end: the failure of one keeps no other from its work."""
    found = list(problems)
    for each in found:
        run.tell(each)
    return [str(each) for each in found]


def _placed(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"changed": False, "host": series.placed(run, arguments["backups"], _alone(arguments))}


def _begun(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Begin one with the hosts locked: who is asked, and the key that signs, which every host has to have first."""
    run.store.read_again(run)
    _require_hosts(run)
    _refuse(run)
    # The hosts were free since it was asked what is due.
    series.refuse_held(run, _purpose(arguments["at_once"]))
    sender, witness = _chosen(run)
    take.ensure_signing_key(run)
    return {"changed": False, "sender": sender, "witness": witness}


def _of_fetched(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Store a snapshot that was fetched from a host, or record it as a backup. Failures are told again at the end."""
    folder, records = Path(arguments["snapshot"]["file"]).parent, arguments["state"] == RECORDED
    changes, goes_on, made = list[str](), False, ""
    try:
        each = _named(run, _wanted(run, arguments), arguments["now"])
        target = series.opened(run, each)
        try:
            if records:
                made = _record(run, each, target, arguments, changes)
            else:
                _store(run, each, target, arguments)
                goes_on = True
        except take.AnewError as error:
            if arguments["last"]:
                raise take.each_time(run) from None
            run.say(f"{error}; the backup is begun anew")
            return {"changed": False, "stored": False, "anew": True, "troubles": []}
    except ProblemsError as error:
        told = {"changed": bool(changes), "changes": changes, "stored": False, "anew": False}
        return {**told, "troubles": _troubles(run, error.problems)}
    finally:
        if not goes_on:
            workplace.remove(folder)
    named = {"name": made} if made else {}
    return {"changed": records, "changes": changes, "stored": True, "anew": False, "troubles": [], **named}


def _store(run: Run, wanted: Wanted, target: Target, arguments: dict[str, Any]) -> None:
    """Prove what was fetched, and store it; no host is locked meanwhile."""
    snapshot, seen = arguments["snapshot"], {one.name: one for one in on_hosts.seen(run)}
    witness, counted = seen[arguments["witness"]].hash, seen[arguments["witness"]].counted
    sent = Sent(
        Path(snapshot["file"]),
        seen[arguments["sender"]].status,
        [one.status for one in seen.values()],
        int(snapshot["acknowledged"]),
        lambda revision: witness if witness and witness.revision == revision else None,
        lambda revision: counted.counts if counted and counted.revision == revision else None,
    )
    purpose = _purpose(arguments["at_once"])
    beginning = Beginning.of(snapshot["beginning"])
    for problem in take.stored(run, wanted, target, purpose, beginning, sent, last=arguments["last"]):
        run.tell(problem)


def _record(run: Run, wanted: Wanted, target: Target, arguments: dict[str, Any], changes: list[str]) -> str:
    """Make a backup of what was stored, with the hosts locked once more; returns its name."""
    folder = Path(arguments["snapshot"]["file"]).parent
    try:
        run.store.read_again(run)
        _require_hosts(run)
        _refuse(run)
    except ProblemsError:
        take.discard(target, folder)
        raise
    known = series.names(run, arguments["backups"])
    taken = Taken(take.recorded(run, wanted, target, folder, known))
    _conclude(run, wanted, target, taken, arguments["restores"], changes)
    return taken.record.name


def _wanted(run: Run, arguments: dict[str, Any], alone: str = "") -> list[Wanted]:
    wanted = series.wanted(run, arguments["backups"], alone)
    if not wanted:
        what = f"there is no {KIND} for {run.name}"
        remedy = f"write one beside the document, or create one in its namespace. For example:\n{EXAMPLE}"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.DOCUMENT_NOT_FOUND))
    return wanted


def _named(run: Run, wanted: list[Wanted], name: str, where: str = "backup_now") -> Wanted:
    """The one of this name. Raises ProblemsError."""
    for each in wanted:
        if each.name == name:
            return each
    what = f"{name} is no {KIND} of {run.name}"
    remedy = f"name one of {', '.join(each.name for each in wanted)}"
    raise ProblemsError(Problem(what, where, remedy, reason=Reason.INVALID_ARGUMENT))


def _own(run: Run, wanted: Wanted, target: Target) -> dict[str, Record]:
    return series.own(series.found(target, series.signer(run)), wanted.name, run.state)


def _status(run: Run, wanted: Wanted, target: Target, own: dict[str, Record]) -> dict[str, Any]:
    """Status of an EtcdBackup, with its name and the place of its backups beside it."""
    started = series.starts(own)
    health = due.health(wanted, started.values(), run.now)
    following = due.due(wanted, started.values(), run.now).next
    condition = {
        "type": "BackupHealthy",
        "status": "True" if health.healthy else "False",
        "reason": health.reason,
        "message": health.message,
    }
    status: dict[str, Any] = {"conditions": [condition], "count": len(own)}
    if newest := series.newest(own, run.now):
        status["newest"] = {
            "name": newest.name,
            "startTime": _moment(newest.start),
            "sizeBytes": newest.size,
            "revision": newest.revision,
            "durationSeconds": newest.duration_seconds,
        }
    if following:
        status["nextTime"] = _moment(following)
    return {"name": wanted.name, "target": target.where, "status": status}


def _listed(run: Run, wanted: Wanted) -> dict[str, Any]:
    """Status of a series, and each backup that lies in its target, whosoever it is."""
    target = series.opened(run, wanted)
    found = series.found(target, series.signer(run))
    own = series.own(found, wanted.name, run.state)
    run.say(f"{wanted.name}: {number_of(len(own), 'backup')} in {target.where}")
    if signer := series.signer(run):
        # Whoever moves it to another place names that there.
        run.say(f"  signed here by {signer}")
    rows = []
    for each in found:
        row: dict[str, Any] = {"name": each.name, "ours": each.name in own, "trouble": each.trouble}
        if each.record:
            told = each.record
            row |= {
                "series": told.series,
                "startTime": _moment(told.start),
                "sizeBytes": told.size,
                "revision": told.revision,
                "levels": list(told.levels),
                "versions": dict(vars(told.versions)),
                "dirty": told.dirty,
            }
            age = due.in_words(max(run.now - told.start, timedelta()))
            whose = "" if each.name in own else " (of another series or place, or not signed by this control plane)"
            run.say(f"  {each.name}  {age} old  {told.size >> 20} MiB  revision {told.revision}{whose}")
        else:
            run.say(f"  {each.name}  of no use: {each.trouble}")
        rows.append(row)
    return {**_status(run, wanted, target, own), "backups": rows}


#: What to do about a private key that is lacking.
_NAME_KEY = (
    "name one with -e backup_identity=FILE; in AWX, give the job template a credential of the type Karmada backup key"
)


def _verified(run: Run, wanted: list[Wanted], name: str, identity: str) -> list[dict[str, Any]]:
    """Verify the backup of this name, or the newest of each series."""
    keys = encryption.identities_of(identity) if identity else []
    done = []
    for each, target, chosen in _stored(run, wanted, name):
        proofs = verify.verify(run, target, chosen, keys)
        run.say(f"{chosen.name}: {', '.join(proofs)}")
        done.append({"name": chosen.name, "series": each.name, "proofs": proofs})
        if not keys:
            what = f"{chosen.name} was fetched and compared, and not decrypted: no private key is here"
            run.tell(Problem.hint(f"{what}; {_NAME_KEY}", Reason.CHECK_SKIPPED, target.where))
    return done


def _drilled(run: Run, wanted: list[Wanted], name: str, identity: str) -> list[dict[str, Any]]:
    """Serve the backup of this name, or the newest of each series, and read all of it."""
    if not identity:
        what = "a drill opens a backup, and no private key is here"
        raise ProblemsError(Problem(what, "backup_identity", _NAME_KEY, reason=Reason.INVALID_ARGUMENT))
    keys = encryption.identities_of(identity)
    done = []
    for each, target, chosen in _stored(run, wanted, name):
        found = drill.drill(run, target, chosen, keys)
        parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in found.seconds.items())
        read = ", ".join(f"{number} {kind}" for kind, number in sorted(found.counts.items()))
        age = due.in_words(max(run.now - chosen.start, timedelta()))
        run.say(f"{found.name}: {age} old, served after {found.total - found.seconds['read']:.1f} s ({parts}); {read}")
        told = {"revision": found.revision, "counts": dict(found.counts), "seconds": dict(found.seconds)}
        age_seconds = max(0, int((run.now - chosen.start).total_seconds()))
        done.append({"name": found.name, "series": each.name, "ageSeconds": age_seconds, **told})
    return done


def _stored(run: Run, wanted: list[Wanted], name: str) -> Iterator[tuple[Wanted, Target, Record]]:
    """The backup of this name, or the newest of each series, with series and target. Raises ProblemsError if none."""
    found = False
    for each in wanted:
        target = series.opened(run, each)
        own = _own(run, each, target)
        chosen = own.get(name) if name else series.newest(own, run.now)
        if chosen is not None:
            found = True
            yield each, target, chosen
    if not found:
        what = f"there is no backup {name}" if name else "there is no backup yet"
        remedy = "see which there are: karmada.installer.backup_list"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.INVALID_ARGUMENT))


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _until(following: datetime | None) -> str:
    return f" before {_moment(following)}" if following else "; it is suspended"
