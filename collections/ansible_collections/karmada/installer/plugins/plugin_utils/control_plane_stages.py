# SPDX-License-Identifier: Apache-2.0
"""What a control plane consists of inside, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ansible_collections.karmada.installer.plugins.plugin_utils import control_plane_objects
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    COMPONENTS,
    KARMADA_AGGREGATED_APISERVER,
    administrator,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import InstanceFacts, Object
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref

#: Kinds that are of use only some time after they were created.
WAITED_FOR = ("APIService", "CustomResourceDefinition", "Namespace")


STAGES = ("rights", "foundation", "withdrawal", "aggregation", "admission", "discovery", "addons")


def objects(run: InstanceFacts, stage: str) -> list[Object]:
    """The objects of one stage, as the document wants them."""
    owner, addresses = run.instance.owner, run.addresses
    optional = [component.name for component in wanted_components(run.spec) if component.optional]
    made: dict[str, Callable[[], list[Object]]] = {
        "rights": lambda: [
            *control_plane_objects.rights(owner, administrator(run.spec)),
            *(control_plane_objects.registration(owner) if run.spec["registration"]["karmadactl"] else ()),
        ],
        "foundation": lambda: control_plane_objects.foundation(owner, run.crds(), addresses),
        "withdrawal": list,
        "aggregation": lambda: control_plane_objects.aggregation(owner, addresses, [KARMADA_AGGREGATED_APISERVER.name]),
        "addons": lambda: control_plane_objects.aggregation(owner, addresses, optional),
        "admission": lambda: control_plane_objects.admission(owner, addresses),
        "discovery": lambda: control_plane_objects.discovery(owner, addresses),
    }
    return made[stage]()


def switched_off(run: InstanceFacts, stages: Collection[str] = STAGES) -> list[Ref]:
    """What these stages take away, because the document does not ask for it, or not any longer."""
    found: list[Ref] = []
    if "rights" in stages:
        found += [Ref(*each) for each in control_plane_objects.FORMER_RIGHTS]
        if not run.spec["registration"]["karmadactl"]:
            # Bindings go before roles.
            objects = map(Ref.of, control_plane_objects.registration(run.instance.owner))
            found += sorted(objects, key=lambda ref: ref.kind != "ClusterRoleBinding")
    if not {"withdrawal", "addons"}.isdisjoint(stages):
        found += [
            Ref(*each)
            for component in COMPONENTS
            if component.optional and not component.is_wanted(run.spec)
            for each in control_plane_objects.of_component(component.name)
        ]
    return found
