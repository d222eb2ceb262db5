# SPDX-License-Identifier: Apache-2.0
"""Runs that change members of etcd in memory: what a test puts in place of a clock, a Lease and connections."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import clients, members_seen, patience
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.in_pods import InPods
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import FakeEtcdClient
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock


def members_in_pods(count: int) -> list[str]:
    """Names of the members in pods of a control plane named prod."""
    return [f"prod-etcd-{ordinal}" for ordinal in range(count)]


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody sleep between two looks."""
    monkeypatch.setattr(patience, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(patience, "LATER_SHARE", 0.0)
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 0.0)


def without_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no Lease, and no wait for clients; certificates are of the whole test, as another step stores them."""
    monkeypatch.setattr(store, "Lock", lambda *_, **_named: NoLock())
    issue = InPods.issued
    issued: dict[str, Any] = {}
    monkeypatch.setattr(InPods, "issued", lambda place, seen: issued.setdefault("once", issue(place, seen)))
    monkeypatch.setattr(clients, "wait_until", lambda *_, **__: None)


def with_client_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the members that the host cluster of a run has in memory."""
    monkeypatch.setattr(
        members_seen,
        "client",
        lambda run: FakeEtcdClient(run.host_cluster, [each.client_url for each in run.layout.etcd_members]),
    )
