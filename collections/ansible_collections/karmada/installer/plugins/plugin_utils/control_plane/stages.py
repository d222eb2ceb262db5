# SPDX-License-Identifier: Apache-2.0
"""Objects inside a control plane, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..api_object import Object
from ..components.table import (
    COMPONENTS,
    KARMADA_AGGREGATED_APISERVER,
    KARMADA_APISERVER,
    administrator,
    wanted_components,
)
from ..kube.causes import Servers
from ..kube.objects import Ref
from ..run.run import Run
from . import bootstrap

#: Kinds that are usable only some time after their creation.
WAITED_FOR = ("APIService", "CustomResourceDefinition", "Namespace")

STAGES = ("rights", "foundation", "withdrawal", "aggregation", "admission", "discovery", "addons")


def objects(run: Run, stage: str) -> list[Object]:
    """Objects of one stage, as the document wants them."""
    owner, addresses = run.instance.owner, run.snapshot.addresses
    optional = [component.name for component in wanted_components(run.spec) if component.optional]
    made: dict[str, Callable[[], list[Object]]] = {
        "rights": lambda: [
            *bootstrap.rights(owner, administrator(run.spec)),
            *(bootstrap.registration(owner) if run.spec.karmadactl_registers else ()),
        ],
        "foundation": lambda: bootstrap.foundation(owner, run.crds(), addresses),
        "withdrawal": list,
        "aggregation": lambda: bootstrap.aggregation(owner, addresses, [KARMADA_AGGREGATED_APISERVER.name]),
        "addons": lambda: bootstrap.aggregation(owner, addresses, optional),
        "admission": lambda: bootstrap.admission(owner, addresses),
        "discovery": lambda: bootstrap.discovery(owner, addresses),
    }
    return made[stage]()


def served_by(run: Run, refs: Iterable[Ref]) -> dict[Ref, Servers]:
    """Components on which objects of the control plane depend: an API on its own server, all else on the API server."""
    of_apis = {
        Ref(*each): component.name for component in COMPONENTS for each in bootstrap.of_component(component.name)
    }
    return {ref: run.servers(of_apis.get(ref, KARMADA_APISERVER.name)) for ref in refs}


def switched_off(run: Run, stages: Collection[str] = STAGES) -> list[Ref]:
    """Objects that these stages remove, because the document does not ask for them, or no longer does."""
    found: list[Ref] = []
    if "rights" in stages:
        found += bootstrap.FORMER_RIGHTS
        if not run.spec.karmadactl_registers:
            # Bindings are deleted before roles.
            objects = map(Ref.of, bootstrap.registration(run.instance.owner))
            found += sorted(objects, key=lambda ref: ref.kind != "ClusterRoleBinding")
    if not {"withdrawal", "addons"}.isdisjoint(stages):
        found += [
            each
            for component in COMPONENTS
            if component.optional and not component.is_wanted(run.spec)
            for each in bootstrap.of_component(component.name)
        ]
    return found
