# SPDX-License-Identifier: Apache-2.0
"""Folder for the SSH files of a run. Apart from ``ssh_files``, so that the template's lookup need not import that."""

from __future__ import annotations

from pathlib import Path

from . import private_folder


def of_this_run() -> Path:
    """SSH folder of the playbook run that this process belongs to; it is removed with the run."""
    return private_folder.of_this_run() / "ssh"
