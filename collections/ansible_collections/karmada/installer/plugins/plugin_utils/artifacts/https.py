# SPDX-License-Identifier: Apache-2.0
"""Downloads over https: within limits, retried after passing errors, and checked for truncation.

Proxies are those of the environment. Plain http is allowed for loopback only; a redirect may lead from https to https
only, and credentials are never sent to another host.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import io
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, BinaryIO
from urllib.parse import urlsplit

#: Seconds without a byte, and seconds for one file in total.
SILENCE_SECONDS = 60
LONGEST_SECONDS = 1800
ATTEMPTS = 3
CHUNK = 1 << 20

#: Status codes of temporary errors.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = 5


#: Ways to get artifacts where their publishers cannot be reached.
OTHER_SOURCES = (
    "spec.artifacts.url (a mirror), spec.artifacts.source: GoModules (built here from sources of the Go module proxy, "
    "needs go), or a directory that you prepare and name in the inventory source (artifacts: ./artifacts)"
)


class FetchError(Exception):
    """Reason why a file cannot be fetched, in words for a person. ``passing``: a retry may help."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class StatusError(FetchError):
    """Answer of a server with an error status."""

    def __init__(self, status: int, phrase: str, headers: Message) -> None:
        super().__init__(f"{status} {phrase}".strip(), passing=status in _PASSING)
        self.status = status
        self.headers = headers


@dataclass(frozen=True)
class Answer:
    """Small file in memory, and the headers of its response."""

    content: bytes
    headers: Message


def allowed(url: str) -> bool:
    """Return whether this URL may be fetched: https, or http to loopback."""
    return urlsplit(url).scheme == "https" or is_loopback(url)


def is_loopback(url: str) -> bool:
    """Return whether this is plain http that does not leave the machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")


class Https:
    """HTTP client for https. Thread-safe.

    ``ca_bundle`` holds PEM certificates of authorities to trust in addition to the system's. ``pause`` waits the given
    seconds before a retry.
    """

    def __init__(self, ca_bundle: str = "", *, pause: Callable[[float], None] | None = None) -> None:
        context = ssl.create_default_context()
        if ca_bundle:
            context.load_verify_locations(cadata=ca_bundle)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _Redirects())
        self._pause = pause or time.sleep
        self._stopped: Callable[[], bool] = lambda: False

    def until(self, stopped: Callable[[], bool]) -> Https:
        """Return the same client, whose downloads end with a FetchError soon after ``stopped`` returns True."""
        ending = copy.copy(self)
        ending._stopped = stopped
        return ending

    def read(self, url: str, most_bytes: int, headers: Mapping[str, str] | None = None) -> Answer:
        """Fetch a small file. Raises FetchError, or StatusError for an error status."""
        content = io.BytesIO()
        _, answered = self._attempts(url, content, most_bytes, headers or {}, "GET")
        return Answer(content.getvalue(), answered)

    def save(self, url: str, into: BinaryIO, most_bytes: int, headers: Mapping[str, str] | None = None) -> str:
        """Fetch a file of any size into an empty seekable one; returns the SHA-256 of the received bytes, in hex."""
        digest, _ = self._attempts(url, into, most_bytes, headers or {}, "GET")
        return digest

    def head(self, url: str, headers: Mapping[str, str] | None = None) -> Message:
        """Response headers for a file; raises FetchError if the server does not have it."""
        _, answered = self._attempts(url, io.BytesIO(), 0, headers or {}, "HEAD")
        return answered

    def _attempts(
        self, url: str, into: BinaryIO, most_bytes: int, headers: Mapping[str, str], method: str
    ) -> tuple[str, Message]:
        attempt = 1
        while True:
            try:
                return self._attempt(url, into, most_bytes, headers, method)
            except FetchError as error:
                if not error.passing or attempt == ATTEMPTS:
                    raise
            self._pause(2.0 ** (attempt - 1))
            attempt += 1
            into.seek(0)
            into.truncate()

    def _attempt(
        self, url: str, into: BinaryIO, most_bytes: int, headers: Mapping[str, str], method: str
    ) -> tuple[str, Message]:
        self._refuse_stopped()
        if not allowed(url):
            raise FetchError("only https addresses are fetched from")
        started = {"User-Agent": "karmada-installer"}
        request = urllib.request.Request(url, headers=started, method=method)  # noqa: S310 - scheme checked above
        for name, value in headers.items():
            # Unredirected: _Redirects decides where credentials may follow.
            request.add_unredirected_header(name, value)
        try:
            response = self._opener.open(request, timeout=SILENCE_SECONDS)
        except urllib.error.HTTPError as error:
            with error:
                raise StatusError(error.code, str(error.reason), error.headers) from None
        except urllib.error.URLError as error:
            untrusted = isinstance(error.reason, ssl.SSLCertVerificationError)
            raise FetchError(str(error.reason), passing=not untrusted) from None
        except (http.client.HTTPException, OSError) as error:
            raise FetchError(str(error) or type(error).__name__, passing=True) from None
        except ValueError as error:
            raise FetchError(f"the address or the answer makes no sense: {error}") from None
        with response:
            digest = self._copy(response, into, most_bytes) if method == "GET" else ""
            return digest, response.headers

    def _copy(self, response: http.client.HTTPResponse, into: BinaryIO, most_bytes: int) -> str:
        """Copy the body and return its SHA-256. Checks its length, because http.client accepts a truncated body."""
        announced = response.headers.get("Content-Length")
        deadline = time.monotonic() + LONGEST_SECONDS
        digest, size = hashlib.sha256(), 0
        while chunk := _next(response):
            self._refuse_stopped()
            size += len(chunk)
            if size > most_bytes:
                raise FetchError(f"it is larger than {_readable(most_bytes)}")
            if time.monotonic() > deadline:
                raise FetchError(f"it did not arrive in {LONGEST_SECONDS // 60} minutes")
            digest.update(chunk)
            into.write(chunk)
        if announced is not None and announced != str(size):
            raise FetchError(f"it was cut off after {size} of {announced} bytes", passing=True)
        return digest.hexdigest()

    def _refuse_stopped(self) -> None:
        if self._stopped():
            raise FetchError("the run has ended before it had arrived")


def _next(response: http.client.HTTPResponse) -> bytes:
    """Next chunk of the body: what has arrived, so that a server that sends a byte a minute meets the deadline.

    A function of its own, to tell an OSError of the network from one of the disk.
    """
    try:
        return response.read1(CHUNK)
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise FetchError(f"it was cut off: {str(error) or type(error).__name__}", passing=True) from None


def _readable(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _REDIRECTS

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not allowed(newurl) or (req.type == "https" and urlsplit(newurl).scheme != "https"):
            fp.close()
            parts = urlsplit(newurl)
            raise FetchError(f"it redirects to {parts.scheme}://{parts.hostname}, which is not https")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following:
            following.method = req.get_method()
            same_place = (following.type, following.host) == (req.type, req.host)
            for name, value in req.unredirected_hdrs.items():
                if same_place or name.lower() == "accept":
                    following.add_unredirected_header(name, value)
        return following
