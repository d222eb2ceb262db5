# SPDX-License-Identifier: Apache-2.0
"""Old data of a restore on plain hosts: what goes, by whose word, and how a run that is killed ends.

What the module removes there is in ``module_utils/test_host_old_data``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import restore_on_host
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check, cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.tests.unit.support import restore_below_pods_in_memory
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.restore_hosts_in_memory import (
    FORMER,
    MEMBERS,
    World,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import Killed
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered
from ansible_collections.karmada.installer.tests.unit.support.tasks import task

DATA = "/var/lib/karmada/prod/etcd"
#: bytes on the disk of each folder
SIZE = 3 << 20


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return made(monkeypatch, tmp_path)


@pytest.fixture(params=["on hosts", "beneath pods"])
def old(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    """Hosts of a control plane that was restored and released, all of it on them or its etcd alone."""
    above: list[Any] = []
    if request.param == "on hosts":
        world = made(monkeypatch, tmp_path)
    else:
        world = restore_below_pods_in_memory.made(monkeypatch, tmp_path)
        above.append(world.host)

    def bring_about() -> None:
        take_steps(world, Goal.QUARANTINE)
        take_steps(world, Goal.RELEASE)

    begin(f"{request.param}, released", (world, world.inside, *above), bring_about)
    return world


def on_host(world: World, runs: Runs, name: str, state: str = "removed", *, check: bool = False) -> dict[str, Any]:
    """Step of the action on a host, whose module works in memory."""
    step: Any = restore_on_host.ActionModule.__new__(restore_on_host.ActionModule)
    step.karmada, step.variables = world.run(runs, cleanup.OPERATION, check=check), {"inventory_hostname": name}
    step._task = task(state, check_mode=check)

    def module(_module: str, *, state: str, folder: str, used: str = "", aside: tuple[str, ...] = ()) -> dict[str, Any]:
        folders = world.machines[name].folders
        assert folder == DATA
        if state == "listed":
            return {"changed": False, "folders": [{"name": each, "size": SIZE} for each in sorted(folders)]}
        assert state == "removed"
        assert used == world.machines[name].serving, "it is told what the member has"
        there = [each for each in aside if each in folders]
        for each in [] if check else there:
            world.moment()
            folders[each] = "half"
            world.moment()
            del folders[each]
        return {"changed": bool(there), "removed": [f"{DATA}/{each}" for each in there]}

    step.on_host = module
    found: dict[str, Any] = step.perform({"state": state, "snapshot": {}})
    return found


def clean(
    world: World, confirm: str = "prod", killed_after: int | None = None, *, check: bool = False, without: str = ""
) -> list[str]:
    """Changes on hosts by the tasks of the role, in their order; killed after so many changes."""
    world.until = None if killed_after is None else world.changes + killed_after
    runs, changes = world.runs(), []
    try:
        for name in world.machines:
            on_host(world, runs, name, "listed", check=check)
        if not cleanup.begin(world.run(runs, cleanup.OPERATION, check=check), confirm):
            return []
        if not check:
            world.written(runs)
        for name in world.machines:
            if name != without:
                found = on_host(world, runs, name, check=check)
                assert found["changed"] == bool(found.get("changes"))
                changes += [f"{name}: {each}" for each in found.get("changes", ())]
        if not check:
            cleanup.end(world.run(runs, cleanup.OPERATION))
            world.written(runs)
    except Killed:
        pass
    finally:
        world.until = None
    return changes


def left(world: World) -> list[dict[str, str]]:
    return [world.machines[name].folders for name in MEMBERS]


def assert_cleaned(world: World) -> None:
    assert left(world) == [{"gen-2": "backup"}] * 3
    assert stored(world).aside == ()
    state = world.state()
    assert (state.journal.operation, state.journal.interrupted) == (cleanup.OPERATION, False)
    before = world.changes
    assert clean(world) == []
    assert world.changes == before, "a second run has nothing to do"


def test_what_was_put_aside_goes_from_every_host_with_a_member_and_what_etcd_uses_stays(old: World) -> None:
    assert left(old) == [{"gen-1": "before", "gen-2": "backup"}] * 3
    assert clean(old) == [f"{name}: remove directory {DATA}/gen-1" for name in MEMBERS]
    assert_cleaned(old)
    assert old.content() == {"backup"}


@pytest.mark.parametrize("killed_after", range(8))
def test_a_run_that_is_killed_anywhere_is_carried_on_by_the_next(old: World, killed_after: int) -> None:
    before = old.changes
    clean(old, killed_after=killed_after)
    assert old.changes == before + killed_after + 1, "it was killed"
    assert all(each["gen-2"] == "backup" for each in left(old))
    assert stored(old).aside == ("gen-1",)
    clean(old)
    assert_cleaned(old)


@pytest.mark.parametrize("confirm", ["", "other"])
def test_without_its_name_nothing_goes_and_what_would_is_named(old: World, confirm: str) -> None:
    before = old.changes
    with pytest.raises(ProblemsError) as refused:
        clean(old, confirm)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert f"gen-1 would be removed for good from the hosts {', '.join(MEMBERS)}: data of the restore" in problem.what
    assert ("other was confirmed" in problem.what) == bool(confirm)
    assert old.changes == before


def test_a_check_run_names_it_and_changes_nothing(old: World) -> None:
    before, state = old.changes, old.state()
    assert clean(old, "", check=True) == [f"{name}: remove directory {DATA}/gen-1" for name in MEMBERS]
    assert (old.changes, old.state()) == (before, state)
    assert left(old) == [{"gen-1": "before", "gen-2": "backup"}] * 3


def test_a_host_that_did_not_say_so_leaves_it_on_record(old: World) -> None:
    with pytest.raises(ProblemsError, match="etcd1 did not say that old data of etcd is gone there"):
        clean(old, without="etcd1")
    assert stored(old).aside == ("gen-1",)
    assert clean(old) == [f"etcd1: remove directory {DATA}/gen-1"]
    assert_cleaned(old)


def test_a_host_that_cannot_be_looked_at_stops_it_before_anything_goes(old: World) -> None:
    runs = old.runs()
    runs.see(etcd2={"refusal": "it does not answer"})
    with pytest.raises(ProblemsError, match="etcd2"):
        cleanup.begin(old.run(runs, cleanup.OPERATION), "prod")


def test_in_quarantine_and_on_the_way_back_it_is_refused_and_after_it_the_new_data_goes(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "is_done", lambda *_: False)
    take_steps(old, Goal.QUARANTINE)
    for killed_after in (0, 9):
        with pytest.raises(ProblemsError, match="old data goes when that is over"):
            clean(old)
        take_steps(old, Goal.UNDO, killed_after)
    take_steps(old, Goal.UNDO)
    assert stored(old).aside == ("gen-1", "gen-3")
    clean(old)
    assert left(old) == [{"gen-2": "backup"}] * 3


def test_data_in_use_is_never_named_to_a_host(old: World) -> None:
    state = old.state()
    assert state.restore
    wrong = replace(state, restore=replace(state.restore, aside=("gen-1", "gen-2")))
    old.keep(wrong)
    with pytest.raises(AssertionError, match="data in use"):
        clean(old)


def test_where_no_restore_was_there_is_nothing_to_remove(world: World) -> None:
    assert clean(world) == []


@pytest.fixture
def replaced(world: World) -> World:
    """Members of which etcd1 was replaced twice and cp1 added, beside a host whose member went; none was restored."""
    members = (
        EtcdMemberState("cp1", id="c1", added=True),
        EtcdMemberState("etcd1", id="e1", added=True),
        EtcdMemberState("etcd2", id="a2"),
    )
    world.keep(remembered(etcd=replace(FORMER, members=members)))
    folders = {
        "cp1": ("gen-1-c1",),
        "cp2": ("gen-1", "gen-1-b1"),
        "etcd1": ("gen-1", "gen-1-d1", "gen-1-e1"),
        "etcd2": ("gen-1",),
    }
    for name, found in folders.items():
        world.machines[name].folders = dict.fromkeys(found, "before")
        world.machines[name].serving = {"cp2": "", "etcd2": "gen-1"}.get(name, found[-1])
    return world


KEPT = {"cp1": ["gen-1-c1"], "cp2": [], "etcd1": ["gen-1-e1"], "etcd2": ["gen-1"]}
LEFT = [
    f"cp2: remove directory {DATA}/gen-1",
    f"cp2: remove directory {DATA}/gen-1-b1",
    f"etcd1: remove directory {DATA}/gen-1",
    f"etcd1: remove directory {DATA}/gen-1-d1",
]


def folders_of(world: World) -> dict[str, list[str]]:
    return {name: sorted(machine.folders) for name, machine in world.machines.items()}


def test_what_members_left_that_were_replaced_or_removed_goes_and_what_members_have_stays(replaced: World) -> None:
    assert clean(replaced) == LEFT
    assert folders_of(replaced) == KEPT
    before = replaced.changes
    assert clean(replaced, "") == []
    assert replaced.changes == before, "a second run has nothing to do"


@pytest.mark.parametrize("killed_after", range(10))
def test_a_run_that_is_killed_while_that_goes_is_carried_on_by_the_next(replaced: World, killed_after: int) -> None:
    before = replaced.changes
    clean(replaced, killed_after=killed_after)
    assert replaced.changes == before + killed_after + 1, "it was killed"
    clean(replaced)
    assert folders_of(replaced) == KEPT
    state = replaced.state()
    assert (state.journal.operation, state.journal.interrupted) == (cleanup.OPERATION, False)


def test_without_the_name_it_says_which_on_which_host_and_how_much_room_they_take(replaced: World) -> None:
    there, before = folders_of(replaced), replaced.changes
    with pytest.raises(ProblemsError) as refused:
        clean(replaced, "")
    (problem,) = refused.value.problems
    assert problem.what == (
        "gen-1 (3 MiB), gen-1-b1 (3 MiB) on cp2; gen-1 (3 MiB), gen-1-d1 (3 MiB) on etcd1 would be removed for good: "
        "data that no member of etcd uses any more"
    )
    assert clean(replaced, "", check=True) == LEFT
    assert (folders_of(replaced), replaced.changes) == (there, before)


@pytest.mark.parametrize(
    "under_way",
    [
        EtcdMemberState("etcd1", id="e1", added=True, leaving=True, lost="its data folder is gone"),
        EtcdMemberState("etcd1", added=True, coming=True),
        EtcdMemberState("etcd1", id="e1", added=True, initial_cluster="etcd1=https://192.0.2.3:2380"),
        EtcdMemberState("etcd1", added=True),
    ],
)
def test_while_a_member_comes_or_goes_nothing_goes(replaced: World, under_way: EtcdMemberState) -> None:
    state = replaced.state()
    replaced.keep(replace(state, etcd=state.etcd.with_member(under_way)))
    there, before = folders_of(replaced), replaced.changes
    for only_told in (True, False):
        with pytest.raises(ProblemsError, match="etcd1 of etcd's members is to come, or to go"):
            clean(replaced, check=only_told)
    assert (folders_of(replaced), replaced.changes) == (there, before)


def test_in_quarantine_it_is_refused_and_after_the_release_both_kinds_go(replaced: World) -> None:
    for name in MEMBERS:
        replaced.machines[name].serving = ""
    take_steps(replaced, Goal.QUARANTINE)
    there = folders_of(replaced)
    with pytest.raises(ProblemsError, match="old data goes when that is over"):
        clean(replaced)
    assert folders_of(replaced) == there
    take_steps(replaced, Goal.RELEASE)
    clean(replaced)
    assert folders_of(replaced) == {**{name: ["gen-2"] for name in MEMBERS}, "cp2": []}
