# SPDX-License-Identifier: Apache-2.0
"""Members of etcd, brought to those of the document. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Add, replace and remove members in pods, one at a time."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "default": "present", "choices": ["begun", "present"]},
        "replace": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 300},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do one safe step after the other; does nothing if etcd is external or on hosts."""
        if arguments["state"] == "begun":
            members.begin(run)
            return changed_result([])
        return changed_result(members.bring_about(run, arguments["timeout"], arguments["replace"]))
