# SPDX-License-Identifier: Apache-2.0
"""Objects inside the control plane. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_WEBHOOK,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane import (
    aggregated_discovery,
    probes,
    stages,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref, diff
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.wait import wait_until
from ansible_collections.karmada.installer.plugins.plugin_utils.run.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run


class ActionModule(KarmadaAction):
    """Apply one stage of the objects inside the control plane, and prove that it works."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "required": True, "choices": list(stages.STAGES)},
        "wait": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 120},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """Apply the stage; in check mode, an API server that does not exist yet would get all objects."""
        stage: str = arguments["stage"]
        timeout: int = arguments["timeout"]
        if run.check and not run.control_plane_exists:
            objects = stages.objects(run, stage)
            return changed_result(Change(Ref.of(each), "created", None, diff(None, each)) for each in objects)
        step = f"control plane: {stage}"
        changes = run.apply_to_control_plane(step, lambda: stages.objects(run, stage))
        changes += run.remove_from_control_plane(step, stages.switched_off(run, [stage]))
        if run.check or not arguments["wait"]:
            return changed_result(changes)
        waited_for = [
            change.ref for change in changes if change.ref.kind in stages.WAITED_FOR and change.action != "deleted"
        ]
        if waited_for:
            wait_until(
                run.control_plane,
                waited_for,
                timeout=timeout,
                progress=run.say,
                served_by=stages.served_by(run, waited_for),
            )
        if stage == "aggregation":
            servers = run.servers(KARMADA_AGGREGATED_APISERVER.name)
            probes.aggregated_api_answers(run.control_plane, timeout, run.say, servers)
            aggregated_discovery.bring_up_to_date(run, changes, timeout)
        if stage == "admission" and run.spec.installs_crd:
            probes.webhook_judges(run.control_plane, timeout, run.say, run.servers(KARMADA_WEBHOOK.name))
        return changed_result(changes)
