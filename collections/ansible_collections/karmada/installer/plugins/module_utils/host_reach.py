# SPDX-License-Identifier: Apache-2.0
"""Does this machine reach others by TLS, and if not, what keeps it from it?

Runs on a host with the Python of its distribution and nothing else (standard library, Python 3.9 or newer). Nothing is
sent but what begins a connection: no credentials, no request.

A target is a mapping: ``name`` for whoever asks, ``host`` and ``port``; without a port (0) the name is looked up and no
more. ``tls`` is whether more than the port is tried;
``authority`` the PEM certificates that may have signed the other side's, empty if that is not verified; ``server_name``
the host name or address that its certificate has to be for.
"""

from __future__ import annotations

import errno
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What keeps one from a target. The texts are handed to whoever asked; what they mean is told to people there.
UNKNOWN_NAME, NO_ROUTE, REFUSED, SILENT = "unknown name", "no route", "refused", "silent"
NOT_TLS, OTHER_NAME, OTHER_AUTHORITY, EXPIRED = "not TLS", "other name", "other authority", "expired"
NOT_YET_VALID, OTHER = "not yet valid", "other"
#: It was not tried, because the time was over.
NOT_TRIED = "not tried"
#: How many are tried at the same moment. Each takes a thread, and waits for most of its time.
AT_ONCE = 64
#: How much later (seconds) than it should somebody may say that the time is over.
_MOMENT = 0.2
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: Numbers of OpenSSL for what is wrong with a certificate.
_OF_CERTIFICATE = {9: NOT_YET_VALID, 10: EXPIRED, 62: OTHER_NAME, 64: OTHER_NAME}
#: X509_V_FLAG_PARTIAL_CHAIN, which Python names from 3.10 on: an authority may be one that another has signed.
_PARTIAL_CHAIN = 0x80000


def look(targets: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, dict[str, str]]:
    """Try all of them at once; returns by name ``{fault, detail}``, without those that are reached.

    It takes ``seconds`` at most, however many there are and whatever they do: resolving a name cannot be broken off,
    so threads that are still at it are left behind.
    """
    deadline = time.monotonic() + seconds
    waiting: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[tuple[str, tuple[str, str]]] = queue.SimpleQueue()
    found = {target["name"]: (NOT_TRIED, "") for target in targets}

    def attempt(target: Mapping[str, Any]) -> None:
        def resolved() -> None:
            found[target["name"]] = (SILENT, "")

        found[target["name"]] = (UNKNOWN_NAME, "nobody has answered for it in time")
        outcomes.put((target["name"], _fault(target, deadline, resolved)))

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                attempt(waiting.get_nowait())
            except queue.Empty:
                return

    for target in targets:
        waiting.put(target)
    for _each in range(min(len(targets), AT_ONCE)):
        threading.Thread(target=work, daemon=True).start()
    ended: dict[str, tuple[str, str]] = {}
    # A moment more, for those that end with the time themselves.
    while len(ended) < len(found) and (left := deadline + _MOMENT - time.monotonic()) > 0:
        try:
            name, outcome = outcomes.get(timeout=left)
        except queue.Empty:
            break
        ended[name] = outcome
    last = {**found, **ended}
    return {name: {"fault": kind, "detail": detail} for name, (kind, detail) in last.items() if kind}


def _fault(target: Mapping[str, Any], deadline: float, resolved: Callable[[], None]) -> tuple[str, str]:
    """What keeps this machine from one target, and in which words it was told; both empty if nothing does.

    ``deadline`` is a moment of the monotonic clock, ``resolved`` hears that the name is known.
    """
    try:
        places = socket.getaddrinfo(target["host"], target["port"], type=socket.SOCK_STREAM)
        resolved()
        if not target["port"]:
            return "", ""
        with _connected([str(place[0]) for *_, place in places], target["port"], deadline) as connection:
            if target["tls"]:
                context = _context(target["authority"])
                connection.settimeout(_left(deadline))
                with context.wrap_socket(connection, server_hostname=target["server_name"] or None):
                    pass
    except (OSError, EOFError, ValueError) as error:
        return _of_certificate(error) if isinstance(error, ssl.SSLCertVerificationError) else _of_connection(error)
    except Exception as error:  # noqa: BLE001 - nobody would hear of it in a thread, and the time would be blamed
        return OTHER, f"{type(error).__name__}: {error}"
    return "", ""


def _connected(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """A connection to the first address that takes one. Each has its part of the time; the first error is raised."""
    first: OSError | None = None
    for number, address in enumerate(addresses):
        try:
            return socket.create_connection((address, port), _left(deadline) / (len(addresses) - number))
        except OSError as error:
            first = first or error
    raise first or OSError("it has no address")


def _left(deadline: float) -> float:
    # Zero would mean not to wait at all, which is another kind of error.
    return max(deadline - time.monotonic(), 0.01)


def _context(authority: str) -> ssl.SSLContext:
    """As components of Kubernetes see it: names are those of the extension, and what is trusted need not be a root."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not authority:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    context.hostname_checks_common_name = False
    context.verify_flags |= _PARTIAL_CHAIN
    context.load_verify_locations(cadata=authority)
    return context


def _of_certificate(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    kind = _OF_CERTIFICATE.get(error.verify_code)
    return (kind, "") if kind else (OTHER_AUTHORITY, error.verify_message)


def _of_connection(error: Exception) -> tuple[str, str]:
    """Kinds of errors are kinds of OSError themselves, and some of each other: the order counts."""
    told = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    if isinstance(error, socket.gaierror):
        return UNKNOWN_NAME, told
    if isinstance(error, ConnectionRefusedError):
        return REFUSED, ""
    if isinstance(error, (socket.timeout, TimeoutError)):
        return SILENT, ""
    if isinstance(error, (ssl.SSLError, ConnectionResetError, EOFError)):
        return NOT_TLS, told
    return (NO_ROUTE if getattr(error, "errno", None) in _NO_ROUTE else OTHER), told
