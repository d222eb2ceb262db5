# SPDX-License-Identifier: Apache-2.0
"""Estimators as units of plain hosts: each with its ports, user and folder, as long as its member is joined."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.action import host_components
from ansible_collections.karmada.installer.plugins.plugin_utils.components import hosts as component_hosts
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import BY_NAME
from ansible_collections.karmada.installer.plugins.plugin_utils.members import estimators
from ansible_collections.karmada.installer.plugins.plugin_utils.render import units as render
from ansible_collections.karmada.installer.plugins.plugin_utils.run import host_programs
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.plugins.plugin_utils.run.state_on_hosts import Stored
from ansible_collections.karmada.installer.tests.unit.support.agent_hosts import Asked
from ansible_collections.karmada.installer.tests.unit.support.estimators import (
    ON,
    ROW,
    Object,
    entry,
    nothing_of_them,
    pushed,
)
from ansible_collections.karmada.installer.tests.unit.support.runs_on_hosts import (
    HOSTS,
    Runs,
    deployment,
    remembered,
    seen,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER

# -- on plain hosts ----------------------------------------------------------------------------------------------------


def on_hosts(*names: str, on: bool = True) -> Object:
    return deployment(components=ON if on else {}, members=[entry(name) for name in names])


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    found = Runs(tmp_path / "run")
    found.see_all(seen(Stored(4).after(remembered())))
    return found


def tree(run: Run, host: str = "cp2") -> Object:
    return run.on_host(host).tree([ROW])


def test_a_host_has_the_estimators_of_joined_members_each_with_ports_user_and_folder(runs: Runs) -> None:
    run = runs.step(on_hosts("m1", "m2", "m3"))
    assert tree(run)["units"] == [], "nobody is joined yet"
    assert run.place.hand_on_members(run, {"m1": b"1", "m2": b"2"}, ["m1"])
    found = tree(runs.step(on_hosts("m1", "m2", "m3")))
    assert {unit["name"]: (unit["health"]["url"], unit["awaited"]) for unit in found["units"]} == {
        "karmada-prod-scheduler-estimator-m1.service": ("tcp://127.0.0.1:20352", True),
        "karmada-prod-scheduler-estimator-m2.service": ("tcp://127.0.0.1:20355", False),
    }
    assert len({user["name"] for user in found["users"]}) == 2
    files = {file["path"]: file for file in found["files"]}
    config = files["/etc/karmada/prod/karmada-scheduler-estimator-m1/member/member.config"]
    assert (base64.b64decode(config["content"]), config["secret"], config["mode"]) == (b"1", True, 0o640)
    assert tree(runs.step(on_hosts("m1", "m2")), "etcd1")["units"] == []


def test_ports_stay_when_another_member_leaves_and_its_end_comes_to_every_host(runs: Runs) -> None:
    first = runs.step(on_hosts("m1", "m2"))
    first.place.hand_on_members(first, {"m1": b"1", "m2": b"2"}, ["m1", "m2"])
    assert runs.step(on_hosts("m1", "m2")).state.member_places == {"m1": 0, "m2": 1}
    later = runs.step(on_hosts("m2", "m3"))
    later.place.hand_on_members(later, {"m2": b"2", "m3": b"3"}, [])
    found = tree(runs.step(on_hosts("m2", "m3")))
    urls = {unit["name"].split("estimator-")[1]: unit["health"]["url"] for unit in found["units"]}
    assert urls == {"m2.service": "tcp://127.0.0.1:20355", "m3.service": "tcp://127.0.0.1:20358"}
    assert found["absent"]["units"] == [{"name": "karmada-prod-scheduler-estimator-m1.service"}]
    assert found["absent"]["folders"] == ["/etc/karmada/prod/karmada-scheduler-estimator-m1"]
    assert len(found["absent"]["users"]) == 1
    runs.step(on_hosts("m2", "m3")).finish()
    assert runs.step(on_hosts("m2", "m3")).state.member_places == {"m2": 1, "m3": 2}


def left_by(run: Run, member: str, what: str) -> Object:
    """Observation of a host that still has this of the estimator of a member."""
    (row,) = (each for each in component_hosts.all_components(run.instance) if each.name == f"{ROW}-{member}")
    end = render.ended(run.instance, row)
    if what == "folders":
        return {"files": {f"{end['folders'][0]}/member/member.config": "MQ=="}}
    (named,) = end[what]
    of_ours = OWNER if what == "users" else {"owner": OWNER, "description": ""}
    return {"facts": {"architecture": "x86_64", what: {named["name"]: of_ours}}}


@pytest.mark.parametrize("what", ["units", "users", "folders"])
@pytest.mark.parametrize(
    ("answer", "places"),
    [(None, {"m1": 0, "m2": 1}), ({"failed": True}, {"m1": 0, "m2": 1}), ({"changed": True}, {"m2": 1})],
    ids=["left out by a tag", "it has failed", "it has ended there"],
)
def test_a_place_is_kept_until_the_estimator_of_a_member_that_has_left_has_ended_on_every_host(
    answer: Object | None, places: dict[str, int], what: str, runs: Runs
) -> None:
    """Without its place no later run, and no uninstall, would know of the unit, and another would get its ports."""
    runs.see_all(seen(Stored(8).after(remembered(member_places={"m1": 0, "m2": 1}))))
    runs.see(cp2=left_by(runs.step(on_hosts("m2")), "m1", what))
    if answer:
        run = runs.step(on_hosts("m2"))
        run.place.hand_on_members(run, {"m2": b"2"}, [])
        step = Asked(host_components.ActionModule, runs.step(on_hosts("m2")), "cp2", answer)
        step.perform(components=[ROW], state="present", restart=True, wait_for="all", timeout=1)
    assert runs.step(on_hosts("m2")).finish()
    last = runs.step(on_hosts("m2"))
    assert last.state.member_places == places
    units = [unit["name"] for unit in render.skeleton(last.instance)["units"]]
    assert ("karmada-prod-scheduler-estimator-m1.service" in units) is ("m1" in places), "an uninstall goes by these"


def test_a_host_that_has_all_of_it_is_left_alone_and_a_new_token_is_not_missed(runs: Runs) -> None:
    wanted = on_hosts("m1")
    run = runs.step(wanted)
    run.place.hand_on_members(run, {"m1": b"1"}, [])
    for host in (each["name"] for each in HOSTS):
        there = {file["path"]: file["content"] for file in tree(runs.step(wanted), host)["files"]}
        runs.see(**{host: {"files": {path: each for path, each in there.items() if path.startswith("/etc/karmada/")}}})
    assert not runs.step(wanted).place.hand_on_members(runs.step(wanted), {"m1": b"1"}, ["m1"])
    assert runs.step(wanted).place.hand_on_members(runs.step(wanted), {"m1": b"another"}, ["m1"])
    assert runs.step(on_hosts("m1", on=False)).place.hand_on_members(runs.step(on_hosts("m1", on=False)), {}, [])


def test_before_the_control_plane_was_asked_a_host_keeps_what_it_has(runs: Runs) -> None:
    wanted = on_hosts("m1", "m2")
    path = "/etc/karmada/prod/karmada-scheduler-estimator-m2/member/member.config"
    runs.see(cp2={"files": {path: base64.b64encode(b"2").decode()}})
    found = tree(runs.step(wanted))
    assert [unit["name"] for unit in found["units"]] == ["karmada-prod-scheduler-estimator-m2.service"]
    assert found["units"][0]["awaited"] is False
    assert found["absent"]["units"] == []


def test_the_scheduler_of_a_host_asks_the_estimators_of_that_host(runs: Runs) -> None:
    run = runs.step(on_hosts("m1", "m2"))
    addresses = {
        each.member: run.place.estimator_address(run.instance, each) for each in estimators.wanted_estimators(run)
    }
    assert addresses == {"m1": ("localhost", 20352), "m2": ("localhost", 20355)}
    where = render.layout(run.instance, run.hosts["cp2"], estimators.ROW, "")
    assert "localhost" in where.server_names["karmada-scheduler-estimator-m2"].dns


def test_one_program_serves_the_estimators_of_all_members(runs: Runs) -> None:
    run = runs.step(on_hosts("m1", "m2"))
    lacking = [each.row for each in host_programs.missing(run)["cp2"]["amd64"]]
    assert lacking.count(ROW) == 1


def test_an_uninstall_takes_what_members_that_have_left_had_too(runs: Runs) -> None:
    gone = replace(remembered(), member_places={"old": 0})
    runs.see_all(seen(Stored(8).after(gone)))
    units = [unit["name"] for unit in render.skeleton(runs.step(on_hosts("m1")).instance)["units"]]
    assert {unit.split("estimator-")[1] for unit in units if "estimator" in unit} == {"old.service", "m1.service"}


def with_modes(**members: str) -> Object:
    return deployment(components=ON, members=[{**entry(name), "mode": mode} for name, mode in members.items()])


def test_on_hosts_too_a_member_whose_mode_could_not_be_changed_keeps_its_estimator(runs: Runs) -> None:
    runs.see_all(seen(Stored(8).after(remembered(member_places={"m1": 0, "m2": 1}, **pushed("m2")))))
    run = runs.step(with_modes(m1="Push", m2="Pull"))
    run.place.hand_on_members(run, {"m1": b"1", "m2": b"2"}, ["m1"])
    found = tree(runs.step(with_modes(m1="Push", m2="Pull")))
    assert {unit["name"].split("estimator-")[1] for unit in found["units"]} == {"m1.service", "m2.service"}
    assert found["absent"]["units"] == []
    runs.step(with_modes(m1="Push", m2="Pull")).finish()
    assert runs.step(with_modes(m1="Push", m2="Pull")).state.member_places == {"m1": 0, "m2": 1}
    run.place.hand_on_members(run, {"m1": b"1"}, ["m1"])
    gone = tree(runs.step(with_modes(m1="Push", m2="Pull")))["absent"]["units"]
    assert gone == [{"name": "karmada-prod-scheduler-estimator-m2.service"}]


# -- a document without them -------------------------------------------------------------------------------------------


def test_without_them_no_host_is_given_or_rid_of_anything_and_no_state_is_written(runs: Runs) -> None:
    run = runs.step(on_hosts("m1", on=False))
    before = run.store.stored.serial
    assert not run.place.hand_on_members(run, {}, [])
    after = runs.step(on_hosts("m1", on=False))
    assert after.store.stored.serial == before
    for host in after.hosts:
        assert nothing_of_them(after.on_host(host).tree(list(BY_NAME)))
        assert tree(after, host) == render.merged([], OWNER)
    assert nothing_of_them(render.skeleton(after.instance))
    assert not any(each.row == ROW for each in host_programs.missing(after)["cp2"]["amd64"])
