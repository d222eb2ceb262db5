# SPDX-License-Identifier: Apache-2.0
"""Hosts of agents never get the state and its keys, and lose units, users and folders with their member."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import (
    host_components,
    journal,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import (
    BOTH,
    CP,
    GATEWAYS,
    NO_FACTS,
    ROW,
    Asked,
    Object,
    access_of,
    after_install,
    deployment,
    entry,
    joined,
    tree,
)
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import Runs, remembered, seen

# -- what it never gets ------------------------------------------------------------------------------------------------


def test_the_state_with_the_keys_of_authorities_is_on_no_host_of_a_member(runs: Runs) -> None:
    run = runs.step(deployment(*BOTH))
    run.place.hand_on_agents(run, access_of("m1", "m2"), more=False)
    assert run.state.authorities, "or nothing is proved"
    for host, sent in (("cp1", ["written"]), ("gw1", []), ("gw2", [])):
        step = Asked(journal.OnHost, runs.step(deployment(*BOTH)), host)
        step.perform(state="written", required=True)
        assert [each["state"] for each in step.asked] == sent, host


@pytest.mark.parametrize(
    ("required", "before", "sent"), [(False, 0, []), (True, 0, ["written"]), (False, 3, ["written"])]
)
def test_a_run_that_ends_before_its_first_change_leaves_no_state(
    required: bool, before: int, sent: list[str], tmp_path: Path
) -> None:
    """Where no host has one: a host that was away is brought up to date all the same."""
    runs = Runs(tmp_path / "first")
    stored = Stored(before).after(after_install()) if before else Stored()
    runs.see(cp1=seen(Stored(), facts=NO_FACTS), cp2=seen(stored, facts=NO_FACTS))
    second = {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]}
    wanted = deployment(hosts=[CP, second], endpoint={"type": "External", "host": "192.0.2.9"})
    run = runs.step(wanted)
    run.save(run.state)
    step = Asked(journal.OnHost, runs.step(wanted), "cp1")
    step.perform(state="written", required=required)
    assert [each["state"] for each in step.asked] == sent


def test_hosts_that_differ_in_the_state_keep_it_and_are_let_go_of(runs: Runs) -> None:
    """That they do was told before; here it is no second error."""
    second = {"name": "cp2", "address": "192.0.2.2", "roles": ["controlPlane"]}
    endpoint = {"type": "External", "host": "192.0.2.9"}
    wanted = deployment(*BOTH, hosts=[CP, second, *GATEWAYS], endpoint=endpoint)
    step = Asked(journal.OnHost, runs.step(wanted), "cp1")
    runs.see(cp2=seen(Stored(4).after(after_install(endpoint_host="x"))))
    for state, sent in (("written", []), ("released", ["released"])):
        step.action.karmada = runs.step(wanted)
        step.perform(state=state, required=False)
        assert [each["state"] for each in step.asked] == sent
    with pytest.raises(ProblemsError, match=r"differ, and .* Find out which of them is right, and remove .*/prod from"):
        step.perform(state="written", required=True)


def test_a_host_of_members_has_no_say_in_the_state(runs: Runs) -> None:
    runs.see(gw1=seen(Stored(98).after(after_install(endpoint_host="x"))), gw2=seen(Stored(98).after(remembered())))
    assert runs.step(deployment(*BOTH)).store.stored.serial == 5


def test_a_host_that_was_one_of_the_control_planes_loses_the_state(runs: Runs) -> None:
    runs.see(gw1=seen(Stored(3).after(remembered()), facts=NO_FACTS))
    step = Asked(journal.OnHost, runs.step(deployment(*BOTH)), "gw1")
    step.perform(state="written", required=True)
    assert [(each["state"], "content" in each) for each in step.asked] == [("absent", False)]


def test_nothing_of_the_control_planes_keys_is_in_what_a_host_gets(runs: Runs) -> None:
    run = joined(runs, *BOTH)
    view = run.on_host("gw1")
    whole = [view.tree(names) for names in ([ROW], list(BY_NAME))]
    content = b"".join(base64.b64decode(file["content"]) for each in whole for file in each["files"])
    assert not re.search(rb"BEGIN [A-Z ]*PRIVATE KEY", content)
    assert {file["path"].rsplit("/", 1)[-1] for each in whole for file in each["files"]} == {
        "control-plane.config",
        "member.config",
        "fetch_identity.py",
        "karmada-prod-agent-m1.service",
        "karmada-prod-agent-m2.service",
    }
    assert view.tree(list(BY_NAME))["units"] == []


def test_a_host_is_on_record_before_anything_is_put_there(runs: Runs) -> None:
    left_with(runs, hosts={"cp1": CP})
    new = {"name": "cp9", "address": "192.0.2.9", "roles": ["controlPlane"]}
    wanted = deployment(*BOTH, hosts=[CP, *GATEWAYS, new], endpoint={"type": "External", "host": "192.0.2.1"})
    run = runs.step(wanted)
    run.place.hand_on_agents(run, access_of("m1", "m2"), more=False)
    assert set(runs.step(wanted).state.hosts) == {"cp1", "gw1", "gw2"}


def test_a_host_without_the_state_is_no_reason_to_write_it(runs: Runs) -> None:
    done = replace(runs.step(deployment(*BOTH)).state, document=deployment(*BOTH))
    runs.see(cp1=seen(Stored(4).after(done)))
    assert not runs.step(deployment(*BOTH)).begin()
    runs.see(cp1={"stored": Stored(3).after(done).plain}, gw1={"stored": Stored(9).after(done).plain})
    assert runs.step(deployment(*BOTH)).begin()


# -- those that end ----------------------------------------------------------------------------------------------------


def gone(run: Run, host: str = "gw1") -> list[str]:
    names = [each["name"] for each in tree(run, host)["absent"]["units"]]
    return [name.split("agent-")[1].removesuffix(".service") for name in names if "-agent-" in name]


def left_with(runs: Runs, **fields: Any) -> None:
    runs.see(cp1=seen(Stored(8).after(after_install(member_places={"m1": 0, "m2": 1}, **fields))))


def test_the_agent_of_one_that_leaves_is_there_until_it_has_left(runs: Runs) -> None:
    record = {"mode": "Pull", "agentHosts": ["gw1"]}
    left_with(runs, members={"m1": record, "m2": record})
    run = joined(runs, BOTH[1], names=("m2",))
    assert gone(run) == []
    run.save(run.state.without_member("m1"))
    assert gone(runs.step(deployment(BOTH[1]))) == ["m1"]


def test_a_host_that_a_member_names_no_more_loses_its_unit(runs: Runs) -> None:
    left_with(runs, members={"m2": {"mode": "Pull", "agentHosts": ["gw1", "gw2"]}})
    moved = (entry("m1", "gw1"), entry("m2", "gw2"))
    run = joined(runs, *moved)
    assert (gone(run, "gw1"), gone(run, "gw2")) == ([], ["m1"]), "joining has not recorded the new host yet"
    run.save(replace(run.state, members={"m2": {"mode": "Pull", "agentHosts": ["gw2"]}}))
    run = joined(runs, *moved)
    assert (gone(run, "gw1"), gone(run, "gw2")) == (["m2"], ["m1"])
    run.save(replace(run.state, members={"m2": {"mode": "Pull"}}))
    back_in_pods = joined(runs, entry("m1", "gw1"), entry("m2"))
    assert (gone(back_in_pods, "gw1"), gone(back_in_pods, "gw2")) == (["m2"], ["m1", "m2"])


def test_the_steps_for_the_control_plane_leave_agents_alone(runs: Runs) -> None:
    left_with(runs, members={})
    found = joined(runs, entry("m2", "gw2")).on_host("gw1").tree(list(BY_NAME))
    assert not any("-agent-" in each["name"] for each in found["absent"]["units"])


@pytest.mark.parametrize(
    ("trouble", "kept"),
    [(None, {"m2": 1}), ({"step": "x", "reason": "lost", "lost": True}, {"m1": 0, "m2": 1})],
    ids=["all is well", "a host is in trouble"],
)
def test_places_are_kept_until_every_host_is_clean(trouble: Object | None, kept: Mapping[str, int], runs: Runs) -> None:
    left_with(runs, members={"m2": {"mode": "Pull", "agentHosts": ["gw2"]}})
    runs.see(gw1={"trouble": trouble})
    run = runs.step(deployment(entry("m2", "gw2", "gw1")))
    assert run.finish()
    assert run.state.member_places == kept


def test_one_that_could_not_leave_keeps_its_place(runs: Runs) -> None:
    left_with(runs, members={"m1": {"mode": "Pull", "agentHosts": ["gw1"]}, "m2": {"mode": "Push"}})
    run = runs.step(deployment())
    assert run.finish()
    assert run.state.member_places == {"m1": 0}


def test_an_uninstall_takes_units_users_and_folders_of_all_agents(runs: Runs) -> None:
    left_with(runs, members={})
    found = render.skeleton(runs.step(deployment(entry("m3", "gw1"))).instance)
    units = {each["name"] for each in found["units"]}
    assert {f"karmada-prod-agent-m{number}.service" for number in (1, 2, 3)} <= units
    assert {f"karmada-prod-agent-m{number}" for number in (1, 2, 3)} <= {each["name"] for each in found["users"]}


def test_hosts_that_cannot_have_anything_of_it_are_not_asked(runs: Runs) -> None:
    joined(runs, *BOTH)
    runs.see(cp1={"facts": NO_FACTS})
    for host, asks in (("cp1", 0), ("gw1", 1)):
        step = Asked(host_components.ActionModule, runs.step(deployment(*BOTH)), host)
        step.perform(components=[ROW], state="present", restart=True, wait_for="none", timeout=1)
        assert len(step.asked) == asks, host
    # An agent that is left as it is, is looked at.
    left_alone = runs.step(deployment(*BOTH))
    left_alone.handover.agents = {}
    step = Asked(host_components.ActionModule, left_alone, "gw1")
    step.perform(components=[ROW], state="present", restart=True, wait_for="none", timeout=1)
    assert [json.loads(each["tree"])["units"] for each in step.asked] == [[]]
    assert not runs.step(deployment(*BOTH)).on_host("cp1").has_agents()
    facts = {**NO_FACTS, "units": {"karmada-prod-agent-m1.service": {"owner": "x", "description": ""}}}
    runs.see(cp1={"facts": facts})
    assert runs.step(deployment(*BOTH)).on_host("cp1").has_agents()
