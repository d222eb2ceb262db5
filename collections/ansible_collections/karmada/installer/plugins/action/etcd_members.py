# SPDX-License-Identifier: Apache-2.0
"""Members of etcd, brought to those of the document. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    clients,
    members,
    members_on_hosts,
    members_wanted,
    rollout,
    wanted_on_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Add, replace and remove members in pods, one at a time; decide each step for members on plain hosts."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {
            "type": "str",
            "default": "present",
            "choices": ["begun", "present", "next", "next_restart", "clients_followed"],
        },
        "replace": {"type": "list", "elements": "str", "default": []},
        "abandon_nodes": {"type": "list", "elements": "str", "default": []},
        "outdated": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 300},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Do one safe step after the other, or decide the next one; does nothing if etcd is external."""
        state, timeout, names = arguments["state"], arguments["timeout"], arguments["replace"]
        if state == "begun":
            members_wanted.begin(run)
        elif state == "clients_followed":
            # Those on hosts have followed host after host.
            changes = clients.follow(run, timeout)
            members_on_hosts.clients_have_followed(run)
            return changed_result(changes)
        elif state == "next_restart":
            return {"changed": False, **members_on_hosts.decide_restart(run, timeout, arguments["outdated"]).plain}
        elif state == "next" and run.check:
            return changed_result(wanted_on_hosts.predicted(run, names), step="")
        elif state == "next":
            return {"changed": False, **members_on_hosts.decide(run, timeout, names).plain}
        else:
            nodes = arguments["abandon_nodes"]
            return changed_result(members.bring_about(run, timeout, names, nodes, renew=rollout.renew_broken))
        return changed_result([])
