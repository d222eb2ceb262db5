# SPDX-License-Identifier: Apache-2.0
"""Fetch the identity of a karmada-agent from its member: certificate and key, out of a kubeconfig in a Secret there.

Runs on the host before the agent starts, as its user, with the Python of the distribution and nothing else (standard
library, Python 3.9 or newer). The agent renews its certificate in that Secret, so each start gets the newest one.

    fetch_identity.py MEMBER_CONFIG NAMESPACE SECRET OUTPUT

``MEMBER_CONFIG`` is a kubeconfig of the member in JSON, with the CA of its API server and a token. ``OUTPUT`` gets
certificate and key in PEM. It is written atomically and for its owner only; the key in the Secret's data is the name
of the Secret. On failure, prints the reason in one line, without secrets, and exits with 1.

Whoever can write that Secret must not control what the agent's host runs, reads, or connects to. So the address and
CA of the control plane come from a file of the installer, and only certificate and key are taken from the Secret: from
the lines that client-go and the installer write, and only if there are no other lines.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import signal
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

#: Timeouts in seconds, of one read and of everything. systemd tries again.
PATIENCE, LIMIT = 20, 60
#: Longest answer with a Secret, in bytes.
_LONGEST = 2 * 1024 * 1024
#: Ours takes a few thousand bytes, with any kind of key that an agent or the installer chooses.
_LONGEST_CONFIG, _MOST_CERTIFICATES = 256 * 1024, 8
#: Characters shown of text from others.
_LONGEST_WORDS = 200
REMEDY = "see who else may write it; a run of karmada.installer.members writes it anew"

_NAME = r"""[A-Za-z0-9._:@/-]+|"[A-Za-z0-9._:@/-]+"|'[A-Za-z0-9._:@/-]+'"""
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_URL = r"https://[A-Za-z0-9._:\[\]/-]+"
_OPENS = ""
_AUTHORITY, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"
#: Every line that is allowed, as the path of its fields → pattern of its value. Lists have one entry.
_SHAPE: Mapping[tuple[str, ...], str] = {
    ("apiVersion",): "v1",
    ("kind",): "Config",
    ("preferences",): r"\{\}",
    ("current-context",): _NAME,
    ("clusters",): _OPENS,
    ("clusters", "name"): _NAME,
    ("clusters", "cluster"): _OPENS,
    ("clusters", "cluster", _AUTHORITY): _BASE64,
    ("clusters", "cluster", "server"): _URL,
    ("contexts",): _OPENS,
    ("contexts", "name"): _NAME,
    ("contexts", "context"): _OPENS,
    ("contexts", "context", "cluster"): _NAME,
    ("contexts", "context", "user"): _NAME,
    ("users",): _OPENS,
    ("users", "name"): _NAME,
    ("users", "user"): _OPENS,
    ("users", "user", _CERTIFICATE): _BASE64,
    ("users", "user", _KEY): _BASE64,
}
#: Newer versions of client-go omit it, since it is empty.
_NEED_NOT_BE = {("preferences",)}
_LINE = re.compile(r"(|- | {2}| {4})([A-Za-z-]+):(?: (.+))?")
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----\r?\n((?:[A-Za-z0-9+/=]{1,76}\r?\n)+)-----END \1-----(?:\r?\n|$)")
_KEYS = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")


class FetchError(Exception):
    """No identity could be fetched. The message is for people."""


class Parts(NamedTuple):
    """Parts of an agent's kubeconfig; all but ``server`` in PEM."""

    server: str
    authority: bytes
    certificate: bytes
    key: bytes


def main(arguments: list[str]) -> int:
    """Fetch the identity; returns the exit code."""
    try:
        config, namespace, secret, output = arguments
    except ValueError:
        sys.stderr.write("usage: MEMBER_CONFIG NAMESPACE SECRET OUTPUT\n")
        return 2
    # The timeout of a read does not stop a member that sends a byte now and then.
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    try:
        found = fetch(Path(config), namespace, secret)
        write(Path(output), found.certificate + found.key)
    except FetchError as error:
        sys.stderr.write(f"the agent's identity could not be fetched from its member: {error}\n")
        return 1
    finally:
        signal.alarm(0)
    return 0


def fetch(config: Path, namespace: str, secret: str) -> Parts:
    """Identity in the Secret. Raises FetchError."""
    try:
        known = json.loads(config.read_text())
        cluster, token = known["clusters"][0]["cluster"], known["users"][0]["user"]["token"]
        server = cluster["server"].rstrip("/")
        authority = base64.b64decode(cluster[_AUTHORITY]).decode()
        context = ssl.create_default_context(cadata=authority)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise FetchError(f"{config} cannot be used: {_reason(error)}") from None
    if not server.startswith("https://"):
        raise FetchError(f"{server} is not https, and its token is for nobody else")
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{server}{path}", headers=headers)  # noqa: S310 - it is https, see above
    # Neither proxies of the environment nor redirects: the token goes to the member only.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            data = json.loads(answer.read(_LONGEST))["data"][secret]
            content = base64.b64decode(data, validate=True)
    except urllib.error.HTTPError as error:
        raise FetchError(f"{server}{path} answers {error.code} {_words(error.reason)}") from None
    except (binascii.Error, UnicodeError, json.JSONDecodeError, RecursionError):
        raise FetchError(f"Secret {namespace}/{secret} cannot be read") from None
    except (OSError, ValueError, HTTPException) as error:
        raise FetchError(f"{server} does not answer: {_reason(error)}") from None
    except (LookupError, TypeError):
        raise FetchError(f"Secret {namespace}/{secret} has no {secret}") from None
    try:
        return read(content)
    except ValueError as error:
        raise FetchError(f"Secret {namespace}/{secret} of {server} is not used: {error}; {REMEDY}") from None


def read(content: bytes) -> Parts:
    """Parts of a kubeconfig that the agent or the installer has written: a certificate chain and one key in PEM.

    Whether the two match is not checked. The kubeconfig is parsed as lines, not as YAML: neither writer needs more.
    Raises ValueError, which names the unexpected part without any value.
    """
    if len(content) > _LONGEST_CONFIG:
        raise ValueError(f"it is longer than {_LONGEST_CONFIG} bytes")
    found: dict[tuple[str, ...], str] = {}
    path: tuple[str, ...] = ()
    for number, line in enumerate(content.decode("latin-1").removesuffix("\n").split("\n"), start=1):
        match = _LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is none that the agent or the installer writes")
        indent, field, value = match.groups()
        depth = len(indent) // 2
        begins_entry = depth == 1 and len(path) == 1
        path = (*path[:depth], field)
        allowed = _SHAPE.get(path)
        if len(path) <= depth or allowed is None or begins_entry != (indent == "- "):
            raise ValueError(
                f"line {number} has {_words(field)}, which neither the agent nor the installer writes there"
            )
        if path in found:
            raise ValueError(f"line {number} has {field} once more")
        if not re.fullmatch(allowed, value or ""):
            raise ValueError(f"line {number} says something of {field} that neither the agent nor the installer does")
        found[path] = value or ""
    for place in _SHAPE:
        if place not in found and place not in _NEED_NOT_BE:
            raise ValueError(f"it has no {place[-1]}")
    of_user = {name: _pem(name, _decoded(name, found["users", "user", name])) for name in (_CERTIFICATE, _KEY)}
    return Parts(
        found["clusters", "cluster", "server"],
        _decoded(_AUTHORITY, found["clusters", "cluster", _AUTHORITY]),
        of_user[_CERTIFICATE],
        of_user[_KEY],
    )


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"{name} is not base64") from None


def _pem(name: str, content: bytes) -> bytes:
    """Certificates, or the key, in PEM, without any other text. Raises ValueError."""
    text, blocks = content.decode("latin-1"), []
    while match := _PEM.match(text):
        blocks.append((match[1], base64.b64encode(_decoded(name, "".join(match[2].split()))).decode()))
        text = text[match.end() :]
    labels = [label for label, _ in blocks]
    right = set(labels) == {"CERTIFICATE"} if name == _CERTIFICATE else len(labels) == 1 and labels[0] in _KEYS
    if text or not right or len(labels) > _MOST_CERTIFICATES:
        raise ValueError(
            f"{name} is not {'certificates' if name == _CERTIFICATE else 'one key without a password'} in PEM"
        )
    return "".join(
        f"-----BEGIN {label}-----\n{''.join(_lines(body))}-----END {label}-----\n" for label, body in blocks
    ).encode()


def _lines(text: str) -> Iterator[str]:
    return (f"{text[place : place + 64]}\n" for place in range(0, len(text), 64))


def write(path: Path, content: bytes) -> None:
    """Write certificate and key in PEM atomically; the file is never readable for others.

    Raises FetchError, also if the two do not match.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # An empty password keeps an encrypted key from prompting; whoever starts a unit could not answer.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(temporary, password=lambda: b"")
            Path(temporary).rename(path)
        except BaseException:
            Path(temporary).unlink()
            raise
    except ssl.SSLError as error:
        raise FetchError(f"certificate and key of its Secret are no pair: {_reason(error)}; {REMEDY}") from None
    except OSError as error:
        raise FetchError(f"{path} cannot be written: {_reason(error)}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object, **_more: object) -> None:
        return None


def _too_long(*_arguments: object) -> None:
    raise FetchError(f"it has not given it out within {LIMIT} seconds")


def _reason(error: BaseException) -> str:
    told = str(getattr(error, "reason", "") or getattr(error, "strerror", "")) or str(error) or type(error).__name__
    return _words(told)


def _words(text: object) -> str:
    """Text of others as part of one line."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:_LONGEST_WORDS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
