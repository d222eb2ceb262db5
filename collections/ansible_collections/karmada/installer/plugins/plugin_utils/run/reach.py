# SPDX-License-Identifier: Apache-2.0
"""Targets that other machines are asked to reach, and the faults they met, in words. No I/O.

``module_utils.host_reach`` looks from a plain host, ``reach_probe`` from a pod; both report in this form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds

from .plain import Record

_PORTS: Mapping[str, int] = {"https": 443, "http": 80, "socks5": 1080}


@dataclass(frozen=True)
class Target(Record):
    """Endpoint to reach.

    ``name`` identifies it for the caller, ``url`` for people. With ``tls``, a TLS handshake follows the connection: the
    certificate has to be for ``server_name`` and signed by one of the PEM certificates ``authority``; without these it
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
        """API server at this address."""
        host, port = _place(url)
        return cls(name, url, host, port, tls=True, authority=authority, server_name=host if authority else "")

    @classmethod
    def of_proxy(cls, name: str, url: str) -> Target:
        """Proxy, of which only the port is tried."""
        host, port = _place(url)
        return cls(name, url, host, port, tls=False)

    @classmethod
    def of_name(cls, name: str, url: str) -> Target:
        """API server that does not answer yet, of which only the name is looked up."""
        return cls(name, url, _place(url)[0], 0, tls=True)


@dataclass(frozen=True)
class Fault:
    """Reason why a target is not reached: a kind of ``module_utils.host_reach``, and details in its words."""

    kind: str
    detail: str = ""

    @classmethod
    def of(cls, plain: Mapping[str, str]) -> Fault:
        """Fault from its plain form."""
        return cls(plain["fault"], plain["detail"])

    @property
    def plain(self) -> dict[str, str]:
        """Form of ``module_utils.host_reach``."""
        return {"fault": self.kind, "detail": self.detail}

    def words(self, target: Target) -> str:
        """Text for people, to follow the statement that the target is not reached."""
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
        """True if the other side was reached but cannot prove that it is the expected one."""
        return self.kind in (kinds.OTHER_NAME, kinds.OTHER_AUTHORITY, kinds.EXPIRED, kinds.NOT_YET_VALID)


def sentences(target: Target, faults: Mapping[str, Fault]) -> Iterable[tuple[str, Fault]]:
    """Sentences on who does not reach the target, one per fault; ``faults`` is by the name of the one that looked."""
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
