# SPDX-License-Identifier: Apache-2.0
"""Private folder of a run, for data that one step leaves for another and nobody else may see.

It is in memory if possible, so that no disk and no backup ever holds it, and it is named after the run, so that each
process of the run finds it and others can tell whether it is still needed. It is removed when the run ends; if the run
was killed, the next run removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ansible import constants

from .. import run_process
from ..problems import Problem, ProblemsError, Reason

_STEM = "karmada-installer"
#: Where every user of a machine may keep files in memory.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there is checked: see ``make``
#: Parent of the sessions' runtime folders: a run without a session, as by cron, removes those of runs with one.
SESSIONS = Path("/run/user")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
#: Seconds without a change after which a folder that names no run is taken for one of a run that is over.
_OLD_SECONDS = 24 * 3600


def of_this_run() -> Path:
    """Private folder of the playbook run that this process belongs to. It may not exist; it is not created."""
    name = _name_of(run_process.holder_identity(run_process.main_pid()))
    for place in places():
        if _fits(place):
            return place / name
    return Path(constants.DEFAULT_LOCAL_TMP) / name


def make(folder: Path) -> None:
    """Create a folder that only this user can read, in the private folder of this run or elsewhere.

    Raises ProblemsError if a folder of that name is another user's, or readable by others.
    """
    base = of_this_run()
    # ``mkdir`` creates missing parents with the default mode, which others can read.
    for each in (base, folder) if base in folder.parents else (folder,):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(each):
            what = "the private folder of this run is there already, and others can read it"
            raise ProblemsError(
                Problem(
                    what, str(each), "find out who made it, remove it, and run again", reason=Reason.SECRETS_EXPOSED
                )
            )


def remove() -> None:
    """Remove the private folder of this run. Failures are ignored: the next run tries again."""
    shutil.rmtree(of_this_run(), ignore_errors=True)


def sweep() -> list[Path]:
    """Remove folders that dead runs of this user left on this machine; returns their paths."""
    home = Path(constants.DEFAULT_LOCAL_TMP).parent
    left = [
        folder
        for place in {*places(), SESSIONS / str(os.geteuid()), *_within(home, "ansible-local-*")}
        for folder in _within(place, f"{_STEM}-*")
        if (identity := _identity_of(folder.name)) and run_process.holder_is_dead(identity)
    ]
    left += [each for each in _within(home, f"ansible-local-*/{_STEM}") if _is_of_earlier_version(each)]
    swept = [folder for folder in left if _is_private(folder)]
    for folder in swept:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.parent.name.startswith("ansible-local-"):
            with contextlib.suppress(OSError):  # the rest of that folder is Ansible's
                folder.parent.rmdir()
    return swept


def places() -> Iterator[Path]:
    """Candidates for the parent of private folders, best first."""
    of_session = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(of_session).is_absolute():
        yield Path(of_session)
    yield SHARED_MEMORY


def _fits(place: Path) -> bool:
    """Return whether a folder is in memory, and nobody else can replace entries that we create in it."""
    try:
        found = place.stat()
    except OSError:
        return False
    ours = found.st_uid == os.geteuid() and not found.st_mode & 0o022
    everybodys = found.st_uid == 0 and bool(found.st_mode & stat.S_ISVTX)
    return (ours or everybodys) and os.access(place, os.W_OK) and _is_in_memory(found.st_dev)


def _is_in_memory(device: int) -> bool:
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    # ID, parent, major:minor, root, mount point, options, any number of further fields, "-", type, ...
    parts = (line.partition(" - ") for line in mounts)
    return any(before.split()[2] == wanted and after.split()[0] in _IN_MEMORY for before, _, after in parts)


def _is_private(folder: Path) -> bool:
    """Return whether this is a folder of this user, not a link to one, without access for others."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _name_of(identity: str) -> str:
    _host, boot, pid, start = identity.rsplit("/", 3)
    return f"{_STEM}-{boot}-{pid}-{start}"


def _identity_of(name: str) -> str:
    """Identity of the process that a folder is named after; empty for names of another form."""
    matched = re.fullmatch(rf"{_STEM}-(.+)-(\d+)-(\d+)", name)
    if matched is None:
        return ""
    host = run_process.holder_identity().split("/", 1)[0]
    return "/".join((host, *matched.groups()))


def _is_of_earlier_version(folder: Path) -> bool:
    """Return whether an earlier version of this collection left this folder, and its run is over.

    The only trace of that run is a pid in the name of Ansible's folder, perhaps that of another machine with the same
    home. So, in addition, nothing in the folder may have changed for a day.
    """
    matched = re.fullmatch(r"ansible-local-(\d+)\w{8}", folder.parent.name)
    try:
        os.kill(int(matched[1]) if matched else os.getpid(), 0)
    except ProcessLookupError:
        with contextlib.suppress(OSError):
            changed = max(each.lstat().st_mtime for each in (folder, *folder.rglob("*")))
            return time.time() - changed > _OLD_SECONDS
    except (OSError, OverflowError):
        return False
    return False


def _within(place: Path, pattern: str) -> list[Path]:
    try:
        return sorted(place.glob(pattern))
    except OSError:
        return []
