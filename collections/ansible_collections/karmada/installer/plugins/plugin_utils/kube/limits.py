# SPDX-License-Identifier: Apache-2.0
"""Limits and pauses shared by all who send requests to API servers. Those of a single task stand beside it."""

from __future__ import annotations

#: Concurrent requests to one API server: as many as it answers without making other clients wait.
AT_ONCE = 16
#: Seconds before a wait first reports progress: a short one is not worth a line.
QUIET_SECONDS = 2.0
#: Seconds between two reports of a wait in which nothing changes.
SAY_SECONDS = 10.0
