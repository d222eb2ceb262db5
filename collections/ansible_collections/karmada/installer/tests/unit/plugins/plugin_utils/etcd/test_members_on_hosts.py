# SPDX-License-Identifier: Apache-2.0
"""Members of etcd on plain hosts come, go and are replaced, wherever a run is killed, and nobody loses a majority."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import etcd_change
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import Journal
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import ETCD
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd import (
    members_on_hosts,
    seen_on_hosts,
    wanted_on_hosts,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import Asked
from ansible_collections.karmada.installer.tests.unit.support.etcd_hosts_in_memory import (
    CHANGES,
    Change,
    HostsOfEtcd,
    Installed,
    assert_is_well,
    assert_is_well_without,
    hosts,
    killed_worlds,
    names,
    peer_url,
)
from ansible_collections.karmada.installer.tests.unit.support.etcd_runs import without_pauses

#: Of the changes of a run, it is killed before each one with this distance; 1 for all of them.
MOMENTS = int(os.environ.get("ETCD_MOMENTS", "3"))


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


# -- without trouble ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [(1, 3), (1, 5), (3, 1), (5, 3), (3, 7), (7, 1), (1, 3, 5, 3, 1)])
def test_members_come_and_go(installed: Installed, way: tuple[int, ...]) -> None:
    world = installed(way[0])
    for count in way[1:]:
        members = names(*range(1, count + 1))
        world.bring_to(hosts(members))
        assert_is_well(world, members)


def test_hosts_that_lose_the_role_stop_after_they_are_no_members_any_more(installed: Installed) -> None:
    world = installed(3)
    taken = world.bring_to(hosts(names(1), names(2, 3)))
    assert taken[0] == "clients"
    for name in names(2, 3):
        assert taken.index(f"removed {name}") < taken.index(f"stopped {name}")
    assert_is_well(world, names(1))


def test_each_member_that_comes_has_its_vote_before_the_next_is_added(installed: Installed) -> None:
    taken = installed(1).bring_to(hosts(names(1, 2, 3)))
    steps = [each for each in taken if each.split()[0] in ("added", "promoted") and not each.endswith("later")]
    assert steps == ["added cp2", "promoted cp2", "added cp3", "promoted cp3"]


def test_a_run_with_nothing_to_do_takes_no_step(installed: Installed) -> None:
    world = installed(3)
    assert world.bring_to(hosts(names(1, 2, 3))) == []
    assert not seen_on_hosts.is_due(world.run(hosts(names(1, 2, 3))))


# -- losses ------------------------------------------------------------------------------------------------------------


def test_a_member_whose_data_folder_is_gone_comes_back_under_a_new_id(installed: Installed) -> None:
    world = installed(3)
    before = set(world.etcd.members)
    world.lose_data("cp2")
    taken = world.bring_to(hosts(names(1, 2, 3)))
    assert taken.index("removed cp2") < taken.index("added cp2")
    assert_is_well(world, names(1, 2, 3))
    assert len(before & set(world.etcd.members)) == 2


def test_a_member_whose_data_is_gone_comes_back_while_etcd_is_full(installed: Installed) -> None:
    world = installed(3)
    world.etcd.full = True
    world.lose_data("cp2")
    world.bring_to(hosts(names(1, 2, 3)))
    assert_is_well(world, names(1, 2, 3))


def test_a_host_is_exchanged_by_listing_another_one_and_giving_the_lost_one_up(installed: Installed) -> None:
    world = installed(3)
    world.lose("cp2")
    taken = world.bring_to(hosts(names(1, 3, 4)))
    assert taken.index("removed cp2") < taken.index("added cp4")
    assert not any(each.startswith("stopped") for each in taken), "nobody reaches it"
    assert_is_well_without(world, "cp2", names(1, 3, 4))


def test_a_host_that_works_is_exchanged(installed: Installed) -> None:
    world = installed(3)
    taken = world.bring_to(hosts(names(1, 3, 4)))
    assert taken.index("promoted cp4") < taken.index("removed cp2"), "with all three at any time"
    assert_is_well(world, names(1, 3, 4))


def test_a_member_that_works_is_replaced_only_where_that_is_asked_for(installed: Installed) -> None:
    world = installed(3)
    before = {each.name: each.id for each in world.etcd.members.values()}
    world.bring_to(hosts(names(1, 2, 3)), replace=["cp1"])
    assert_is_well(world, names(1, 2, 3))
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert {name for name in after if after[name] != before[name]} == {"cp1"}


def test_another_address_of_a_host_is_a_replacement(installed: Installed) -> None:
    world = installed(3)
    before = {each.name: each.id for each in world.etcd.members.values()}
    world.bring_to(hosts(names(1, 2, 3), cp3="192.0.2.33"))
    after = {each.name: each.id for each in world.etcd.members.values()}
    assert {name for name in after if after[name] != before[name]} == {"cp3"}
    assert {each.peer_url for each in world.etcd.members.values() if each.name == "cp3"} == {"https://192.0.2.33:2380"}


def test_a_single_member_without_its_data_is_not_replaced(installed: Installed) -> None:
    world = installed(1)
    world.lose_data("cp1")
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1)), timeout=0.0)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST
    assert "restore" in refused.value.problems[0].remedy


def test_without_a_majority_nobody_is_added_and_nobody_is_removed(installed: Installed) -> None:
    world = installed(3)
    world.lose_data("cp1")
    world.lose_data("cp2")
    before = set(world.etcd.members)
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3)), timeout=0.0)
    assert refused.value.problems[0].reason is Reason.ETCD_MAJORITY_LOST
    assert set(world.etcd.members) == before


def test_a_member_that_does_not_answer_keeps_the_others_as_they_are(installed: Installed) -> None:
    world = installed(3)
    world.etcd.cut("cp3")
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3, 4, 5)))
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MAJORITY_AT_RISK
    assert problem.where == "etcd member cp3"
    assert world.taken == []


def test_a_member_of_somebody_else_is_told(installed: Installed) -> None:
    world = installed(3)
    world.etcd.add_stranger("theirs")
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3)))
    assert refused.value.problems[0].reason is Reason.ETCD_MEMBERS_DIFFER


def test_one_that_was_forced_to_go_on_alone_is_told_once_two_looks_say_so(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, answer, asked = installed(3), HostsOfEtcd._answer, list[str]()
    looks = {1, 2}

    def alone(world: HostsOfEtcd, run: Run, name: str) -> dict[str, Any]:
        found = answer(world, run, name)
        asked.append(name)
        if name == "cp1" and asked.count("cp1") in looks:
            found["known"]["members"] = [each for each in found["known"]["members"] if each["name"] == "cp1"]
        return found

    monkeypatch.setattr(HostsOfEtcd, "_answer", alone)
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3, 4, 5)))
    (problem,) = refused.value.problems
    assert problem.reason is Reason.ETCD_MEMBERS_DIFFER
    assert "cp1 lists cp1; cp2, cp3 list cp1, cp2, cp3" in problem.what
    assert "etcd_replace" not in str(problem)
    assert (world.taken, asked.count("cp1"), len(world.etcd.members)) == ([], 2, 3)
    # Seen once, it was a change between two answers.
    asked.clear()
    looks = {2, 4}
    world.bring_to(hosts(names(1, 2, 3, 4, 5)))
    assert_is_well(world, names(1, 2, 3, 4, 5))


def test_a_host_speaks_for_its_own_member_only(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1, 2, 3)))
    world.ask(run)
    world.etcd.cut("cp3")
    world.ask(run)
    # cp2 says that it is cp3.
    answer: dict[str, Any] = dict(run.handover.observed("cp2").etcd)
    answer["status"]["header"]["member_id"] = str(int(world._id("cp3"), 16))
    run.handover.note("cp2", etcd=answer)
    seen = seen_on_hosts.look(run).seen
    assert seen.members is not None
    assert {each.name for each in seen.members if each.healthy} == {"cp1"}


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_a_run_that_was_killed_at_any_moment_is_ended_by_the_next(tmp_path: Path, change: Change) -> None:
    for world in killed_worlds(HostsOfEtcd, tmp_path, change, MOMENTS):
        # What was asked for once is asked for again, unless it is done: its ID tells.
        world.bring_to(hosts(change.after, change.left), change.replace)
        assert_is_well(world, change.after)


@pytest.mark.parametrize("lost", ["cp2", "cp3"])
@pytest.mark.parametrize("change", CHANGES[1:], ids=lambda change: change.name)
def test_a_run_that_was_killed_is_ended_although_another_member_loses_its_data(
    tmp_path: Path, change: Change, lost: str
) -> None:
    seen = 0
    for world in killed_worlds(HostsOfEtcd, tmp_path, change, MOMENTS):
        voters = [each.name for each in world.etcd.voters() if world.etcd.answers(each.id)]
        if lost in voters and len(voters) - 1 > len(world.etcd.voters()) // 2:
            seen += 1
            world.lose_data(lost)
            world.bring_to(hosts(change.after, change.left), change.replace)
            assert_is_well(world, change.after)
    assert seen


def test_a_change_that_was_killed_may_be_taken_back_and_asked_for_again(tmp_path: Path) -> None:
    """Clients have followed and are back at the members of before, so they follow again before one of these goes."""
    change = Change("members go", names(1, 2, 3, 4, 5), names(1, 2, 3), left=names(4, 5))
    for world in killed_worlds(HostsOfEtcd, tmp_path, change, MOMENTS):
        world.bring_to(hosts(change.before))
        assert_is_well(world, change.before)
        assert not any(each.unused for each in world.state().etcd.members)
        taken = world.bring_to(hosts(change.after, change.left))
        assert taken.index("clients") < taken.index("removed cp5")
        assert_is_well(world, change.after)


# -- before the first change -------------------------------------------------------------------------------------------


def problems(world: HostsOfEtcd, entries: list[dict[str, Any]], **more: Any) -> list[Any]:
    run = world.run(entries, check=True)
    world.ask(run)
    return wanted_on_hosts.problems(run, **{"confirmed": 0, "replace_names": (), **more})


def test_fewer_members_are_asked_for_by_their_number(installed: Installed) -> None:
    world = installed(3)
    (problem,) = problems(world, hosts(names(1)))
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert "etcd_confirm_members=1" in problem.remedy
    assert problems(world, hosts(names(1)), confirmed=1) == []
    assert problems(world, hosts(names(1, 2, 3, 4, 5))) == []


def test_a_change_that_cannot_be_made_is_told_before(installed: Installed) -> None:
    world = installed(3)
    world.etcd.cut("cp2")
    (problem,) = problems(world, hosts(names(1, 2, 3, 4, 5)))
    assert problem.reason is Reason.ETCD_MAJORITY_AT_RISK
    (unknown,) = problems(world, hosts(names(1, 2, 3)), replace_names=["cp9"])
    assert unknown.reason is Reason.INVALID_ARGUMENT


def test_a_member_that_is_to_stay_alone_and_has_lost_its_data_is_told_before(installed: Installed) -> None:
    world = installed(3)
    world.lose_data("cp1")
    (problem,) = problems(world, hosts(names(1)), confirmed=1)
    assert "which is to stay, has lost its data" in problem.what


def test_another_name_of_a_host_is_refused(installed: Installed) -> None:
    world = installed(3)
    entries = [*hosts(names(1, 2)), {"name": "other", "address": "192.0.2.3", "roles": ["etcd", "controlPlane"]}]
    (problem,) = problems(world, entries)
    assert problem.remedy == "call it cp3 again"


def test_members_are_asked_before_wherever_a_run_has_something_to_do(installed: Installed) -> None:
    """What they run then counts, and who is among them; else a run with nothing to do would be as slow."""
    world = installed(3)
    same, other = hosts(names(1, 2, 3)), hosts(names(1, 2, 3), names(4))
    assert not seen_on_hosts.is_due(world.run(same))
    run = world.run(other)
    assert seen_on_hosts.is_due(run)
    assert not seen_on_hosts.members_change(run)
    assert wanted_on_hosts.versions(run) == frozenset()
    world.ask(run)
    assert wanted_on_hosts.versions(run) == {"3.6.14"}
    journal = Journal("install", "me@here", "started", "", "start etcd")
    world.keep(replace(world.state(), journal=journal))
    assert seen_on_hosts.is_due(world.run(same)), "a run came as far as etcd"


def test_the_cluster_is_on_record_and_another_one_is_not_taken_for_it(installed: Installed) -> None:
    world = installed(3)
    world.bring_to(hosts(names(1, 2, 3)))
    assert world.state().etcd.cluster == "c"
    world.etcd.restore_by_hand()
    (problem,) = problems(world, hosts(names(1, 2, 3), names(4)))
    assert "are the cluster dd, and the one of this control plane is c" in problem.what
    with pytest.raises(ProblemsError) as refused:
        world.bring_to(hosts(names(1, 2, 3, 4, 5)))
    assert (world.taken, str(refused.value).count("member remove")) == ([], 0)
    assert world.state().etcd.cluster == "c"


def test_a_learner_of_somebody_else_is_told_before_whatever_the_run_is_about(installed: Installed) -> None:
    world = installed(3)
    other = hosts(names(1, 2, 3), names(4))
    world.etcd.cut("cp2")
    assert problems(world, other) == [], "this may pass, or is of no concern"
    world.etcd.add_stranger("theirs")
    (problem,) = problems(world, other)
    assert problem.reason is Reason.ETCD_MEMBERS_DIFFER


# -- what is rendered meanwhile ----------------------------------------------------------------------------------------


def test_a_host_has_no_member_to_start_until_one_is_added_for_it(installed: Installed) -> None:
    world = installed(1)
    run = world.run(hosts(names(1, 2, 3)))
    unit = units.unit_name(run.instance, ETCD)
    assert unit in [each["name"] for each in run.on_host("cp1").tree([ETCD.name])["units"]]
    assert run.on_host("cp2").tree([ETCD.name])["units"] == []
    members_on_hosts.added(run, "cp2", "abc", {world._id("cp1"): peer_url("cp1"), "abc": peer_url("cp2")})
    (found,) = [each for each in run.on_host("cp2").tree([ETCD.name])["units"] if each["name"] == unit]
    assert found["name"] == unit


# -- one host takes a step ---------------------------------------------------------------------------------------------


def step_on(run: Run, host: str, answer: dict[str, Any], **arguments: Any) -> tuple[Asked, Any]:
    """What a host is asked for a step, and what it answers."""
    asked = Asked(etcd_change.ActionModule, run, host, answer)
    return asked, asked.perform(**{"identity": "", **arguments})


def test_a_member_that_was_added_is_on_record_with_what_it_starts_with(installed: Installed) -> None:
    world = installed(1)
    run, first = world.run(hosts(names(1, 2, 3))), world._id("cp1")
    listed = [
        {"id": first, "name": "cp1", "peer_urls": [peer_url("cp1")], "client_urls": [], "learner": False},
        {"id": "abc", "name": "", "peer_urls": [peer_url("cp2")], "client_urls": [], "learner": True},
    ]
    answer = {"changed": True, "added": "abc", "known": {"cluster_id": "1", "members": listed}}
    asked, _ = step_on(run, "cp1", answer, state="added", member="cp2")
    (request,) = asked.asked
    assert (request["module"], request["state"], request["peer_url"]) == ("_etcd_change", "added", peer_url("cp2"))
    assert request["url"] == "https://192.0.2.1:2379", "of the member that is asked"
    record = run.state.etcd.member("cp2")
    assert record is not None
    assert (record.id, record.initial_cluster) == ("abc", f"cp1={peer_url('cp1')},cp2={peer_url('cp2')}")
    step_on(run, "cp1", {"changed": True, "known": answer["known"]}, state="promoted", member="cp2")
    record = run.state.etcd.member("cp2")
    assert record is not None
    assert record.initial_cluster == ""


def test_what_etcd_cannot_do_yet_is_no_change_and_not_on_record(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1, 2, 3)))
    before = run.state
    _, result = step_on(run, "cp1", {"changed": False, "later": "not yet"}, state="promoted", member="cp2")
    assert result == {"changed": False, "later": "not yet"}
    assert run.state == before


def test_the_unit_of_a_member_that_was_removed_stops_and_it_is_forgotten(installed: Installed) -> None:
    world = installed(3)
    run = world.run(hosts(names(1, 2, 3)))
    asked, _ = step_on(run, "cp3", {"changed": True}, state="stopped", member="cp3")
    (request,) = asked.asked
    assert (request["module"], request["state"]) == ("_host_tree", "stopped")
    assert [each["name"] for each in json.loads(request["tree"])["units"]] == ["karmada-prod-etcd.service"]
    assert [each.name for each in run.state.etcd.members] == names(1, 2)
