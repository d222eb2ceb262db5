# SPDX-License-Identifier: Apache-2.0
"""Reachability of other machines by TLS from this one, with the fault if a target is not reached.

Runs on a host with the Python of its distribution and nothing else (standard library, Python 3.9 or newer). It sends
only the beginning of a connection: no credentials, no request.

A target is a mapping: ``name`` identifies it for the caller; ``host`` and ``port``, where port 0 means a name lookup
only; ``tls``, whether a TLS handshake follows the connection; ``authority``, PEM certificates of which one must have
signed the server's, empty to skip verification; ``server_name``, the name or address that the certificate must have.
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

#: Kinds of faults. The texts go to the caller, where people get an explanation of them.
UNKNOWN_NAME, NO_ROUTE, REFUSED, SILENT = "unknown name", "no route", "refused", "silent"
NOT_TLS, OTHER_NAME, OTHER_AUTHORITY, EXPIRED = "not TLS", "other name", "other authority", "expired"
NOT_YET_VALID, OTHER = "not yet valid", "other"
#: The target was not tried before the timeout.
NOT_TRIED = "not tried"
#: Concurrent attempts. Each takes a thread, which mostly waits.
AT_ONCE = 64
#: Seconds that a result may come after the deadline.
_MOMENT = 0.2
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: OpenSSL's error numbers for certificates.
_OF_CERTIFICATE = {9: NOT_YET_VALID, 10: EXPIRED, 62: OTHER_NAME, 64: OTHER_NAME}
#: X509_V_FLAG_PARTIAL_CHAIN, which Python names from 3.10 on: an intermediate CA may be trusted as such.
_PARTIAL_CHAIN = 0x80000


def look(targets: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, dict[str, str]]:
    """Try all targets concurrently; returns name → ``{fault, detail}``, without those that are reached.

    Takes at most ``seconds``, however many targets there are and whatever they do: a name lookup cannot be cancelled,
    so threads that are still in one are left behind.
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
    # A little more time, for attempts that end at the deadline themselves.
    while len(ended) < len(found) and (left := deadline + _MOMENT - time.monotonic()) > 0:
        try:
            name, outcome = outcomes.get(timeout=left)
        except queue.Empty:
            break
        ended[name] = outcome
    last = {**found, **ended}
    return {name: {"fault": kind, "detail": detail} for name, (kind, detail) in last.items() if kind}


def _fault(target: Mapping[str, Any], deadline: float, resolved: Callable[[], None]) -> tuple[str, str]:
    """Fault of one target, and its detail in the words of the system; both empty if it is reached.

    ``deadline`` is a time of the monotonic clock; ``resolved`` is called when the name is known.
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
    except Exception as error:  # noqa: BLE001 - a thread's error would be lost, and the timeout blamed
        return OTHER, f"{type(error).__name__}: {error}"
    return "", ""


def _connected(addresses: Sequence[str], port: int, deadline: float) -> socket.socket:
    """Connection to the first address that accepts one; each gets a share of the time. Raises the first error."""
    first: OSError | None = None
    for number, address in enumerate(addresses):
        try:
            return socket.create_connection((address, port), _left(deadline) / (len(addresses) - number))
        except OSError as error:
            first = first or error
    raise first or OSError("it has no address")


def _left(deadline: float) -> float:
    # A timeout of zero means non-blocking, which fails in another way.
    return max(deadline - time.monotonic(), 0.01)


def _context(authority: str) -> ssl.SSLContext:
    """TLS context with the rules of Kubernetes components: names from the SAN, and a trusted CA need not be a root."""
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
    """Fault for an error. Some of these are subclasses of others, and all of OSError, so the order matters."""
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
