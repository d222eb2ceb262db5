# SPDX-License-Identifier: Apache-2.0
"""New data of the member of etcd on this host, made beside the old out of a snapshot that Ansible's connection brings.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).

The snapshot is not encrypted. It comes into the folder in which snapshots lie that are fetched (``host_snapshot``), is
for the user that brings it, then for etcd's, and goes at the end. What a run has left that was killed goes when the
next one locks this host. The data is made by etcd's user, with the host's own etcdutl, and no folder of data is ever
deleted or written again.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.karmada.installer.plugins.module_utils import (
    etcd_member,
    etcd_requests,
    etcd_snapshot,
    host_snapshot,
)
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System, units

#: What is left beside the new data and the snapshot, where etcd has its data: two files of its log have 64 MiB each.
RESERVE = 256 << 20
#: A restore copies the file once; a large one is read within a minute.
PROGRAM_SECONDS = 1800
#: Answer to a certificate that no known authority has signed, and the silence that is none.
SILENT = 0
_ASK_SECONDS = 10
_RUNNING = ("active", "activating", "reloading", "deactivating")
_SAID = 1000
#: What a member needs of its data, in the order in which it is copied.
_DATABASE = "member/snap/db"
_DATA = (_DATABASE, "member/snap/*.snap", "member/wal/*.wal")


def look(system: System, names: Sequence[str], folder: str) -> dict[str, Any]:
    """Look which of these units run or are stopping, and whether there is a folder, which may be half of one."""
    there = bool(folder) and system.path(folder).exists()
    return {"running": _running(system, names), "there": there}


def _running(system: System, names: Sequence[str]) -> list[str]:
    found = units(system, names)
    return [name for name in names if found[name].active in _RUNNING or found[name].in_transition]


def expect(system: System, instance: str, reader: str, size: int, folder: str, room: int) -> None:
    """Make an empty file for the user that brings a snapshot of ``size`` bytes; its data needs ``room`` bytes.

    Raises HostError if there is no room for both, or the folder of the data is there already.
    """
    ids = system.user_ids(reader)
    if ids is None:
        raise HostError(f"there is no user {reader} to bring the snapshot")
    if system.path(folder).exists():
        raise HostError(f"{folder} is there already; nothing of it is used or changed")
    host_snapshot.remove(system, instance)
    path = system.path(host_snapshot.path_of(instance))
    try:
        path.parent.mkdir(mode=0o711, exist_ok=True)
        path.parent.chmod(0o711)
        _require_room({path.parent: size, _existing(system.path(folder)): room + RESERVE})
        with open(path, "xb", opener=host_snapshot.for_owner) as stream:
            os.fchown(stream.fileno(), *ids)
    except OSError as error:
        host_snapshot.remove(system, instance)
        raise HostError(f"{host_snapshot.path_of(instance)} cannot be written: {error.strerror or error}") from error
    except HostError:
        host_snapshot.remove(system, instance)
        raise


def copy(system: System, instance: str, folder: str, reader: str) -> dict[str, Any]:
    """Copy the data of the member in ``folder`` into one file, an archive for the user ``reader``; returns its size.

    No file of the data is opened but to be read. The database comes first: its log may go on then, and not it before
    its log. Raises HostError, and leaves nothing then.
    """
    ids = system.user_ids(reader)
    if ids is None:
        raise HostError(f"there is no user {reader} to fetch the data of etcd")
    data = system.path(folder)
    files = [path for part in _DATA for path in sorted(data.glob(part)) if path.is_file() and not path.is_symlink()]
    if not (data / _DATABASE).is_file() or not etcd_member.has_data(system, folder):
        raise HostError(f"{folder} has no data of a member of etcd")
    host_snapshot.remove(system, instance)
    path = system.path(host_snapshot.path_of(instance))
    try:
        path.parent.mkdir(mode=0o711, exist_ok=True)
        path.parent.chmod(0o711)
        _require_room({path.parent: sum(each.stat().st_size for each in files) + RESERVE})
        with open(path, "xb", opener=host_snapshot.for_owner) as stream:
            with tarfile.open(fileobj=stream, mode="w") as archive:
                for each in files:
                    archive.add(each, arcname=str(each.relative_to(data)), recursive=False)
            os.fchown(stream.fileno(), *ids)
        return {"size": path.stat().st_size}
    except (OSError, tarfile.TarError) as error:
        host_snapshot.remove(system, instance)
        raise HostError(f"{host_snapshot.path_of(instance)} cannot be written: {error}") from error
    except HostError:
        host_snapshot.remove(system, instance)
        raise


def make(
    system: System, instance: str, user: str, digest: str, program: str, folder: str, flags: Sequence[str]
) -> None:
    """Have etcd's user make the data, by etcdutl with these flags, of the snapshot that has come with this SHA-256.

    Raises HostError, and leaves no snapshot in any case.
    """
    ids = system.user_ids(user)
    if ids is None:
        raise HostError(f"there is no user {user}, to whom the data of etcd should belong")
    path = system.path(host_snapshot.path_of(instance))
    try:
        _take_over(path, ids, digest)
        if system.path(folder).exists():
            raise HostError(f"{folder} is there already; nothing of it is used or changed")
        data = system.path(folder)
        command = [str(system.path(program)), "snapshot", "restore", str(path), f"--data-dir={data}", *flags]
        _run(program, command, ids)
        if not etcd_member.has_data(system, folder):
            raise HostError(f"{program} has made no data in {folder}")
    finally:
        host_snapshot.remove(system, instance)


def _take_over(path: Path, ids: Sequence[int], digest: str) -> None:
    """Make the file etcd's, if it is the one that was sent. Whoever has brought it can write it no more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise HostError(f"the snapshot has not come: {error.strerror or error}") from error
    with os.fdopen(descriptor, "rb") as stream:
        os.fchown(stream.fileno(), 0, 0)
        os.fchmod(stream.fileno(), 0o600)
        try:
            found = etcd_snapshot.check(stream)
        except etcd_snapshot.SnapshotError as error:
            raise HostError(f"the snapshot that has come is damaged: {error}") from error
        if found != digest:
            raise HostError("the snapshot that has come is another one than was sent")
        os.fchown(stream.fileno(), *ids)


def _run(program: str, command: Sequence[str], ids: Sequence[int]) -> None:
    own = [os.geteuid(), os.getegid()]
    as_etcd: dict[str, Any] = {} if list(ids) == own else {"user": ids[0], "group": ids[1], "extra_groups": []}
    try:
        # Nobody else may read the data, whatever the umask of this session is.
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROGRAM_SECONDS,
            cwd="/",
            env={"LC_ALL": "C"},
            umask=0o077,
            **as_etcd,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(f"{program} cannot be run: {error}") from error
    if done.returncode:
        raise HostError(f"{program} failed: {(done.stderr or done.stdout).strip()[-_SAID:]}")


def _existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def _require_room(needed: Mapping[Path, int]) -> None:
    """Raise HostError unless there is room; what lies on one file system is added up."""
    on: dict[int, int] = {}
    for folder, size in needed.items():
        device = folder.stat().st_dev
        on[device] = on.get(device, 0) + size
    for folder in needed:
        found = os.statvfs(folder)
        free, sum_of = found.f_bavail * found.f_frsize, on[folder.stat().st_dev]
        if free < sum_of:
            raise HostError(f"{folder} has {free >> 20} MiB free, and {sum_of >> 20} MiB are needed; free space there")


def content(post: etcd_requests.Post, revision: int, prefixes: Mapping[str, str]) -> dict[str, Any]:
    """Hash of the member at a revision, and numbers of keys below prefixes (base64 of begin and end, by kind)."""
    answer = etcd_member.hash_at(post, revision)
    try:
        counts = {kind: etcd_requests.count(post, *each.split(" ")) for kind, each in prefixes.items()}
    except etcd_member.MemberError:
        return answer
    return {**answer, "counts": counts}


def ask(url: str, authority: str, certificate: str, key: str) -> int:
    """Status with which the API server of this host answers who shows this certificate; 0 if it does not answer."""
    context = _context(authority, certificate, key)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(url, timeout=_ASK_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except (OSError, ValueError):
        return SILENT


def answers(
    url: str, authority: str, certificate: str, key: str, requests: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Answers of the API server of this host to objects that are posted to it, by the names of the requests.

    A request has a ``path`` and a ``body``; an answer the HTTP ``status``, 0 if there is none, and the ``message``.
    """
    at = urllib.parse.urlsplit(url)
    context = _context(authority, certificate, key)
    server = http.client.HTTPSConnection(at.hostname or "", at.port or 443, timeout=_ASK_SECONDS, context=context)
    found = {name: {"status": SILENT, "message": ""} for name in requests}
    try:
        for name, wanted in requests.items():
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            server.request("POST", wanted["path"], json.dumps(wanted["body"]), headers)
            answer = server.getresponse()
            found[name] = {"status": int(answer.status), "message": _message(answer.read())}
    except (OSError, ValueError, http.client.HTTPException) as error:
        # It would keep silent to the others, too.
        for each in found.values():
            if each["status"] == SILENT:
                each["message"] = _printable(str(error))
    finally:
        server.close()
    return found


def _message(content: bytes) -> str:
    """Words of an API server in an answer; empty if they are not in its form."""
    try:
        told = json.loads(content)
    except ValueError:
        return ""
    return _printable(str(told.get("message") or "")) if isinstance(told, dict) else ""


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:_SAID]


def _context(authority: str, certificate: str, key: str) -> ssl.SSLContext:
    """Context of a client with this certificate, which is read from files that are gone when this returns."""
    context = ssl.create_default_context(cadata=authority)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("tls.crt", certificate), ("tls.key", key)):
            with open(Path(folder) / name, "x", opener=host_snapshot.for_owner) as stream:
                stream.write(text)
        context.load_cert_chain(Path(folder) / "tls.crt", Path(folder) / "tls.key")
    return context


def restart(system: System, names: Sequence[str], *, check: bool) -> list[str]:
    """Restart those of these units that run; returns their names. One that is held stays away."""
    running = _running(system, names)
    if running and not check:
        # Without waiting: whether it is well is seen by others.
        system.command("systemctl", "try-restart", "--no-block", "--", *running)
    return running
