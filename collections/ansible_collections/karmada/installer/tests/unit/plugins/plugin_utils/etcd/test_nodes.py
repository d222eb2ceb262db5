# SPDX-License-Identifier: Apache-2.0
"""Members with their data in directories of nodes come, and leave nodes that are given up, wherever a run is killed."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.document import recorded
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members,
    members_wanted,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_members_in_pods import (
    TIMEOUT,
    bootstrap,
    bring_about,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_nodes_in_memory import PodsOnNodes
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import Killed
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import (
    members_in_pods,
    with_client_in_memory,
    without_lease,
    without_pauses,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run

#: Of the writes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("ETCD_MOMENTS", "4"))


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)
    with_client_in_memory(monkeypatch)


def a_run(world: PodsOnNodes, count: int, stored: State | None = None) -> Run:
    data = {"hostPath": {"path": "/var/lib/karmada-etcd"}}
    spec = {"components": {"etcd": {"local": {"replicas": count, "volumeData": data}}}}
    return fake_run(samples.document(spec), world, stored=stored)


def installed(count: int, nodes: int = 5) -> PodsOnNodes:
    world = PodsOnNodes(*(f"node-{number}" for number in range(nodes)))
    world.bootstrap(members_in_pods(count))
    etcd = EtcdState(
        token="t",
        bootstrapped=True,
        storage="hostPath",
        nodes=tuple(f"node-{number}" for number in range(count)),
        members=tuple(EtcdMemberState(name) for name in members_in_pods(count)),
    )
    run = a_run(world, count, samples.state(etcd=etcd))
    bootstrap(run)
    return world


def brought_to(world: PodsOnNodes, count: int, abandoned: Sequence[str] = ()) -> list[str]:
    """As a whole run does it: what etcd consists of, its members, and then its clients."""
    assert problems(world, count, abandoned) == []
    return bring_about(a_run(world, count), abandoned=abandoned)


def problems(world: PodsOnNodes, count: int, abandoned: Sequence[str]) -> list[Problem]:
    run = a_run(world, count)
    return members_wanted.problems(run, confirmed=count, replace_names=(), abandoned_nodes=abandoned)


def assert_is_well(world: PodsOnNodes, nodes: Sequence[str]) -> None:
    """Members that work on these nodes, in their order, and nothing of former ones but what stays on disks."""
    count, run = len(nodes), a_run(world, len(nodes))
    assert sorted(each.name for each in world.etcd.members.values()) == members_in_pods(count)
    assert world.etcd.healthy_voters() == count
    assert [world._node_of(name) for name in members_in_pods(count)] == list(nodes)
    etcd = run.state.etcd
    assert list(etcd.nodes[:count]) == list(nodes)
    assert [each.name for each in etcd.members] == members_in_pods(count)
    assert all(each.is_settled and not each.lost for each in etcd.members)
    references = [each["spec"]["claimRef"] for each in world.list("v1", "PersistentVolume")]
    bound = {each["uid"] for each in references if each["name"].startswith("data-")}
    assert {each.volume for each in etcd.members} <= bound
    assert not list(recorded.findings(run.state))


# -- members come ------------------------------------------------------------------------------------------------------


def test_a_member_that_comes_gets_a_node_of_those_that_have_none() -> None:
    world = installed(1)
    assert brought_to(world, 3) == ["created prod-etcd-1", "created prod-etcd-2"]
    assert_is_well(world, ["node-0", "node-1", "node-2"])


def test_one_that_comes_again_is_on_the_node_of_before_and_does_not_meet_its_data() -> None:
    world = installed(3)
    brought_to(world, 1)
    brought_to(world, 3)
    assert_is_well(world, ["node-0", "node-1", "node-2"])
    assert len(world.disks["node-2"]) == 2


def test_more_members_than_nodes_are_refused_before() -> None:
    (problem,) = problems(installed(3, nodes=4), 5, ())
    assert problem.reason is Reason.INSUFFICIENT_RESOURCES
    assert problem.what.startswith("2 more members of etcd with hostPath need as many more nodes, and 1 nodes")


# -- a node is lost ----------------------------------------------------------------------------------------------------


def test_the_member_of_a_node_that_was_given_up_comes_back_on_another_one() -> None:
    world = installed(3)
    before = set(world.etcd.members)
    world.lose_node("node-1")
    assert brought_to(world, 3, ["node-1"]) == ["deleted prod-etcd-1", "created prod-etcd-1"]
    assert_is_well(world, ["node-0", "node-3", "node-2"])
    assert len(before & set(world.etcd.members)) == 2
    assert brought_to(world, 3) == []


def test_nobody_takes_a_node_for_lost_that_only_does_not_answer() -> None:
    world = installed(3)
    world.lose_node("node-1")
    assert brought_to(world, 3) == []
    assert len(world.etcd.members) == 3


def test_a_member_leaves_a_node_that_works_once_this_takes_no_pods() -> None:
    world = installed(3)
    (problem,) = problems(world, 3, ["node-0"])
    assert problem.remedy.endswith("kubectl cordon node-0")
    world.cordon("node-0")
    assert brought_to(world, 3, ["node-0"]) == ["deleted prod-etcd-0", "created prod-etcd-0"]
    assert_is_well(world, ["node-3", "node-1", "node-2"])


def test_names_of_other_nodes_are_refused() -> None:
    world = installed(3)
    world.lose_node("node-1")
    (problem,) = problems(world, 3, ["node-4"])
    assert problem.what == "no member of etcd is on a node node-4; they are on node-0, node-1, node-2"


def test_without_a_node_for_it_nothing_is_given_up() -> None:
    world = installed(3, nodes=3)
    world.lose_node("node-1")
    (problem,) = problems(world, 3, ["node-1"])
    assert problem.reason is Reason.INSUFFICIENT_RESOURCES
    assert a_run(world, 3).state.etcd.nodes == ("node-0", "node-1", "node-2")


def test_two_of_three_lost_nodes_are_a_lost_majority() -> None:
    world = installed(3)
    world.lose_node("node-1")
    world.lose_node("node-2")
    with pytest.raises(ProblemsError) as refused:
        members.bring_about(a_run(world, 3), TIMEOUT, (), ["node-1", "node-2"])
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST
    assert len(world.etcd.members) == 3


@pytest.mark.parametrize("works", [False, True])
def test_a_run_that_was_killed_at_any_moment_is_ended_by_the_next(works: bool) -> None:
    killed = 0
    for moment in range(0, 300, MOMENTS):
        world = installed(3)
        if works:
            world.cordon("node-1")
        else:
            world.lose_node("node-1")
        world.writes, world.until = 0, moment
        try:
            brought_to(world, 3, ["node-1"])
        except Killed:
            killed += 1
        else:
            break
        world.until = None
        # Before it was on record nobody knows of it; from then on the next run needs no word.
        on_record = a_run(world, 3).state.etcd.nodes[1] != "node-1"
        brought_to(world, 3, () if on_record else ["node-1"])
        assert_is_well(world, ["node-0", "node-3", "node-2"])
    assert killed > 2
