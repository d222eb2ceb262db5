# SPDX-License-Identifier: Apache-2.0
"""Control planes of other installers, recognised by traces on their objects, so that they are left alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..api_object import Object
from ..labels import FIELD_MANAGER, MANAGED_BY_LABEL
from ..problems import Problem, Reason, first_of

#: API version and kind from which Karmada's operator makes a control plane.
KARMADA = ("operator.karmada.io/v1alpha1", "Karmada")

KARMADACTL = "karmadactl init"
OPERATOR = "Karmada's operator"
HELM = "Helm"
UNKNOWN = "another tool"
_REMEDIES = {
    KARMADACTL: "remove it with karmadactl deinit",
    OPERATOR: "remove it by deleting its Karmada object",
    HELM: "remove it with helm uninstall",
    UNKNOWN: "remove it with the tool that made it",
}
#: Images that only control planes run; an agent or an estimator may run next to one.
_IMAGES = frozenset(
    {"karmada-aggregated-apiserver", "karmada-controller-manager", "karmada-scheduler", "karmada-webhook"}
)
_OPERATORS_NAME = "karmada-operator"
_KARMADACTLS_LABEL = "karmada.io/bootstrapping"


def problems(namespace: str, workloads: Sequence[Object], karmadas: Sequence[Object]) -> list[Problem]:
    """One problem for each tool that has a control plane in the namespace.

    ``workloads`` are its Deployments and StatefulSets, ``karmadas`` its Karmada objects; ours are skipped.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for each in karmadas:
        found[OPERATOR].append(f"Karmada {each['metadata']['name']}")
    for each in workloads:
        maker = maker_of(each)
        if maker and _runs_karmada(each):
            found[maker].append(f"{each['kind']} {each['metadata']['name']}")
    return [
        Problem(
            what=f"it holds a control plane that {maker} made ({first_of(sorted(names))}); it is not touched",
            where=f"namespace {namespace} of the host cluster",
            remedy=f"choose another namespace (spec.hostCluster.namespace), or {_REMEDIES[maker]}",
            reason=Reason.OTHER_CONTROL_PLANE,
        )
        for maker, names in found.items()
    ]


def maker_of(each: Object) -> str:
    """Tool that made an object, as far as it shows; empty for ours."""
    metadata = each["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    manager = labels.get(MANAGED_BY_LABEL)
    if manager == FIELD_MANAGER:
        return ""
    if manager == _OPERATORS_NAME:
        return OPERATOR
    # Helm itself annotates everything that it makes with the release, whatever the chart says.
    if manager == "Helm" or "meta.helm.sh/release-name" in annotations:
        return HELM
    if _KARMADACTLS_LABEL in labels:
        return KARMADACTL
    return UNKNOWN


def _runs_karmada(workload: Object) -> bool:
    containers: Iterable[Object] = workload["spec"]["template"]["spec"].get("containers") or []
    return any(_image_name(each.get("image", "")) in _IMAGES for each in containers)


def _image_name(reference: str) -> str:
    """``karmada-webhook`` for ``registry:5000/karmada/karmada-webhook:v1.18.2@sha256:…``."""
    last: str = reference.partition("@")[0].rpartition("/")[2]
    return last.partition(":")[0]
