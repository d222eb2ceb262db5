# SPDX-License-Identifier: Apache-2.0
"""The state that a run on plain hosts goes on with. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.members import former_connections
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.run.on_plain_hosts import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.run.plain_hosts import RunWithHosts
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run

EVENTS = ("chosen", "begun", "etcd_bootstrapped", "hosts_left", "restarted", "finished")


class ActionModule(KarmadaAction):
    """Choose it, and say what comes next in it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "event": {"type": "str", "required": True, "choices": list(EVENTS)},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """What is handed on here, other steps write to the hosts."""
        if not isinstance(run, RunWithHosts):
            raise TypeError("this control plane has no plain hosts")
        event, due = arguments["event"], False
        if event == "chosen":
            if isinstance(run, HostsRun):
                run.save(run.state)
        elif event == "begun":
            due = run.begin()
        elif not run.check and event == "etcd_bootstrapped" and not run.state.etcd.bootstrapped:
            run.etcd_bootstrapped()
        elif not run.check and event == "hosts_left" and isinstance(run, HostsRun):
            run.hosts_left()
        elif not run.check and event == "restarted":
            former_connections.ended(run)
        elif not run.check and event == "finished":
            due = run.finish()
        return {"changed": False, "due": due}
