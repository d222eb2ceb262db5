# SPDX-License-Identifier: Apache-2.0
"""HAProxy and keepalived of an instance on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction


class ActionModule(HostAction):
    """Render the tree of the load balancer, and make the host converge to it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "default": "present", "choices": ["present", "ended", "held", "released"]},
        "timeout": {"type": "int", "default": 60},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Converge the host; one that is no load balancer loses its parts; if ``ended``, only if another serves."""
        run, state = self.karmada, arguments["state"]
        if state in ("held", "released"):
            tree = json.dumps(load_balancer.packages(run.instance))
            return self.on_host("_host_tree", tree=tree, state="held" if state == "held" else "present")
        serving, coming = load_balancer.in_turn(run.instance, {name: seen.files for name, seen in run.observed.items()})
        nothing = {"changed": False, "changes": [], "in_turn": serving + coming}
        wanted = not self.leaves and self.view.is_load_balancer
        if state == "ended" and (wanted or not serving or self.seen.refusal):
            # If no other host serves the address, it stays until the new load balancers do.
            return nothing
        tree = json.dumps(self.view.load_balancer_tree() if wanted else load_balancer.absent(run.instance))
        found = self.on_host("_host_tree", tree=tree, state="present", timeout=arguments["timeout"])
        if found.get("units"):
            self.note_units(found["units"])
        return nothing | found
