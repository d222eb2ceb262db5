# SPDX-License-Identifier: Apache-2.0
"""State and lock of an instance on one plain host. Documentation: the module of the same name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import render_systemd as render
from ansible_collections.karmada.installer.plugins.plugin_utils.host_action import (
    HostAction,
    deployment_of,
    stored_of,
)


class ActionModule(HostAction):
    """Name the instance, its folders and the state of this run to the module."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "state": {
            "type": "str",
            "default": "read",
            "choices": ["read", "locked", "written", "absent", "released"],
        },
    }

    def perform(self, variables: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        """What keeps a host from being read is for preflight to tell, with everything else that is wrong."""
        more: dict[str, Any] = {}
        if arguments["state"] in ("read", "locked"):
            more = {"address": variables["karmada_host"]["address"], "folders": [render.DATA, render.PROGRAMS]}
        if arguments["state"] == "written":
            stored = stored_of(variables)
            more["content"] = json.dumps({"serial": stored.serial, "files": stored.files})
        found = self.on_host(
            "host_state",
            variables,
            name=deployment_of(variables)["metadata"]["name"],
            state=arguments["state"],
            holder=self.holder,
            **more,
        )
        if arguments["state"] in ("read", "locked") and found.get("failed"):
            return {"changed": False, "refusal": found.get("msg") or found.get("module_stderr") or "unknown"}
        return found
