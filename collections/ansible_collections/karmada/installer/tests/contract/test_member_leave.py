# SPDX-License-Identifier: Apache-2.0
"""What keeps workloads on a member that leaves, with Karmada's own type of a Work at a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts import crd_files
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.source import Source
from ansible_collections.karmada.installer.plugins.plugin_utils.components import releases
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import apply_all
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works

OWNER = "me"
FINALIZER = "karmada.io/execution-controller"


@pytest.fixture
def control_plane(api_server: Any) -> Iterator[Cluster]:
    with Cluster.from_kubeconfig(str(api_server.kubeconfig), name="control plane") as found:
        crds = crd_files.crds(releases.newest().karmada, Source("GoModules"))
        found.apply(next(each for each in crds if each["metadata"]["name"] == "works.work.karmada.io"))
        yield found


@pytest.fixture
def member(control_plane: Cluster) -> str:
    name = f"m{time.time_ns() % 10**9}"
    namespace = {"name": member_works.execution_namespace(name)}
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    return name


def work(member: str, name: str, **metadata: Any) -> dict[str, Any]:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}}
    return {
        "apiVersion": member_works.WORK_API,
        "kind": "Work",
        "metadata": {
            "name": name,
            "namespace": member_works.execution_namespace(member),
            "finalizers": [FINALIZER],
            **metadata,
        },
        "spec": {"workload": {"manifests": [manifest]}},
    }


def as_controllers_write(control_plane: Cluster, wanted: dict[str, Any]) -> None:
    """The whole spec anew, whatever it was."""
    ref = wanted["metadata"]
    live = control_plane.get(member_works.WORK_API, "Work", ref["name"], ref["namespace"])
    assert live is not None
    control_plane.replace({**live, "spec": {**wanted["spec"], "preserveResourcesOnDeletion": False}})


def test_works_of_a_member_that_leaves_keep_what_they_stand_for(control_plane: Cluster, member: str) -> None:
    apply_all(control_plane, member_works.policies(OWNER))
    apps = [work(member, f"app-{number}") for number in range(3)]
    owner = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": member, "uid": "u"}
    of_cluster = work(member, "rights", ownerReferences=[owner])
    for each in (*apps, of_cluster):
        control_plane.create(each)
    as_controllers_write(control_plane, apps[0])

    member_leave._retain(control_plane, member, time.monotonic() + 60)

    space = member_works.execution_namespace(member)
    live = {each["metadata"]["name"]: each for each in control_plane.list(member_works.WORK_API, "Work", space)}
    assert {name for name, each in live.items() if member_works.retains(each)} == {"app-0", "app-1", "app-2"}
    assert not member_works.to_retain(list(live.values()))
    for each in apps:
        with pytest.raises(Forbidden, match="this member is leaving"):
            as_controllers_write(control_plane, each)
    with pytest.raises(Forbidden, match="this member is leaving"):
        control_plane.create(work(member, "late"))
    as_controllers_write(control_plane, of_cluster)


def test_a_work_that_is_going_can_be_finished(control_plane: Cluster, member: str) -> None:
    apply_all(control_plane, member_works.policies(OWNER))
    space = member_works.execution_namespace(member)
    for each in (work(member, "kept"), work(member, "forced")):
        control_plane.create(each)
    member_leave._retain(control_plane, member, time.monotonic() + 60)
    for name in ("kept", "forced"):
        control_plane.delete(member_works.WORK_API, "Work", name, space)
    live = control_plane.get(member_works.WORK_API, "Work", "kept", space)
    assert live is not None
    assert member_works.is_going(live)
    # As Karmada's controller does it, and as it is done for a member that is given up.
    control_plane.replace({**live, "metadata": {**live["metadata"], "finalizers": []}})
    member_leave._strip(control_plane, list(control_plane.list(member_works.WORK_API, "Work", space)))
    assert control_plane.list(member_works.WORK_API, "Work", space) == []


def test_works_of_other_members_are_not_concerned(control_plane: Cluster, member: str) -> None:
    apply_all(control_plane, member_works.policies(OWNER))
    other = work(member, "app")
    control_plane.create(other)
    as_controllers_write(control_plane, other)


def test_the_policy_stays_as_it_was_applied(control_plane: Cluster) -> None:
    """Else every run that lets a member leave would change it."""
    apply_all(control_plane, member_works.policies(OWNER))
    assert {change.action for change in apply_all(control_plane, member_works.policies(OWNER))} == {"unchanged"}
