# SPDX-License-Identifier: Apache-2.0
"""Folders with data of etcd that no member uses: what members that were replaced or removed have left.

On plain hosts, which they are is seen, not recorded: hosts tell what lies there, and all goes by name that the state
does not need. So those count that another version has left, and those of a host that has a member no more. Into a
volume nobody can look, because etcd's image has no shell: what a member leaves there is on record (``EtcdState.left``).
No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..components.etcd_configuration import folder_of
from ..components.state import State
from ..problems import Problem, Reason, Severity
from ..run.run import Run
from . import new_data


@dataclass(frozen=True)
class Folder:
    """A folder on a host, and the bytes that it takes on the disk; None if they are not known."""

    name: str
    size: int | None = None

    def __str__(self) -> str:
        """Return its name, with its size where that is known."""
        return self.name if self.size is None else f"{self.name} ({_in_words(self.size)})"


def used(state: State, host: str) -> str:
    """Name of the folder that the member on this host uses; empty where by the state there is no member."""
    etcd = state.etcd
    record = etcd.member(host)
    if record is None and etcd.bootstrapped and etcd.members:
        return ""
    return folder_of(etcd.generation, record)


def needed(state: State, host: str) -> set[str]:
    """Folders on this host that a member uses, or that a restore may still go on with, or back to."""
    found = {used(state, host)} - {""}
    if state.restore and not state.restore.is_over:
        found |= new_data.folders(state.etcd) | new_data.old_folders(state)
    return found


def unused(state: State, host: str, told: Sequence[Mapping[str, Any]]) -> tuple[Folder, ...]:
    """Folders that this host has told, as ``host_old_data.look`` does, and that nobody needs."""
    kept = needed(state, host)
    return tuple(Folder(each["name"], each.get("size")) for each in told if each["name"] not in kept)


def in_volumes(state: State) -> dict[str, tuple[str, ...]]:
    """Folder → members in whose volumes it was left. Raises AssertionError if one of them uses it."""
    found: dict[str, tuple[str, ...]] = {}
    for each in state.etcd.left_beside():
        if each.folder == used(state, each.member):
            raise AssertionError(f"data in use is on record as left by a member: {each.folder} of {each.member}")
        found[each.folder] = (*found.get(each.folder, ()), each.member)
    return found


def volumes_in_words(found: Mapping[str, Sequence[str]]) -> str:
    """Folders by the members in whose volumes they are."""
    return "; ".join(f"{folder} in the volume of {', '.join(members)}" for folder, members in found.items())


def changing(state: State) -> Problem | None:
    """Refusal where a member is to come or to go still: its folder may have a name that is not on record yet."""
    names = [
        each.name for each in state.etcd.members if each.leaving or not each.has_vote or (each.added and not each.id)
    ]
    if not names:
        return None
    what = f"{', '.join(names)} of etcd's members is to come, or to go, since an earlier run; old data goes after that"
    return Problem(what, "etcd", "run karmada.installer.install first", reason=Reason.INTERRUPTED_RUN)


def seen(run: Run) -> dict[str, tuple[Folder, ...]]:
    """Host → folders there that nobody needs, of the hosts that ``restore_on_host`` has had list them."""
    told = {name: run.handover.observed(name).restore.get("folders", ()) for name in run.hosts}
    found = {name: unused(run.state, name, each) for name, each in told.items()}
    return {name: each for name, each in found.items() if each}


def in_words(found: Mapping[str, Sequence[Folder]]) -> str:
    """Folders by their hosts, and the room that they take."""
    return "; ".join(f"{', '.join(map(str, folders))} on {name}" for name, folders in found.items())


def notes(run: Run) -> list[Problem]:
    """Hint of the report at such folders, by what the members' hosts have answered; none while members change."""
    if run.stored_state is None or changing(run.state):
        return []
    told = {name: run.handover.observed(name).etcd.get("folders", ()) for name in run.hosts}
    found = {name: unused(run.state, name, each) for name, each in told.items()}
    found = {name: each for name, each in found.items() if each}
    return [_hint(run, in_words(found), _by_cleanup(run))] if found else []


def notes_on_volumes(run: Run) -> list[Problem]:
    """Hint of the report at folders that members in pods have left in volumes which are in use."""
    found = in_volumes(run.state) if run.stored_state else {}
    return [_hint(run, volumes_in_words(found), _by_cleanup(run))] if found else []


def _by_cleanup(run: Run) -> str:
    return f"when nobody needs it: karmada.installer.restore_cleanup -e restore_cleanup_confirm={run.name}"


def _hint(run: Run, found: str, remedy: str) -> Problem:
    what = f"data of etcd that no member uses: {found}"
    return Problem(what, run.place.where, remedy, reason=Reason.OLD_DATA_LEFT, severity=Severity.HINT)


def _in_words(size: int) -> str:
    return f"{size >> 20} MiB" if size >> 20 else "less than 1 MiB"
