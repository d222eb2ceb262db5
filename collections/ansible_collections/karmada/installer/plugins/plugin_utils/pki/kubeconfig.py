# SPDX-License-Identifier: Apache-2.0
"""Kubeconfig as plain data."""

from __future__ import annotations

from typing import Any

from ..components.types import KeyPair
from ..encoding import base64_text


def kubeconfig(
    cluster_name: str,
    server: str,
    ca_pem: bytes,
    user: str,
    credentials: KeyPair | str,
    context: str,
    tls_server_name: str | None = None,
    namespace: str | None = None,
) -> dict[str, Any]:
    """Kubeconfig with embedded credentials, as plain data; `credentials` is a client certificate or a bearer token."""
    cluster = {"server": server, "certificate-authority-data": base64_text(ca_pem)}
    if tls_server_name:
        cluster["tls-server-name"] = tls_server_name
    if isinstance(credentials, KeyPair):
        identity = {"client-certificate-data": base64_text(credentials.certificate)}
        identity["client-key-data"] = base64_text(credentials.key)
    else:
        identity = {"token": credentials}
    use = {"cluster": cluster_name, "user": user} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster_name, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": context, "context": use}],
        "current-context": context,
    }
