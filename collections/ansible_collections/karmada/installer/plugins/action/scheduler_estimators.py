# SPDX-License-Identifier: Apache-2.0
"""Scheduler estimator for each member. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.members import estimators
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Apply estimators in pods, hand on their needs to hosts, and publish their addresses in the control plane."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 120}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Apply the estimators; in check mode nothing is known of members before there is a control plane."""
        if run.check and not run.control_plane_exists:
            return changed_result([], due=False)
        found = estimators.joined(run)
        changes = estimators.register(run, found)
        due = run.place.hand_on_members(run, found.access, found.ready)
        if not estimators.ROW.is_on_hosts(run.spec):
            changes += estimators.in_pods(run, found, arguments["timeout"])
        return changed_result(changes, due=due)
