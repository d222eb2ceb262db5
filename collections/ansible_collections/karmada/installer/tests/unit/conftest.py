# SPDX-License-Identifier: Apache-2.0
"""An API server that misbehaves on demand, and the client of it; a disk that is full; no traces of a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document import cel_rules, kept_verdicts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import endpoint_look
from ansible_collections.karmada.installer.plugins.plugin_utils.run import private_folder
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.stub_api import StubApi


@pytest.fixture
def api() -> Iterator[StubApi]:
    """With one namespace, ``ns``."""
    with StubApi() as found:
        found.put("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
        yield found


@pytest.fixture
def cluster(api: StubApi) -> Iterator[Cluster]:
    with cluster_of(api.kubeconfig(), name="host cluster") as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves anything where a run would keep it: nobody takes it away from there when a test ends."""
    monkeypatch.setattr(private_folder, "places", lambda: iter(()))


@pytest.fixture(autouse=True)
def rules_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test knows what held before it."""
    monkeypatch.setattr(kept_verdicts, "folder", lambda: Path("/dev/null"))
    monkeypatch.setattr(cel_rules, "HELD", set())


@pytest.fixture(autouse=True)
def no_name_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of documents lead to an address that is for documentation, and nobody answers there."""
    monkeypatch.setattr(endpoint_look, "look", lambda *_: endpoint_look.Seen(("192.0.2.1",)))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is written gets to the disk."""

    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
