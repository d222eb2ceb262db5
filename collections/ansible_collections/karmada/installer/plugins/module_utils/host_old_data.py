# SPDX-License-Identifier: Apache-2.0
"""Old data of etcd on this host, which a restore has put aside or a former member has left: seen, and removed.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The folders belong to etcd's user, who may have put anything into them or in their place. So nothing is reached by a
path once the folder that has them all is open: names are looked up in the folder that is open, and a link is never
followed, neither one in the place of a folder nor one in it, which goes as the link that it is. What is on another file
system is somebody's mount, and stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

#: Names of folders with data: the first ones of a bootstrap or restore, and those of members that came later.
_NAME = re.compile(r"gen-[0-9]{1,10}(-[0-9a-f]{1,16})?")
#: The database, which a member has locked as long as it runs.
_DATABASE = ("member", "snap", "db")
#: Folders that are told, and entries of one that are counted; a member has some ten files.
_MOST_FOLDERS, _MOST_ENTRIES = 256, 10_000
#: Size of a block, in which the kernel counts what a file takes.
_BLOCK = 512
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def look(system: System, place: str) -> list[dict[str, Any]]:
    """``name`` of each folder with data of etcd in the folder ``place``, used or not, and bytes on disk (``size``).

    In the order of their names. A link, and what is on a disk of its own, is none. A folder that cannot be read, or has
    more in it than a member makes, is told without its size.
    """
    try:
        folder = os.open(system.path(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        device = os.fstat(folder).st_dev
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in entries if _NAME.fullmatch(each.name) and _is_here(each, device))
        found = [(name, _size(folder, name)) for name in names[:_MOST_FOLDERS]]
        return [{"name": name, **({} if size is None else {"size": size})} for name, size in found]
    finally:
        os.close(folder)


def _is_here(entry: os.DirEntry[str], device: int) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_dev == device
    except OSError:
        return False


def _size(folder: int, name: str) -> int | None:
    """Bytes that a folder takes on its disk with all that is in it; None if that is not known."""
    size, count = 0, 0

    def unreadable(error: OSError) -> None:
        raise error

    try:
        for _path, inner, files, at in os.fwalk(name, onerror=unreadable, follow_symlinks=False, dir_fd=folder):
            for each in (*inner, *files):
                count += 1
                if count > _MOST_ENTRIES:
                    return None
                size += os.stat(each, dir_fd=at, follow_symlinks=False).st_blocks * _BLOCK
    except OSError:
        return None
    return size


def remove(system: System, place: str, used: str, names: Sequence[str], *, check: bool) -> list[str]:
    """Remove folders of these names in the folder ``place``; returns the paths of those that were there.

    ``used`` is the name of the one that the member of this host has, empty where there is none. All are looked at
    before the first one goes. Raises HostError, with nothing removed, if one is none of old data: by its name, because
    it is used, or because it is no folder.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise HostError(f"{name!r} is no name of a folder with data of etcd")
        if name == used:
            raise HostError(f"{place}/{used} is the data that its member has, and was not put aside")
    # Root's folder, whose parent nobody else can write; root may have it on another disk, by a link.
    try:
        folder = os.open(system.path(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HostError(f"{place} cannot be read: {error.strerror or error}") from error
    try:
        there = [name for name in names if _is_old(folder, place, name)]
        for name in [] if check else there:
            try:
                _remove(folder, name, os.fstat(folder).st_dev, f"{place}/{name}")
            except OSError as error:
                what = f"{place}/{name} cannot be removed, and may be half there: {error.strerror or error}"
                raise HostError(what) from error
        return [f"{place}/{name}" for name in there]
    finally:
        os.close(folder)


def _is_old(folder: int, place: str, name: str) -> bool:
    """Return whether there is a folder of this name. Raises HostError if it is none, or its data is used."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        raise HostError(f"{place}/{name} is no folder, and nobody of ours has made it; see what it is, and remove it")
    if found.st_dev != os.fstat(folder).st_dev:
        raise HostError(f"{place}/{name} is on a disk of its own; unmount it, and see what goes")
    try:
        in_use = _is_locked(folder, name)
    except OSError as error:
        raise HostError(f"{place}/{name} cannot be read: {error.strerror or error}") from error
    if in_use:
        raise HostError(f"{place}/{name} is used: a process has locked its database, as a member of etcd does")
    return True


def _is_locked(folder: int, name: str) -> bool:
    """Return whether a process has locked the database in a folder; a link in its place is locked by nobody."""
    with _opened(folder, name, *_DATABASE[:-1]) as parent:
        if parent is None:
            return False
        try:
            descriptor = os.open(_DATABASE[-1], _FILE_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
                return False
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


@contextlib.contextmanager
def _opened(folder: int, *names: str) -> Iterator[int | None]:
    """Folder at the end of these names, each in the one before; None if one is missing, or no folder."""
    at = os.dup(folder)
    try:
        for name in names:
            try:
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=at)
            except (FileNotFoundError, NotADirectoryError):
                yield None
                return
            os.close(at)
            at = inner
        yield at
    finally:
        os.close(at)


def _remove(folder: int, name: str, device: int, path: str) -> None:
    """Remove a folder with all that is in it, which does not leave this device. Raises OSError, HostError."""
    inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    try:
        if os.fstat(inner).st_dev != device:
            raise HostError(f"{path} is on a disk of its own; unmount it, and run it again: some of the rest is gone")
        with os.scandir(inner) as entries:
            found = [(each.name, each.is_dir(follow_symlinks=False)) for each in entries]
        for each, is_folder in found:
            if is_folder:
                _remove(inner, each, device, f"{path}/{each}")
            else:
                os.unlink(each, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
