# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs in Secrets of members, and the access that is read out of them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import kubeconfig
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.kubeconfig import Access
from ansible_collections.karmada.installer.plugins.plugin_utils.members import access as member_access
from ansible_collections.karmada.installer.tests.unit.support.samples import client_pair

Object = dict[str, Any]
FIELD = "spec.members[m1].secretRef"
KEY = f"{FIELD}, key kubeconfig"
TOKEN = "t0ps3cret"
CERT_PEM, KEY_PEM = client_pair()
EXEC = {"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster: Object | None = None, user: Object | None = None, **top: Any) -> Object:
    """A kubeconfig with one context; ``top`` takes the place of whole sections."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "site", "user": "me", "namespace": "default"}}],
        "clusters": [{"name": "site", "cluster": {"server": "https://192.0.2.1:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": {"token": TOKEN} if user is None else user}],
        "preferences": {},
        **top,
    }


def accessed(
    content: Any, context: str | None = None, folder: Path | None = None, entry: Object | None = None, **files: bytes
) -> Access:
    """Access that a member's Secret with this kubeconfig gives."""
    text = content if isinstance(content, bytes) else yaml.safe_dump(content).encode()
    keys = {"kubeconfig": text, **{name.replace("_", "."): each for name, each in files.items()}}
    found = kubeconfig.from_secret(keys, context, FIELD, folder)
    member_access.refuse_unusable(MemberEntry(entry or {}), found, FIELD, KEY)
    return found


AT_USER, AT_CLUSTER = f"{KEY}: users[me].user", f"{KEY}: clusters[site].cluster"
UNSENT = "has a character that cannot be sent, such as a line break. Remove it."
