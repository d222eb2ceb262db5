# SPDX-License-Identifier: Apache-2.0
"""A proxy on loopback, as a member's kubeconfig may name one: it speaks HTTP (CONNECT) and SOCKS 5 (RFC 1928)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

VERSION, NO_LOGIN, CONNECT = 5, 0, 1
IPV4, NAME = 1, 3
SUCCEEDED, NOT_ALLOWED = 0, 2


class ProxyServer:
    """``with ProxyServer(names) as proxy``: leads to 127.0.0.1 what asks for a host in ``names``, and nothing else.

    ``asked`` is what it was asked for, ``kind host``, in order; ``port`` where it listens.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names, self.asked = names, list[str]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that waits for a connection.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            first = _exactly(client, 1)
            speak = self._socks if first[0] == VERSION else self._http
            server = speak(client)
            if server:
                with server:
                    other = threading.Thread(target=_copy, args=(server, client), daemon=True)
                    other.start()
                    _copy(client, server)
                    other.join()

    def _socks(self, client: socket.socket) -> socket.socket | None:
        methods = _exactly(client, 1)[0]
        _exactly(client, methods)
        client.sendall(bytes([VERSION, NO_LOGIN]))
        _, command, _, kind = _exactly(client, 4)
        if kind == NAME:
            host = _exactly(client, _exactly(client, 1)[0]).decode()
        else:
            host = socket.inet_ntop(socket.AF_INET, _exactly(client, 4))
        port = int.from_bytes(_exactly(client, 2))
        server = self._connect("socks", host, port) if command == CONNECT else None
        code = SUCCEEDED if server else NOT_ALLOWED
        client.sendall(bytes([VERSION, code, 0, IPV4, *(0,) * 6]))
        return server

    def _http(self, client: socket.socket) -> socket.socket | None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += _exactly(client, 1)
        # The first letter was read to see what is spoken.
        host, _, port = request.split()[1].decode().rpartition(":")
        server = self._connect("http", host, int(port))
        client.sendall(b"HTTP/1.1 " + (b"200 Connected" if server else b"403 Forbidden") + b"\r\n\r\n")
        return server

    def _connect(self, kind: str, host: str, port: int) -> socket.socket | None:
        self.asked.append(f"{kind} {host}")
        return socket.create_connection((self.names[host], port)) if host in self.names else None


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise ConnectionError("it ended early")
        found += piece
    return found


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    # An end on one side is one for the other.
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
