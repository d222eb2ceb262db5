# SPDX-License-Identifier: Apache-2.0
"""Requests to the member of etcd on this host, with the member's own certificate.

Runs on the host, as root, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests, etcd_snapshot, host_old_data
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError, System

CONNECT_SECONDS = 5.0
_MOST_BYTES = 4 * 1024 * 1024
#: Seconds between two requests for a change that etcd refuses until members have been connected for a while.
_PAUSE = 0.2
#: Part of a message that is handed on.
_MESSAGE = 500
#: Numbers of a status that are handed on.
_NUMBERS = ("raftIndex", "raftTerm", "dbSize", "dbSizeInUse", "dbSizeQuota")


class MemberError(HostError):
    """The member gave no useful answer. ``code`` is the gRPC code of its answer, 0 if there was none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


def poster(system: System, url: str, folder: str) -> etcd_requests.Post:
    """Sender of requests to the member at ``url``, with ca.crt, tls.crt and tls.key of this folder.

    Raises HostError if they cannot be used.
    """
    context = _context(system, folder)

    def post(path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return _posted(context, url, path, body, seconds)

    return post


def _context(system: System, folder: str) -> ssl.SSLContext:
    files = {name: str(system.path(f"{folder}/{name}")) for name in ("ca.crt", "tls.crt", "tls.key")}
    try:
        context = ssl.create_default_context(cafile=files["ca.crt"])
        context.load_cert_chain(files["tls.crt"], files["tls.key"])
    except (OSError, ssl.SSLError) as error:
        raise HostError(f"the certificate of the member in {folder} cannot be used: {error}") from error
    return context


def snapshot(system: System, url: str, folder: str, into: BinaryIO) -> int:
    """Write the database of the member into a file, while it serves others; returns its size in bytes.

    Raises HostError if it sends none, OSError if the file cannot be written.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=CONNECT_SECONDS, context=_context(system, folder)
    )
    try:
        try:
            connection.connect()
            connection.sock.settimeout(etcd_snapshot.SILENT_SECONDS)
            connection.request("POST", etcd_snapshot.PATH, "{}", {"Content-Type": "application/json"})
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise MemberError(f"{url}: {str(error) or type(error).__name__}") from error
        if answer.status != http.client.OK:
            told = answer.read(_MESSAGE).decode(errors="replace")
            raise MemberError(f"it sends no snapshot: HTTP {answer.status} {told}")
        try:
            return etcd_snapshot.receive(cast("BinaryIO", _Lines(answer, url)), into).size
        except etcd_snapshot.SnapshotError as error:
            raise MemberError(f"it sends no snapshot: {error}") from error
    finally:
        connection.close()


class _Lines:
    """Answer that is read line by line; a connection that breaks is a MemberError, and no error of a file of ours."""

    def __init__(self, answer: http.client.HTTPResponse, url: str) -> None:
        self._answer, self._url = answer, url

    def readline(self, limit: int = -1) -> bytes:
        try:
            return self._answer.readline(limit)
        except (OSError, http.client.HTTPException) as error:
            raise MemberError(f"{self._url}: the connection breaks: {str(error) or type(error).__name__}") from error


def _posted(context: ssl.SSLContext, url: str, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=CONNECT_SECONDS, context=context)
    try:
        connection.connect()
        connection.sock.settimeout(seconds)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        status, text = answer.status, answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise MemberError(f"{url}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if status == http.client.OK and isinstance(found, dict):
        return found
    told = found if isinstance(found, dict) else {}
    message = str(told.get("error") or told.get("message") or f"HTTP {status}")
    code = told.get("code")
    raise MemberError(f"it answers: {message}", code if isinstance(code, int) else 0)


def answered(system: System, url: str, folder: str, data: str) -> dict[str, Any]:
    """Answer of the member at ``url``, whether there is data in its folder, and if it cannot be asked, why.

    Of all ``folders`` with data beside that one, and of it, the names and sizes are told.
    """
    there = has_data(system, data)
    folders = host_old_data.look(system, str(PurePosixPath(data).parent)) if data else []
    try:
        found = look(poster(system, url, folder))
    except HostError as error:
        # Before the first start it has no certificate, and after a lost disk none either.
        found = {"message": str(error)}
    return {**found, "data": there, "folders": folders}


def look(post: etcd_requests.Post) -> dict[str, Any]:
    """Status of the member and the members that it lists, in the plain form that a host's answer may have.

    A member that knows no leader is not asked whom it lists, which it could not tell.
    """
    try:
        found = etcd_requests.status(post)
    except MemberError as error:
        return {"message": str(error)[:_MESSAGE]}
    header = found.get("header") or {}
    answer: dict[str, Any] = {
        "message": "",
        "status": {
            "header": {name: str(header.get(name, "0")) for name in ("cluster_id", "member_id", "revision")},
            "version": str(found.get("version", "")),
            "leader": str(found.get("leader", "0")),
            "isLearner": bool(found.get("isLearner")),
            "errors": [str(each)[:_MESSAGE] for each in found.get("errors") or []][:8],
            **{name: str(found.get(name, "0")) for name in _NUMBERS},
        },
    }
    if answer["status"]["leader"] != "0":
        try:
            listed = etcd_requests.members(post)
        except MemberError:
            return answer
        answer["known"] = _known(listed)
    return answer


def _known(listed: etcd_requests.Members) -> dict[str, Any]:
    return {
        "cluster_id": listed.cluster_id,
        "members": [
            {
                "id": each.id,
                "name": each.name,
                "peer_urls": list(each.peer_urls),
                "client_urls": list(each.client_urls),
                "learner": each.learner,
            }
            for each in listed.members
        ],
    }


def hash_at(post: etcd_requests.Post, revision: int) -> dict[str, Any]:
    """Hash over its keys at this revision; nothing if it cannot tell, as after a compaction."""
    try:
        found = etcd_requests.hash_at(post, revision)
    except MemberError:
        return {}
    return {"hash": {"revision": found.revision, "value": found.value, "compacted": found.compacted}}


def counted_at(post: etcd_requests.Post, revision: int, ranges: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Numbers of its keys at this revision, by range (first key, and key after the last one, both in base64).

    Nothing if it cannot tell, as after a compaction.
    """
    try:
        found = {name: etcd_requests.count(post, *ends, revision=revision) for name, ends in ranges.items()}
    except MemberError:
        return {}
    return {"counted": {"revision": revision, "counts": found}}


def has_data(system: System, folder: str) -> bool:
    """Return whether the data folder of a member has a write-ahead log, without which it is a new one."""
    return (system.path(folder) / "member" / "wal").is_dir()


def change(
    post: etcd_requests.Post, state: str, *, identity: str = "", peer_url: str = "", seconds: float = 0.0
) -> dict[str, Any]:
    """Change the members: add, promote or remove one, or have another one lead; in the form that an answer may have.

    ``later`` says why it cannot be done yet, ``known`` are the members after it, ``added`` is the ID of the new one.
    A member that is none any more counts as removed. While etcd waits until members have been connected for a while, it
    is asked again, for as many ``seconds``. Raises MemberError for a refusal that will not pass.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = _change_once(post, state, identity, peer_url)
        if etcd_requests.SOON not in found.get("later", "") or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE)


def _change_once(post: etcd_requests.Post, state: str, identity: str, peer_url: str) -> dict[str, Any]:
    try:
        if state == "added":
            return _changed(etcd_requests.add_learner(post, [peer_url]))
        if state == "promoted":
            return _changed(etcd_requests.promote(post, identity))
        if state == "removed":
            return _changed(etcd_requests.remove(post, identity))
        etcd_requests.move_leader(post, identity)
    except MemberError as error:
        if state == "removed" and error.code == etcd_requests.NOT_FOUND:
            return {"changed": False}
        if error.code in etcd_requests.LATER or not error.code:
            return {"changed": False, "later": str(error)[:_MESSAGE]}
        raise
    return {"changed": True}


def _changed(listed: etcd_requests.Members) -> dict[str, Any]:
    return {"changed": True, "known": _known(listed), **({"added": listed.added} if listed.added else {})}


def compact(post: etcd_requests.Post, revision: int) -> bool:
    """Discard what is older than a revision; returns whether there was something."""
    try:
        etcd_requests.compact(post, revision)
    except MemberError as error:
        if etcd_requests.is_compacted_already(error.code, str(error)):
            return False
        raise
    return True
