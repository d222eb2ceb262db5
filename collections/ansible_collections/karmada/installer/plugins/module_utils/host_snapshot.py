# SPDX-License-Identifier: Apache-2.0
"""Snapshot of the member of etcd on this host, in a file that a run fetches at once.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The file is not encrypted. It is for the user that fetches it only, in a folder of root's that nobody else can write or
list, and goes as soon as it was fetched. What a run has left that was killed goes when the next one locks this host.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import etcd_member, etcd_requests
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

FOLDER = "/var/lib/karmada-installer-snapshots"
#: A tenth more than the database has now: it may grow while it is sent.
_MARGIN = 1.1
#: What is left then, where etcd may have its own data: two files of its log have 64 MiB each.
_RESERVE = 256 << 20


def path_of(instance: str) -> str:
    """File of an instance."""
    return f"{FOLDER}/{instance}.db"


def take(system: System, instance: str, url: str, member_folder: str, reader: str) -> dict[str, Any]:
    """Take one for the user ``reader``; returns the plain form of an answer. Raises HostError, and leaves nothing then.

    ``acknowledged`` is the revision that a majority had before: a follower may lack it until it has asked for it.
    """
    ids = system.user_ids(reader)
    if ids is None:
        raise HostError(f"there is no user {reader} to fetch the snapshot")
    remove(system, instance)
    post = etcd_member.poster(system, url, member_folder)
    size = int(etcd_requests.status(post).get("dbSize") or 0)
    path = system.path(path_of(instance))
    try:
        path.parent.mkdir(mode=0o711, exist_ok=True)
        path.parent.chmod(0o711)
        _require_room(str(path.parent), size)
        acknowledged = etcd_requests.acknowledged(post)
        with open(path, "xb", opener=for_owner) as stream:
            written = etcd_member.snapshot(system, url, member_folder, stream)
            os.fchown(stream.fileno(), *ids)
    except OSError as error:
        remove(system, instance)
        raise HostError(f"{path_of(instance)} cannot be written: {error.strerror or error}") from error
    except HostError:
        remove(system, instance)
        raise
    return {"size": written, "acknowledged": acknowledged}


def remove(system: System, instance: str) -> bool:
    """Delete what there is of an instance, also what a killed run has left; returns whether there was something."""
    path = system.path(path_of(instance))
    found = path.exists()
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        # Another instance may have one.
        path.parent.rmdir()
    return found


def _require_room(folder: str, size: int) -> None:
    found = os.statvfs(folder)
    free, needed = found.f_bavail * found.f_frsize, int(size * _MARGIN) + _RESERVE
    if free < needed:
        raise HostError(
            f"a snapshot needs {needed >> 20} MiB in {FOLDER}, and {free >> 20} MiB are free; free space there"
        )


def for_owner(path: str, flags: int) -> int:
    """Opener of a new file that only its owner can read, and that is no link."""
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600)
