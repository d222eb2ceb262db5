# SPDX-License-Identifier: Apache-2.0
"""Hosts that have left the document. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import HostEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import ApiError
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run import ssh, ssh_folder
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.plain import plain
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """List these hosts, with the variables to reach them. Changes nothing."""

    # As for preflight, which comes after it: whether the host cluster answers is told there.
    KEEPS_LOCK: ClassVar[bool] = False

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the hosts; states that cannot be read are reported by preflight, with all other problems."""
        try:
            leaving = run.leaving
        except (ApiError, ProblemsError):
            leaving = {}
        return {"changed": False, "hosts": [self._described(run, name, entry) for name, entry in leaving.items()]}

    def _described(self, run: Run, name: str, entry: HostEntry) -> dict[str, Any]:
        variables = ssh.variables(entry.plain, run.spec.ssh, run.connection.secrets, str(ssh_folder.of_this_run()))
        if name in (hostvars := self.variables.get("hostvars") or {}):
            # As for the hosts of the document, variables of the user's inventory win.
            given = hostvars[name]
            variables.update({key: plain(given[key]) for key in variables if key in given})
        return {"name": name, "entry": dict(entry.plain), "variables": variables}
