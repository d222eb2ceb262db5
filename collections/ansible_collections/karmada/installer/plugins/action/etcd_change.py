# SPDX-License-Identifier: Apache-2.0
"""One step with members of etcd, taken on a plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts, on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.host_action import HostAction

#: State → what the user is told of the member.
_SAID = {
    "added": "{} is added, and copies the data of the others",
    "promoted": "{} has its vote",
    "removed": "{} is no member any more",
    "led": "another member leads in place of {}",
}
#: State → change of a member, as the report tells it.
_CHANGES = {"promoted": "created", "removed": "deleted"}
#: Seconds for which a host repeats a request while members have not been connected for long enough: twice the five that
#: etcd wants. Another look at all hosts takes longer than another request.
_CONNECT_SECONDS = 10


class ActionModule(HostAction):
    """Have one host take a step that was decided for all, and put on record what has come of it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {
            "type": "str",
            "required": True,
            "choices": ["added", "promoted", "removed", "led", "stopped"],
        },
        "member": {"type": "str", "required": True},
        "identity": {"type": "str", "default": ""},
    }

    def perform(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take the step; one that etcd cannot do yet changes nothing, and is decided again."""
        state, member = arguments["state"], arguments["member"]
        if state == "stopped":
            return self._stopped(member)
        question = on_hosts.question(self.karmada, self.host_name)
        host = on_hosts.host_of_member(self.karmada, member)
        found = self.on_host(
            "_etcd_change",
            state=state,
            url=question["url"],
            folder=question["folder"],
            identity=arguments["identity"],
            peer_url=component_hosts.etcd_member(self.karmada.spec, host).peer_url,
            seconds=_CONNECT_SECONDS,
        )
        if found.get("failed") or self._task.check_mode:
            return found
        self._record(state, member, found)
        if later := found.get("later"):
            return {"changed": False, "later": later}
        self.karmada.say(f"etcd: {_SAID[state].format(member)}")
        told = f"{_CHANGES[state]} EtcdMember {member}" if state in _CHANGES else ""
        return {"changed": bool(found["changed"]), "changes": [told] if told and found["changed"] else []}

    def _record(self, state: str, member: str, found: dict[str, Any]) -> None:
        if state == "added" and found.get("added"):
            urls = {each["id"]: each["peer_urls"][0] for each in found["known"]["members"] if each["peer_urls"]}
            members_on_hosts.added(self.karmada, member, found["added"], urls)
        elif state == "promoted" and not found.get("later"):
            members_on_hosts.voted(self.karmada, member)

    def _stopped(self, member: str) -> dict[str, Any]:
        """Stop what ran for a member that was removed, and forget it."""
        instance = self.karmada.instance
        tree = units.merged([], instance.owner) | {"units": [{"name": units.unit_name(instance, ETCD)}]}
        found = self.on_host("_host_tree", tree=json.dumps(tree), state="stopped")
        if not found.get("failed") and not self._task.check_mode:
            members_on_hosts.forget(self.karmada, member)
        return found
