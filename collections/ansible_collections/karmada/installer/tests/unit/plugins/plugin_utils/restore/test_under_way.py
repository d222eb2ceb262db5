# SPDX-License-Identifier: Apache-2.0
"""Helpers that steps of a restore share are there once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import under_way

RESTORE = Path(under_way.__file__).parent


def test_the_restore_on_record_is_told_and_without_one_that_is_a_fault_of_ours() -> None:
    run: Any = SimpleNamespace(state=SimpleNamespace(restore="the restore"))
    assert under_way.restore_of(run) == "the restore"
    run.state.restore = None
    with pytest.raises(AssertionError, match="there is no restore on record"):
        under_way.restore_of(run)


def test_shared_helpers_are_written_once() -> None:
    texts = {path.name: path.read_text() for path in RESTORE.glob("*.py")}
    assert [name for name, text in texts.items() if "there is no restore on record" in text] == ["under_way.py"]
    assert [name for name, text in texts.items() if "def _problem(what: str, where: str, remedy: str)" in text] == []
