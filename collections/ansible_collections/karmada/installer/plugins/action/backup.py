# SPDX-License-Identifier: Apache-2.0
"""Backups of a control plane. Documentation: the module of the same name."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    due,
    encryption,
    series,
    take,
    verify,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Purpose, Record
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.targets import Target
from ansible_collections.karmada.installer.plugins.plugin_utils.document import object_kind
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import KIND, Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import (
    Problem,
    ProblemsError,
    Reason,
    number_of,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

TAKEN, LISTED, VERIFIED = "taken", "listed", "verified"
#: What a user writes when there is nothing yet.
EXAMPLE = f"""\
apiVersion: {object_kind.API_VERSION}
kind: {KIND}
metadata: {{name: nightly}}
spec:
  deploymentRef: {{name: prod}}
  recipients: [age1...]
  target: {{directory: {{}}}}"""


class ActionModule(KarmadaAction):
    """Take what is due, list what there is, or verify one."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "choices": [TAKEN, LISTED, VERIFIED], "default": TAKEN},
        "backups": {"type": "list", "elements": "dict", "default": []},
        "now": {"type": "str", "default": ""},
        "name": {"type": "str", "default": ""},
        "identity": {"type": "path", "default": ""},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Work on each EtcdBackup; the failure of one keeps no other from its work."""
        take.refuse(run)
        wanted = series.wanted(run, arguments["backups"])
        if not wanted:
            what = f"there is no {KIND} for {run.name}"
            remedy = f"write one beside the document, or create one in its namespace. For example:\n{EXAMPLE}"
            raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.DOCUMENT_NOT_FOUND))
        if arguments["state"] == LISTED:
            return {"changed": False, "backups": [_listed(run, each) for each in wanted]}
        if arguments["state"] == VERIFIED:
            return {"changed": False, "verified": _verified(run, wanted, arguments["name"], arguments["identity"])}
        now = arguments["now"]
        if now and now not in [each.name for each in wanted]:
            what = f"{now} is no {KIND} of {run.name}"
            remedy = f"name one of {', '.join(each.name for each in wanted)}"
            raise ProblemsError(Problem(what, "backup_now", remedy, reason=Reason.INVALID_ARGUMENT))
        # One that is asked for is taken alone.
        return _taken(run, [each for each in wanted if not now or each.name == now], at_once=bool(now))


def _taken(run: Run, wanted: list[Wanted], *, at_once: bool) -> dict[str, Any]:
    changes: list[str] = []
    done, problems = [], list[Problem]()
    for each in wanted:
        try:
            found = _of_series(run, each, changes, at_once=at_once)
        except ProblemsError as error:
            problems += error.problems
        else:
            done.append(found)
    if problems:
        raise ProblemsError(problems, f"done nevertheless: {', '.join(changes)}" if changes else "")
    return {"changed": bool(changes), "changes": changes, "backups": done}


def _of_series(run: Run, wanted: Wanted, changes: list[str], *, at_once: bool) -> dict[str, Any]:
    """Take a backup of one series if it is due; returns its status."""
    # Before a first byte is fetched or sent.
    encryption.recipients(wanted.recipients, f"{wanted.place}: spec.recipients")
    target = series.opened(run, wanted)
    if not run.check:
        target.check()
    own = _own(run, wanted, target)
    verdict = due.due(wanted, series.starts(own).values(), run.now)
    if verdict.missed:
        what = f"{wanted.place} has missed {number_of(verdict.missed, 'backup')}"
        run.tell(Problem.warning(what, Reason.BACKUP_MISSED, target.where))
    if not at_once and verdict.since is None:
        run.say(f"no backup of {wanted.name} is due{_until(verdict.next)}")
        return _status(run, wanted, target, own)
    if run.check:
        changes.append(f"created Backup {wanted.name}")
        return _status(run, wanted, target, own)
    purpose = Purpose.REQUESTED if at_once else Purpose.SCHEDULED
    taken = take.backup(run, wanted, target, purpose)
    changes.append(f"created Backup {taken.record.name}")
    for each in taken.problems:
        run.tell(each)
    own = _own(run, wanted, target)
    gone = series.delete_old(target, wanted, own, ())
    changes += [f"deleted Backup {name}" for name in gone.names]
    for problem in gone.problems:
        run.tell(Problem.warning(problem.what, Reason.BACKUP_NOT_DELETED, problem.where))
    return _status(run, wanted, target, {name: each for name, each in own.items() if name not in gone.names})


def _own(run: Run, wanted: Wanted, target: Target) -> dict[str, Record]:
    return series.own(series.found(target, series.signer(run)), wanted.name, run.state.owner)


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
    if own:
        newest = max(own.values(), key=lambda each: each.start)
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
    own = series.own(found, wanted.name, run.state.owner)
    run.say(f"{wanted.name}: {number_of(len(own), 'backup')} in {target.where}")
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
            whose = "" if each.name in own else " (of another series, or not signed by this control plane)"
            run.say(f"  {each.name}  {age} old  {told.size >> 20} MiB  revision {told.revision}{whose}")
        else:
            run.say(f"  {each.name}  of no use: {each.trouble}")
        rows.append(row)
    return {**_status(run, wanted, target, own), "backups": rows}


def _verified(run: Run, wanted: list[Wanted], name: str, identity: str) -> list[dict[str, Any]]:
    """Verify the backup of this name, or the newest of each series."""
    keys = _identities(identity) if identity else []
    done = []
    for each in wanted:
        target = series.opened(run, each)
        own = _own(run, each, target)
        chosen = own.get(name) if name else max(own.values(), key=lambda found: found.start, default=None)
        if chosen is None:
            continue
        proofs = verify.verify(run, target, chosen, keys)
        run.say(f"{chosen.name}: {', '.join(proofs)}")
        done.append({"name": chosen.name, "series": each.name, "proofs": proofs})
        if not keys:
            what = f"{chosen.name} was fetched and compared, and not decrypted: no private key is here"
            run.tell(Problem.hint(f"{what}; name one with -e backup_identity=FILE", Reason.CHECK_SKIPPED, target.where))
    if not done:
        what = f"there is no backup {name}" if name else "there is no backup yet"
        remedy = "see which there are: karmada.installer.backup_list"
        raise ProblemsError(Problem(what, run.place.where, remedy, reason=Reason.INVALID_ARGUMENT))
    return done


def _identities(path: str) -> list[Any]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        what = f"cannot be read: {(error.strerror or str(error)).lower()}"
        remedy = "name the file with a private key of a recipient"
        raise ProblemsError(Problem(what, path, remedy, reason=Reason.LOCAL_FILE_UNUSABLE)) from None
    return encryption.identities(text, path)


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _until(following: datetime | None) -> str:
    return f" before {_moment(following)}" if following else "; it is suspended"
