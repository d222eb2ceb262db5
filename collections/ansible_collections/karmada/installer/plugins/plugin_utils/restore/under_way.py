# SPDX-License-Identifier: Apache-2.0
"""The restore on record, for steps that there are only in one. No I/O."""

from __future__ import annotations

from ..components.state import RestoreState
from ..run.run import Run


def restore_of(run: Run) -> RestoreState:
    """The restore on record. Raises AssertionError if there is none, which is a fault of ours."""
    if run.state.restore is None:
        raise AssertionError("there is no restore on record")
    return run.state.restore
