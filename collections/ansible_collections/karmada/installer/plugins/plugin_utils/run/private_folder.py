# SPDX-License-Identifier: Apache-2.0
"""The private folder of a run, for what one of its steps leaves for another and nobody else may see.

It lies in memory where there is a place for it, so that no disk and no backup ever has it, and it is named after the
run, so that each of its processes finds it and others can tell whether it is still needed. It goes when the run ends;
what a run could not take away itself, because it was killed, the next one does.
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
#: Where every user of a machine may keep something in memory.
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made there is checked: see ``make``
#: Where sessions have theirs: a run without one, as by cron, takes away what one with it left.
SESSIONS = Path("/run/user")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
#: Of folders that do not say whose they are: how long nothing in them has changed when their run is over.
_OLD_SECONDS = 24 * 3600


def of_this_run() -> Path:
    """That of the playbook run which this process belongs to, whether it is there or not. It makes nothing."""
    name = _name_of(run_process.holder_identity(run_process.main_pid()))
    for place in places():
        if _fits(place):
            return place / name
    return Path(constants.DEFAULT_LOCAL_TMP) / name


def make(folder: Path) -> None:
    """Make a folder for this user only, in that of this run or elsewhere.

    Raises ProblemsError if there is something of that name that others made or can look into.
    """
    base = of_this_run()
    # What ``mkdir`` makes on the way is for others, too.
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
    """Take away that of this run. Nothing is said of what cannot be removed: the next run tries again."""
    shutil.rmtree(of_this_run(), ignore_errors=True)


def sweep() -> list[Path]:
    """Remove what dead runs of this user left on this machine; returns what it was."""
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
            with contextlib.suppress(OSError):  # what else is in it is Ansible's
                folder.parent.rmdir()
    return swept


def places() -> Iterator[Path]:
    """Where it could be, the best first."""
    of_session = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(of_session).is_absolute():
        yield Path(of_session)
    yield SHARED_MEMORY


def _fits(place: Path) -> bool:
    """Whether it is in memory, and nobody else can put something else in the place of what we make there."""
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
    """A folder of ours, no link to one, that nobody else can look into."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _name_of(identity: str) -> str:
    _host, boot, pid, start = identity.rsplit("/", 3)
    return f"{_STEM}-{boot}-{pid}-{start}"


def _identity_of(name: str) -> str:
    """The process of which a folder has its name; empty for a name of another form."""
    matched = re.fullmatch(rf"{_STEM}-(.+)-(\d+)-(\d+)", name)
    if matched is None:
        return ""
    host = run_process.holder_identity().split("/", 1)[0]
    return "/".join((host, *matched.groups()))


def _is_of_earlier_version(folder: Path) -> bool:
    """Whether an earlier version of this collection left this, and its run is over.

    All that is known of that run is a pid in the name of Ansible's folder, perhaps of another machine that has the same
    home: so nothing in it may have changed for a day, either.
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
