# SPDX-License-Identifier: Apache-2.0
"""Apply a tree of users, directories, files and systemd units to a plain host, and check that the units are healthy.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
A tree is the output of ``render.units`` on the controller, as JSON:

* ``owner``: UUID of the control plane. Its units carry it as ``X-KarmadaOwner``, its users in their comment.
* ``users``: ``{name, home, comment}``, in the order of their creation
* ``directories``: ``{path, user, group, mode}``, parents before children; ``mode`` is a number, and ``group`` defaults
  to the name of the user
* ``files``: ``{path, content, user, group, mode, secret}``; ``content`` is base64
* ``folders``: paths that must contain nothing but entries of ``files`` and ``directories``
* ``units``: ``{name, hash, health, awaited}`` in the order in which they start; their files are among ``files``.
  ``health`` is ``{url, authority}`` or null; a tcp url means a port that has to be open. A unit that is
  not ``awaited`` is checked but not waited for. If a unit can reload, its ``hash`` has two parts with a hyphen between:
  for settings that need a restart, and for settings that need a reload. ``clients`` names units, if there are any,
  that can do nothing without this one: when it restarts they are stopped before, and started after it. One that is
  ``stopped`` must not run, also not after a boot; its files are written like those of others
* ``watched``: ``{name, health}`` of units that are not changed, only reported like the others
* ``absent``: ``units``, ``folders`` and ``users`` as above, by name or path, to be removed
* ``held``: see ``held_units``

**Restarts.** A unit file sets the hash of everything the unit reads as an environment variable, and ``/proc`` shows the
one that a process was started with. So a unit is restarted if and only if it runs with something older, also after a
run that was killed between writing a file and restarting. A hash taken by a reload is noted in ``RUN_FOLDER`` with the
unit's invocation, so that the note is void after the process ends.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.karmada.installer.plugins.module_utils import host_folders
from ansible_collections.karmada.installer.plugins.module_utils.host_system import (
    UNIT_FOLDER,
    HostError,
    System,
    Unit,
    read,
    reload_note,
    units,
    writing,
)
from ansible_collections.karmada.installer.plugins.module_utils.unit_health import reason_unhealthy

OWNER_KEY = "X-KarmadaOwner"
#: Automatic restarts of a unit after which waiting any longer is pointless.
RESTARTS_BEFORE_GIVING_UP = 5
_ASKED_AT_ONCE = 16
_RUNNING = ("active", "activating", "reloading")

Tree = dict[str, Any]


class Change(NamedTuple):
    """Change that was (or in check mode would be) made. ``before`` and ``after`` are texts for a diff, which of secrets
    show only that they exist.
    """

    what: str
    before: str = ""
    after: str = ""


def converge(system: System, tree: Tree, check: bool = False, *, restart: bool = True) -> list[Change]:
    """Apply the tree, without waiting for health; in check mode, only predict the changes.

    Without ``restart``, files are written and stopped units are started, but running units keep running as they are;
    ``outdated`` names those.
    """
    _refuse_foreign(system, tree)
    changes = remove(system, {**tree["absent"], "owner": tree["owner"]}, check)
    changes += _users(system, tree, check)
    changes += _directories(system, tree, check)
    # Before their files change: what still runs may read some of them again.
    changes += stop(system, {**tree, "units": _to_stop(tree)}, check)
    changes += _files(system, tree, check)
    changes += _surplus(system, tree, check)
    changes += _units(system, tree, check, restart)
    return changes


def outdated(system: System, tree: Tree, started: Iterable[str] = ()) -> list[str]:
    """Units whose process was started with older settings than those of the tree.

    ``started`` are those started just now: for a moment, the process of such a unit is still systemd's own.
    """
    new = set(started)
    wanted = _to_run(tree)
    present = units(system, [unit["name"] for unit in wanted])
    return [
        unit["name"]
        for unit in wanted
        if present[unit["name"]].active in _RUNNING
        and unit["name"] not in new
        and present[unit["name"]].started_with != unit["hash"]
    ]


def observed(system: System, tree: Tree) -> dict[str, dict[str, str]]:
    """Units of the tree that exist: the running program of each, and why it is unhealthy (empty if healthy)."""
    looked_at = [*tree["units"], *tree.get("watched", [])]
    present = units(system, [unit["name"] for unit in looked_at])
    known = [unit for unit in looked_at if present[unit["name"]].known]
    # At the same time: where an API server has lost its etcd, the answer of each takes seconds.
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as asking:
        reasons = list(asking.map(lambda unit: _reason(unit, present[unit["name"]]), known))
    return {
        unit["name"]: {"program": system.program_of(present[unit["name"]].process), "reason": reason}
        for unit, reason in zip(known, reasons)  # noqa: B905 - `strict` is newer than some hosts' Python
    }


def _reason(unit: dict[str, Any], present: Unit) -> str:
    """Reason why a unit is not as it should be; empty if it is."""
    runs = present.active in _RUNNING
    if unit.get("stopped"):
        return "it runs, and must not" if runs else ""
    if not runs:
        return present.detail
    return reason_unhealthy(unit["health"]) if unit.get("health") else ""


def _to_stop(tree: Tree) -> list[dict[str, Any]]:
    return [unit for unit in tree["units"] if unit.get("stopped")]


def _to_run(tree: Tree) -> list[dict[str, Any]]:
    return [unit for unit in tree["units"] if not unit.get("stopped")]


def wait_until_healthy(
    system: System,
    tree: Tree,
    timeout: float,
    names: Iterable[str] | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Wait until all units are healthy. Raises HostError that names those that are not, why, and their last log lines.

    ``names`` are the units waited for; default: all. ``meanwhile`` is called before each look; it may raise.
    """
    deadline = time.monotonic() + timeout
    chosen = {unit["name"] for unit in tree["units"]} if names is None else set(names)
    waiting = [
        unit for unit in _to_run(tree) if unit.get("health") and unit["name"] in chosen and unit.get("awaited", True)
    ]
    began = {name: unit.restarts for name, unit in units(system, [unit["name"] for unit in waiting]).items()}
    while True:
        meanwhile()
        # Read before the health: until the old process has ended, it is the one that answers.
        now = units(system, [unit["name"] for unit in waiting])
        unhealthy = [
            (unit, reason)
            for unit in waiting
            for reason in [_in_transition(now[unit["name"]]) or reason_unhealthy(unit["health"])]
            if reason
        ]
        if not unhealthy:
            return
        waiting = [unit for unit, _reason in unhealthy]
        hopeless = [
            unit["name"]
            for unit in waiting
            if now[unit["name"]].restarts - began[unit["name"]] >= RESTARTS_BEFORE_GIVING_UP
        ]
        if hopeless or time.monotonic() > deadline:
            raise HostError("\n".join(_explained(system, unit["name"], reason, now) for unit, reason in unhealthy))
        time.sleep(0.2)


def remove(system: System, tree: Tree, check: bool = False) -> list[Change]:
    """Remove units, folders and users of the tree, as far as they carry its owner."""
    changes = _remove_units(system, tree, check) + _halves(system, tree, check)
    users = [user["name"] for user in tree["users"] if tree["owner"] in (system.user_comment(user["name"]) or "")]
    changes += [Change("remove " + path) for path in host_folders.remove(system, tree["folders"], users, check)]
    for folder in [] if check else tree["folders"]:
        # Even if the folder is gone already: with the last one in it, or in a run that was killed here.
        _remove_if_empty(system.path(folder).parent)
    for name in reversed(users):
        changes.append(Change("remove user " + name))
        if not check:
            system.command("userdel", name)
    return changes


def stop(system: System, tree: Tree, check: bool = False) -> list[Change]:
    """Stop the units of the tree, as far as they carry its owner, and disable them."""
    names = _owned_units(system, tree, [unit["name"] for unit in tree["units"]])
    running = [name for name, unit in units(system, names).items() if unit.active in _RUNNING or unit.enabled]
    if running and not check:
        system.command("systemctl", "disable", "--quiet", "--now", "--", *running)
    return [Change("stop " + name) for name in running]


def _remove_if_empty(folder: Path) -> None:
    """Remove a folder that control planes share, when the last of them has left it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def _refuse_foreign(system: System, tree: Tree) -> None:
    """Raise HostError if units or users under our names are not ours; these stay as they are."""
    foreign = []
    for unit in tree["units"]:
        text = read(system.path(f"{UNIT_FOLDER}/{unit['name']}"))
        if text is not None and _owner_line(tree) not in text.decode(errors="replace").splitlines():
            foreign.append(f"unit {unit['name']} exists and is not of this control plane")
    for user in tree["users"]:
        comment = system.user_comment(user["name"])
        if comment is not None and tree["owner"] not in comment:
            foreign.append(f"user {user['name']} exists and is not of this control plane")
    if foreign:
        raise HostError("; ".join(foreign))


def _owner_line(tree: Tree) -> str:
    return f"{OWNER_KEY}={tree['owner']}"


def _users(system: System, tree: Tree, check: bool) -> list[Change]:
    missing = [user for user in tree["users"] if system.user_ids(user["name"]) is None]
    for user in missing:
        if not check:
            system.command(
                *("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"),
                *("--home-dir", user["home"], "--comment", user["comment"], user["name"]),
            )
    return [Change("create user " + user["name"]) for user in missing]


def _directories(system: System, tree: Tree, check: bool) -> list[Change]:
    changes = []
    for directory in tree["directories"]:
        path = system.path(directory["path"])
        if host_folders.is_link_of_others(path):
            raise HostError(f"{path} is a link that is not root's: see who put it there, and remove it")
        if not path.is_dir():
            changes.append(Change("create directory " + directory["path"]))
            if not check:
                with writing(path):
                    path.mkdir(0o700)
        if _wrong_rights(system, path, directory):
            if not changes or changes[-1].what != "create directory " + directory["path"]:
                changes.append(Change("set owner and mode of " + directory["path"]))
            if not check:
                _set_rights(system, path, directory)
    return changes


def _files(system: System, tree: Tree, check: bool) -> list[Change]:
    changes = []
    for file in tree["files"]:
        path, wanted = system.path(file["path"]), base64.b64decode(file["content"])
        present = _content(path)
        if present != wanted:
            changes.append(_file_change(file, present, wanted))
            if not check:
                with writing(path):
                    _write(system, path, wanted, file)
        elif _wrong_rights(system, path, file):
            changes.append(Change("set owner and mode of " + file["path"]))
            if not check:
                _set_rights(system, path, file)
    return changes


def _file_change(file: dict[str, Any], present: bytes | None, wanted: bytes) -> Change:
    what = ("create " if present is None else "change ") + file["path"]
    if file["secret"]:
        return Change(what, "" if present is None else "(a secret)\n", "(another secret)\n")
    return Change(what, (present or b"").decode(errors="replace"), wanted.decode(errors="replace"))


def _write(system: System, path: Path, content: bytes, rights: dict[str, Any]) -> None:
    """Write a file atomically; it is never readable for others, not even for a moment."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _set_rights(system, Path(temporary), rights)
        Path(temporary).rename(path)
    except BaseException:
        Path(temporary).unlink()
        raise


def _content(path: Path) -> bytes | None:
    """Content of a file; None if there is none, or a link: its target is not ours to read or show."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _ids(system: System, wanted: dict[str, Any]) -> tuple[int, int] | None:
    """User and group id of the wanted owner; None if there is no such user."""
    user, group = (system.user_ids(name) for name in (wanted["user"], wanted.get("group") or wanted["user"]))
    return (user[0], group[1]) if user and group else None


def _wrong_rights(system: System, path: Path, wanted: dict[str, Any]) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    return (found.st_uid, found.st_gid) != _ids(system, wanted) or found.st_mode & 0o7777 != wanted["mode"]


def _set_rights(system: System, path: Path, wanted: dict[str, Any]) -> None:
    ids = _ids(system, wanted)
    if ids is None:
        raise HostError(f"there is no user {wanted.get('group') or wanted['user']}, to whom {path} should belong")
    # A directory may be root's link to another disk. Links in the place of files are never followed.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if path.is_dir() else os.O_NOFOLLOW))
    try:
        os.fchown(descriptor, *ids)
        os.fchmod(descriptor, wanted["mode"])
    finally:
        os.close(descriptor)


def _surplus(system: System, tree: Tree, check: bool) -> list[Change]:
    """Remove what an earlier version of the control plane left in its folders, and partial files of a killed run."""
    named = {entry["path"] for entry in (*tree["files"], *tree["directories"])}
    changes = _halves(system, tree, check)
    for folder in tree["folders"]:
        if folder in tree.get("data_folders", ()):
            continue
        # Deepest first, so that a folder is empty when its turn comes.
        for path in sorted(system.path(folder).rglob("*"), key=lambda each: len(each.parts), reverse=True):
            inside = f"/{path.relative_to(system.root)}"
            if inside in named or any(each.startswith(f"{inside}/") for each in named):
                continue
            changes.append(Change(f"remove {inside}"))
            if not check:
                _unlink(path)
    return changes


def _halves(system: System, tree: Tree, check: bool) -> list[Change]:
    """Remove partial unit files, which a power failure left before they were renamed."""
    names = tuple(f".{unit['name']}." for unit in tree["units"])
    found = [path for path in sorted(system.path(UNIT_FOLDER).glob(".*")) if path.name.startswith(names)]
    if not check:
        for path in found:
            path.unlink()
    return [Change(f"remove {UNIT_FOLDER}/{path.name}") for path in found]


def _unlink(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def _units(system: System, tree: Tree, check: bool, restart: bool) -> list[Change]:
    wanted = _to_run(tree)
    names = [unit["name"] for unit in wanted]
    changes = []
    if check and not all(system.path(f"{UNIT_FOLDER}/{name}").exists() for name in names):
        return [Change("start " + name) for name in names]
    present = units(system, names)
    # Unit files that systemd has not read yet show as not found or as outdated.
    if not check and any(not unit.known or unit.outdated_file for unit in present.values()):
        system.command("systemctl", "daemon-reload")
        present = units(system, names)
    disabled = [name for name in names if not present[name].enabled]
    reloaded = [unit for unit in wanted if restart and _takes_by_reload(present[unit["name"]], unit["hash"])]
    restarted = [
        unit["name"]
        for unit in wanted
        if present[unit["name"]].active not in _RUNNING
        or (restart and unit not in reloaded and present[unit["name"]].started_with != unit["hash"])
    ]
    if disabled:
        changes += [Change("enable " + name) for name in disabled]
        if not check:
            system.command("systemctl", "enable", "--quiet", "--", *disabled)
    for name in restarted:
        running = present[name].active in _RUNNING
        changes.append(Change(("restart " if running else "start ") + name))
    around = [each for each in _running_clients(system, wanted, present, restarted) if each not in restarted]
    for name in around:
        changes.append(Change("restart " + name))
    restarted += around
    if restarted and not check:
        # Resets the limit for failed starts; without waiting, because health is checked separately.
        system.command("systemctl", "reset-failed", "--", *restarted)
        # The last one first: systemd then stops a unit before those that it needs, while these still answer, and starts
        # them the other way round (After).
        system.command("systemctl", "restart", "--no-block", "--", *reversed(restarted))
    for unit in reloaded:
        changes.append(Change("reload " + unit["name"]))
        if not check:
            system.command("systemctl", "reload", "--", unit["name"])
            _note_reload(system, unit["name"], present[unit["name"]].invocation, unit["hash"])
    return changes


def _running_clients(
    system: System, wanted: list[dict[str, Any]], present: dict[str, Unit], restarted: list[str]
) -> list[str]:
    """Units to stop before others restart, because they can do nothing without these; only those that run."""
    running = [unit for unit in wanted if unit["name"] in restarted and present[unit["name"]].active in _RUNNING]
    names = list(dict.fromkeys(name for unit in running for name in unit.get("clients", ())))
    return [name for name, unit in (units(system, names) if names else {}).items() if unit.active in _RUNNING]


def _takes_by_reload(present: Unit, wanted: str) -> bool:
    """Return whether a unit runs with other settings that a reload suffices for."""
    found = present.started_with
    same_unit = "-" in wanted and found.partition("-")[0] == wanted.partition("-")[0]
    return present.active == "active" and same_unit and found != wanted


def _note_reload(system: System, name: str, invocation: str, digest: str) -> None:
    note = reload_note(system, name)
    note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    note.write_text(f"{invocation} {digest}\n")


def _remove_units(system: System, tree: Tree, check: bool) -> list[Change]:
    ours = _owned_units(system, tree, [unit["name"] for unit in tree["units"]])
    if ours and not check:
        system.command("systemctl", "disable", "--quiet", "--now", "--", *ours)
        for name in ours:
            system.path(f"{UNIT_FOLDER}/{name}").unlink()
            reload_note(system, name).unlink(missing_ok=True)
        system.command("systemctl", "daemon-reload")
        for name in ours:
            # reset-failed fails for a unit that has not failed.
            if units(system, [name])[name].active == "failed":
                system.command("systemctl", "reset-failed", "--", name)
    return [Change("remove unit " + name) for name in ours]


def _owned_units(system: System, tree: Tree, names: Iterable[str]) -> list[str]:
    ours = []
    for name in names:
        text = read(system.path(f"{UNIT_FOLDER}/{name}"))
        if text is not None and _owner_line(tree) in text.decode(errors="replace").splitlines():
            ours.append(name)
    return ours


def _in_transition(unit: Unit) -> str:
    """Reason why it is too early to check a unit; empty if it is not."""
    return "systemd is still stopping or starting it" if unit.in_transition else ""


def _explained(system: System, name: str, reason: str, states: dict[str, Unit]) -> str:
    log = system.command("journalctl", "--unit", name, "--lines", "8", "--output", "cat", "--no-pager").strip()
    return f"{name} is {states[name].detail}; {reason}. Its last lines:\n{log or '(none)'}"
