# SPDX-License-Identifier: Apache-2.0
"""Connections of a plain host to its targets. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction, refusal_of
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Fault

#: Time for all targets of a host. Even a distant one answers a handshake within a second.
SECONDS = 5


class ActionModule(HostAction):
    """Make a host connect to its targets, and hand on which ones it does not reach."""

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Try the targets; if the host is lost meanwhile, the next step that needs it reports that."""
        del arguments
        targets = [each.plain for each in self.seen.targets]
        if not targets:
            return {"changed": False, "unreached": []}
        found, refusal = refusal_of(lambda: self.on_host("_host_reach", targets=targets, seconds=SECONDS))
        self.tell_unused(found, refusal, "what it reaches is not known")
        unreached = {} if refusal else {name: Fault.of(each) for name, each in found["unreached"].items()}
        self.note(unreached=unreached)
        return {"changed": False, "unreached": sorted(unreached)}
