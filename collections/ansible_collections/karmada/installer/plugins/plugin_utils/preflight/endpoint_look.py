# SPDX-License-Identifier: Apache-2.0
"""Lookup of a name from this machine, and the certificate of the server there: a DNS query and a TLS handshake."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from dataclasses import dataclass, replace

#: Timeout in total. A DNS server may have to ask others first.
SECONDS = 5.0
#: Timeout at one address. A server answers a handshake within a second, and this lets one packet be lost. Before the
#: first install nobody has a virtual IP, and each of these seconds is waited there.
SECONDS_AT_ADDRESS = 2.0


@dataclass(frozen=True)
class Seen:
    """Result for a host name or address.

    ``addresses`` are those of the name; if there are none, ``unknown`` is the reason in the words of the resolver.
    ``certificate`` is that of the server, in PEM and not verified; empty if none answers, or not by TLS.
    """

    addresses: tuple[str, ...] = ()
    unknown: str = ""
    certificate: str = ""


def look(host: str, port: int, seconds: float = SECONDS) -> Seen:
    """Look up the host, and fetch the certificate of the server at that port; without a port (0), only look it up.

    Takes at most ``seconds``: a name lookup cannot be cancelled, so a thread that is still in one is left behind.
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
            # Ends the wait for a result that will not come.
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
    """Certificate of the first address at which a server answers."""
    # The caller judges the certificate, which may be that of others; nothing is sent.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for number, address in enumerate(addresses):
        part = min(max(deadline - time.monotonic(), 0.01) / (len(addresses) - number), SECONDS_AT_ADDRESS)
        try:
            with (
                socket.create_connection((address, port), part) as connection,
                context.wrap_socket(connection, server_hostname=host) as answer,
            ):
                return ssl.DER_cert_to_PEM_cert(answer.getpeercert(binary_form=True) or b"")
        except (OSError, ValueError):
            continue
    return ""
