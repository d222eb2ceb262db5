# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts are restarted in turn, the leader last, and no majority is lost by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts, patience
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    HostsOfEtcd,
    Installed,
    hosts,
    names,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import without_pauses


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


def restarted(world: HostsOfEtcd, outdated: Sequence[str]) -> list[str]:
    """Turns until none is left, as the role takes them."""
    run, taken = world.run(hosts(names(1, 2, 3))), list[str]()
    for _ in range(20):
        world.ask(run)
        turn = members_on_hosts.decide_restart(run, 60.0, outdated)
        if not turn.step:
            return taken
        taken.append(f"{turn.step} {turn.member}")
        if turn.step == "led":
            world._led(run, turn, set())
    raise AssertionError(taken)


def test_the_leader_is_restarted_last_and_another_one_leads_before(installed: Installed) -> None:
    world = installed(3)
    world.etcd.choose_leader("cp1")
    assert restarted(world, names(1, 2, 3)) == ["restarted cp2", "restarted cp3", "led cp1", "restarted cp1"]


def test_no_member_is_restarted_while_another_one_is_not_healthy(installed: Installed) -> None:
    world = installed(3)
    world.etcd.cut("cp3")
    with pytest.raises(ProblemsError) as refused:
        restarted(world, names(1, 2))
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_AT_RISK


def test_a_full_etcd_gets_its_larger_quota(installed: Installed) -> None:
    world = installed(3)
    world.etcd.full = True
    world.etcd.choose_leader("cp1")
    assert restarted(world, names(1, 2, 3)) == ["restarted cp2", "restarted cp3", "led cp1", "restarted cp1"]


def test_one_that_answers_late_is_not_restarted_where_a_majority_needs_it(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    world, clock = installed(3), [1000.0]
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])
    run = world.run(hosts(names(1, 2, 3)))

    def turn(late: str = "") -> members_on_hosts.Turn:
        """Turn where cp1, which has the new settings, is down, and another one may answer late."""
        world.ask(run)
        for name in filter(None, ("cp1", late)):
            run.handover.note(name, etcd={"message": "it does not answer", "data": True})
        return members_on_hosts.decide_restart(run, 300.0, names(2, 3))

    assert turn("cp2") == members_on_hosts.LOOK_AGAIN
    clock[0] += 29.0
    assert turn("cp2") == members_on_hosts.LOOK_AGAIN
    # It answers, so its silence begins anew; while cp1 is down none that works goes.
    assert turn() == members_on_hosts.LOOK_AGAIN
    clock[0] += 29.0
    assert turn("cp2") == members_on_hosts.LOOK_AGAIN
    clock[0] += 30.0
    assert turn("cp2") == members_on_hosts.Turn("restarted", "cp2", "cp2")


def test_an_election_has_time_to_end(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """All members answer then, and none lists them."""
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    world, clock = installed(3), [1000.0]
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])
    run = world.run(hosts(names(1, 2, 3)))

    def turn(*, elects: bool) -> members_on_hosts.Turn:
        with monkeypatch.context() as election:
            if elects:
                election.setattr(world.etcd, "has_majority", lambda: False)
            world.ask(run)
        return members_on_hosts.decide_restart(run, 300.0, names(1, 2, 3))

    assert turn(elects=True) == members_on_hosts.LOOK_AGAIN
    clock[0] += 29.0
    assert turn(elects=True) == members_on_hosts.LOOK_AGAIN
    assert turn(elects=False).step == "restarted"
    assert turn(elects=True) == members_on_hosts.LOOK_AGAIN
    clock[0] += 31.0
    with pytest.raises(ProblemsError) as refused:
        turn(elects=True)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST


def test_without_a_majority_one_that_does_not_answer_is_restarted_at_once(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    world = installed(3)
    world.etcd.cut("cp2")
    world.etcd.cut("cp3")
    run = world.run(hosts(names(1, 2, 3)))
    world.ask(run)
    turn = members_on_hosts.decide_restart(run, 60.0, names(1, 2, 3))
    assert (turn.step, turn.member, turn.wait) == ("restarted", "cp2", False)


def test_none_is_restarted_while_members_list_others(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that is silent: the others do not count on each other."""
    world, answer = installed(3), HostsOfEtcd._answer
    world.etcd.cut("cp3")

    def alone(world: HostsOfEtcd, run: Run, name: str) -> dict[str, Any]:
        found = answer(world, run, name)
        if name == "cp1":
            found["known"]["members"] = [each for each in found["known"]["members"] if each["name"] == "cp1"]
        return found

    monkeypatch.setattr(HostsOfEtcd, "_answer", alone)
    with pytest.raises(ProblemsError, match="cp1 lists cp1; cp2 lists cp1, cp2, cp3"):
        restarted(world, names(1, 2, 3))


def test_one_that_does_not_answer_is_restarted_first(installed: Installed) -> None:
    world = installed(3)
    world.etcd.cut("cp3")
    run = world.run(hosts(names(1, 2, 3)))
    world.ask(run)
    assert members_on_hosts.decide_restart(run, 60.0, names(1, 3)).plain == {
        "step": "restarted",
        "host": "cp3",
        "member": "cp3",
        "identity": "",
        "wait": True,
        "done": False,
        "follows": "",
        "before": "",
        "stops": False,
    }
