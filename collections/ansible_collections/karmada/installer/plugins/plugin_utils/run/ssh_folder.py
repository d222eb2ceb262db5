# SPDX-License-Identifier: Apache-2.0
"""Where a run keeps what SSH needs of Secrets. Apart from ``ssh_files``, so that a template need not load that."""

from __future__ import annotations

from pathlib import Path

from . import private_folder


def of_this_run() -> Path:
    """That of the playbook run which this process belongs to; it ends with the run."""
    return private_folder.of_this_run() / "ssh"
