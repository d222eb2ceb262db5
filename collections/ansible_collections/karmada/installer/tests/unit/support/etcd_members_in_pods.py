# SPDX-License-Identifier: Apache-2.0
"""Members of etcd in pods of a host cluster in memory, as an install and later runs bring them about."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members,
    members_wanted,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import (
    NAMESPACE,
    PodsOfEtcd,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import (
    members_in_pods,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run

#: Seconds for a step; only one that never comes to its end takes them.
TIMEOUT = 120


def document(count: int, storage: str = "volumeClaim") -> dict[str, object]:
    local: dict[str, object] = {"replicas": count}
    if storage == "emptyDir":
        local["volumeData"] = {storage: {}}
    return samples.document({"components": {"etcd": {"local": local}}})


def a_run(world: PodsOfEtcd, count: int, stored: State | None = None) -> Run:
    return fake_run(document(count, world.storage), world, stored=stored)


def installed(count: int, storage: str = "volumeClaim") -> PodsOfEtcd:
    """A control plane whose etcd has so many members, as an install leaves it."""
    world = PodsOfEtcd(storage)
    world.bootstrap(members_in_pods(count))
    records = tuple(EtcdMemberState(name) for name in members_in_pods(count))
    etcd = EtcdState(token="t", bootstrapped=True, storage=storage, members=records)
    run = a_run(world, count, samples.state(etcd=etcd))
    bootstrap(run)
    return world


def bootstrap(run: Run) -> None:
    """Start the first members as an install does, and their clients."""
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd", "karmada-apiserver"]))
    members.note(run)
    run.apply_to_host_cluster("end the bootstrap of etcd", lambda: run.workloads(["etcd"]))
    assert members.bring_about(run, TIMEOUT) == []


def brought_to(world: PodsOfEtcd, count: int, replace: Sequence[str] = ()) -> list[str]:
    """As a whole run does it: what etcd consists of, its members, and then its clients."""
    run = a_run(world, count)
    members_wanted.begin(run)
    return bring_about(run, replace)


def bring_about(run: Run, replace: Sequence[str] = (), abandoned: Sequence[str] = ()) -> list[str]:
    """Have a run bring members and their clients to what is wanted; what it has done to members, in words."""
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd"]))
    changes = members.bring_about(run, TIMEOUT, replace, abandoned)
    run.apply_to_host_cluster("start the API server", lambda: run.workloads(["karmada-apiserver"]))
    return [f"{each.action} {each.ref.name}" for each in changes if each.ref.kind == "EtcdMember"]


def assert_is_well(world: PodsOfEtcd, count: int) -> None:
    """As many members as asked for, all with a vote and healthy; no ghost, no learner, nothing undecided on record."""
    etcd, run = world.etcd, a_run(world, count)
    assert sorted(each.name for each in etcd.members.values()) == members_in_pods(count)
    assert not any(each.learner for each in etcd.members.values())
    assert etcd.healthy_voters() == count
    assert world.names("Pod") == set(members_in_pods(count))
    records = run.state.etcd.members
    assert [each.name for each in records] == members_in_pods(count)
    assert {each.id for each in records} == set(etcd.members)
    assert not any(each.coming or each.leaving or each.lost or each.former for each in records)
    assert not any(each.initial_cluster for each in records)
    kind = "Pod" if world.storage == "emptyDir" else "PersistentVolumeClaim"
    volumes = {each["metadata"]["uid"] for each in world.list("v1", kind, NAMESPACE)}
    assert {each.volume for each in records} <= volumes
    assert servers(world) == members_in_pods(count)
    for each in records:
        assert left_by(run, each.name) == folders_beside(world, each.name)


def folders_beside(world: PodsOfEtcd, name: str) -> set[str]:
    """Folders in the volume of a member that no member of etcd uses, with or without a log of one that is no more."""
    return {path.rpartition("/")[2] for path, owner in world.claims[name].items() if owner not in world.etcd.members}


def left_by(run: Run, name: str) -> set[str]:
    """Folders that are on record as left in the volume of a member."""
    return {each.folder for each in run.state.etcd.left_beside() if each.member == name}


def servers(world: PodsOfEtcd) -> list[str]:
    """Names of the members to which the API server connects."""
    live = world.get("apps/v1", "Deployment", "prod-apiserver", NAMESPACE)
    assert live
    container = live["spec"]["template"]["spec"]["containers"][0]
    flags = [*container.get("command", ()), *container.get("args", ())]
    (urls,) = (flag.partition("=")[2] for flag in flags if flag.startswith("--etcd-servers="))
    return [url.removeprefix("https://").partition(".")[0] for url in urls.split(",")]
