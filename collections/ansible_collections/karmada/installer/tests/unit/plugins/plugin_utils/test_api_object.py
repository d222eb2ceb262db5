# SPDX-License-Identifier: Apache-2.0
"""Conditions of objects, whoever has reported them and whoever has not yet."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import condition, conditions, is_true


def reported(status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Other", "status": "True"}, {"type": "Ready", "status": status}]}}


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_condition_is_true_when_its_status_says_so(status: str, expected: bool) -> None:
    assert is_true(reported(status), "Ready") is expected
    assert condition(reported(status), "Ready")["status"] == status


@pytest.mark.parametrize(
    "obj", [None, {}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}, reported("True")]
)
def test_a_condition_that_nobody_has_reported_is_not_true(obj: dict[str, Any] | None) -> None:
    assert not is_true(obj, "Established")
    assert condition(obj, "Established") == {}
    assert len(conditions(obj)) == (2 if obj and obj.get("status") and obj["status"].get("conditions") else 0)
