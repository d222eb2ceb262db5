# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests of etcd's members."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import Installed, installed_in


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Installation of a control plane on plain hosts with this many members of etcd, in memory."""
    return installed_in(tmp_path)
