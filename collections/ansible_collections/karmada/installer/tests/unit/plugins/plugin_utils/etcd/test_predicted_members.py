# SPDX-License-Identifier: Apache-2.0
"""A check tells which members of etcd a run would create, replace and remove, also after one that was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members, wanted_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.apply import Change
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    CHANGES,
    HostsOfEtcd,
    hosts,
    installed_in,
    killed_worlds,
    names,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_members_in_pods import (
    TIMEOUT,
    a_run,
    brought_to,
    document,
    installed,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_pods_in_memory import Killed, PodsOfEtcd
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import (
    members_in_pods,
    with_client_in_memory,
    without_lease,
    without_pauses,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import fake_run


@pytest.fixture(autouse=True)
def _without_lease_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    without_lease(monkeypatch)
    with_client_in_memory(monkeypatch)


def told(changes: list[Change]) -> list[str]:
    return [f"{each.action} {each.ref.name}" for each in changes if each.ref.kind == "EtcdMember"]


def of_members(lines: list[str]) -> set[str]:
    """Names of the members that lines about changes name."""
    return {each.rpartition(" ")[2] for each in lines}


# -- in pods -----------------------------------------------------------------------------------------------------------


def checked(world: PodsOfEtcd, count: int, replace: tuple[str, ...] = ()) -> list[str]:
    before = world.writes
    found = members.bring_about(fake_run(document(count), world, check=True), TIMEOUT, replace)
    assert world.writes == before
    return told(found)


def test_a_check_tells_who_would_come_and_go_and_writes_nothing() -> None:
    world = installed(3)
    more, fewer = ["created prod-etcd-3", "created prod-etcd-4"], ["deleted prod-etcd-1", "deleted prod-etcd-2"]
    assert checked(world, 5) == more
    assert checked(world, 1) == fewer
    assert checked(world, 3, ("prod-etcd-1",)) == ["changed prod-etcd-1"]


def test_a_check_foretells_what_follows_from_ids_that_an_earlier_version_did_not_note() -> None:
    world = PodsOfEtcd()
    world.bootstrap(members_in_pods(1))
    records = tuple(EtcdMemberState(name) for name in members_in_pods(1))
    stored = samples.state(etcd=EtcdState(token="t", bootstrapped=True, storage="volumeClaim", members=records))
    run = a_run(world, 1, stored)
    run.apply_to_host_cluster("start etcd", lambda: run.workloads(["etcd", "karmada-apiserver"]))
    foretold = members.bring_about(fake_run(document(1), world, stored=stored, check=True), TIMEOUT)
    assert [each.ref for each in foretold] == [each.ref for each in members.bring_about(run, TIMEOUT)] != []
    assert members.bring_about(fake_run(document(1), world, check=True), TIMEOUT) == []


def test_a_check_tells_of_a_member_whose_volume_was_lost() -> None:
    world = installed(3)
    assert checked(world, 3) == []
    world.lose_volume("prod-etcd-1")
    assert checked(world, 3) == ["changed prod-etcd-1"]
    assert brought_to(world, 3) == ["deleted prod-etcd-1", "created prod-etcd-1"]


@pytest.mark.parametrize(("start", "loses"), [(1, ""), (3, "prod-etcd-1")], ids=["grow", "replace"])
def test_a_check_after_a_killed_run_tells_of_the_members_that_the_next_one_changes(start: int, loses: str) -> None:
    for moment in range(0, 300, 6):
        world = installed(start)
        if loses:
            world.lose_volume(loses)
        world.writes, world.until = 0, moment
        try:
            brought_to(world, 3)
        except Killed:
            world.until = None
            foretold = checked(world, 3)
            assert of_members(foretold) == of_members(brought_to(world, 3)), moment
        else:
            assert moment > 10
            return
    raise AssertionError("the run does not come to its end")


# -- on hosts ----------------------------------------------------------------------------------------------------------


def foretold_on_hosts(world: HostsOfEtcd, entries: list[dict[str, Any]], replace: tuple[str, ...] = ()) -> list[str]:
    run: Run = world.run(entries, check=True)
    world.ask(run)
    return told(wanted_on_hosts.predicted(run, replace))


def test_a_check_tells_who_would_come_and_go_on_hosts(tmp_path: Path) -> None:
    world = installed_in(tmp_path)(3)
    world.lose_data("cp3")
    found = foretold_on_hosts(world, hosts(names(1, 3, 4), names(2)), ("cp1",))
    assert found == ["created cp4", "changed cp1", "changed cp3", "deleted cp2"]


def test_a_check_tells_of_a_member_whose_host_has_another_address(tmp_path: Path) -> None:
    world = installed_in(tmp_path)(3)
    assert foretold_on_hosts(world, hosts(names(1, 2, 3))) == []
    assert foretold_on_hosts(world, hosts(names(1, 2, 3), cp2="192.0.2.20")) == ["changed cp2"]


def test_a_check_after_a_killed_run_tells_of_the_members_that_the_next_one_changes_on_hosts(tmp_path: Path) -> None:
    for world in killed_worlds(HostsOfEtcd, tmp_path, CHANGES[0], 3):
        foretold = foretold_on_hosts(world, hosts(CHANGES[0].after))
        taken = [each for each in world.bring_to(hosts(CHANGES[0].after)) if each.partition(" ")[0] == "promoted"]
        assert foretold == [each.replace("promoted", "created") for each in taken]
