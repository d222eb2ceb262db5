# SPDX-License-Identifier: Apache-2.0
"""What a member's kubeconfig may ask for, beside what every kubeconfig may: the control plane has to come there, too.

The installer uses the kubeconfig itself. The control plane gets the address, the proxy and whether the certificate is
verified in the Cluster object, and a token of its own. What that object cannot say would work here and not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from ..kube.kubeconfig import Access
from ..problems import Problem, ProblemsError, Reason
from .registration import INSECURE

#: How long before its end an identity is told of.
WARN_BEFORE = timedelta(days=30)


def refuse_unusable(entry: Mapping[str, Any], access: Access, where: str) -> None:
    """Raise ProblemsError, naming all that speaks against it. ``entry`` is the member of the document or on record."""
    found = _findings(entry, access, where)
    problems = [Problem(what, f"{where}, key kubeconfig", remedy, reason=reason) for what, remedy, reason in found]
    if problems:
        raise ProblemsError(problems)


def _findings(entry: Mapping[str, Any], access: Access, where: str) -> Iterator[tuple[str, str, Reason]]:
    """What speaks against it, the remedy, and of which kind it is."""
    if access.insecure and not entry.get(INSECURE):
        field = f"{where.removesuffix('.secretRef').removesuffix('.kubeconfigFrom')}.{INSECURE}"
        yield (
            "it switches off the verification of the server's certificate (insecure-skip-tls-verify)",
            (
                "Put the CA there instead (certificate-authority-data). "
                f"If nobody else can answer at that address, allow it: {field}: true."
            ),
            Reason.INSECURE_CONNECTION,
        )
    if access.server.startswith("http://"):
        what = "it leads to an address without TLS, where tokens could be read"
        yield what, "Use the https:// address.", Reason.INSECURE_CONNECTION
    name = access.tls_server_name
    if name and name != urlsplit(access.server).hostname and not access.insecure:
        yield (
            f"it expects a certificate for {name} (tls-server-name), which Karmada cannot do",
            "Use an address that the certificate is for, and take tls-server-name out.",
            Reason.INVALID_KUBECONFIG,
        )
    if access.proxy and "@" in access.proxy:
        yield (
            "its proxy-url holds a password, which everybody could read who may read Cluster objects",
            "Use a proxy that knows the control plane by its address.",
            Reason.SECRETS_EXPOSED,
        )


def expiring(access: Access, now: datetime) -> str:
    """What to say of an identity that ends soon or has ended; empty if it does not.

    The control plane has an account of its own, whose tokens do not expire: what ends is only that the member can be
    changed and removed.
    """
    end = access.expiry()
    if end is None or end - now.timestamp() > WARN_BEFORE.total_seconds():
        return ""
    moment = datetime.fromtimestamp(end, UTC)
    when = f"{'expired' if moment < now else 'expires'} on {moment:%Y-%m-%d} at {moment:%H:%M} UTC"
    return f"its kubeconfig {when}: put a newer one in its place, or the member cannot be changed and removed"
