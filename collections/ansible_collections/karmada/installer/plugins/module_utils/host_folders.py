# SPDX-License-Identifier: Apache-2.0
"""Folders of a control plane on a plain host, removed with their content, also where root has them on another disk.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

Others may have something on a disk to which a link of root's leads, so only what belongs to our users, or to their
groups, is removed there. No other link is followed. A mount point is emptied; it stays for whoever unmounts it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from ansible_collections.karmada.installer.plugins.module_utils.host_system import System, writing


def is_link_of_others(path: Path) -> bool:
    """Return whether this is a link made by others than root (or our user), which must not be followed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISLNK(found.st_mode) and found.st_uid not in (0, os.geteuid())


def remove(system: System, folders: Sequence[str], users: Collection[str], check: bool = False) -> list[str]:
    """Remove folders with their content; returns the paths of those that were there, and of what links led to.

    A folder may lie in another one of them, from where root may have it on a disk of its own. ``users`` are names of
    our users. Raises HostError for a disk that refuses; then a part may be gone.
    """
    ids = [found for name in users if (found := system.user_ids(name))]
    owners, groups = {user for user, _group in ids}, {group for _user, group in ids}
    inner = [each for each in folders if any(each.startswith(f"{other}/") for other in folders)]
    removed: list[str] = []
    for folder in (*inner, *(each for each in folders if each not in inner)):
        path = system.path(folder)
        with writing(path):
            if path.is_symlink():
                removed += _behind(path, owners, groups, check)
            elif folder in inner:
                continue
            if path.is_symlink() or path.is_dir():
                removed.append(folder)
                if not check:
                    _remove(path)
    return removed


def _behind(link: Path, owners: Collection[int], groups: Collection[int], check: bool) -> list[str]:
    """Remove what is ours in the folder to which a link of root's leads; returns the paths."""
    if is_link_of_others(link) or not link.is_dir():
        return []
    found = []
    for path in sorted(link.resolve().iterdir()):
        status = path.lstat()
        if status.st_uid in owners or status.st_gid in groups:
            found.append(str(path))
            if not check:
                _remove(path)
    return found


def _remove(path: Path) -> None:
    """Remove a folder with its content, or a file or a link; mount points stay, with the folders above them."""
    kept: list[str] = []
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    for parent, folders, files, at in os.fwalk(path, topdown=False, onerror=_raised):
        for name in files:
            os.unlink(name, dir_fd=at)
        for name in folders:
            _remove_folder(name, at, f"{parent}/{name}", kept)
    _remove_folder(str(path), None, str(path), kept)


def _remove_folder(name: str, parent: int | None, path: str, kept: list[str]) -> None:
    """Remove an empty folder, or a link to one; a mount point is added to ``kept``, as are folders that hold one."""
    try:
        os.rmdir(name, dir_fd=parent)
    except NotADirectoryError:
        os.unlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EBUSY and not any(each.startswith(f"{path}/") for each in kept):
            raise
        kept.append(path)


def _raised(error: OSError) -> None:
    raise error
