# SPDX-License-Identifier: Apache-2.0
"""Room in the database of a member of etcd on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import maintenance, on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.maintenance import COMPACT, DEFRAGMENT, DISARM
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction

_STATES = {COMPACT: "compacted", DEFRAGMENT: "defragmented", DISARM: "disarmed"}


class ActionModule(HostAction):
    """Have the member of one host do one step of what was decided."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {"type": "str", "required": True, "choices": list(_STATES.values())},
        "revision": {"type": "int", "default": 0},
        "identities": {"type": "list", "elements": "str", "default": []},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Refused if a member was not well when all were asked last."""
        if refused := maintenance.refusal(on_hosts.seen(self.karmada), self.karmada.name):
            raise ProblemsError(refused, "nothing more was changed")
        state, question = arguments["state"], on_hosts.question(self.karmada, self.host_name)
        member = {key: question[key] for key in ("url", "folder")}
        requests: list[dict[str, Any]] = [{"state": state, "revision": arguments["revision"]}]
        if state == _STATES[DISARM]:
            requests = [{"state": state, "member": identity} for identity in arguments["identities"]]
        changed = False
        for request in requests:
            found = self.on_host("_etcd_room", **member, **request)
            if found.get("failed"):
                return found
            changed = changed or bool(found.get("changed"))
        own = state == _STATES[DEFRAGMENT]
        what = f"EtcdMember {self.host_name}" if own else f"Etcd {self.karmada.name}"
        return {"changed": changed, "changes": [f"{state} {what}"] if changed else []}
