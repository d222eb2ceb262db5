# SPDX-License-Identifier: Apache-2.0
"""The state that a run on plain hosts goes on with. Documentation: the module of the same name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction
from ansible_collections.karmada.installer.plugins.plugin_utils.host_run import HostsRun
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run


class ActionModule(KarmadaAction):
    """Choose it, and say what comes next in it."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "event": {
            "type": "str",
            "required": True,
            "choices": ["chosen", "begun", "etcd_bootstrapped", "ended"],
        },
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """The serial grows if, and only if, something differs."""
        if not isinstance(run, HostsRun):
            raise TypeError("the state of an instance on a host cluster is not handed on by variables")
        state = run.state
        if arguments["event"] == "begun":
            state = run.begun()
        elif arguments["event"] == "etcd_bootstrapped":
            state = replace(state, etcd=replace(state.etcd, bootstrapped=True))
        elif arguments["event"] == "ended":
            state = run.ended()
        after = run.stored.after(state)
        return {"changed": False, "serial": after.serial, "files": dict(after.files), "is_new": after is not run.stored}
