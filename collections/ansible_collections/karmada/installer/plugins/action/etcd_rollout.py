# SPDX-License-Identifier: Apache-2.0
"""Replacement of etcd members, one at a time. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import rollout
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Bring every member to the template of the StatefulSet, without ever risking the majority."""

    OPTIONS: ClassVar[dict[str, Any]] = {"timeout": {"type": "int", "default": 300}}

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Replace outdated members; does nothing if etcd is external or on hosts."""
        return changed_result(rollout.replace_outdated(run, arguments["timeout"]))
