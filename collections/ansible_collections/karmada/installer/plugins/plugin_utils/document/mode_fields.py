# SPDX-License-Identifier: Apache-2.0
"""Settings of pods for components that are units of plain hosts. They would do nothing there: refused, not ignored.

So is text that no unit can have. Rules of the schema refuse every other field that has no effect in its mode. These two
are left:

* Settings of components. A rule that sees the mode stands at ``spec``, where no path says "each component": for 22
  settings of 12 components it takes 160 lines of CEL, which then cannot say at which path the setting is.
* The namespace of the host cluster. A rule does not see the namespace of its object, which is allowed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..components.spec import Spec
from ..components.table import ETCD, KARMADA_AGENT, PROGRAMS
from ..components.types import Component, settings_of, settings_path
from ..encoding import unfit_for_systemd
from ..problems import Problem, Reason
from ..redaction import printable
from . import crd, manifest

#: Settings that only pods have, by their path below the component, with ``[]`` for the entries of a list → what to do
#: for a unit, which has no file system of its own that could be limited, and nothing that could be looked up for it.
FOR_PODS: Mapping[str, str] = {
    "replicas": "there is one on each host with the role controlPlane",
    "extraEnv[].valueFrom": "write the value itself",
    **dict.fromkeys(
        ("resources.requests.ephemeral-storage", "resources.limits.ephemeral-storage"),
        "a unit cannot be limited in what it stores; mount a file system of the size you want",
    ),
    **dict.fromkeys(
        (
            "imagePullPolicy",
            "imagePullSecrets[].name",
            "labels",
            "annotations",
            "nodeSelector",
            "tolerations[].key",
            "tolerations[].operator",
            "tolerations[].value",
            "tolerations[].effect",
            "tolerations[].tolerationSeconds",
            "affinity",
            "topologySpreadConstraints",
            "priorityClassName",
            "podDisruptionBudgetConfig.minAvailable",
            "podDisruptionBudgetConfig.maxUnavailable",
            "extraVolumes",
            "extraVolumeMounts",
            "securityContext",
        ),
        "it is a setting of pods",
    ),
}
#: Path of the namespace in the host cluster.
NAMESPACE = "spec.hostCluster.namespace"
#: How many there are of components that are not on each host with the role controlPlane.
_REPLICAS: Mapping[str, str] = {
    ETCD.field: "there is one member of etcd on each host with the role etcd",
    KARMADA_AGENT.field: "there is one on each host that a member names in its agentHosts",
}


def problems(deployment: Mapping[str, Any]) -> list[Problem]:
    """Problems of settings in a resolved document without effect in its mode that no rule of the schema refuses.

    A default that the schema filled in looks like one that was given, so a field with its default value passes.
    """
    spec = Spec(deployment["spec"])
    found = [each for component in PROGRAMS if _on_hosts(component, spec) for each in _of_pods(component, spec)]
    found += [each for component in PROGRAMS if _on_hosts(component, spec) for each in _unreadable(component, spec)]
    if spec.mode == "Binary" and spec.host_cluster.namespace != deployment["metadata"]["namespace"]:
        remedy = "take it out: there is no host cluster; hosts and ssh say where the control plane runs"
        found.insert(0, _without_effect("in mode Binary", NAMESPACE, remedy))
    return found


def _on_hosts(component: Component, spec: Spec) -> bool:
    if component.field != KARMADA_AGENT.field:
        return component.is_on_hosts(spec)
    # Pods of members, whatever the control plane runs on; units where all of them are.
    agents = [entry for entry in spec.members if entry.pulls]
    return bool(agents) and all(entry.agent_hosts for entry in agents)


def _of_pods(component: Component, spec: Spec) -> Iterator[Problem]:
    schema = manifest.schema()
    for step in settings_path(component).split("."):
        schema = schema["properties"][step]
    where = f"in mode {spec.mode}" if spec.mode == "Binary" else "where etcd runs on hosts"
    for path, setting in _given(settings_of(component, spec).plain, schema):
        if setting in FOR_PODS:
            instead = _REPLICAS.get(component.field) if setting == "replicas" else None
            remedy = f"take it out: {instead or FOR_PODS[setting]}"
            yield _without_effect(where, f"{settings_path(component)}.{crd.spelt(path)}", remedy)


def _unreadable(component: Component, spec: Spec) -> Iterator[Problem]:
    """Words of a unit with a character that systemd reads in none. Pods may have them, but for NUL."""
    settings = settings_of(component, spec)
    words: list[tuple[crd.Path, str]] = [
        *((("extraArgs", name), f"{name}{value}") for name, value in settings.extra_args.items()),
        *(
            (("extraEnv", number, "value"), str(each.get("value", "")))
            for number, each in enumerate(settings.extra_env)
        ),
    ]
    for path, text in words:
        if unfit := unfit_for_systemd(text):
            yield Problem(
                f"it has the character {unfit}, which systemd takes in no unit",
                f"{settings_path(component)}.{printable(crd.spelt(path))}",
                "take it out; such a character is no text, and mostly comes of a file in another encoding",
                reason=Reason.INVALID_DOCUMENT,
            )


def _without_effect(where: str, path: str, remedy: str) -> Problem:
    return Problem(f"has no meaning {where}", path, remedy, reason=Reason.FIELD_WITHOUT_EFFECT)


def _given(
    value: Any, schema: Mapping[str, Any], path: crd.Path = (), name: str = ""
) -> Iterator[tuple[crd.Path, str]]:
    """Leaves with another value than their default, as (path, path without indices)."""
    items = schema.get("items", {})
    if schema.get("properties"):
        for key, each in schema["properties"].items():
            if key in value:
                yield from _given(value[key], each, (*path, key), f"{name}.{key}" if name else key)
    elif items.get("properties"):
        for number, entry in enumerate(value):
            yield from _given(entry, items, (*path, number), f"{name}[]")
    elif "default" not in schema or value != schema["default"]:
        yield path, name
