# SPDX-License-Identifier: Apache-2.0
"""Host of the chosen control plane under the name that plays know. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.karmada.installer.plugins.plugin_utils.run import instances


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core ships no types
    """Second step of every playbook, where the inventory has several control planes."""

    TRANSFERS_FILES = False
    OPTIONS: ClassVar[dict[str, Any]] = {"host": {"type": "str", "required": True}}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Hand a host on to Ansible, which adds it to the inventory of this run."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, arguments = self.validate_argument_spec(argument_spec=self.OPTIONS)
        try:
            name, groups, found = instances.alone(task_vars or {}, arguments["host"])
        except KeyError:
            msg = f"{arguments['host']} is no host of several control planes in this inventory"
            return {**result, "failed": True, "changed": False, "msg": msg}
        # What the inventory marks as a template is one of ours; strings of the document never are.
        variables = {key: self._templar.template(value) for key, value in found.items()}
        return {
            **result,
            "changed": False,
            "add_host": {"host_name": name, "groups": groups, "host_vars": variables},
        }
