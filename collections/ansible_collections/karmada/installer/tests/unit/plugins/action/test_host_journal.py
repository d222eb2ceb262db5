# SPDX-License-Identifier: Apache-2.0
"""What each host gets of the installer's state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.action import host_journal
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import host_preflight
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.render.test_agent_units import Asked
from ansible_collections.karmada.installer.tests.unit.plugins.plugin_utils.run.test_on_plain_hosts import (
    Runs,
    remembered,
    seen,
)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "run")


def test_a_host_without_an_api_server_loses_the_keys_that_an_earlier_version_gave_it(runs: Runs) -> None:
    whole = Stored(4).after(remembered())
    runs.see_all(seen(whole))
    runs.see(etcd1={"stored": whole.plain})
    run = runs.step()
    (hint,) = host_preflight._with_keys(run)
    assert hint.startswith("host etcd1 (192.0.2.3)")
    assert run.begin() is True
    journal = Asked(host_journal.ActionModule, runs.step(), "etcd1")
    journal.perform(state="written", required=True)
    (sent,) = journal.asked
    assert json.loads(sent["content"])["files"] == {}
    assert sent["expected"] == whole.digest
    assert host_preflight._with_keys(runs.step()) == []
