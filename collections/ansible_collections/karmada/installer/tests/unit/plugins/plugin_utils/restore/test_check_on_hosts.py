# SPDX-License-Identifier: Apache-2.0
"""Restores on hosts that are refused before anything is sent: for room, a host that is away, members that are to go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RELEASED, RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    check,
    check_on_hosts,
    etcd_checks,
    hand_over,
    means_of_place,
    take_over,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support import restore_below_pods_in_memory
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import (
    FORMER,
    MEMBERS,
)
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    deployment,
    remembered,
    seen,
)


def refusals(runs: Runs, document: Any = None, size: int = 100 << 20) -> list[str]:
    run = runs.step(document)
    return [f"{each.where}: {each.what}" for each in check_on_hosts.problems(run, size, 0)]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    stored_there = Stored().after(remembered(etcd=FORMER), on_hosts=False)
    facts = {"architecture": "x86_64", "free": {units.DATA: 300 << 20}}
    found.see_all(seen(stored_there, facts=facts))
    return found


def test_hosts_that_are_as_they_should_be_are_not_refused(runs: Runs) -> None:
    assert refusals(runs) == []


def test_room_is_asked_for_before_anything_is_sent(runs: Runs) -> None:
    assert refusals(runs, size=200 << 20) == [
        f"host {name}: 300 MiB are free below {units.DATA}, and 500 MiB are needed beside what is there"
        for name in MEMBERS
    ]


def test_old_data_that_may_go_is_named_as_what_frees_space(runs: Runs) -> None:
    """Its size is in what the host tells of its disk."""
    earlier = RestoreState(
        *("back", "nightly", "prod-20260301t110000z-1f3a9c", "2026-03-01T12:00:00+00:00", FORMER.token),
        FORMER.generation,
        1,
        FORMER,
        aside=("gen-0",),
        step=RELEASED,
    )
    stored_there = Stored().after(remembered(etcd=FORMER, restore=earlier), on_hosts=False)
    runs.see_all(seen(stored_there, facts={"architecture": "x86_64", "free": {units.DATA: 300 << 20}}))
    remedies = [each.remedy for each in check_on_hosts.problems(runs.step(), 200 << 20, 0)]
    assert remedies == ["free space there: karmada.installer.restore_cleanup removes old data of etcd"] * len(MEMBERS)


def test_a_host_that_is_away_is_named_since_something_may_run_there(runs: Runs) -> None:
    runs.see(etcd2={"refusal": "No route to host"})
    (found,) = refusals(runs)
    assert "etcd2" in found


def test_members_that_are_to_change_wait_for_the_end(runs: Runs) -> None:
    hosts = [{**each, "roles": ["controlPlane"]} if "etcd" in each["name"] else each for each in HOSTS]
    (found,) = refusals(runs, deployment(hosts=hosts))
    assert "its members of etcd are cp1, etcd1, etcd2, and by the document cp1" in found


@pytest.mark.parametrize(
    "move",
    [
        lambda run: hand_over.HandingOver(run, hand_over.Asked(), 0).begin(),
        lambda run: take_over.TakingOver(run, check.Asked(), means_of_place.means(run, 0, [])).judge(),
    ],
    ids=["from there", "to there"],
)
def test_what_has_its_etcd_beneath_pods_moves_nowhere(
    move: Callable[[Run], object], runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = restore_below_pods_in_memory.made(monkeypatch, tmp_path)
    with pytest.raises(ProblemsError, match="its etcd is on plain hosts, and the rest of it in pods: nothing can move"):
        move(world.run(world.runs(), "restore"))
    assert world.changes == 0
    check.refuse_move(runs.step())


def test_members_beneath_pods_are_checked_on_their_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    world = restore_below_pods_in_memory.made(monkeypatch, tmp_path)
    runs = world.runs()
    runs.see(etcd2={"refusal": "No route to host"})
    run = world.run(runs, "restore")
    (found,) = etcd_checks.of_members(run).problems(run, 1 << 20, 0)
    assert "host etcd2" in found.where
