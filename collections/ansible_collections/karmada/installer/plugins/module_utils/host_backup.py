# SPDX-License-Identifier: Apache-2.0
"""Directory of this host in which backups lie, and the files by which they come and go.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

What lies in the directory is encrypted and for root only. The user that SSH logs in brings and fetches a file in
pieces: each is in a file for that user alone, in a folder of root's that nobody else can write or list. Its name is
chosen by chance where Ansible runs, so that two runs do not meet, and it goes at the end of each file. What a killed
run has left goes with a question after two hours.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import backup_folder
from ansible_collections.karmada.installer.plugins.module_utils.host_snapshot import for_owner
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

#: Folder of the files that are under way, where it is no other one.
FOLDER = "/var/lib/karmada-installer-backups"
#: Bytes of a piece, for which there has to be room in that folder.
PIECE = 1 << 26
#: Bytes of a file, or of what is left of it, that is part of a question or of an answer.
INLINE = 1 << 17
#: Files of a directory that are told. Records that come with them have some KiB each.
MOST_FILES, MOST_RECORDS_BYTES = 65536, 8 << 20
#: Age from which a piece is of a run that is dead: one is on its way for an hour at most.
LEFT_SECONDS = 7200.0
#: Why a directory is not used.
MISSING, LINK, NO_DIRECTORY, OTHERS_OWN, OTHERS_WRITE = "missing", "link", "no directory", "owner", "writable"
UNFIT = (MISSING, LINK, NO_DIRECTORY, OTHERS_OWN, OTHERS_WRITE)


class UnfitError(Exception):
    """Backups are not put below ``path``; ``why`` is one of UNFIT."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why


def require_fit(system: System, root: str) -> None:
    """Raise UnfitError unless root alone may change the directory ``root``, and the way to it."""
    whole = PurePosixPath(root)
    for each in (*reversed(whole.parents), whole):
        try:
            found = os.lstat(system.path(str(each)))
        except (FileNotFoundError, NotADirectoryError):
            raise UnfitError(str(each), MISSING) from None
        if stat.S_ISLNK(found.st_mode):
            raise UnfitError(str(each), LINK)
        if not stat.S_ISDIR(found.st_mode):
            raise UnfitError(str(each), NO_DIRECTORY)
        if found.st_uid not in (0, os.geteuid()):
            raise UnfitError(str(each), OTHERS_OWN)
        # With the sticky bit, as in /tmp, nobody else can replace what belongs to root there.
        is_sticky = each != whole and found.st_mode & stat.S_ISVTX
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
            raise UnfitError(str(each), OTHERS_WRITE)


def records(folder: backup_folder.Folder, entries: list[tuple[str, str]], record: str, most: int) -> dict[str, bytes]:
    """Records among these files by the names of their backups, ``most`` bytes of each; as many as an answer has."""
    found: dict[str, bytes] = {}
    left = MOST_RECORDS_BYTES
    for name, file in entries:
        if file != record or left <= 0:
            continue
        # What cannot be read is told to whoever asks for it alone.
        with contextlib.suppress(OSError), folder.reading(name, file) as stream:
            found[name] = _some(stream, most)
            left -= len(found[name])
    return found


def piece(folder: backup_folder.Folder, name: str, file: str, offset: int) -> tuple[int, bytes]:
    """Size of a file, and some of it from this byte on."""
    with folder.reading(name, file) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(offset)
        return size, _some(stream, PIECE)


def expect(system: System, path: str, reader: str, size: int, content: bytes = b"") -> None:
    """Have a file for the user ``reader`` alone, who fetches this content, or brings so much. Raises HostError."""
    ids = system.user_ids(reader)
    if ids is None:
        raise HostError(f"there is no user {reader} to bring and fetch backups")
    folder = str(PurePosixPath(path).parent)
    forget(system, path)
    with _new(system.path(path)) as stream:
        found = os.fstatvfs(stream.fileno())
        free = found.f_bavail * found.f_frsize
        if free < size:
            forget(system, path)
            raise HostError(
                f"{size >> 20} MiB on their way need room in {folder}, and {free >> 20} MiB are free; free space there"
            )
        stream.write(content)
        os.fchown(stream.fileno(), *ids)


@contextlib.contextmanager
def brought(system: System, path: str, size: int) -> Iterator[Any]:
    """File that was brought, open to be read; with another size than this it is none."""
    descriptor = os.open(system.path(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise OSError(errno.EIO, f"{found.st_size} of {size} bytes have come")
        yield stream


def forget(system: System, path: str) -> None:
    """Delete a file that was brought or fetched, and what killed runs have left of theirs."""
    place = system.path(path)
    with contextlib.suppress(OSError):
        place.unlink()
    sweep(system, str(PurePosixPath(path).parent))


def sweep(system: System, folder: str) -> None:
    """Delete what killed runs have left in the folder, and that, if nothing is under way."""
    place = system.path(folder)
    with contextlib.suppress(OSError):
        for each in list(place.iterdir()):
            with contextlib.suppress(OSError):
                if abs(time.time() - each.lstat().st_mtime) > LEFT_SECONDS:
                    each.unlink()
        place.rmdir()


@contextlib.contextmanager
def _new(place: Path) -> Iterator[Any]:
    for attempt in range(3):
        place.parent.mkdir(mode=0o711, exist_ok=True)
        place.parent.chmod(0o711)
        try:
            stream = open(place, "xb", opener=for_owner)  # noqa: SIM115 - closed below
            break
        except FileNotFoundError:
            # Another run has just deleted the folder, as nothing was in it.
            if attempt == 2:
                raise
    with stream:
        yield stream


def _some(stream: Any, most: int) -> bytes:
    """At most so many bytes; an unbuffered read may give fewer than there are."""
    found = bytearray()
    while len(found) < most and (more := stream.read(most - len(found))):
        found += more
    return bytes(found)
