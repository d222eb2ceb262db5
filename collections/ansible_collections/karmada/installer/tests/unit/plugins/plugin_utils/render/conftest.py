# SPDX-License-Identifier: Apache-2.0
"""A control plane on hosts, with hosts for agents of members."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import NO_FACTS, after_install
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, seen


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """After an install; the hosts of members have nothing yet."""
    found = Runs(tmp_path / "run")
    stored = Stored(4).after(after_install())
    found.see(cp1=seen(stored), **dict.fromkeys(("gw1", "gw2"), seen(Stored(), facts=NO_FACTS)))
    return found
