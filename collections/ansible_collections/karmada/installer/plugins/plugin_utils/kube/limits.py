# SPDX-License-Identifier: Apache-2.0
"""Limits and pauses that mean one thing to everybody who asks API servers. Those of one task stand beside it."""

from __future__ import annotations

#: Requests to one API server at the same moment: it answers so many of ours without making others wait.
AT_ONCE = 16
#: Seconds before the first word of a wait: one of a blink is not worth a line.
QUIET_SECONDS = 2.0
#: Seconds between two words of a wait in which nothing changes.
SAY_SECONDS = 10.0
