# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server over a pool of connections, retried for as long as that may help.

``kubernetes.client`` is not used: its models cost half a second to build, its dynamic client a discovery of the whole
API, and we need neither. The identity comes from ``kubeconfig``; a server that cannot be reached from here is reached
through ``kube.port_forward``.
"""

from __future__ import annotations

import copy
import json
import random
import re
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import urllib3

from ..api_object import Object
from ..labels import FIELD_MANAGER
from ..problems import Problem, ProblemsError, Reason
from ..redaction import printable
from ..run_process import run_id
from .answer import Answer, Limits, Seconds, TooMuchError, content, ending, parsed
from .errors import ApiError, Invalid, Unreachable, explain, from_status, too_much, without_login
from .kubeconfig import Access
from .progress import Progress

if not hasattr(urllib3, "BaseHTTPResponse"):
    # Older ones check the names in certificates in their own way, and not at all inside a port-forward.
    raise ProblemsError(
        Problem(
            f"the Python package urllib3 is {version('urllib3')}, and 2 or newer is needed",
            sys.executable,
            f"Install it where Ansible runs: {sys.executable} -m pip install 'urllib3>=2'",
            reason=Reason.MISSING_PROGRAM,
        )
    )

Taken = TypeVar("Taken")

JSON = "application/json"
TABLE = f"{JSON};as=Table;g=meta.k8s.io;v=v1"
#: An object without its spec, data and status. A server that does not know this form refuses the request, or answers
#: METADATA with the whole object.
METADATA_ONLY = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA = f"{METADATA_ONLY},{JSON}"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
#: All resources in one document, those of aggregated APIs included. A server without it answers with groups only.
DISCOVERY = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,{JSON}"

POOL = 32
CONNECT_SECONDS = 10.0
# Longer than the longest admission webhook (30 s), so that a slow answer is not taken for a dead connection.
READ_SECONDS = 35.0
RETRY_SECONDS = 90.0
#: Within which what is sent has to arrive, or else the connection ends and nothing of it arrives any more. A third of
#: the time for which a lock lasts, see ``lease.IN_FLIGHT``.
DELIVERY_SECONDS = 10.0
RETRIED_STATUS = frozenset({429, 500, 502, 503, 504})
# Retries of a write that conflicts with others; with the pauses, some 15 s.
CONFLICTS = 10
#: Bytes read of an error response.
ERROR_BYTES = 1024 * 1024
WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})
# Where the network is away, the kernel goes on sending for minutes, also for a process that has given up or was killed.
# A write that arrives when the network comes back is one of somebody who has lost the lock since.
_DELIVERED = (
    [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(DELIVERY_SECONDS * 1000))]
    if hasattr(socket, "TCP_USER_TIMEOUT")
    else []
)
#: Whatever was not delivered when a connection is closed, or its process ends, is dropped.
_DROPPED = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
#: Characters of the basic plane that are not of ASCII, and DEL.
_ESCAPED = re.compile("[\x7f-\uffff]")


class Transport:
    """Requests to one API server and their answers. Thread-safe.

    ``name`` is what people call it ("host cluster"); every error message begins with it. ``retry_seconds`` is how long
    a request is retried while the server is unreachable or overloaded. ``counts`` counts requests by verb.
    ``on_trouble`` is called with lines of a wait (``kube.progress``) while a request is being retried. ``before_write``
    is called before each attempt of a write and stops it by raising. ``limits`` bound what is read from this server.
    ``pool`` replaces the pool of connections to the server of ``access``.
    """

    def __init__(
        self, access: Access, name: str = "cluster", *, retry_seconds: float = RETRY_SECONDS, pool: Any = None
    ) -> None:
        self.name = name
        self.access = access
        self.server = access.server
        self.retry_seconds = retry_seconds
        self.limits = Limits()
        self._read_seconds = READ_SECONDS
        self.counts: Counter[str] = Counter()
        self.on_trouble: Callable[[str], None] | None = None
        self.before_write: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._has_answered = False
        parts = urlsplit(self.server)
        given = run_id()
        # Audit logs of API servers keep it, so that a change can be traced to its run.
        self._user_agent = f"{FIELD_MANAGER} (run {given})" if given else FIELD_MANAGER
        self._base_path = parts.path.rstrip("/")
        of_environment = None if access.direct else _proxy_of_environment(parts.scheme, parts.hostname or "")
        self._proxy = access.proxy or of_environment or ""
        self._pool = pool or self._make_pool()

    def with_patience(self, *, retry_seconds: float, read_seconds: float = READ_SECONDS) -> Self:
        """Client of this server over these connections with other timeouts. Close only one of the two."""
        other = copy.copy(self)
        other.retry_seconds, other._read_seconds = retry_seconds, read_seconds
        return other

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.server}>"

    def dial(self, timeout: float) -> Any:
        """Open a connection to the API server, with TLS done; the caller owns and closes the socket."""
        connection: Any = self._pool._new_conn()
        connection.timeout = timeout
        try:
            if getattr(self._pool, "proxy", None):
                self._pool._prepare_proxy(connection)
            else:
                connection.connect()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            connection.close()
            raise ConnectionError(f"{self.name}: {explain(error, self.server, self._proxy)[0]}") from None
        if _DELIVERED:
            # Whoever reads a stream may take their time.
            connection.sock.setsockopt(*_DELIVERED[0][:2], 0)
        return connection.sock

    def _make_pool(self) -> Any:
        parts = urlsplit(self.server)
        options: dict[str, Any] = {
            "maxsize": POOL,
            "block": False,
            "socket_options": [
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                *_DELIVERED,
                _DROPPED,
            ],
        }
        if parts.scheme == "https":
            options |= {"ssl_context": self.access.context, "server_hostname": self.access.tls_server_name}
            if self.access.context.verify_mode is ssl.CERT_NONE:
                options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
        proxy = self._proxy
        if not proxy:
            kind = urllib3.HTTPSConnectionPool if parts.scheme == "https" else urllib3.HTTPConnectionPool
            return ending(kind(parts.hostname or "", parts.port, **options))
        if proxy.startswith("socks"):
            try:
                from urllib3.contrib.socks import SOCKSProxyManager  # noqa: PLC0415
            except ImportError:
                what, remedy = f"{self.name} is behind a SOCKS proxy", "Install the Python package PySocks."
                raise ProblemsError(
                    Problem(what, without_login(proxy), remedy, reason=Reason.MISSING_PROGRAM)
                ) from None
            # The proxy resolves the name, as for kubectl and the control plane: it may be known only there.
            by_name = urlsplit(proxy)._replace(scheme="socks5h").geturl()
            return ending(SOCKSProxyManager(by_name, **options).connection_from_url(self.server))
        return ending(urllib3.ProxyManager(proxy, **options).connection_from_url(self.server))

    def _json(
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        answer = self._request(verb, method, path, query, body, content_type=content_type)
        return self._content(answer.data, method, path)

    def _content(self, data: bytes | str, method: str, path: str) -> Object:
        """Object in an answer. Raises ApiError if something else than an API server answers."""
        try:
            found = parsed(data, self.limits.answer_values)
        except TooMuchError as error:
            raise too_much(self.name, self.server, method, path, str(error)) from None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            begun = data.lstrip()[:1] in (b"{", "{")
            message = (
                f"the answer of {self.server} is cut off, or no JSON; see what is in front of it"
                if begun
                else f"what answers at {self.server} is not a Kubernetes API server; mend the address"
            )
            raise ApiError(self.name, method, path, 0, "NotKubernetes", message)
        return found

    def _request(  # noqa: PLR0913 - as below
        self,
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        outlive_conflicts: bool = False,
        retry_seconds: float | None = None,
        accept: str = JSON,
    ) -> Answer:
        """Send until an answer comes that a retry would not change, or until the time for retries is over."""

        def read(response: urllib3.BaseHTTPResponse) -> Answer:
            return Answer(response.status, response.headers, content(response, self.limits.answer_bytes))

        seconds = (self._read_seconds, self.limits.answer_seconds)
        return self._sent(
            read,
            verb,
            method,
            path,
            query,
            body,
            seconds=seconds,
            content_type=content_type,
            outlive_conflicts=outlive_conflicts,
            retry_seconds=retry_seconds,
            accept=accept,
        )

    def _stream(
        self, verb: str, path: str, query: Mapping[str, str | None], seconds: float, *, accept: str = JSON
    ) -> urllib3.BaseHTTPResponse:
        """Response that is read while it arrives, for at most ``seconds`` in total, silence included."""
        limits = (seconds, seconds)
        return self._sent(lambda response: response, verb, "GET", path, query, None, seconds=limits, accept=accept)

    def _sent(  # noqa: PLR0913
        self,
        read: Callable[[urllib3.BaseHTTPResponse], Taken],
        verb: str,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None,
        body: Object | None,
        *,
        seconds: tuple[float, float],
        content_type: str = "application/json",
        outlive_conflicts: bool = False,
        retry_seconds: float | None = None,
        accept: str = JSON,
    ) -> Taken:
        """Result of ``read`` on the response; ``seconds`` are the timeouts of one read and of one whole attempt."""
        chosen = {key: value for key, value in (query or {}).items() if value}
        url = self._base_path + path + (f"?{urlencode(chosen)}" if chosen else "")
        data = None if body is None else _json(body)
        patience = self.retry_seconds if retry_seconds is None else retry_seconds
        started = time.monotonic()
        connect = min(CONNECT_SECONDS, self._read_seconds)
        attempt, renewed = 0, False
        told = Progress(self.on_trouble, started, patience)
        while True:
            attempt += 1
            if self.before_write and verb in WRITES:
                self.before_write()
            self._count(verb if attempt == 1 else "retry")
            headers = self.access.headers()
            headers.update({"Accept": accept, "User-Agent": self._user_agent})
            if data is not None:
                headers["Content-Type"] = content_type
            after: float | None = None
            trouble: ApiError
            try:
                response: urllib3.BaseHTTPResponse = self._pool.urlopen(
                    method,
                    url,
                    body=data,
                    headers=headers,
                    retries=False,
                    redirect=False,
                    timeout=urllib3.Timeout(connect=Seconds.of(connect, connect), read=Seconds.of(*seconds)),
                    preload_content=False,
                )
                self._has_answered = True
                if response.status < 300:
                    return read(response)
            except TooMuchError as error:
                raise too_much(self.name, self.server, method, path, str(error)) from None
            except (urllib3.exceptions.HTTPError, OSError) as error:
                message, passing = explain(error, self.server, self._proxy)
                # What led to the server a moment ago, such as a controller of ingresses whose backends change, may lead
                # to another one for some seconds.
                if not (passing or self._has_answered):
                    raise Unreachable(self.name, method, path, 0, "Unreachable", message) from None
                trouble = Unreachable(self.name, method, path, 0, "Unreachable", message)
            else:
                trouble = self._error_of(response, method, path)
                if response.status == 401 and not renewed and self.access.refresh():
                    renewed = True
                    continue
                crossed = outlive_conflicts and response.status == 409 and attempt < CONFLICTS
                if not crossed and (response.status not in RETRIED_STATUS or isinstance(trouble, Invalid)):
                    try:
                        raise trouble
                    finally:
                        # It has this frame, which would have it: client, request and answer would stay until Python
                        # looks for garbage, for each object that is not there.
                        del trouble
                after = _retry_after(response)
            tried = time.monotonic() - started
            next_in = _pause_within(patience, tried, trouble, attempt, after)
            told.tell(f"{self.name}: {trouble.message}", started + tried)
            time.sleep(next_in)

    def _count(self, verb: str) -> None:
        with self._lock:
            self.counts[verb] += 1

    def _error_of(self, response: urllib3.BaseHTTPResponse, method: str, path: str) -> ApiError:
        try:
            text = content(response, ERROR_BYTES).decode("utf-8", "replace")
        except (urllib3.exceptions.HTTPError, OSError, TooMuchError):
            text = ""
        try:
            status = parsed(text, self.limits.answer_values)
        except (ValueError, TooMuchError):
            status = None
        if not isinstance(status, dict):
            status = {"message": printable(text, 300)}
        return self._status_error(method, path, response.status, status)

    def _status_error(self, method: str, path: str, code: int, status: Object) -> ApiError:
        return from_status(self.name, self.server, method, path, code, status)


def _json(body: Object) -> bytes:
    """Body as JSON that is YAML, too, as which a server-side apply is read.

    YAML knows no pairs of surrogates, so that what is beyond the basic plane stays as it is. The rest is escaped: some
    of its characters are no YAML unless they are.
    """
    text = json.dumps(body, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _proxy_of_environment(scheme: str, host: str) -> str | None:
    proxy = urllib.request.getproxies().get(scheme)
    return None if proxy and urllib.request.proxy_bypass(host) else proxy


def _pause_within(patience: float, tried: float, trouble: ApiError, attempt: int, after: float | None) -> float:
    """Seconds until the next attempt; raises the trouble if ``patience`` ends before that, ``tried`` seconds over."""
    seconds = pause(attempt, after)
    if tried + seconds > patience:
        if attempt > 1:
            trouble.message += f"; tried {attempt} times in {tried:.0f} s"
        raise trouble from None
    return seconds


def pause(attempt: int, after: float | None) -> float:
    """Seconds until the next attempt: growing up to 5, at least what the server asks for, with jitter."""
    own = min(5.0, 0.1 * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1)  # noqa: S311 - spreads load, guards nothing
    return max(own, (after or 0.0) * random.uniform(1, 1.2))  # noqa: S311


def _retry_after(response: urllib3.BaseHTTPResponse) -> float | None:
    try:
        return min(30.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return None
