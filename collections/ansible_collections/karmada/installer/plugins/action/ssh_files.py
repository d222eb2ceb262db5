# SPDX-License-Identifier: Apache-2.0
"""What SSH needs of Secrets that are objects of a cluster. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh_files
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Before anybody connects to a host. A file on this machine that ends with the run is no change."""

    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Nothing, where a directory stands for Secrets or the document names none."""
        return {"changed": False, "files": [str(file) for file in ssh_files.fetch(run)]}
