# SPDX-License-Identifier: Apache-2.0
"""Waits of a run that changes members of etcd on plain hosts: what is told of them, how often it looks, their end."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import members_on_hosts, patience, seen_on_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import plan_types as steps
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    Installed,
    hosts,
    names,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import without_pauses


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


def test_whoever_waits_is_told_for_what_every_half_minute(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 100.0)
    world, clock, said = installed(3), [1000.0], list[str]()
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])
    world.etcd.cut("cp3")
    run = world.run(hosts(names(1, 2, 3, 4, 5)))
    run.say = said.append
    for _ in range(8):
        world.ask(run)
        assert members_on_hosts.decide(run, 300.0).step == "look"
        clock[0] += 10.0
    assert [each.partition("; ")[2] for each in said] == ["40 of 300 s"]
    assert "member cp3 is not healthy" in said[0]
    clock[0] += 300.0
    with pytest.raises(ProblemsError) as refused:
        members_on_hosts.decide(run, 300.0)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_AT_RISK


@pytest.mark.parametrize("timeout", [300.0, 3600.0])
def test_however_long_a_wait_is_it_has_few_looks(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    monkeypatch.undo()
    world, clock, pauses = installed(3), [1000.0], list[float]()
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(members_on_hosts.time, "sleep", sleep)
    run = world.run(hosts(names(1, 2, 3, 4, 5)))
    found, waits = seen_on_hosts.look(run), steps.Wait("member cp4 has not started yet")

    def wait() -> None:
        while True:
            members_on_hosts._in_time(run, members_on_hosts.LOOK_AGAIN, found, waits, timeout)

    with pytest.raises(ProblemsError) as refused:
        wait()
    assert refused.value.problems[0].reason is Reason.NOT_READY_IN_TIME
    assert clock[0] - 1000.0 < timeout + 1.0, "the last look is where the time ends"
    # ansible-core 2.19 carries out 247 files of tasks that include one another, and ends a run at the next one.
    assert len(pauses) < 247 / 2
    assert pauses[:8] == [patience.LOOK_SECONDS] * 8, "what comes soon is seen soon"
    assert max(pauses) <= patience.LATER_SECONDS


@pytest.mark.parametrize("seconds", [31.0, 301.0])
def test_a_late_answer_after_a_long_step_has_its_time_to_settle(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    world, clock = installed(3), [1000.0]
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])
    entries = hosts(names(1), names(2, 3))
    run = world.run(entries)

    def turn() -> str:
        world.ask(run)
        return members_on_hosts.decide(run, 300.0).step

    assert turn() == "clients"
    # API servers restart, host after host.
    world._clients(run, members_on_hosts.Turn("clients"), {"cp1"})
    clock[0] += seconds
    world.etcd.cut("cp2")
    assert turn() == "look"
    clock[0] += 29.0
    assert turn() == "look"
    clock[0] += 1.0
    with pytest.raises(ProblemsError) as refused:
        turn()
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_AT_RISK


def test_a_step_that_etcd_refuses_has_an_end_whatever_is_seen_in_between(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SETTLE_SECONDS", 30.0)
    world, clock = installed(3), [1000.0]
    monkeypatch.setattr(members_on_hosts.time, "monotonic", lambda: clock[0])
    run, taken = world.run(hosts(names(1, 2, 3, 4, 5))), list[str]()

    def turns() -> None:
        for number in range(100):
            world.etcd.processes["cp3"].cut = bool(number % 2)
            world.ask(run)
            taken.append(members_on_hosts.decide(run, 300.0).step)
            clock[0] += 10.0

    with pytest.raises(ProblemsError) as refused:
        turns()
    assert refused.value.problems[0].reason is Reason.NOT_READY_IN_TIME
    assert taken[:4] == ["added", "look", "added", "look"]
    assert len(taken) < 40
