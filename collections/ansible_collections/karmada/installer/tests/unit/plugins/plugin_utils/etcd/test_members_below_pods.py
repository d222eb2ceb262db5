# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts beneath a control plane in pods come, go and are replaced, as on other hosts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    seen_on_hosts,
    wanted_on_hosts,
    ways_on_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.etcd_below_pods_in_memory import HostsBelowPods, hosts
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    CHANGES,
    Change,
    assert_is_well,
    assert_is_well_without,
    killed_worlds,
    names,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import without_lease, without_pauses

#: Of the changes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("ETCD_MOMENTS", "5"))


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return lambda count: HostsBelowPods(tmp_path, names(*range(1, count + 1)))


Installed = Callable[[int], HostsBelowPods]


@pytest.mark.parametrize("way", [(1, 3), (3, 1), (1, 3, 5, 3, 1)])
def test_members_come_and_go(installed: Installed, way: tuple[int, ...]) -> None:
    world = installed(way[0])
    for count in way[1:]:
        members = names(*range(1, count + 1))
        world.bring_to(hosts(members))
        assert_is_well(world, members)
        assert world.host.servers() == members
    assert world.host.rolls == len(way) - 1, "clients get their list once in a run"


def test_clients_forget_members_before_these_go(installed: Installed) -> None:
    world = installed(3)
    taken = world.bring_to(hosts(names(1)))
    assert taken[0] == "clients"
    for name in names(2, 3):
        assert taken.index(f"removed {name}") < taken.index(f"stopped {name}")


def test_clients_that_are_led_away_know_the_member_that_has_come(installed: Installed) -> None:
    world = installed(3)
    taken = world.bring_to(hosts(names(1, 3, 4)))
    assert taken.index("promoted cp4") < taken.index("clients") < taken.index("removed cp2")
    assert_is_well(world, names(1, 3, 4))
    assert world.host.servers() == names(1, 3, 4)
    assert world.host.rolls == 1


def test_every_host_is_exchanged(installed: Installed) -> None:
    world = installed(3)
    world.bring_to(hosts(names(4, 5, 6)))
    assert_is_well(world, names(4, 5, 6))
    assert world.host.servers() == names(4, 5, 6)


def test_a_lost_host_is_given_up_and_clients_are_not_rolled_for_it(installed: Installed) -> None:
    world = installed(3)
    world.lose("cp2")
    taken = world.bring_to(hosts(names(1, 3, 4)))
    assert "clients" not in taken
    assert_is_well_without(world, "cp2", names(1, 3, 4))


def test_a_member_whose_data_folder_is_gone_comes_back_under_a_new_id(installed: Installed) -> None:
    world = installed(3)
    before = set(world.etcd.members)
    world.lose_data("cp2")
    taken = world.bring_to(hosts(names(1, 2, 3)))
    assert taken.index("removed cp2") < taken.index("added cp2")
    assert_is_well(world, names(1, 2, 3))
    assert len(before & set(world.etcd.members)) == 2
    assert world.host.rolls == 0


def test_a_member_that_works_is_replaced_where_that_is_asked_for(installed: Installed) -> None:
    world = installed(3)
    before = {each.name: each.id for each in world.etcd.members.values()}
    world.bring_to(hosts(names(1, 2, 3)), replace=["cp1"])
    assert_is_well(world, names(1, 2, 3))
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert {name for name in after if after[name] != before[name]} == {"cp1"}
    assert world.host.servers() == names(1, 2, 3)


def test_without_a_majority_nobody_is_added_and_nobody_is_removed(installed: Installed) -> None:
    world = installed(3)
    world.lose_data("cp1")
    world.lose_data("cp2")
    before = set(world.etcd.members)
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3)), timeout=0.0)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST
    assert set(world.etcd.members) == before


def test_a_run_with_nothing_to_do_takes_no_step_and_writes_nothing(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1, 2, 3)))
    world.until = 0
    world.ask(run)
    assert not seen_on_hosts.members_change(run)
    assert not run.begin()


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_run_that_was_killed_at_any_moment_is_ended_by_the_next(tmp_path: Path, change: Change) -> None:
    for world in killed_worlds(HostsBelowPods, tmp_path, change, MOMENTS):
        world.bring_to(hosts(change.after), change.replace)
        assert_is_well(world, change.after)
        assert world.host.servers() == change.after


# -- before the first change -------------------------------------------------------------------------------------------


def test_fewer_members_are_asked_for_by_their_number(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1)), check=True)
    world.ask(run)
    (problem,) = wanted_on_hosts.problems(run, confirmed=0, replace_names=())
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert wanted_on_hosts.problems(run, confirmed=1, replace_names=()) == []


def test_hosts_try_each_other_before_a_member_comes(installed: Installed) -> None:
    world = installed(1)
    found = ways_on_hosts.targets(world.run(hosts(names(1, 2, 3)), check=True))
    assert {name: {each.name for each in targets} for name, targets in found.items()} == {
        "cp1": {"etcd/cp2", "etcd/cp3"},
        "cp2": {"etcd/cp1", "etcd/cp3"},
        "cp3": {"etcd/cp1", "etcd/cp2"},
    }


@pytest.mark.parametrize("members", [(1, 2, 3, 4, 5), (1,), (1, 2, 4)])
def test_a_run_that_is_to_change_members_has_something_to_do_on_hosts(
    installed: Installed, members: tuple[int, ...]
) -> None:
    world = installed(3)
    run = world.run(hosts(names(*members)))
    assert seen_on_hosts.is_due(run)
    assert run.begin()
