# SPDX-License-Identifier: Apache-2.0
"""What others than this machine are asked to reach, and in words what keeps them from it. No I/O.

``module_utils.host_reach`` looks from a plain host, ``reach_probe`` from a pod; what they find has one form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

_PORTS: Mapping[str, int] = {"https": 443, "http": 80, "socks5": 1080}


@dataclass(frozen=True)
class Target:
    """A place to reach.

    ``name`` is for whoever asks, ``url`` for people. With ``tls`` more than the port is tried: the other side's
    certificate has to be for ``server_name`` and of one of the PEM certificates ``authority``; where that is empty, it
    is not verified.
    """

    name: str
    url: str
    host: str
    port: int
    tls: bool
    authority: str = ""
    server_name: str = ""

    @classmethod
    def of_url(cls, name: str, url: str, authority: str = "") -> Target:
        """An API server at this address."""
        host, port = _place(url)
        return cls(name, url, host, port, tls=True, authority=authority, server_name=host if authority else "")

    @classmethod
    def of_proxy(cls, name: str, url: str) -> Target:
        """A proxy, of which no more than the port is tried."""
        host, port = _place(url)
        return cls(name, url, host, port, tls=False)

    @classmethod
    def of_name(cls, name: str, url: str) -> Target:
        """An API server that does not answer yet, of which no more than its name is looked up."""
        return cls(name, url, _place(url)[0], 0, tls=True)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Target:
        """From its plain form."""
        return cls(**plain)

    @property
    def plain(self) -> dict[str, Any]:
        """As it is handed to hosts."""
        return asdict(self)


@dataclass(frozen=True)
class Fault:
    """What keeps one from a target: a kind of ``module_utils.host_reach``, and what was said beside."""

    kind: str
    detail: str = ""

    @classmethod
    def of(cls, plain: Mapping[str, str]) -> Fault:
        """From its plain form."""
        return cls(plain["fault"], plain["detail"])

    @property
    def plain(self) -> dict[str, str]:
        """As ``module_utils.host_reach`` tells it."""
        return {"fault": self.kind, "detail": self.detail}

    def words(self, target: Target) -> str:
        """For people, after the words that it is not reached."""
        host = target.host
        text = {
            kinds.UNKNOWN_NAME: f"the name {host} is not known there",
            kinds.NO_ROUTE: "no route to host",
            kinds.REFUSED: "connection refused",
            kinds.SILENT: "connection timed out",
            kinds.NOT_TLS: "what answers does not speak TLS",
            kinds.OTHER_NAME: f"the certificate is not for {target.server_name or host}",
            kinds.OTHER_AUTHORITY: "the certificate is not signed by the CA that it should be",
            kinds.EXPIRED: "the certificate has expired",
            kinds.NOT_YET_VALID: "the certificate is not valid yet by the clock there",
        }.get(self.kind)
        if text is None:
            return self.detail or self.kind
        return text if self.detail.lower() in ("", text) else f"{text} ({self.detail})"

    @property
    def is_of_certificate(self) -> bool:
        """Whether the other side was reached and is not who it should be."""
        return self.kind in (kinds.OTHER_NAME, kinds.OTHER_AUTHORITY, kinds.EXPIRED, kinds.NOT_YET_VALID)


def sentences(target: Target, faults: Mapping[str, Fault]) -> Iterable[tuple[str, Fault]]:
    """Who does not reach the target and why, once for each reason; ``faults`` is by the name of who looked."""
    looked: dict[Fault, list[str]] = {}
    for name, fault in faults.items():
        looked.setdefault(fault, []).append(name)
    for fault, names in looked.items():
        verb = "does" if len(names) == 1 else "do"
        what = "the proxy " if not target.tls else ""
        yield f"{', '.join(names)} {verb} not reach {what}{target.url}: {fault.words(target)}", fault


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
