# SPDX-License-Identifier: Apache-2.0
"""Applying components and waiting for them, in one task or in two."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import workloads
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, storage_class
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state

DEFAULTS = {"apply": True, "wait": True, "remove_unwanted": True, "timeout": 600}


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a task waited for; it is ready at once, and the lock is free."""
    found: list[str] = []

    def wait_until(_cluster: Any, targets: Iterable[Ref], **_: Any) -> None:
        found.extend(f"{ref.kind} {ref.name}" for ref in targets)

    monkeypatch.setattr(workloads, "wait_until", wait_until)
    # It asks etcd itself; ``test_members`` shows that.
    monkeypatch.setattr(workloads.etcd_members, "note", lambda _: found.append("members noted"))
    monkeypatch.setattr(Run, "writing", lambda *_: nullcontext())
    return found


def perform(host: FakeCluster, components: list[str], **options: Any) -> dict[str, Any]:
    run = fake_run(document(), host, stored=state())
    action = object.__new__(workloads.ActionModule)
    return action.perform(run, {**DEFAULTS, "components": components, **options})


def test_what_is_applied_is_waited_for(waited_for: list[str]) -> None:
    host = FakeCluster("host", storage_class("standard"))
    assert perform(host, ["karmada-webhook", "karmada-search"])["changed"] is True
    assert host.names("Deployment") == {"prod-webhook"}
    assert waited_for == ["Deployment prod-webhook"]


def test_what_an_earlier_task_applied_is_only_waited_for(waited_for: list[str]) -> None:
    host = FakeCluster("host", storage_class("standard"))
    assert perform(host, ["karmada-webhook", "karmada-scheduler"], apply=False)["changed"] is False
    assert host.log == []
    assert waited_for == ["Deployment prod-webhook", "Deployment prod-scheduler"]


def test_an_etcd_that_has_become_healthy_has_its_bootstrap_behind_it(waited_for: list[str]) -> None:
    host = FakeCluster("host", storage_class("standard"))
    perform(host, ["etcd"], wait=False)
    assert waited_for == []
    changes = perform(host, ["etcd"], apply=False)["changes"]
    assert waited_for == ["StatefulSet prod-etcd", "members noted"]
    assert changes == ["changed ConfigMap karmada/prod-etcd-config"]
