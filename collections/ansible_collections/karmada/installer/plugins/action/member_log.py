# SPDX-License-Identifier: Apache-2.0
"""Log lines on a host about members that are not Ready. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import KARMADA_CONTROLLER_MANAGER
from ansible_collections.karmada.installer.plugins.plugin_utils.members import log as member_log
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction, refusal_of


class ActionModule(HostAction):
    """Read the host's log, and hand on its newest lines."""

    KEEPS_LOCK = True
    OPTIONS: ClassVar[dict[str, Any]] = {"members": {"type": "list", "elements": "str", "required": True}}

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Read the log if possible: without it, members are reported without these lines."""
        if not self.view.components([KARMADA_CONTROLLER_MANAGER.name]):
            return {"changed": False}
        unit = units.unit_name(self.karmada.instance, KARMADA_CONTROLLER_MANAGER)
        names = arguments["members"]
        found, refusal = refusal_of(
            lambda: self.on_host(
                "_host_log",
                unit=unit,
                texts=[member_log.mark(name) for name in names],
                ignored=[member_log.consequence(name) for name in names],
                seconds=member_log.SECONDS,
            )
        )
        self.tell_unused(found, refusal, "members are told of without its log")
        self.note(member_log={} if refusal else found["lines"])
        return {"changed": False}
