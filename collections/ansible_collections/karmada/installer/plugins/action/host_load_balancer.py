# SPDX-License-Identifier: Apache-2.0
"""HAProxy and keepalived of an instance on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import HostAction


class ActionModule(HostAction):
    """Make the tree of the load balancer, and have the host converge to it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "default": "present", "choices": ["present", "compared"]},
        "timeout": {"type": "int", "default": 60},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A host that is no load balancer loses what it has of one."""
        compared = arguments["state"] == "compared"
        found = self.on_host(
            "host_tree",
            check=True if compared else None,
            tree=json.dumps(self.view.load_balancer_tree()),
            state="present",
            timeout=arguments["timeout"],
        )
        found["differs"] = bool(found.get("changed"))
        if compared:
            before = bool(self.karmada.observed[self.host_name].get("differs"))
            self.note(differs=before or found["differs"])
        if found.get("units"):
            seen = self.karmada.observed[self.host_name].get("units") or {}
            self.note(units={**seen, **found["units"]})
        if compared and not self._task.check_mode:
            # What differs is told by the step that mends it.
            return {key: value for key, value in found.items() if key != "diff"} | {"changed": False}
        return found
