# SPDX-License-Identifier: Apache-2.0
"""Jobs of an AWX with backups of a control plane. Nothing that they need is left by another job on the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from awx_credentials import Credential, backup_key
from awx_runner import Done
from awx_site import Site, Unseen, answered, failed, says

#: Name of a backup.
NAME = re.compile(r"prod-\d{8}t\d{6}z-[0-9a-f]{6}")


def backups(site: Site, key: Path) -> None:
    """A backup is taken when it is due, listed, verified, and tried out; who has no key is told of its credential."""
    if not _succeeded(site, "backup").changed:
        raise Unseen("no backup was taken")
    if _succeeded(site, "backup").changed:
        raise Unseen("a backup was taken that was not due")
    name = _name_in(_succeeded(site, "backup_list"))
    says(_succeeded(site, "backup_verify", key=key), name, "decrypted, trailer")
    without = site.run("backup_drill", answered("backup_drill", {}))
    failed(without)
    says(without, "no private key is here", "a credential of the type Karmada backup key")
    drilled = _succeeded(site, "backup_drill", key=key)
    says(drilled, name, "old, served after")
    if [each["name"] for each in drilled.statistics["karmada_backups_drilled"]] != [name]:
        raise Unseen(f"the artifacts of the drill do not tell of {name}: {drilled.statistics}")


def restores(site: Site, key: Path) -> None:
    """A restore asks for the name of the backup, then stops in quarantine; it is taken back, or released.

    The second one asks again: what was there was backed up before the first one, so another backup is the newest.
    """
    for decided in ("restore_undo", "release"):
        asked = site.run("restore", answered("restore", {}), key=_key(key))
        failed(asked)
        says(asked, "loses everything since")
        confirmed = {"restore_confirm": _name_in(asked)}
        _ends_in("Quarantined", site.succeeded("restore", answered("restore", confirmed), key=_key(key)))
        _ends_in("Completed", site.succeeded(decided, answered(decided, {})))
    site.succeeded("restore_cleanup", answered("restore_cleanup", {"restore_cleanup_confirm": site.name}))
    site.succeeded("etcd_maintenance", answered("etcd_maintenance", {}))
    if site.succeeded("install", answered("install", {})).changed:
        raise Unseen("an installation had something to do after all that")


def handed(site: Site) -> None:
    """A control plane stops for another place, of which the job tells what it needs; that is taken back."""
    says(_succeeded(site, "hand_over", {"hand_over_confirm": site.name}), "restore_signer=")
    _ends_in("Completed", _succeeded(site, "hand_over", {"hand_over_undo": "true"}))


# -- inside ------------------------------------------------------------------------------------------------------------


def _succeeded(site: Site, verb: str, answers: Mapping[str, str] | None = None, *, key: Path | None = None) -> Done:
    """Run a job that has to succeed, with these answers of its survey; nothing that is not encrypted stays behind."""
    done = site.succeeded(verb, answered(verb, answers or {}), key=_key(key) if key else None)
    if left := list((done.folder / ".cache/karmada-installer/backups").glob("run-*")):
        raise Unseen(f"job {done.number} has left {', '.join(map(str, left))}")
    return done


def _key(file: Path) -> Credential:
    return backup_key(file.read_text(encoding="utf-8"))


def _name_in(done: Done) -> str:
    """Name of the only backup that an output tells of."""
    found = set(NAME.findall(done.output))
    if len(found) != 1:
        raise Unseen(f"job {done.number} tells of {len(found)} backups:\n{done.output[-3000:]}")
    (name,) = found
    return str(name)


def _ends_in(phase: str, done: Done) -> None:
    """Raise Unseen unless the artifacts of a job, which later nodes of a workflow get, have this phase."""
    status: Mapping[str, Any] = done.statistics.get("karmada_status", {})
    if status.get("phase") != phase:
        raise Unseen(f"after job {done.number} the phase is {status.get('phase')}, not {phase}:\n{done.output[-3000:]}")
