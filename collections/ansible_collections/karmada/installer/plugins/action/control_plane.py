# SPDX-License-Identifier: Apache-2.0
"""Objects inside the control plane. Documentation: the module of the same name."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import control_plane_stages, probes
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref, diff
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.wait import wait_until


class ActionModule(KarmadaAction):
    """Apply one stage of what the control plane consists of inside, and prove that it works."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "required": True, "choices": list(control_plane_stages.STAGES)},
        "timeout": {"type": "int", "default": 120},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """In check mode an API server that is not there yet would get everything."""
        stage: str = arguments["stage"]
        if run.check and not run.control_plane_exists:
            objects = control_plane_stages.objects(run, stage)
            return changed_result(Change(Ref.of(each), "created", None, diff(None, each)) for each in objects)
        step = f"control plane: {stage}"
        changes = run.apply_to_control_plane(step, lambda: control_plane_stages.objects(run, stage))
        changes += run.remove_from_control_plane(step, control_plane_stages.switched_off(run, [stage]))
        if run.check:
            return changed_result(changes)
        waited_for = [
            change.ref
            for change in changes
            if change.ref.kind in control_plane_stages.WAITED_FOR and change.action != "deleted"
        ]
        if waited_for:
            wait_until(run.control_plane, waited_for, timeout=arguments["timeout"], progress=run.say)
        if stage == "aggregation":
            probes.aggregated_api_answers(run.control_plane, arguments["timeout"], run.say)
        if stage == "admission" and run.spec["installCRD"]:
            probes.webhook_judges(run.control_plane, arguments["timeout"], run.say)
        return changed_result(changes)
