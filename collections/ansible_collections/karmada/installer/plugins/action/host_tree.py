# SPDX-License-Identifier: Apache-2.0
"""Components of an instance on one plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import HostAction, view_of


class ActionModule(HostAction):
    """Make the tree of the named components, and have the host converge to it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "components": {"type": "list", "elements": "str", "default": list(BY_NAME), "choices": list(BY_NAME)},
        "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
        "wait": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 120},
    }

    def perform(self, variables: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """A host without any of the components is left alone."""
        view = view_of(variables)
        tree = view.all_of_it() if arguments["state"] == "absent" else view.tree(arguments["components"])
        if not tree["units"] and not tree["absent_units"]:
            return {"changed": False, "changes": []}
        return self.on_host(
            "host_tree",
            variables,
            tree=json.dumps(tree),
            state=arguments["state"],
            wait=arguments["wait"],
            timeout=arguments["timeout"],
        )
