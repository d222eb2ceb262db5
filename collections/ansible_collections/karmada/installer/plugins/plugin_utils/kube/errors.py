# SPDX-License-Identifier: Apache-2.0
"""Errors between us and an API server, in words for people."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import urllib3

from ..problems import Problem, ProblemsError, Reason
from ..redaction import printable
from .answer import EndlessError

#: Length limit, in characters, of a Status' one-word reason.
_WORD = 100


class ApiError(Exception):
    """An API server did not do what was asked. ``status`` is 0 when there was no answer.

    ``cluster`` is the name of the API server for people. Never contains credentials or data of Secrets.
    ``problem_reason`` is the kind of problem that an error of this class is; ``reason`` is what the server says.
    """

    problem_reason: ClassVar[Reason] = Reason.REQUEST_FAILED

    def __init__(self, cluster: str, method: str, path: str, status: int, reason: str, message: str) -> None:
        self.cluster, self.method, self.path = cluster, method, path
        self.status, self.reason, self.message = status, reason, message
        super().__init__(str(self))

    @property
    def problems(self) -> list[Problem]:
        """This error as data: the API server is the place, and what to do depends on who asked."""
        what = str(self).removeprefix(f"{self.cluster}: ")
        return [Problem(what, self.cluster, reason=self.problem_reason)]

    def __str__(self) -> str:
        answer = f"{self.status} {self.reason}, " if self.status else ""
        return f"{self.cluster}: {self.message} ({answer}{self.method} {self.path})"


class Unreachable(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """No answer: connection, TLS or name resolution failed, or a timeout."""

    problem_reason: ClassVar[Reason] = Reason.API_SERVER_UNREACHABLE


class Unauthorized(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """The server does not accept our identity: missing, expired or from another cluster."""

    problem_reason: ClassVar[Reason] = Reason.CREDENTIALS_REFUSED


class Forbidden(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """The server accepts our identity but does not allow the request."""

    problem_reason: ClassVar[Reason] = Reason.MISSING_PERMISSION


class NotFound(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """The object, its namespace, or its resource type does not exist."""

    problem_reason: ClassVar[Reason] = Reason.OBJECT_NOT_FOUND


class Conflict(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """Somebody else changed or made the object, or a precondition (uid, resourceVersion) does not hold."""

    problem_reason: ClassVar[Reason] = Reason.WRITE_CONFLICT


class Invalid(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """The server refuses the content of the object."""

    problem_reason: ClassVar[Reason] = Reason.OBJECT_REFUSED


class TooMuch(ApiError):  # noqa: N818 - as the others
    """The answer exceeds the limits (``answer.Limits``). Retrying does not help."""

    problem_reason: ClassVar[Reason] = Reason.UNUSABLE_ANSWER


class Expired(ApiError):  # noqa: N818 - the words of the Kubernetes API
    """The resource version is too old to continue from (410): list again."""


BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
}


def from_status(cluster: str, server: str, method: str, path: str, code: int, status: dict[str, Any]) -> ApiError:
    """Error for this status code and Status document (or what is known of it)."""
    reason = printable(status.get("reason") or {401: "Unauthorized", 404: "NotFound"}.get(code, "Error"), _WORD)
    message = printable(status.get("message") or reason)
    if code == 401:
        message = f"the server at {server} does not accept our certificate or token ({message})"
    if "/secrets" in path:
        # Validation errors quote the values that they refuse.
        message = re.sub(r'Invalid value: ("(?:[^"\\]|\\.)*"|\S+)', "Invalid value: <redacted>", message)
    # Server-side apply answers an unknown field or type with an internal error (500), which no retry mends.
    kind = Invalid if code == 500 and "typed patch object" in message else BY_STATUS.get(code, ApiError)
    return kind(cluster, method, path, code, reason, message)


def too_much(cluster: str, server: str, method: str, path: str, what: str) -> TooMuch:
    """Error for an answer or a list beyond a limit; ``what`` names it in a sentence about "it"."""
    message = (
        f"the answer of {server} is not taken: {what}; see what answers at that address, what is in front of it, and "
        "whether an API server there serves this path as Kubernetes does"
    )
    return TooMuch(cluster, method, path, 0, "TooMuch", message)


_NOT_OUR_CA = "the server's certificate is not signed by the CA we were given"
_OTHER_ADDRESS = "the server's certificate is not valid for this address"
# OpenSSL's X509_V_ERR_* codes in words for users.
_CERTIFICATE_TROUBLE = {
    7: f"{_NOT_OUR_CA} (but by one of the same name)",
    9: "the server's certificate is not valid yet: compare the clocks",
    10: "the server's certificate has expired",
    18: _NOT_OUR_CA,
    19: _NOT_OUR_CA,
    20: _NOT_OUR_CA,
    21: _NOT_OUR_CA,
    62: _OTHER_ADDRESS,
    64: _OTHER_ADDRESS,
}


def explain(error: BaseException, server: str, proxy: str = "") -> tuple[str, bool]:
    """Reason why there was no answer, for people, and whether it may be transient.

    ``proxy`` is the URL of the proxy on the way, if there is one.
    """
    causes = _causes(error)
    to = f"{server} through the proxy {without_login(proxy)}" if proxy else server
    if any(isinstance(cause, EndlessError) for cause in causes):
        return f"cannot reach {to}: its answer does not come to an end", True
    for kind, explanation in (
        (ssl.SSLCertVerificationError, _untrusted),
        (socket.gaierror, _unresolved),
        (ssl.SSLError, _no_tls),
        (OSError, _no_connection),
        (urllib3.exceptions.TimeoutError, lambda _error, _server: ("no answer in time", True)),
    ):
        for cause in causes:
            if isinstance(cause, kind):
                # The proxy resolves names, so one that does not resolve here is the proxy's own.
                text, passing = explanation(cause, proxy or server)
                return f"cannot reach {to}: {text}", passing
    return f"cannot reach {to}: {printable(error, 300)}", True


def without_login(url: str) -> str:
    """URL without user name and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _causes(error: BaseException) -> list[BaseException]:
    """The error and all errors that urllib3 wrapped in it, outermost first."""
    found: list[BaseException] = []
    todo: list[object] = [error]
    while todo:
        one = todo.pop(0)
        if isinstance(one, BaseException) and one not in found:
            found.append(one)
            todo += [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
    return found


def _untrusted(error: Any, _server: str) -> tuple[str, bool]:
    what = _CERTIFICATE_TROUBLE.get(error.verify_code, "the server's certificate cannot be trusted")
    return f"{what} ({error.verify_message.rstrip('.')})", False


def _unresolved(error: Any, server: str) -> tuple[str, bool]:
    unknown = error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
    return f"the name {urlsplit(server).hostname or server} does not resolve ({error.strerror})", not unknown


def _no_tls(error: Any, _server: str) -> tuple[str, bool]:
    reason = (error.reason or "no reason given").replace("_", " ").lower()
    if "wrong version number" in reason or "http request" in reason:
        return "what answers there does not speak TLS", False
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return f"it refuses our client certificate ({reason})", False
    return f"TLS failed ({reason})", True


def _no_connection(error: Any, _server: str) -> tuple[str, bool]:
    if isinstance(error, TimeoutError):
        return "no answer in time", True
    return printable(error.strerror or str(error) or type(error).__name__).lower().rstrip("."), True


def collected(check: Callable[[], Iterable[Problem]]) -> list[Problem]:
    """Problems of a check, including those found before an error stopped it."""
    found: list[Problem] = []
    try:
        found.extend(check())
    except ProblemsError as error:
        found += error.problems
    except ApiError as error:
        remedy = "check the address, the network and the credentials"
        found += [replace(each, remedy=remedy) for each in error.problems]
    return found
