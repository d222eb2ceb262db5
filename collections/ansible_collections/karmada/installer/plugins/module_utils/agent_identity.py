# SPDX-License-Identifier: Apache-2.0
"""Fetch the identity of a karmada-agent from its member: a kubeconfig of the control plane, in a Secret there.

Runs on the host before the agent does, as its user, with the Python of the distribution and nothing else (standard
library, Python 3.9 or newer). The agent renews its certificate in that Secret, so each start begins with the newest.

    fetch_identity.py MEMBER_CONFIG NAMESPACE SECRET OUTPUT

``MEMBER_CONFIG`` is a kubeconfig of the member in JSON, with the authority of its API server and a token. ``OUTPUT`` is
written whole or not at all, for its owner only; the key of the Secret is the name of the Secret. Says in one line what
went wrong, without anything secret, and ends with 1.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

#: How long the member may take to answer, in seconds. systemd tries again.
PATIENCE = 20
#: A Secret is no longer than that.
_LONGEST = 2 * 1024 * 1024


class FetchError(Exception):
    """Why there is no identity. The message is for people."""


def main(arguments: list[str]) -> int:
    """Fetch it; returns the exit code."""
    try:
        config, namespace, secret, output = arguments
    except ValueError:
        sys.stderr.write("usage: MEMBER_CONFIG NAMESPACE SECRET OUTPUT\n")
        return 2
    try:
        content = fetch(Path(config), namespace, secret)
        write(Path(output), content)
    except FetchError as error:
        sys.stderr.write(f"the agent's identity could not be fetched from its member: {error}\n")
        return 1
    return 0


def fetch(config: Path, namespace: str, secret: str) -> bytes:
    """The kubeconfig in the Secret. Raises FetchError."""
    try:
        known = json.loads(config.read_text())
        cluster, token = known["clusters"][0]["cluster"], known["users"][0]["user"]["token"]
        server = cluster["server"].rstrip("/")
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise FetchError(f"{config} cannot be used: {_reason(error)}") from None
    if not server.startswith("https://"):
        raise FetchError(f"{server} is not https, and its token is for nobody else")
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret}"
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{server}{path}", headers=headers)  # noqa: S310 - it is https, see above
    # No proxy of the environment, and no other place that an answer may name: the token goes to the member only.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    try:
        with opener.open(request, timeout=PATIENCE) as answer:
            data = json.loads(answer.read(_LONGEST))["data"][secret]
            content = base64.b64decode(data, validate=True)
    except urllib.error.HTTPError as error:
        raise FetchError(f"{server}{path} answers {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, (binascii.Error, UnicodeDecodeError, json.JSONDecodeError)):
            raise FetchError(f"Secret {namespace}/{secret} cannot be read") from None
        raise FetchError(f"{server} does not answer: {_reason(error)}") from None
    except (LookupError, TypeError):
        raise FetchError(f"Secret {namespace}/{secret} has no {secret}") from None
    if b"client-certificate-data" not in content:
        raise FetchError(f"Secret {namespace}/{secret} has no client certificate in it")
    return content


def write(path: Path, content: bytes) -> None:
    """Whole or not at all, and for its owner only from the first byte on. Raises FetchError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).rename(path)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        raise FetchError(f"{path} cannot be written: {_reason(error)}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object, **_more: object) -> None:
        return None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or getattr(error, "strerror", "")) or str(error) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
