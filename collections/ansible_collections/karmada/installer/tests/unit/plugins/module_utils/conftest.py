# SPDX-License-Identifier: Apache-2.0
"""The plain host on which a test acts."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.karmada.installer.tests.unit.support.host_tree import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)
