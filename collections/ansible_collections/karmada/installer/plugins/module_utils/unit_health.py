# SPDX-License-Identifier: Apache-2.0
"""Health of a systemd unit of a plain host, asked at its health endpoint or at its open port.

Runs on the host, with the Python of its distribution and nothing else (standard library, Python 3.9 or newer).
"""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request


def reason_unhealthy(health: dict[str, str]) -> str:
    """Reason why a unit is unhealthy, by its health endpoint; empty if it is healthy."""
    context = None
    try:
        if health["url"].startswith("tcp:"):
            address = urllib.parse.urlsplit(health["url"])
            with socket.create_connection((address.hostname, address.port), timeout=5):
                return ""
        if health["url"].startswith("https:"):
            context = ssl.create_default_context(cafile=health["authority"])
        with urllib.request.build_opener(
            urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
        ).open(health["url"], timeout=5):
            return ""
    except urllib.error.HTTPError as error:
        return f"{health['url']} answers {error.code}: {error.read(2000).decode(errors='replace').strip()}"
    except (OSError, ValueError) as error:
        return f"{health['url']} does not answer: {getattr(error, 'reason', error)}"
