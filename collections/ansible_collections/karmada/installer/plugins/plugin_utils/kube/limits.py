# SPDX-License-Identifier: Apache-2.0
"""Limits and pauses shared by all who send requests to API servers. Those of a single task stand beside it."""

from __future__ import annotations

#: Concurrent requests to one API server: as many as it answers without making other clients wait.
AT_ONCE = 16
#: Clusters looked at concurrently. More than requests to one: a look is only a few, and a cluster that does not answer
#: must not delay the others for long.
CLUSTERS_AT_ONCE = 32
#: Seconds before a wait first reports progress: a short one is not worth a line.
QUIET_SECONDS = 2.0
#: Least seconds between two lines of a wait. It reports changes, but not each pod.
CHANGE_SECONDS = 3.0
#: Seconds between two equal lines of a wait: whoever ends a run that says nothing for half a minute ends none of ours.
SAY_SECONDS = 20.0
