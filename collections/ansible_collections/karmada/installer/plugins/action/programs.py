# SPDX-License-Identifier: Apache-2.0
"""Download of programs that plain hosts lack. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Fetch programs for all hosts once, to the machine that Ansible runs on."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Fetch them; changes nothing on any host."""
        lacking = host_programs.fetch(run)
        for name in run.hosts:
            run.handover.note(name, lacking=lacking.get(name, {}))
        return {"changed": False, "lacking": {name: sorted(paths) for name, paths in lacking.items()}}
