# SPDX-License-Identifier: Apache-2.0
"""Checks of an instance's namespace: objects under its names, other tools, admission."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..api_object import Object
from ..components.table import BY_NAME
from ..components.types import settings_path
from ..kube.errors import collected
from ..kube.limits import AT_ONCE
from ..kube.objects import Ref, claimed_by
from ..labels import FIELD_MANAGER, INSTANCE_LABEL, NAME_LABEL
from ..problems import Problem, Reason
from ..render import cluster_layout
from ..render import workloads as render
from ..run.run import Run
from . import other_installers, pod_security, quota


def problems(run: Run) -> Iterable[Problem]:
    """Problems in the namespace, if it exists: objects under our names, other tools, admission of what we create."""
    namespace = run.host_cluster.get("v1", "Namespace", run.namespace)
    if namespace is None:
        return
    # Without keys, as far as that goes.
    outline = render.outline(run.instance, cluster_layout.layout(run.instance), run.state.etcd)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        refs = map(Ref.of, outline)
        found = pool.map(lambda ref: run.host_cluster.get(*ref), refs)
    present = [each for each in found if each]
    others = collected(partial(_other_control_planes, run))
    yield from others
    if not others:  # else each of their objects would be reported again
        yield from _taken_names(run, present)
    for check in (
        partial(_pod_security, run, namespace, outline),
        partial(_quotas, run, outline, present),
    ):
        yield from collected(check)


def _taken_names(run: Run, present: Iterable[Object]) -> Iterable[Problem]:
    """Objects under our names that are not ours."""
    for each in present:
        maker, owner = claimed_by(each)
        if (maker, owner) != (FIELD_MANAGER, run.state.owner):
            if maker == FIELD_MANAGER:
                maker = f"{maker}, as a part of control plane {each['metadata']['labels'].get(INSTANCE_LABEL)}"
            yield Problem(
                what=f"{each['kind']} {run.namespace}/{each['metadata']['name']} exists and is not of this "
                "control plane" + (f" (managed by {maker})" if maker else ""),
                where="host cluster",
                remedy="remove it with the tool that made it, or choose another metadata.name or namespace",
                reason=Reason.NAME_TAKEN,
            )


def _other_control_planes(run: Run) -> Iterable[Problem]:
    """Other control planes, before the first installation only: one that is added later is no concern of ours."""
    if run.stored_state:
        return
    workloads = [
        each for kind in ("Deployment", "StatefulSet") for each in run.host_cluster.list("apps/v1", kind, run.namespace)
    ]
    yield from other_installers.problems(run.namespace, workloads, _karmadas(run))


def _quotas(run: Run, outline: Sequence[Object], present: Iterable[Object]) -> Iterable[Problem]:
    quotas, limit_ranges = (
        run.host_cluster.list("v1", kind, run.namespace) for kind in ("ResourceQuota", "LimitRange")
    )
    ours = [each for each in present if claimed_by(each) == (FIELD_MANAGER, run.state.owner)]
    return quota.problems(run.namespace, quotas, limit_ranges, outline, [*ours, *_claims_there(run, outline)])


def _claims_there(run: Run, outline: Sequence[Object]) -> list[Object]:
    """Existing claims that the StatefulSets will adopt by name: kept by an uninstall, or in use."""
    names = {
        f"{claim['metadata']['name']}-{each['metadata']['name']}-{ordinal}"
        for each in outline
        if each["kind"] == "StatefulSet"
        for claim in each["spec"].get("volumeClaimTemplates") or []
        for ordinal in range(each["spec"]["replicas"])
    }
    if not names:
        return []
    found = run.host_cluster.list("v1", "PersistentVolumeClaim", run.namespace)
    return [each for each in found if each["metadata"]["name"] in names]


def _karmadas(run: Run) -> list[Object]:
    """Objects of Karmada's operator, if its CRD exists and the account may list them."""
    if run.host_cluster.resource(*other_installers.KARMADA) is None:
        return []
    if run.host_cluster.can_i([("list", "operator.karmada.io", "karmadas", run.namespace)]):
        return []
    return list(run.host_cluster.list(*other_installers.KARMADA, run.namespace))


def _pod_security(run: Run, namespace: Object, outline: Sequence[Object]) -> Iterable[Problem]:
    """Pods that this namespace would not admit. The API server's default level cannot be seen from outside."""
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(pod_security.ENFORCE_LABEL)
    pods = {
        each["metadata"]["labels"][NAME_LABEL]: each["spec"]["template"]["spec"]
        for each in outline
        if each["kind"] in ("Deployment", "StatefulSet")
    }
    for name, pod in pods.items():
        found = pod_security.violations(pod, level or pod_security.BASELINE)
        if found and level:
            yield Problem(
                what=f"it enforces the Pod Security level {level}, and the pods of {name} break it: {'; '.join(found)}",
                where=f"namespace {run.namespace} of the host cluster",
                remedy=f"set {settings_path(BY_NAME[name])} otherwise, or give the namespace another level",
                reason=Reason.POD_SECURITY_VIOLATION,
            )
        elif found:
            run.tell(
                Problem.hint(
                    f"pods of {name} break the Pod Security level baseline ({'; '.join(found)}); the namespace has "
                    "none, and which one its API server enforces without that cannot be seen from here",
                    Reason.POD_SECURITY_VIOLATION,
                )
            )
