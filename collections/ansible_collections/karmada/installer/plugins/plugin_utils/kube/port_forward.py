# SPDX-License-Identifier: Apache-2.0
"""Connections to a port of a pod through the API server of its cluster, without a listener and without threads.

Each connection is one websocket (``v4.channel.k8s.io``: the first byte of a message is the channel, 0 for data, 1 for
errors; the first message of each channel repeats the port in two bytes). It looks like a socket, so urllib3 runs TLS
over it as it does inside a TLS proxy. ``kubernetes.stream.PortForward`` is not used: it runs a thread for each
connection, patches ``socket.create_connection`` callers and copies through a socket pair.
"""

from __future__ import annotations

import contextlib
import math
import random
import socket
import threading
import time
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3
import urllib3.connection
import websocket
from urllib3.util.ssltransport import SSLTransport

from ..api_object import is_true
from .answer import Ending, hurry
from .cluster import Cluster
from .errors import Forbidden, Unreachable
from .kubeconfig import Access
from .transport import POOL

CONNECT_SECONDS = 10.0
# So that sixteen connections opened at once list the pods once.
PODS_SECONDS = 3.0


class _WebSocket(websocket.WebSocket):
    """Websocket that reads until a deadline, however many pieces a frame arrives in."""

    until = math.inf

    def _recv(self, size: int) -> bytes:
        if self.sock is not None:
            hurry(self.sock, self.until)
        found: bytes = super()._recv(size)  # type: ignore[no-untyped-call]
        return found


class ForwardedSocket:
    """The part of a socket that TLS and http.client use, over one websocket."""

    def __init__(self, connection: Any, what: str) -> None:
        self._websocket = connection
        self._what = what
        self._received = b""
        self._greeted: set[int] = set()
        self._ended = False
        self._closed = False
        self._io_refs = 0  # open files made from this socket; urllib3 counts them here

    @property
    def until(self) -> float:
        """Deadline of all reads, as a moment of time.monotonic()."""
        moment: float = self._websocket.until
        return moment

    @until.setter
    def until(self, moment: float) -> None:
        self._websocket.until = moment

    def recv(self, size: int, _flags: int = 0) -> bytes:
        """Up to ``size`` bytes, b"" at the end. Raises TimeoutError, or ConnectionError when the pod refuses."""
        while not self._received and not self._ended:
            self._receive()
        found, self._received = self._received[:size], self._received[size:]
        return found

    def _receive(self) -> None:
        try:
            opcode, frame = self._websocket.recv_data_frame()
        except websocket.WebSocketTimeoutException:
            raise TimeoutError(f"{self._what}: no answer in time") from None
        except websocket.WebSocketConnectionClosedException:
            self._ended = True
            return
        except websocket.WebSocketException as error:
            raise ConnectionError(f"{self._what}: {error}") from None
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            self._ended = True
            return
        if not frame.data:
            return
        channel, data = frame.data[0], frame.data[1:]
        if channel not in self._greeted:
            self._greeted.add(channel)
            data = data[2:]
        if channel == 1 and data:
            raise ConnectionError(f"{self._what}: {data.decode('utf-8', 'replace').strip()}")
        if channel == 0:
            self._received += data

    def sendall(self, data: bytes, _flags: int = 0) -> None:
        """Send all of ``data`` as one message."""
        try:
            self._websocket.send_binary(b"\0" + bytes(data))
        except websocket.WebSocketTimeoutException:
            raise TimeoutError(f"{self._what}: nothing is taken in time") from None
        except websocket.WebSocketException as error:
            raise ConnectionError(f"{self._what}: {error}") from None

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of each send and receive, in seconds; None waits for ever."""
        self._websocket.settimeout(seconds)

    def gettimeout(self) -> float | None:
        """Timeout set by ``settimeout``."""
        limit: float | None = self._websocket.gettimeout()
        return limit

    def fileno(self) -> int:
        """File descriptor of the socket below, for select."""
        return self._websocket.sock.fileno() if self._websocket.sock else -1

    def shutdown(self, how: int) -> None:
        """Wake a thread that waits in ``recv``."""
        below = self._websocket.sock
        if isinstance(below, socket.socket):
            socket.socket.shutdown(below, how)
        elif below is not None:
            below.socket.shutdown(how)

    def close(self) -> None:
        """Close, once the last file made from this socket is closed too."""
        self._closed = True
        if self._io_refs <= 0 and self._websocket.sock:
            with contextlib.suppress(OSError, websocket.WebSocketException):
                self._websocket.settimeout(1)
                self._websocket.send_close()
            self._websocket.shutdown()

    def _decref_socketios(self) -> None:
        self._io_refs = max(0, self._io_refs - 1)
        if self._closed:
            self.close()


class Forwarder:
    """Source of connections to ``port`` of pods of ``front``; ``pods`` is a label selector or a pod's name."""

    def __init__(self, front: Cluster, namespace: str, pods: str, port: int) -> None:
        self.front, self.namespace, self.pods, self.port = front, namespace, pods, port
        self._lock = threading.Lock()
        self._found: tuple[float, list[str]] = (0.0, [])

    def __str__(self) -> str:
        return f"port {self.port} of pods {self.namespace}/{self.pods}"

    def open(self, timeout: float) -> ForwardedSocket:
        """Open a connection. Raises ConnectionError when no pod accepts it, ApiError when we may not forward."""
        try:
            pod = self._ready_pod()
            below = self.front.dial(timeout)
        except Unreachable as error:
            raise ConnectionError(str(error)) from None
        base = urlsplit(self.front.access.server)
        path = f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(pod)}/portforward"
        connection: Any = _WebSocket(skip_utf8_validation=True)
        try:
            below.settimeout(timeout)
            connection.connect(
                f"ws{base.scheme[4:]}://{base.netloc}{base.path.rstrip('/')}{path}?ports={self.port}",
                socket=below,
                header=[f"{key}: {value}" for key, value in self.front.access.headers().items()],
                subprotocols=["v4.channel.k8s.io"],
                suppress_origin=True,
                timeout=timeout,
            )
        except websocket.WebSocketBadStatusException as error:
            below.close()
            self._forget()
            if error.status_code in (401, 403):
                raise Forbidden(
                    self.front.name,
                    "GET",
                    path,
                    error.status_code,
                    "Forbidden",
                    f"may not forward ports of pod {self.namespace}/{pod}: allow create and get on pods/portforward",
                ) from None
            raise ConnectionError(f"{self.front.name} does not forward to {pod} ({error.status_code})") from None
        except (websocket.WebSocketException, OSError) as error:
            below.close()
            self._forget()
            raise ConnectionError(f"{self.front.name} does not forward to {pod}: {error}") from None
        return ForwardedSocket(connection, f"port {self.port} of pod {self.namespace}/{pod}")

    def _ready_pod(self) -> str:
        if "=" not in self.pods:
            return self.pods
        with self._lock:
            when, names = self._found
            if not names or time.monotonic() - when > PODS_SECONDS:
                names = [
                    pod["metadata"]["name"]
                    for pod in self.front.list("v1", "Pod", self.namespace, labels=self.pods)
                    if _ready(pod)
                ]
                self._found = (time.monotonic(), names)
        if not names:
            raise ConnectionError(f"no pod {self.pods} in namespace {self.namespace} of {self.front.name} is ready")
        return random.choice(names)  # noqa: S311 - spreads load, guards nothing

    def _forget(self) -> None:
        with self._lock:
            self._found = (0.0, [])


def _ready(pod: dict[str, Any]) -> bool:
    return is_true(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]


class _ForwardedConnection(Ending, urllib3.connection.HTTPSConnection):  # type: ignore[misc]  # see there
    """An HTTPS connection whose bytes go through a Forwarder."""

    forwarder: Forwarder
    tls: Any

    def connect(self) -> None:
        limit = self.timeout if isinstance(self.timeout, (int, float)) else CONNECT_SECONDS
        below = self.forwarder.open(limit)
        below.until = time.monotonic() + limit
        try:
            # TLS checks the certificate against this name, because the context has check_hostname set.
            self.sock = SSLTransport(below, self.tls, self.server_hostname or self.host)  # type: ignore[arg-type]
        except BaseException:
            below.close()
            self.forwarder._forget()
            raise
        self.is_verified = True


def pool(forwarder: Forwarder, access: Access, size: int) -> urllib3.HTTPSConnectionPool:
    """Connection pool to the API server behind ``forwarder``."""
    parts = urlsplit(access.server)
    found = urllib3.HTTPSConnectionPool(
        parts.hostname or "localhost",
        parts.port or 443,
        maxsize=size,
        block=False,
        ssl_context=access.context,
        server_hostname=access.tls_server_name,
    )
    found.ConnectionCls = type(
        "ForwardedConnection", (_ForwardedConnection,), {"forwarder": forwarder, "tls": access.context}
    )
    return found


def cluster_behind(front: Cluster, namespace: str, pods: str, port: int, access: Access, name: str) -> Cluster:
    """Client of an API server that runs in pods of ``front``, reached by port-forward.

    ``pods`` is a label selector (each connection picks a Ready pod) or the name of one pod. The certificate must be
    valid for the TLS server name of ``access``, or else for the host of its address, to which nothing connects.
    """
    forwarder = Forwarder(front, namespace, pods, port)
    cluster = Cluster(access, name, pool=pool(forwarder, access, POOL))
    cluster.server = f"{forwarder} through {front.name}"
    return cluster
