# SPDX-License-Identifier: Apache-2.0
"""Files for SSH from Secrets in a cluster. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh_files
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Write the files before any connection to a host; they are temporary, so this is no change."""

    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Write the files; none if a directory stands in for Secrets, or if the document names no Secrets."""
        return {"changed": False, "files": [str(file) for file in ssh_files.fetch(run)]}
