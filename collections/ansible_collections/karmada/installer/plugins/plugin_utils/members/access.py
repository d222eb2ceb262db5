# SPDX-License-Identifier: Apache-2.0
"""Checks of a member's kubeconfig: the control plane, too, must be able to connect with what it describes.

The installer uses the kubeconfig itself. The control plane gets address, proxy and verification of the certificate from
the Cluster object, and a token of its own. Settings that this object cannot express would work here and not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from ..components.spec import MemberEntry
from ..kube.kubeconfig import Access
from ..problems import Problem, ProblemsError, Reason
from .registration import INSECURE

#: Time before the expiry of an identity from which on a warning is given.
WARN_BEFORE = timedelta(days=30)


def refuse_unusable(entry: MemberEntry, access: Access, where: str, place: str) -> None:
    """Raise ProblemsError with all that makes it unusable. ``entry`` is the member of the document or on record.

    ``where`` is the field that names its kubeconfig, ``place`` that field with the file or key that it leads to.
    """
    found = _findings(entry, access, where)
    problems = [Problem(what, place, remedy, reason=reason) for what, remedy, reason in found]
    if problems:
        raise ProblemsError(problems)


def _findings(entry: MemberEntry, access: Access, where: str) -> Iterator[tuple[str, str, Reason]]:
    """Findings, each with its remedy and reason."""
    if access.insecure and not entry.insecure:
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
    """Warning about an identity that expires soon or has expired; empty otherwise.

    The control plane has an account of its own, whose tokens do not expire; only this installer loses access to the
    member.
    """
    end = access.expiry()
    if end is None or end - now.timestamp() > WARN_BEFORE.total_seconds():
        return ""
    moment = datetime.fromtimestamp(end, UTC)
    when = f"{'expired' if moment < now else 'expires'} on {moment:%Y-%m-%d} at {moment:%H:%M} UTC"
    return f"its kubeconfig {when}: put a newer one in its place, or the member cannot be changed and removed"
