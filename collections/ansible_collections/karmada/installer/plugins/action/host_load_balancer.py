# SPDX-License-Identifier: Apache-2.0
"""HAProxy and keepalived of an instance on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import HostAction


class ActionModule(HostAction):
    """Make the tree of the load balancer, and have the host converge to it."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 60}}

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A host that is no load balancer loses what it has of one."""
        tree = json.dumps(self.view.load_balancer_tree())
        found = self.on_host("host_tree", tree=tree, state="present", timeout=arguments["timeout"])
        if found.get("units"):
            seen = self.seen.get("units") or {}
            self.note(units={**seen, **found["units"]})
        return found
