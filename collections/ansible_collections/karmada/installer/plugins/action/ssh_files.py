# SPDX-License-Identifier: Apache-2.0
"""What SSH needs of Secrets that are objects of a cluster. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import ssh_files
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import CONTROL
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Before anybody connects to a host. A file on this machine that ends with the run is no change."""

    KEEPS_LOCK: ClassVar[bool] = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The same on any host, since the first play of a playbook has others than ours."""
        known = dict(task_vars or {})
        control = known.get("hostvars", {}).get(CONTROL, {})
        for name in ("karmada_deployment", "karmada_connection"):
            if name in control:
                known.setdefault(name, control[name])
        found: dict[str, Any] = super().run(tmp, known)
        return found

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Nothing, where a directory stands for Secrets or the document names none."""
        return {"changed": False, "files": [str(file) for file in ssh_files.fetch(run)]}
