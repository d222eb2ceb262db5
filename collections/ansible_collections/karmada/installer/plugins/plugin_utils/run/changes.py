# SPDX-License-Identifier: Apache-2.0
"""Changes of a run, as its steps note them for the report: each in its own process, some at the same moment.

They name objects and hosts and hold no secret. They are in the private folder of the run, and go with it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import private_file
from . import private_folder

_STEM = "changes-"


def note(result: Mapping[str, Any], task: str, host: str, folder: Path | None = None) -> None:
    """Note what a step changed, by its result; ``task`` and ``host`` stand for changes that have no object."""
    if not result.get("changed"):
        return
    found: Sequence[str] = result.get("changes") or [f"changed Host {host} ({task})"]
    folder = folder or private_folder.of_this_run()
    private_folder.make(folder)
    # The clock puts the steps in order; the process keeps those of several hosts apart.
    private_file.write(folder / f"{_STEM}{time.time_ns():020d}-{os.getpid()}.json", json.dumps(list(map(str, found))))


def of_this_run(folder: Path | None = None) -> list[str]:
    """Changes so far, oldest first: ``created Deployment karmada/prod-scheduler``. In a check, those that would be."""
    folder = folder or private_folder.of_this_run()
    found: list[str] = []
    for path in sorted(folder.glob(f"{_STEM}*.json")):
        found += json.loads(path.read_text())
    return found
