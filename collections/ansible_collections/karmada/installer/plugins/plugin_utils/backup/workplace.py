# SPDX-License-Identifier: Apache-2.0
"""Folder of a run on the machine that Ansible runs on, for what is not encrypted yet, or not any more.

A snapshot is too large for memory, so it lies on the disk, below the cache of the collection, readable by its owner
only. The folder goes with the step; what a killed run has left there is deleted by the next one that has this cache:
at once where that run is known to be dead, else when nobody has written there for so long that nobody will.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import run_process
from ..artifacts.source import cache_directory
from ..problems import Problem, ProblemsError, Reason
from .encryption import reader_only

_HOLDER = "holder"
_STEM = "run-"
#: Seconds without a write after which a folder is left over: without the name of its run, or of one before the machine
#: was started, whose name another machine may have, too.
_SOON_SECONDS = 600
#: Of a run that cannot be judged from here (in another container, on another machine with this cache). Who only reads
#: its folder is storing a backup, which ends before.
_LATER_SECONDS = 24 * 3600
#: A tenth more than is counted on: what is restored also has a log of its own.
_MARGIN = 1.1


def folder() -> Path:
    """Parent of the folders of all runs of this user."""
    return cache_directory().parent / "backups"


@contextmanager
def opened() -> Iterator[Path]:
    """Empty folder of this step, for its owner only; it is deleted afterwards. Raises ProblemsError."""
    place = made()
    try:
        yield place
    finally:
        remove(place)


@contextmanager
def handed_on() -> Iterator[Path]:
    """Empty folder for what this step hands to another, which removes it; it is deleted if this one fails.

    Raises ProblemsError, also where the folder cannot be written.
    """
    place = made()
    try:
        yield place
    except OSError as error:
        remove(place)
        raise unusable(error) from None
    except BaseException:
        remove(place)
        raise


def made() -> Path:
    """Empty folder of this run for what one step hands to another, which removes it. Raises ProblemsError."""
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder().chmod(0o700)
        sweep()
        place = Path(tempfile.mkdtemp(prefix=_STEM, dir=folder()))
        with open(place / _HOLDER, "x", opener=reader_only) as holder:
            holder.write(run_process.holder_identity(run_process.main_pid()))
    except OSError as error:
        raise unusable(error) from None
    return place


def remove(place: Path) -> None:
    """Delete a folder that ``made`` has made, and nothing else: its name may have come by a variable."""
    if place.parent == folder() and place.name.startswith(_STEM):
        shutil.rmtree(place, ignore_errors=True)


def sweep() -> list[Path]:
    """Delete the folders of runs that are dead; returns them."""
    swept = []
    for each in folder().glob(f"{_STEM}*"):
        if _is_left(each):
            shutil.rmtree(each, ignore_errors=True)
            swept.append(each)
    return swept


def _is_left(place: Path) -> bool:
    try:
        holder = (place / _HOLDER).read_text()
    except OSError:
        # Another run is about to write it, or has just deleted it; or was killed between the two.
        return _is_silent(place, _SOON_SECONDS)
    wait = _SOON_SECONDS if run_process.holder_is_of_earlier_boot(holder) else _LATER_SECONDS
    return run_process.holder_is_dead(holder) or _is_silent(place, wait)


def _is_silent(place: Path, seconds: float) -> bool:
    """Return whether nothing in a folder was written for so long. False if that cannot be known."""
    try:
        last = max(each.lstat().st_mtime for each in (place, *place.rglob("*")))
    except OSError:
        return False
    return time.time() - last > seconds


def require_room(place: Path, size: float) -> None:
    """Raise ProblemsError if a folder has no room for so many bytes."""
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    if free < size * _MARGIN:
        what = f"{int(size * _MARGIN) >> 20} MiB are needed, and {free >> 20} MiB are free"
        remedy = "free space there; XDG_CACHE_HOME in the environment names another place"
        raise ProblemsError(Problem(what, str(place), remedy, reason=Reason.LOCAL_FILE_UNUSABLE))


def unusable(error: OSError) -> ProblemsError:
    """Error for a folder that cannot be used."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        f"{'free space there' if full else 'make it writable'}; XDG_CACHE_HOME in the environment names another place"
    )
    what = f"what a backup is made of cannot be kept: {(error.strerror or str(error)).lower()}"
    return ProblemsError(Problem(what, str(folder()), remedy, reason=Reason.LOCAL_FILE_UNUSABLE))
