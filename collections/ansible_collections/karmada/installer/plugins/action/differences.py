# SPDX-License-Identifier: Apache-2.0
"""What differs from the document, at one look. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane.differences import differences
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Look at etcd and the control plane as the steps that bring them up would; change nothing."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The steps themselves tell and mend what was found."""
        return {"changed": False, "found": differences(run)}
