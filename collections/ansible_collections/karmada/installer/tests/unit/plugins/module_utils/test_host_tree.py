# SPDX-License-Identifier: Apache-2.0
"""What a host does with a tree: change the difference, restart what runs with something older, leave the rest alone."""

from __future__ import annotations

import pytest
from ansible_collections.karmada.installer.plugins.module_utils import host_tree
from ansible_collections.karmada.installer.plugins.module_utils.host_system import HostError
from ansible_collections.karmada.installer.plugins.modules import _host_tree as host_tree_module
from ansible_collections.karmada.installer.tests.unit.support.host_tree import FOLDER, UNIT, USER, Host, said, tree


def test_an_empty_host_becomes_what_the_tree_says_and_a_second_time_nothing_happens(host: Host) -> None:
    first = said(host_tree.converge(host, tree(config="a")))
    assert first == [
        f"create user {USER}",
        "create directory /etc/karmada",
        "create directory /etc/karmada/prod",
        f"create directory {FOLDER}",
        f"create {FOLDER}/config",
        f"create /etc/systemd/system/{UNIT}",
        f"enable {UNIT}",
        f"start {UNIT}",
    ]
    assert host.path(f"{FOLDER}/config").read_text() == "a"
    assert host.path(FOLDER).stat().st_mode & 0o777 == 0o700
    host.commands.clear()
    assert host_tree.converge(host, tree(config="a")) == []
    assert [command.split()[1] for command in host.commands] == ["show"]


def test_check_mode_says_the_same_and_does_nothing(host: Host) -> None:
    told = said(host_tree.converge(host, tree(config="a"), check=True))
    assert not host.path("/etc/karmada").exists()
    assert host.commands == []
    done = said(host_tree.converge(host, tree(config="a")))
    assert [each for each in done if not each.startswith("enable")] == told
    assert said(host_tree.converge(host, tree("bbb", config="b"), check=True)) == [
        f"change {FOLDER}/config",
        f"change /etc/systemd/system/{UNIT}",
        f"restart {UNIT}",
    ]
    assert host.path(f"{FOLDER}/config").read_text() == "a"


def test_a_changed_file_restarts_the_unit_that_reads_it(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    assert said(host_tree.converge(host, tree("bbb", config="b"))) == [
        f"change {FOLDER}/config",
        f"change /etc/systemd/system/{UNIT}",
        f"restart {UNIT}",
    ]
    assert host.running[UNIT] == "bbb"


def test_what_was_started_just_now_is_not_old_although_its_process_is_systemd_s_for_a_moment(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    host.running[UNIT] = ""
    assert host_tree.outdated(host, tree("aaa", config="a")) == [UNIT]
    assert host_tree.outdated(host, tree("aaa", config="a"), started=[UNIT]) == []


def test_a_run_killed_between_writing_and_restarting_is_made_up_for(host: Host) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    changed = tree("bbb", config="b")
    host_tree._files(host, changed, False)  # and then the power went
    assert said(host_tree.converge(host, changed)) == [f"restart {UNIT}"]
    assert host.running[UNIT] == "bbb"


def test_a_unit_that_was_stopped_or_disabled_by_hand_comes_back(host: Host) -> None:
    host_tree.converge(host, tree())
    host.running.clear()
    host.enabled.clear()
    assert said(host_tree.converge(host, tree())) == [f"enable {UNIT}", f"start {UNIT}"]


def test_what_the_tree_no_longer_names_goes_from_its_folders_and_from_nowhere_else(host: Host) -> None:
    host_tree.converge(host, tree(config="a", old="o"))
    elsewhere = host.path("/etc/karmada/prod/notes")
    elsewhere.write_text("mine")
    half = host.path(f"{FOLDER}/.config.x1y2")
    half.write_text("half a file of a run that was killed")
    assert sorted(said(host_tree.converge(host, tree(config="a")))) == [
        f"remove {FOLDER}/.config.x1y2",
        f"remove {FOLDER}/old",
    ]
    assert elsewhere.exists()


def test_data_is_never_surplus(host: Host) -> None:
    wanted = tree(config="a")
    wanted["directories"].append({"path": f"{FOLDER}/data", "user": "root", "mode": 0o700})
    wanted["folders"].append(f"{FOLDER}/data")
    wanted["data_folders"] = [f"{FOLDER}/data"]
    host_tree.converge(host, wanted)
    host.path(f"{FOLDER}/data/db").write_text("rows")
    wanted["folders"] = [f"{FOLDER}/data"]
    assert host_tree.converge(host, wanted) == []


def test_rights_that_were_loosened_are_mended(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    host.path(f"{FOLDER}/config").chmod(0o644)
    assert said(host_tree.converge(host, tree(config="a"))) == [f"set owner and mode of {FOLDER}/config"]
    assert host.path(f"{FOLDER}/config").stat().st_mode & 0o777 == 0o600


def test_a_secret_is_not_in_the_diff(host: Host) -> None:
    changes = host_tree.converge(host, tree(key="very secret", config="plain"))
    shown = " ".join(change.before + change.after for change in changes)
    assert "very secret" not in shown
    assert "plain" in shown


@pytest.mark.parametrize("check", [True, False])
def test_a_foreign_unit_or_user_of_the_same_name_is_refused_before_anything_is_changed(host: Host, check: bool) -> None:
    host.unit_file(UNIT).write_text("[Service]\nExecStart=/bin/somebody-elses\n")
    host.users[USER] = "somebody else"
    with pytest.raises(HostError, match=r"unit .* is not of this control plane; user .* is not of this control plane"):
        host_tree.converge(host, tree(config="a"), check=check)
    assert not host.path("/etc/karmada").exists()


def test_removing_takes_units_folders_and_users_of_the_owner_only(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    other = "karmada-other-scheduler.service"
    host.unit_file(other).write_text("[Unit]\nX-KarmadaOwner=somebody-else\n")
    wanted = tree(config="a")
    wanted["units"].append({"name": other, "hash": "", "health": None})
    assert said(host_tree.remove(host, wanted)) == [f"remove unit {UNIT}", f"remove {FOLDER}", f"remove user {USER}"]
    assert host.unit_file(other).exists()
    assert not host.unit_file(UNIT).exists()
    assert UNIT not in host.running
    assert USER not in host.users
    assert host_tree.remove(host, wanted) == []


def test_halves_of_units_of_a_host_that_lost_power_go_and_nothing_else_beside_them(host: Host) -> None:
    half, strange = (host.unit_file(f".{name}.a1b2c3") for name in (UNIT, "karmada-other-scheduler.service"))
    for step in (host_tree.converge, host_tree.remove):
        half.touch()
        strange.touch()
        assert f"remove /etc/systemd/system/.{UNIT}.a1b2c3" in said(step(host, tree()))
        assert not half.exists()
        assert strange.exists()


def test_a_full_disk_is_told_with_the_file_and_the_one_before_stays(host: Host, request: pytest.FixtureRequest) -> None:
    host_tree.converge(host, tree("aaa", config="a"))
    request.getfixturevalue("full_disk")
    with pytest.raises(HostError, match=f"{FOLDER}/config cannot be written: No space left on device"):
        host_tree.converge(host, tree("bbb", config="b"))
    assert [path.name for path in host.path(FOLDER).iterdir()] == ["config"]
    assert host.path(f"{FOLDER}/config").read_text() == "a"


# -- what is to be there no more -------------------------------------------------------------------------------------


def test_a_role_that_a_host_loses_takes_units_users_and_files_along(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    nothing = {**tree(), **{part: [] for part in ("users", "directories", "files", "folders", "units")}}
    ended = {**nothing, "absent": {"units": [{"name": UNIT}], "folders": [FOLDER], "users": [{"name": USER}]}}
    expected = ["remove unit " + UNIT, "remove " + FOLDER, "remove user " + USER]
    assert said(host_tree.converge(host, ended, check=True)) == expected
    assert USER in host.users
    assert said(host_tree.converge(host, ended)) == expected
    assert (USER in host.users, host.path(FOLDER).exists(), host.unit_file(UNIT).exists()) == (False, False, False)
    assert host_tree.converge(host, ended) == []


def test_folders_go_with_those_that_hold_nothing_else(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    whole = {**tree(), "folders": [FOLDER, "/etc/karmada/prod"]}
    assert "remove /etc/karmada/prod" in said(host_tree.remove(host, whole))
    assert not host.path("/etc/karmada").exists()


def test_a_folder_that_went_before_holds_no_other_one(host: Host) -> None:
    host_tree.converge(host, tree(config="a"))
    host_tree.remove(host, tree(config="a"))
    assert host.path("/etc/karmada").exists()
    whole = {**tree(), "folders": ["/etc/karmada/prod"]}
    assert host_tree.remove(host, whole, check=True) == []
    assert host.path("/etc/karmada").exists()
    assert host_tree.remove(host, whole) == []
    assert not host.path("/etc/karmada").exists()


def test_what_somebody_else_has_under_that_name_stays(host: Host) -> None:
    host.users[USER] = "of somebody else"
    ended = {**tree(), **{part: [] for part in ("users", "directories", "files", "folders", "units")}}
    assert host_tree.converge(host, {**ended, "absent": {"units": [], "folders": [], "users": [{"name": USER}]}}) == []
    assert USER in host.users


def test_a_diff_tells_of_what_has_no_lines_in_words() -> None:
    assert host_tree_module._diff(host_tree.Change("remove unit a.service")) == {"prepared": "remove unit a.service\n"}
    shown = host_tree_module._diff(host_tree.Change("change /etc/a", "1\n", "2\n"))
    assert (shown["before_header"], shown["before"], shown["after"]) == ("change /etc/a", "1\n", "2\n")
