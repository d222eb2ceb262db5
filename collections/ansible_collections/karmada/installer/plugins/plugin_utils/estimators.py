# SPDX-License-Identifier: Apache-2.0
"""A karmada-scheduler-estimator for each member: what it needs to look at its member, and how schedulers find it.

What an estimator may do on its member was made there by joining (see ``members``). Its credentials are in the control
plane, beside those of the control plane itself, so a member that does not answer keeps no estimator from being made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.karmada.installer.plugins.plugin_utils import (
    broken_members,
    control_plane_objects,
    members,
    one_member,
    removal,
)
from ansible_collections.karmada.installer.plugins.plugin_utils import render_kubernetes as render
from ansible_collections.karmada.installer.plugins.plugin_utils.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.component_types import SYSTEM_NAMESPACE, Component
from ansible_collections.karmada.installer.plugins.plugin_utils.components import (
    KARMADA_SCHEDULER_ESTIMATOR,
    wanted_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.control_plane_objects import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.instance_facts import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import NAME_LABEL, OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.readiness import reason_not_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run import HOST, Run
from ansible_collections.karmada.installer.plugins.plugin_utils.wait import wait_until

ROW = KARMADA_SCHEDULER_ESTIMATOR


@dataclass(frozen=True, repr=False)
class Joined:
    """The members whose estimators can be made: member → kubeconfig, and which of them the control plane finds Ready.

    Has no representation, because it holds tokens. ``stale`` are Secrets of the control plane that nobody needs.
    """

    access: Mapping[str, bytes]
    ready: tuple[str, ...] = ()
    stale: tuple[Ref, ...] = ()


def joined(run: Run) -> Joined:
    """What the control plane knows of the members that are to have an estimator."""
    wanted = [each.member for each in wanted_estimators(run)]
    kept = {members.estimator_secret(name) for name in wanted}
    secrets = _ours(run, "Secret", MEMBER_NAMESPACE)
    stale = tuple(
        Ref.of(secret)
        for name, secret in secrets.items()
        if name.endswith(members.estimator_secret("")) and name not in kept
    )
    if not wanted:
        return Joined({}, (), stale)
    clusters = {each["metadata"]["name"]: each for each in run.control_plane.list(members.CLUSTER_API, "Cluster")}
    access = {}
    for name in wanted:
        secret = secrets.get(members.estimator_secret(name))
        if name in clusters and secret:
            try:
                with one_member.apart(name, run.trace):
                    access[name] = members.estimator_access(clusters[name], secret)
            except one_member.TOLD as error:
                run.say(f"member {name} gets no estimator: {'; '.join(broken_members.reason_and_next_step(error))}")
    return Joined(access, tuple(name for name in access if not reason_not_ready(clusters[name])), stale)


def register(run: Run, found: Joined) -> list[Change]:
    """Services in the control plane that lead schedulers to estimators; those of members that have left go."""
    addresses = {
        each.member: run.estimator_address(each) for each in wanted_estimators(run) if each.member in found.access
    }
    services = control_plane_objects.estimator_services(run.instance.owner, addresses)
    step = "say where estimators are found"
    changes = run.apply_to_control_plane(step, lambda: services) if services else []
    kept = {Ref.of(each) for each in services}
    there = _ours(run, "Service", SYSTEM_NAMESPACE, f",{NAME_LABEL}={ROW.name}")
    gone = [ref for each in there.values() if (ref := Ref.of(each)) not in kept]
    return [*changes, *run.remove_from_control_plane(step, [*gone, *found.stale])]


def in_pods(run: Run, found: Joined, timeout: float) -> list[Change]:
    """Estimators as pods of the host cluster. Only those whose member is Ready are waited for."""
    able = [each for each in wanted_estimators(run) if each.member in found.access]
    changes = run.apply_to_host("estimators", lambda: _objects(run, able, found)) if able else []
    begun = any(run.instance.object_name(f"{ROW.name}-") in ref for ref in run.state.owned.get(HOST, {}))
    if able or begun:
        changes += run.remove_from_host("take away estimators", removal.unwanted(run, [ROW.name], changes))
    if not run.check:
        names = [run.instance.object_name(each.name) for each in able if each.member in found.ready]
        workloads = [Ref("apps/v1", "Deployment", name, run.namespace) for name in names]
        wait_until(run.host, workloads, timeout=timeout, progress=run.say)
    return changes


def wanted_estimators(run: Run) -> tuple[Component, ...]:
    """The estimators that the document asks for, whether their members are joined or not."""
    wanted = wanted_components(run.spec, run.instance.member_places)
    return tuple(each for each in wanted if each.row == ROW.name)


def _objects(run: Run, components: list[Component], found: Joined) -> list[Object]:
    instance, layout = run.instance, run.layout
    material = replace(run.material, member_access=found.access)
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
