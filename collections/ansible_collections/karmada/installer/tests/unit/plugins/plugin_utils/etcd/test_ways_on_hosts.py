# SPDX-License-Identifier: Apache-2.0
"""Hosts of members of etcd reach each other, which is tried before a member comes."""

from __future__ import annotations

from ansible_collections.karmada.installer.plugins.module_utils import host_reach as kinds
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import ways_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.reach import Fault
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    HostsOfEtcd,
    Installed,
    hosts,
    names,
)

FIVE = hosts(names(1, 2, 3, 4, 5))


def tried(world: HostsOfEtcd, **faults: dict[str, str]) -> list[Problem]:
    """Problems after each of five hosts has tried its targets; ``faults``: host → member → kind of fault."""
    run = world.run(FIVE)
    for host, targets in ways_on_hosts.targets(run).items():
        unreached = {f"etcd/{member}": Fault(kind) for member, kind in faults.get(host, {}).items()}
        run.handover.note(host, targets=tuple(targets), unreached=unreached)
    return ways_on_hosts.problems(world.step(FIVE, run.handover))


def test_members_try_the_one_that_comes_and_it_tries_them(installed: Installed) -> None:
    run = installed(3).run(FIVE)
    found = {host: [each.name for each in targets] for host, targets in ways_on_hosts.targets(run).items()}
    assert found["cp1"] == ["etcd/cp4", "etcd/cp5"]
    assert found["cp4"] == ["etcd/cp1", "etcd/cp2", "etcd/cp3", "etcd/cp5"]
    (target,) = {each for each in ways_on_hosts.targets(run)["cp1"] if each.name == "etcd/cp4"}
    assert (target.host, target.port, target.tls) == ("192.0.2.4", 2380, False)


def test_nobody_tries_anything_where_no_member_comes(installed: Installed) -> None:
    world = installed(3)
    assert ways_on_hosts.targets(world.run(hosts(names(1, 2, 3)))) == {}
    assert ways_on_hosts.targets(world.run(hosts(names(1), names(2, 3)))) == {}


def test_a_refused_connection_is_a_way_and_silence_is_none(installed: Installed) -> None:
    world, every = installed(3), {"cp4": kinds.REFUSED, "cp5": kinds.REFUSED}
    assert tried(world, cp1=every, cp2=every, cp3=every) == []
    (problem,) = tried(world, cp1={"cp4": kinds.SILENT}, cp2={"cp4": kinds.SILENT}, cp3=every)
    assert problem.where == "host cp4 (192.0.2.4)"
    assert problem.what == "cp1, cp2 do not reach https://192.0.2.4:2380: connection timed out"
    assert problem.reason is Reason.ETCD_UNREACHABLE
