# SPDX-License-Identifier: Apache-2.0
"""Rows of a table of components: one for each component, however many members have a copy. No I/O."""

from __future__ import annotations

from ..components.table import COMPONENTS, KARMADA_AGENT_ON_HOST


def row_of(name: str) -> str:
    """Name of the row that a component belongs to: a copy for a single member has it before the member's own name."""
    rows = (each.row for each in (*COMPONENTS, KARMADA_AGENT_ON_HOST) if each.per_member)
    return next((row for row in rows if name.startswith(f"{row}-")), name)
