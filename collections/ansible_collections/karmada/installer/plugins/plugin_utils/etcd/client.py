# SPDX-License-Identifier: Apache-2.0
"""A small client of etcd: its members, changes of them, and the few keys that the installer itself reads and writes.

It uses the JSON form of etcd's own API, which every member serves on its client port. It connects directly to the named
address: proxies of the environment are ignored, and redirects are not followed.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import errno
import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from ansible_collections.karmada.installer.plugins.module_utils import etcd_requests, etcd_snapshot
from urllib3.util.ssltransport import SSLTransport

from ..encoding import base64_text
from ..kube.errors import ApiError, explain
from ..kube.kubeconfig import load_client_certificate, tls_context
from . import raft_snapshot

CONNECT_SECONDS = 5.0
_MAX_BYTES = 4 * 1024 * 1024
_PIECE = 256 * 1024
_ALARM = re.compile(r"alarm:([A-Z]+)")
#: An alarm with the decimal ID of the member that has raised it.
_RAISED = re.compile(r"memberID:\s*([0-9]+)\s+alarm:([A-Z]+)")
#: Errors that say nothing about etcd, only about the network between: others may reach it.
_NO_WAY = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ETIMEDOUT})


class Cause(Enum):
    """Meaning of an EtcdError for its caller."""

    UNREACHED = "unreached"  # nothing is known: no route from this machine to that address
    NOT_ASKABLE = "not-askable"  # it is an etcd, but its JSON API does not serve us
    WRONG = "wrong"  # it answered, or refused the connection, in a way that will not pass


class EtcdError(Exception):
    """Failure to get a useful answer. The message names no credentials.

    ``code`` is the gRPC code of etcd's answer (``etcd_requests`` names some), 0 if it gave none.
    """

    def __init__(self, cause: Cause, message: str, code: int = 0) -> None:
        self.cause = cause
        self.code = code
        super().__init__(message)

    @property
    def weight(self) -> tuple[bool, bool]:
        """Key of an order by how much it tells: the word of etcd most, and no way to it least."""
        return bool(self.code), self.cause is not Cause.UNREACHED


@dataclass(frozen=True)
class EndpointStatus:
    """Status of one member. ``cause`` is None if it answered; ``message`` says why it is not healthy."""

    url: str
    healthy: bool = False
    version: str = ""
    db_size: int = 0
    cluster_id: str = ""
    #: Whether it says that it leads the others.
    leader: bool = False
    alarms: tuple[str, ...] = ()
    #: IDs of the members that have raised NOSPACE; one may be none any more, as its alarm outlives it.
    full_members: tuple[str, ...] = ()
    message: str = ""
    #: Whether the alarm NOSPACE, its own or of others, is all that keeps it from being healthy.
    only_full: bool = False
    cause: Cause | None = None
    #: ID of the member, hexadecimal as etcd prints it.
    member_id: str = ""
    learner: bool = False
    #: Last entry of the log that this member has; compared with that of the leader, how far it is behind.
    index: int = 0
    #: Term of the newest leader that it has heard of; an entry of a newer term is newer, whatever its number.
    term: int = 0
    #: Bytes of the database that hold something, and from etcd 3.6 on how many it may have (0: not told).
    db_size_in_use: int = 0
    db_quota: int = 0
    #: Revision of its newest key.
    revision: int = 0

    @property
    def works(self) -> bool:
        """True if it takes part in every majority: it is healthy, or only its database is full."""
        return self.healthy or self.only_full


@dataclass(frozen=True)
class Found:
    """A key with its value, as read from etcd."""

    key: bytes
    value: bytes


def range_end(prefix: bytes) -> bytes:
    """First key after all keys that begin with ``prefix``, whose last byte is not 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def ends(prefix: bytes) -> tuple[str, str]:
    """First key that begins with ``prefix`` and the one after the last, both in base64."""
    return base64_text(prefix), base64_text(range_end(prefix))


class EtcdClient:
    """Client of one etcd, by the client URLs of its members.

    ``files`` are ca.crt, tls.crt and tls.key; ``where`` names their origin in messages. ``dial`` opens a connection to
    the member of a URL in another way than by its address; TLS then runs over its result. Raises ProblemsError if the
    files cannot be used.
    """

    def __init__(
        self,
        urls: Sequence[str],
        files: Mapping[str, bytes],
        where: str,
        dial: Callable[[str, float], Any] | None = None,
    ) -> None:
        self.urls = tuple(urls)
        self._dial = dial
        self._tls = tls_context(files["ca.crt"].decode(errors="replace"), f"{where}, ca.crt")
        certificate, key = (files[name].decode(errors="replace") for name in ("tls.crt", "tls.key"))
        load_client_certificate(self._tls, certificate, key, f"{where}, tls.crt and tls.key")

    # -- how the members are ---------------------------------------------------------------------------------------

    def status(self) -> list[EndpointStatus]:
        """Status of each member, from that member, requested concurrently; in the order of the URLs."""
        with ThreadPoolExecutor(len(self.urls)) as pool:
            return list(pool.map(self._status_of, self.urls))

    def _status_of(self, url: str) -> EndpointStatus:
        try:
            found = etcd_requests.status(self._poster(url))
        except EtcdError as error:
            return EndpointStatus(url, message=str(error), cause=error.cause)
        return endpoint_status(url, found)

    # -- the members, and changes of them ------------------------------------------------------------------------------

    def at(self, url: str) -> EtcdClient:
        """Client of the member with this URL alone, for what has to be asked of one."""
        found = copy.copy(self)
        found.urls = (url,)
        return found

    def members(self) -> etcd_requests.Members:
        """Members of the cluster, as a majority knows them. Raises EtcdError."""
        return etcd_requests.members(self._ask_for)

    def add_learner(self, peer_url: str) -> etcd_requests.Members:
        """Add a member without a vote. Raises EtcdError."""
        return etcd_requests.add_learner(self._ask_for, [peer_url])

    def promote(self, identity: str) -> etcd_requests.Members:
        """Give a learner its vote. Raises EtcdError."""
        return etcd_requests.promote(self._ask_for, identity)

    def remove(self, identity: str) -> etcd_requests.Members:
        """Remove a member. Raises EtcdError."""
        return etcd_requests.remove(self._ask_for, identity)

    def move_leader(self, identity: str) -> None:
        """Have this member lead; only the leader itself does that (``at``). Raises EtcdError."""
        etcd_requests.move_leader(self._ask_for, identity)

    def hash_at(self, revision: int = 0) -> etcd_requests.Hash:
        """Hash over the keys of one member (``at``) at a revision, 0 for its newest. Raises EtcdError."""
        return etcd_requests.hash_at(self._ask_for, revision)

    def alarms(self) -> dict[str, tuple[str, ...]]:
        """Alarms that are raised: member ID → their names. Raises EtcdError."""
        return etcd_requests.alarms(self._ask_for)

    def disarm(self, identity: str, alarm: str) -> None:
        """Clear an alarm of a member. Raises EtcdError."""
        etcd_requests.disarm(self._ask_for, identity, alarm)

    def compact(self, revision: int) -> None:
        """Discard what is older than a revision. Raises EtcdError."""
        etcd_requests.compact(self._ask_for, revision)

    def defragment(self) -> None:
        """Give the free space of one member (``at``) back to its disk, while it answers nobody. Raises EtcdError."""
        etcd_requests.defragment(self._ask_for)

    def snapshot(self, into: BinaryIO) -> etcd_snapshot.Received:
        """Write the database of one member (``at``) into a file, while it answers others.

        Raises EtcdError, and OSError if the file cannot be written.
        """
        (url,) = self.urls
        with self._connected(url, etcd_snapshot.SILENT_SECONDS) as connection:
            try:
                _send(connection, "POST", etcd_snapshot.PATH, "{}")
                response = connection.getresponse()
            except (OSError, http.client.HTTPException, ApiError) as error:
                raise EtcdError(_cause_of_failure(error), explain(error, url)[0]) from None
            if response.status != http.client.OK:
                found = _mapping(response.read(_MAX_BYTES)) or {}
                message = str(found.get("message") or found.get("error") or f"HTTP {response.status}")
                raise EtcdError(_cause_of(message), f"it answers: {message}")
            try:
                return etcd_snapshot.receive(cast(BinaryIO, _Answer(response)), into)
            except etcd_snapshot.SnapshotError as error:
                raise EtcdError(Cause.WRONG, str(error)) from None

    def deliver(self, file: BinaryIO, size: int, to: EndpointStatus) -> None:
        """Have one member (``at``, by its peer URL) keep a file as ``raft_snapshot.FILE``; ``to`` is its status.

        The client's certificate is that of a peer. Raises EtcdError, and OSError if the file cannot be read.
        """
        (url,) = self.urls
        head = raft_snapshot.head(to.member_id)
        headers = {
            "Content-Length": str(len(head) + size),
            "X-Etcd-Cluster-ID": to.cluster_id,
            # Whom it would not understand it refuses.
            "X-Server-Version": to.version,
            "X-Min-Cluster-Version": to.version,
        }
        with self._connected(url, etcd_snapshot.SILENT_SECONDS) as connection:
            try:
                connection.request("POST", raft_snapshot.PATH, _Sent(head, file), headers)
                response = connection.getresponse()
                said = response.read(_MAX_BYTES).decode(errors="replace").strip()
            except (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException, ApiError) as error:
                raise EtcdError(Cause.UNREACHED, explain(error, url)[0]) from None
            if response.status != http.client.NO_CONTENT:
                raise EtcdError(Cause.WRONG, f"it does not keep the file (HTTP {response.status}): {said}")

    # -- keys --------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Found | None:
        """One key, by a linearizable read. Raises EtcdError."""
        found = self._ask("/v3/kv/range", {"key": base64_text(key)}).get("kvs") or []
        return Found(key, base64.b64decode(found[0].get("value", ""))) if found else None

    def names_below(self, prefix: bytes) -> list[str]:
        """Keys that begin with ``prefix``, without it and without their values. Raises EtcdError."""
        request = {"key": base64_text(prefix), "range_end": base64_text(range_end(prefix)), "keys_only": True}
        found = self._ask("/v3/kv/range", request).get("kvs") or []
        return [base64.b64decode(each["key"]).removeprefix(prefix).decode(errors="replace") for each in found]

    def revision(self) -> int:
        """Newest revision that a majority has acknowledged, which the asked member has then. Raises EtcdError."""
        return etcd_requests.acknowledged(self._ask_for)

    def count_below(self, prefix: bytes, revision: int = 0) -> int:
        """Number of keys that begin with ``prefix``, by a linearizable read.

        With a ``revision`` it is that of one member (``at``), as it was then. Raises EtcdError.
        """
        return etcd_requests.count(self._ask_for, *ends(prefix), revision=revision)

    def first_below(self, prefix: bytes) -> Found | None:
        """First key that begins with ``prefix``, None if there is none. Raises EtcdError."""
        key, end = ends(prefix)
        found = self._ask("/v3/kv/range", {"key": key, "range_end": end, "limit": "1"}).get("kvs") or []
        return Found(base64.b64decode(found[0]["key"]), base64.b64decode(found[0].get("value", ""))) if found else None

    def put_if_none_below(self, key: bytes, value: bytes, prefix: bytes) -> bool:
        """Write a key unless any key begins with ``prefix``; one transaction. Raises EtcdError."""
        # Compared with a whole range, 0 means that none of its keys exists.
        guard = {
            "key": base64_text(prefix),
            "range_end": base64_text(range_end(prefix)),
            "target": "CREATE",
            "result": "EQUAL",
            "create_revision": "0",
        }
        put = {"request_put": {"key": base64_text(key), "value": base64_text(value)}}
        return bool(self._ask("/v3/kv/txn", {"compare": [guard], "success": [put]}).get("succeeded"))

    def put_if_absent(self, key: bytes, value: bytes) -> bool:
        """Write a key unless it exists; one transaction. Raises EtcdError."""
        guard = {"key": base64_text(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        put = {"request_put": {"key": base64_text(key), "value": base64_text(value)}}
        return bool(self._ask("/v3/kv/txn", {"compare": [guard], "success": [put]}).get("succeeded"))

    def delete_below(self, prefix: bytes, guard: Found) -> int | None:
        """Delete all keys that begin with ``prefix`` if ``guard`` still has the value that was read; one transaction.

        Returns the number of deleted keys, or None if the guard's value differs. Raises EtcdError.
        """
        compare = {
            "key": base64_text(guard.key),
            "target": "VALUE",
            "result": "EQUAL",
            "value": base64_text(guard.value),
        }
        delete = {"request_delete_range": {"key": base64_text(prefix), "range_end": base64_text(range_end(prefix))}}
        found = self._ask("/v3/kv/txn", {"compare": [compare], "success": [delete]})
        if not found.get("succeeded"):
            return None
        return int(found["responses"][0]["response_delete_range"].get("deleted", 0))

    # -- requests ------------------------------------------------------------------------------------------------------

    def _ask(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask_for(path, body, etcd_requests.ANSWER_SECONDS)

    def _ask_for(self, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Answer of the first member that gives one; with none, the error that tells most.

        A request that changes something may be put to several members, and its effect be there although this raises.
        """
        last: EtcdError | None = None
        for url in self.urls:
            try:
                return self._post(url, path, body, seconds)
            except EtcdError as error:
                last = error if last is None or error.weight >= last.weight else last
        raise last or EtcdError(Cause.UNREACHED, "it has no endpoints")

    def _poster(self, url: str) -> etcd_requests.Post:
        return lambda path, body, seconds: self._post(url, path, body, seconds)

    def _post(self, url: str, path: str, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        status, text = self._exchange(url, "POST", path, json.dumps(body), seconds)
        found = _mapping(text)
        if status == http.client.OK and found is not None:
            return found
        message = str((found or {}).get("error") or (found or {}).get("message") or "")
        if message:
            code = (found or {}).get("code")
            raise EtcdError(_cause_of(message), f"it answers: {message}", code if isinstance(code, int) else 0)
        if b"CommonName" in text:
            what = "it tells its users apart by their certificates (etcd auth), which its JSON API cannot do"
            raise EtcdError(Cause.NOT_ASKABLE, what)
        version = _mapping(self._exchange(url, "GET", "/version", None, etcd_requests.ANSWER_SECONDS)[1]) or {}
        if "etcdserver" in version:
            what = f"it is etcd {version['etcdserver']} with its JSON API off (HTTP {status} for {path})"
            raise EtcdError(Cause.NOT_ASKABLE, what)
        raise EtcdError(Cause.WRONG, f"what answers there is not etcd (HTTP {status} for {path})")

    def _exchange(self, url: str, method: str, path: str, body: str | None, seconds: float) -> tuple[int, bytes]:
        with self._connected(url, seconds) as connection:
            try:
                _send(connection, method, path, body)
                response = connection.getresponse()
                return response.status, response.read(_MAX_BYTES)
            except (OSError, http.client.HTTPException, ApiError) as error:
                raise EtcdError(_cause_of_failure(error), explain(error, url)[0]) from None

    @contextlib.contextmanager
    def _connected(self, url: str, seconds: float) -> Iterator[http.client.HTTPSConnection]:
        """Connection to the member of a URL, whose silence may last so long; closed at the end. Raises EtcdError."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        connection = http.client.HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=self._tls)
        try:
            try:
                if self._dial:
                    transport = SSLTransport(self._dial(url, CONNECT_SECONDS), self._tls, host)
                    connection.sock = transport  # as much of a socket as http.client needs
                else:
                    connection.connect()
                connection.sock.settimeout(seconds)
            except (OSError, http.client.HTTPException, ApiError) as error:
                raise EtcdError(_cause_of_failure(error), explain(error, url)[0]) from None
            yield connection
        finally:
            connection.close()


class _Sent:
    """Body of a request: a head, then a file."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def __iter__(self) -> Iterator[bytes]:
        yield self._head
        while piece := self._file.read(_PIECE):
            yield piece


class _Answer:
    """Answer that is read line by line; a connection that breaks is an EtcdError, and no error of a file of ours."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def readline(self, limit: int = -1) -> bytes:
        try:
            return self._response.readline(limit)
        except (OSError, http.client.HTTPException, ApiError) as error:
            raise EtcdError(Cause.UNREACHED, f"the connection breaks: {str(error) or type(error).__name__}") from None


def endpoint_status(url: str, found: Mapping[str, Any]) -> EndpointStatus:
    """Status of the member at ``url``, by its answer."""
    errors = [str(each) for each in found.get("errors") or []]
    alarms = tuple(sorted({alarm for each in errors for alarm in _ALARM.findall(each)}))
    message = "; ".join(errors)
    header, leader = found.get("header") or {}, str(found.get("leader", "0"))
    if leader == "0":
        message = message or "it knows no leader"
    return EndpointStatus(
        url=url,
        healthy=not message,
        version=str(found.get("version", "")),
        db_size=int(found.get("dbSize", 0)),
        cluster_id=etcd_requests.hexadecimal(header.get("cluster_id")),
        leader=leader not in ("0", "") and leader == str(header.get("member_id", "")),
        alarms=alarms,
        full_members=_full_members(errors),
        message=message,
        only_full=leader != "0" and bool(errors) and all(_ALARM.findall(each) == ["NOSPACE"] for each in errors),
        member_id=etcd_requests.hexadecimal(header.get("member_id")),
        learner=bool(found.get("isLearner")),
        index=int(found.get("raftIndex", 0)),
        term=int(found.get("raftTerm", 0)),
        db_size_in_use=int(found.get("dbSizeInUse", 0)),
        db_quota=int(found.get("dbSizeQuota", 0)),
        revision=int(header.get("revision", 0)),
    )


def _full_members(errors: Sequence[str]) -> tuple[str, ...]:
    """IDs of the members that have raised NOSPACE, by the errors of a status."""
    raised = {pair for each in errors for pair in _RAISED.findall(each)}
    return tuple(sorted(etcd_requests.hexadecimal(identity) for identity, alarm in raised if alarm == "NOSPACE"))


def _send(connection: http.client.HTTPSConnection, method: str, path: str, body: str | None) -> None:
    """Send a request. Raises the server's alert if it has closed the connection.

    In TLS 1.3 a server verifies our certificate after our side of the handshake is finished. It may have closed the
    connection by the time we write, and only a read tells why.
    """
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    except (ssl.SSLEOFError, BrokenPipeError, ConnectionResetError):
        with contextlib.suppress(ssl.SSLEOFError):
            connection.sock.recv(1)
        raise EtcdError(
            Cause.WRONG, "it closes the connection after the handshake, as when it refuses our client certificate"
        ) from None


def _cause_of_failure(error: Exception) -> Cause:
    """Cause of a failed connection: an error of etcd, or only the location of this machine."""
    if isinstance(error, ssl.SSLError):
        return Cause.WRONG
    if isinstance(error, (socket.gaierror, TimeoutError, ApiError)):
        return Cause.UNREACHED
    return Cause.UNREACHED if isinstance(error, OSError) and error.errno in _NO_WAY else Cause.WRONG


def _cause_of(message: str) -> Cause:
    """Cause of an error message of etcd.

    The JSON API of a member is a client of that member and presents its server certificate: if that is not valid for
    clients, too, the API fails for everybody.
    """
    return Cause.NOT_ASKABLE if "authentication handshake failed" in message else Cause.WRONG


def _mapping(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
