# SPDX-License-Identifier: Apache-2.0
"""Components of an instance on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME, ETCD, ON_HOSTS
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer, units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction


class ActionModule(HostAction):
    """Render the tree of the named components, and make the host converge to it."""

    KEEPS_LOCK = True
    OPTIONS: ClassVar[dict[str, Any]] = {
        "components": {"type": "list", "elements": "str", "default": list(BY_NAME), "choices": list(ON_HOSTS)},
        "state": {"type": "str", "default": "present", "choices": ["present", "stopped", "absent", "compared"]},
        "restart": {"type": "bool", "default": True},
        "wait_for": {"type": "str", "default": "all", "choices": ["none", "running", "started", "all"]},
        "timeout": {"type": "int", "default": 120},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Converge the host; one without any of the components is left alone."""
        state: str = arguments["state"]
        ends = state in ("stopped", "absent")
        instance = self.karmada.instance
        if ends:
            # If a host leaves, the control plane stays: no data is deleted then.
            keep_data = self.leaves or self.karmada.spec.deletion_policy == "Retain"
            parts = [load_balancer.skeleton(instance), units.skeleton(instance, keep_data=keep_data)]
            if state == "stopped":
                # An API server whose etcd stops first, here or on most other hosts, takes a minute to give up.
                etcd = units.unit_name(instance, ETCD)
                parts[1]["units"] = [unit for unit in parts[1]["units"] if unit["name"] != etcd]
        else:
            parts = [self.view.tree(arguments["components"])]
            # A load balancer has a step of its own. It ends here only if no other host had the address until then.
            every = set(arguments["components"]) == set(BY_NAME)
            if state == "compared" or (every and not self.view.is_load_balancer):
                parts.append(self.view.load_balancer_tree())
        tree = units.merged(parts, instance.owner)
        some = tree["units"] or tree["watched"] or tree["held"]
        if not ends and not some and not self.view.may_have(tree["absent"]):
            return {"changed": False, "changes": [], "outdated": []}
        found = self.on_host(
            "_host_tree",
            check=True if state == "compared" else None,
            tree=json.dumps(tree),
            state=state if ends else "present",
            restart=arguments["restart"],
            wait_for=arguments["wait_for"],
            timeout=arguments["timeout"],
        )
        self._hand_on(found, tree, arguments)
        if state == "compared" and not self._task.check_mode:
            # Differences are reported by the steps that mend them.
            return {key: value for key, value in found.items() if key != "diff"} | {"changed": False}
        return found

    def _hand_on(self, found: Object, tree: Object, arguments: Object) -> None:
        if arguments["state"] == "compared":
            balances = self.view.is_load_balancer and _is_right(found, self.view.load_balancer_tree())
            self.note(differs=bool(found.get("changed")), balances=balances)
        elif arguments["state"] == "present" and not self._task.check_mode and not found.get("failed"):
            # Later steps need the keys that this one has written, and go by what it has removed.
            self.note(**self.seen.after(tree))
        if found.get("units"):
            self.note_units(found["units"])


def _is_right(found: Object, tree: Object) -> bool:
    """Return whether a host has this tree as it should be, and its units answer.

    ``found`` is what the host has told of a larger tree that it was compared with.
    """
    named = {each["path"] for part in ("directories", "files") for each in tree[part]}
    named |= {each["name"] for part in ("users", "units") for each in tree[part]}
    folders = tuple(f"{folder}/" for folder in tree["folders"])
    wrong = [change.rpartition(" ")[2] for change in found.get("changes", ())]
    if found.get("failed") or any(each in named or each.startswith(folders) for each in wrong):
        return False
    seen = found.get("units", {})
    return all(unit["name"] in seen and not seen[unit["name"]]["reason"] for unit in tree["units"])
