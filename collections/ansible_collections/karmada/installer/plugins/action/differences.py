# SPDX-License-Identifier: Apache-2.0
"""Summary of what differs from the document. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.differences import differences
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Compare etcd and the control plane with the document as the steps that bring them up do; change nothing."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "etcd_replace": {"type": "list", "elements": "str", "default": []},
        "etcd_abandon_nodes": {"type": "list", "elements": "str", "default": []},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the findings only; the steps themselves report and mend them."""
        asked = [*arguments["etcd_replace"], *arguments["etcd_abandon_nodes"]]
        return {"changed": False, "found": differences(run, asked)}
