# SPDX-License-Identifier: Apache-2.0
"""Runs Ansible's own commands on the collection of this checkout, apart from what the developer has configured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[7]


def run(
    command: str, *arguments: str, directory: Path, collection: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    """``collection=False`` is a checkout whose collection is not installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_"))}
    (directory / "empty.cfg").touch()
    return subprocess.run(
        [str(Path(sys.executable).parent / command), *arguments],
        cwd=directory,
        env={
            **kept,
            "ANSIBLE_CONFIG": str(directory / "empty.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "collections" if collection else directory),
            "ANSIBLE_HOME": str(directory / ".ansible"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
