# SPDX-License-Identifier: Apache-2.0
"""Where a name leads from this machine, and who answers there. Asks the name service and begins a TLS connection."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from dataclasses import dataclass, replace

#: How long all of it may take. Who is there answers a handshake within a second; a name service may ask others first.
SECONDS = 5.0


@dataclass(frozen=True)
class Seen:
    """What was seen of a host name or address.

    ``addresses`` are those that it has, ``unknown`` is why it has none, in the words of the name service.
    ``certificate`` is that of whoever answers, in PEM and not verified; empty if nobody does, or not by TLS.
    """

    addresses: tuple[str, ...] = ()
    unknown: str = ""
    certificate: str = ""


def look(host: str, port: int, seconds: float = SECONDS) -> Seen:
    """Look up the host, and see who answers at that port of it; without a port (0) only the first.

    It takes ``seconds`` at most: resolving a name cannot be broken off, so a thread that is still at it is left behind.
    """
    deadline = time.monotonic() + seconds
    found: queue.SimpleQueue[Seen | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            seen = _resolved(host)
            found.put(seen)
            if port:
                found.put(replace(seen, certificate=_certificate(host, port, seen.addresses, deadline)))
        finally:
            # Nobody waits for what will not come.
            found.put(None)

    threading.Thread(target=work, daemon=True).start()
    last = Seen(unknown=f"nobody has answered for it within {seconds:.0f} seconds")
    while True:
        try:
            seen = found.get(timeout=max(deadline - time.monotonic(), 0.01))
        except queue.Empty:
            return last
        if seen is None:
            return last
        last = seen


def _resolved(host: str) -> Seen:
    try:
        places = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Seen(unknown=str(getattr(error, "strerror", None) or error))
    return Seen(tuple(dict.fromkeys(str(place[0]) for *_, place in places)))


def _certificate(host: str, port: int, addresses: tuple[str, ...], deadline: float) -> str:
    """Of the first address at which somebody answers."""
    # Who it is decides the caller: it may be somebody else's, and nothing is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for number, address in enumerate(addresses):
        part = max(deadline - time.monotonic(), 0.01) / (len(addresses) - number)
        try:
            with (
                socket.create_connection((address, port), part) as connection,
                context.wrap_socket(connection, server_hostname=host) as answer,
            ):
                return ssl.DER_cert_to_PEM_cert(answer.getpeercert(binary_form=True) or b"")
        except (OSError, ValueError):
            continue
    return ""
