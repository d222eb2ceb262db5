# SPDX-License-Identifier: Apache-2.0
"""Where a run keeps what SSH needs of Secrets. Apart from ``ssh_files``, so that a template need not load that."""

from __future__ import annotations

from pathlib import Path

from ansible import constants


def of_this_run() -> Path:
    """That of the playbook run which this process belongs to; it ends with the run."""
    return Path(constants.DEFAULT_LOCAL_TMP) / "karmada-installer" / "ssh"
