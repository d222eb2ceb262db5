# SPDX-License-Identifier: Apache-2.0
"""HAProxy and keepalived of an instance on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.karmada.installer.plugins.plugin_utils.render import load_balancer
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction

#: Packages of a load balancer; their programs have the same names.
PACKAGES = ("haproxy", "keepalived")
_NOTHING_MORE = {"get_attributes": False, "get_checksum": False, "get_mime": False}


class ActionModule(HostAction):
    """Render the tree of the load balancer, and make the host converge to it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {
            "type": "str",
            "default": "present",
            "choices": ["present", "ended", "held", "released", "looked_for", "installed"],
        },
        "packages": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 60},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Converge the host; one that is no load balancer loses its parts; if ``ended``, only if another serves."""
        run, state = self.karmada, arguments["state"]
        if state == "looked_for":
            # What serves has its programs.
            return {"changed": False, "missing": []} if self.seen.balances else self._missing()
        if state == "installed":
            return self._installed(arguments["packages"])
        if state in ("held", "released"):
            tree = json.dumps(load_balancer.packages(run.instance))
            return self.on_host("_host_tree", tree=tree, state="held" if state == "held" else "present")
        serving, coming = load_balancer.in_turn(run.instance, {name: seen.files for name, seen in run.observed.items()})
        left = [name for name in serving + coming if not run.observed[name].balances]
        nothing = {"changed": False, "changes": [], "in_turn": left}
        wanted = not self.leaves and self.view.is_load_balancer
        if state == "ended" and (wanted or not serving or self.seen.refusal):
            # If no other host serves the address, it stays until the new load balancers do.
            return nothing
        tree = json.dumps(self.view.load_balancer_tree() if wanted else load_balancer.absent(run.instance))
        found = self.on_host("_host_tree", tree=tree, state="present", timeout=arguments["timeout"])
        if found.get("units"):
            self.note_units(found["units"])
        return nothing | found

    def _missing(self) -> dict[str, Any]:
        """Return the packages whose program the host does not have; each is named like its package."""
        missing = []
        for package in PACKAGES:
            found = self.on_host("ansible.builtin.stat", path=f"/usr/sbin/{package}", **_NOTHING_MORE)
            if found.get("failed"):
                return found
            if not found["stat"]["exists"]:
                missing.append(package)
        return {"changed": False, "missing": missing}

    def _installed(self, packages: list[str]) -> dict[str, Any]:
        """Install packages with whatever the distribution has for that.

        By Ansible's own action, of whose result only our part is kept, as of everything that a host answers: Ansible
        would make variables of the rest.
        """
        own = self._task.args
        self._task.args = {"name": packages, "state": "present", "update_cache": True}
        try:
            action = self._shared_loader_obj.action_loader.get(
                "ansible.builtin.package",
                task=self._task,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            answer = action.run(task_vars=self.variables)
        except AnsibleActionFail as error:
            # No package manager was found, or what the host said of it is none.
            answer = {"failed": True, "msg": str(error)}
        finally:
            self._task.args = own
        return self.accepted("ansible.builtin.package", {}, answer)
