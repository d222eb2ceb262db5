# SPDX-License-Identifier: Apache-2.0
"""Writes down how long each task took, for the benchmark."""

from __future__ import annotations

DOCUMENTATION = r"""
name: task_times
type: aggregate
short_description: How long each task took
description: Appends one JSON object for each task to the file that the environment variable BENCH_TASK_TIMES names.
author: karmada.installer contributors (@karmada)
options: {}
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core ships no types
    """A task lasts until the next one starts."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._task = ""
        self._since = 0.0

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """A task begins, so the one before it is over."""
        self._next(task.get_name())

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """The last one is over, too."""
        self._next("")

    def _next(self, name: str) -> None:
        now = time.monotonic()
        if self._task:
            self._write(now)
        self._task, self._since = name, now

    def _write(self, now: float) -> None:
        with Path(os.environ["BENCH_TASK_TIMES"]).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"task": self._task, "seconds": round(now - self._since, 3)}) + "\n")
