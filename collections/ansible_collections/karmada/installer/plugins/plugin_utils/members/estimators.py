# SPDX-License-Identifier: Apache-2.0
"""A karmada-scheduler-estimator for each member: its access to the member, and its address for schedulers.

Joining created its account on the member (see ``members``). Its credentials are in the control plane, beside those of
the control plane itself, so an estimator can be created although its member does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..api_object import Object
from ..components.table import KARMADA_SCHEDULER_ESTIMATOR, wanted_components
from ..components.types import SYSTEM_NAMESPACE, Component
from ..control_plane import bootstrap, removal
from ..control_plane.bootstrap import MEMBER_NAMESPACE
from ..kube.apply import Change
from ..kube.objects import Ref
from ..kube.readiness import reason_not_ready
from ..kube.wait import wait_until
from ..labels import NAME_LABEL, OWNER_LABEL
from ..render import workloads as render
from ..run.run import HOST_CLUSTER, Run
from . import broken as broken_members
from . import mode as member_mode
from . import one_member, registration

ROW = KARMADA_SCHEDULER_ESTIMATOR


@dataclass(frozen=True, repr=False)
class Joined:
    """Members whose estimators can be created: ``access`` is member → kubeconfig, ``ready`` those that are Ready.

    Has no repr, because it holds tokens. ``stale`` are Secrets of the control plane that are no longer needed.
    """

    access: Mapping[str, bytes]
    ready: tuple[str, ...] = ()
    stale: tuple[Ref, ...] = ()


def joined(run: Run) -> Joined:
    """Access and readiness of the members that are to have an estimator, read from the control plane."""
    possible = [each.member for each in wanted_estimators(run)]
    found = run.control_plane.list(registration.CLUSTER_API, "Cluster") if possible else ()
    clusters = {each["metadata"]["name"]: each for each in found}
    wanted = [name for name in possible if _mode(run, name, clusters.get(name)) == registration.PUSH]
    kept = {registration.estimator_secret(name) for name in wanted}
    secrets = _ours(run, "Secret", MEMBER_NAMESPACE)
    stale = tuple(
        Ref.of(secret)
        for name, secret in secrets.items()
        if name.endswith(registration.estimator_secret("")) and name not in kept
    )
    access = {}
    for name in wanted:
        secret = secrets.get(registration.estimator_secret(name))
        if name in clusters and secret:
            try:
                with one_member.apart(name, run.trace):
                    access[name] = registration.estimator_access(clusters[name], secret)
            except one_member.TOLD as error:
                told = "; ".join(broken_members.reason_and_next_step(name, error))
                run.say(f"member {name} gets no estimator: {told}")
    return Joined(access, tuple(name for name in access if not reason_not_ready(clusters[name])), stale)


def register(run: Run, found: Joined) -> list[Change]:
    """Apply Services in the control plane that direct schedulers to estimators; delete those of members that left."""
    addresses = {
        each.member: run.place.estimator_address(run.instance, each)
        for each in wanted_estimators(run)
        if each.member in found.access
    }
    services = bootstrap.estimator_services(run.instance.owner, addresses)
    step = "say where estimators are found"
    changes = run.apply_to_control_plane(step, lambda: services) if services else []
    kept = {Ref.of(each) for each in services}
    there = _ours(run, "Service", SYSTEM_NAMESPACE, f",{NAME_LABEL}={ROW.name}")
    gone = [ref for each in there.values() if (ref := Ref.of(each)) not in kept]
    return [*changes, *run.remove_from_control_plane(step, [*gone, *found.stale])]


def in_pods(run: Run, found: Joined, timeout: float) -> list[Change]:
    """Apply estimators as pods of the host cluster. Waits only for those whose member is Ready."""
    able = [each for each in wanted_estimators(run) if each.member in found.access]
    changes = run.apply_to_host_cluster("estimators", lambda: _objects(run, able, found)) if able else []
    begun = any(run.instance.object_name(f"{ROW.name}-") in ref for ref in run.state.owned.get(HOST_CLUSTER, {}))
    if able or begun:
        changes += run.remove_from_host_cluster("take away estimators", removal.unwanted(run, [ROW.name], changes))
    if not run.check:
        workloads = [run.workload(each.name) for each in able if each.member in found.ready]
        wait_until(run.host_cluster, workloads, timeout=timeout, progress=run.say)
    return changes


def wanted_estimators(run: Run) -> tuple[Component, ...]:
    """Estimators that members of the document may have, whether these are joined or not."""
    wanted = wanted_components(run.spec, run.instance.member_places, run.instance.pushed)
    return tuple(each for each in wanted if each.row == ROW.name)


def _mode(run: Run, name: str, cluster: Object | None) -> str:
    """Mode that a member is registered with, or would be after this run if it is a check."""
    listed = run.spec.member_by_name[name].mode
    if cluster is None or (run.check and name in run.handover.worked_on):
        return listed
    return member_mode.of_cluster(cluster)


def _objects(run: Run, components: list[Component], found: Joined) -> list[Object]:
    instance, layout = run.instance, run.layout
    material = replace(run.material_with(components), member_access=found.access)
    return [
        *render.file_set_secrets(instance, layout, material, components),
        *(
            each
            for component in components
            for each in render.component_objects(instance, component, layout, material, run.state.etcd)
        ),
    ]


def _ours(run: Run, kind: str, namespace: str, more: str = "") -> dict[str, dict[str, Any]]:
    found = run.control_plane.list("v1", kind, namespace, labels=f"{OWNER_LABEL}={run.instance.owner}{more}")
    return {each["metadata"]["name"]: each for each in found}
