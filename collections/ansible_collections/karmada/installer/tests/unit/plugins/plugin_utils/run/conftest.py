# SPDX-License-Identifier: Apache-2.0
"""Runs on plain hosts, before and after an installation; the Lease of runs in pods."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store as store_module
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


@pytest.fixture
def installed(runs: Runs) -> Runs:
    """All hosts are as an installation has left them."""
    runs.see_all(seen(Stored(4).after(remembered())))
    return runs


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    NoLock.taken, NoLock.lost = 0, False
    monkeypatch.setattr(store_module, "Lock", lambda *_, **_named: NoLock())
