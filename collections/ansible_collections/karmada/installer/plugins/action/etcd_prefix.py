# SPDX-License-Identifier: Apache-2.0
"""Key prefix in an external etcd. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import external as external_etcd
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Claim the prefix for this control plane before anything writes below it."""

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Claim the prefix; does nothing if etcd is a component of ours."""
        return changed_result(external_etcd.claim(run) if external_etcd.is_named(run) else [])
