# SPDX-License-Identifier: Apache-2.0
"""Objects inside the control plane. Documentation: the module of the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ansible_collections.karmada.installer.plugins.plugin_utils import control_plane_objects, probes
from ansible_collections.karmada.installer.plugins.plugin_utils.action import KarmadaAction, changed_result
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    COMPONENTS,
    KARMADA_AGGREGATED_APISERVER,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref, diff
from ansible_collections.karmada.installer.plugins.plugin_utils.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.wait import wait_until

#: Kinds that are of use only some time after they were created.
WAITED_FOR = ("APIService", "CustomResourceDefinition", "Namespace")


STAGES = ("rights", "foundation", "withdrawal", "aggregation", "admission", "discovery", "addons")


class ActionModule(KarmadaAction):
    """Apply one stage of what the control plane consists of inside, and prove that it works."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        "stage": {"type": "str", "required": True, "choices": list(STAGES)},
        "timeout": {"type": "int", "default": 120},
    }

    def perform(self, run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
        """In check mode an API server that is not there yet would get everything."""
        stage: str = arguments["stage"]
        if run.check and not run.control_plane_exists:
            objects = _objects(run, stage)
            return changed_result(Change(Ref.of(each), "created", None, diff(None, each)) for each in objects)
        step = f"control plane: {stage}"
        changes = run.apply_to_control_plane(step, lambda: _objects(run, stage))
        if stage in ("withdrawal", "addons"):
            changes += run.remove_from_control_plane(step, _switched_off(run))
        if run.check:
            return changed_result(changes)
        waited_for = [change.ref for change in changes if change.ref.kind in WAITED_FOR and change.action != "deleted"]
        if waited_for:
            wait_until(run.control_plane, waited_for, timeout=arguments["timeout"], progress=run.say)
        if stage == "aggregation":
            probes.aggregated_api_answers(run.control_plane, arguments["timeout"], run.say)
        if stage == "admission" and run.spec["installCRD"]:
            probes.webhook_judges(run.control_plane, arguments["timeout"], run.say)
        return changed_result(changes)


def _objects(run: Run, stage: str) -> list[Object]:
    owner, addresses = run.instance.owner, run.addresses
    optional = [component.name for component in wanted_components(run.spec) if component.optional]
    made: dict[str, Callable[[], list[Object]]] = {
        "rights": lambda: control_plane_objects.rights(owner),
        "foundation": lambda: control_plane_objects.foundation(owner, run.crds(), addresses),
        "withdrawal": list,
        "aggregation": lambda: control_plane_objects.aggregation(owner, addresses, [KARMADA_AGGREGATED_APISERVER.name]),
        "addons": lambda: control_plane_objects.aggregation(owner, addresses, optional),
        "admission": lambda: control_plane_objects.admission(owner, addresses),
        "discovery": lambda: control_plane_objects.discovery(owner, addresses),
    }
    return made[stage]()


def _switched_off(run: Run) -> list[Ref]:
    """What optional components have in the control plane that the document no longer names."""
    return [
        Ref(*each)
        for component in COMPONENTS
        if component.optional and not component.is_wanted(run.spec)
        for each in control_plane_objects.of_component(component.name)
    ]
