# SPDX-License-Identifier: Apache-2.0
"""Objects of an instance, as an install has left them in a cluster, for tests of their removal."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    OWNER,
    rendered,
)

OURS = {"app.kubernetes.io/managed-by": "karmada-installer", "installer.karmada.io/owner": OWNER}
INSTANCE = {**OURS, "app.kubernetes.io/instance": "prod"}


def thing(kind: str, name: str, labels: dict[str, str] | None = None, namespace: str = "karmada") -> dict[str, Any]:
    version = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Lease": "coordination.k8s.io/v1"}.get(kind, "v1")
    metadata = {"name": name, "labels": labels or {}}
    if kind != "Namespace":
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def left(host: Any) -> set[str]:
    return {f"{kind} {name}" for _, kind, _, name in host.objects}


def kept(spec: dict[str, Any]) -> list[Change]:
    """Changes that applying this spec reports: all is there, and stays."""
    return [Change(Ref.of(each), "unchanged") for each in rendered(spec).objects]
