# SPDX-License-Identifier: Apache-2.0
"""Figures of a scenario, in words, which its record takes over.

``figures.py FILE STEP FIGURE`` adds one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def keep_figure(file: Path, step: str, figure: str) -> None:
    """Add the figure of one step to those of a scenario."""
    figures = json.loads(file.read_text()) if file.exists() else {}
    figures[step] = figure
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    keep_figure(Path(sys.argv[1]), *sys.argv[2:])
