# SPDX-License-Identifier: Apache-2.0
"""The form of a reason why a restore cannot be carried out. No I/O."""

from __future__ import annotations

from functools import partial

from ..problems import Problem, Reason

#: Takes what is wrong, where, and the remedy.
impossible = partial(Problem, reason=Reason.RESTORE_IMPOSSIBLE)
