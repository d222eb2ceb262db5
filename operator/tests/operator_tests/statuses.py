# SPDX-License-Identifier: Apache-2.0
"""A moment, an order and a report of which tests make a status, and how they read one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from karmada_operator.orders import Operation, Order

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ORDER = Order(Operation.INSTALL, "u", 3)
READY = {"type": "Ready", "status": "True", "reason": "AllReady", "message": ""}
REPORT = {"phase": "Completed", "installed": True, "observedGeneration": 3, "conditions": [READY]}


def conditions(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in found["conditions"]}
