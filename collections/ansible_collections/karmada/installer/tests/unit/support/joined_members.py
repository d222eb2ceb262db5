# SPDX-License-Identifier: Apache-2.0
"""A member of a document, and what an API server says of an object that joining has made there."""

from __future__ import annotations

M1 = {"name": "m1", "mode": "Push", "secretRef": {"name": "m1"}}
MADE_BY_APPLY = [{"manager": "karmada-installer", "operation": "Apply", "time": "2026-01-01T00:00:00Z"}]
