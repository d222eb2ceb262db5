# SPDX-License-Identifier: Apache-2.0
"""Who chooses members of a run, and what a run with some of them leaves alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import Spec
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection as selected_members

HOSTVARS = {name: {"karmada_member_name": name.removeprefix("member_")} for name in ("m1", "m2", "member_cp1")}
LIMITED = {"ansible_limit": "x", "groups": {"karmada_members": [*HOSTVARS]}, "hostvars": HOSTVARS}


def play(*hosts: str) -> dict[str, Any]:
    return {**LIMITED, "ansible_play_hosts_all": [*hosts]}


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, ()),
        ({"karmada_members": ""}, ()),
        ({"karmada_members": []}, ()),
        ({"karmada_members": " m2,m1 ,,m2"}, ("m1", "m2")),
        ({"karmada_members": ["m2", "m1"]}, ("m1", "m2")),
        (play("karmada_control"), ()),
        (play("karmada_control", "m2"), ("m2",)),
        (play("m2", "member_cp1"), ("cp1", "m2")),
        ({**play("m2"), "karmada_members": "m1"}, ("m1",)),
        ({**play("m2"), "karmada_members": ""}, ("m2",)),
        ({key: value for key, value in play("m2").items() if key != "ansible_limit"}, ()),
    ],
)
def test_names_come_before_a_limit_and_neither_means_all(variables: dict[str, Any], names: tuple[str, ...]) -> None:
    assert selected_members.of_variables(variables) == names


def of_run(selected: tuple[str, ...], listed: tuple[str, ...] = ("m1", "m2"), recorded: tuple[str, ...] = ()) -> Any:
    spec = Spec({"members": [{"name": name} for name in listed]})
    return SimpleNamespace(selected=selected, spec=spec, state=SimpleNamespace(members={key: {} for key in recorded}))


def test_only_those_that_are_selected_are_worked_on() -> None:
    assert [entry.name for entry in selected_members.entries(of_run(()))] == ["m1", "m2"]
    assert [entry.name for entry in selected_members.entries(of_run(("m2", "m3")))] == ["m2"]
    assert selected_members.holds(of_run(("m3",)), "m3")
    assert not selected_members.holds(of_run(("m3",)), "m1")


def test_a_name_that_nobody_has_is_told_with_those_that_there_are() -> None:
    (problem,) = selected_members.problems(of_run(("m1", "m3", "n"), recorded=("m3",)), tuple)
    assert problem.what == "there is no member n in the document, and none that would leave"
    assert problem.where == "karmada_members"
    assert problem.remedy == "name some of these: m1, m2"
    assert not [*selected_members.problems(of_run(("m3",), recorded=("m3",)), tuple)]
    assert not [*selected_members.problems(of_run(()), tuple)]


def test_of_many_names_a_few_are_told() -> None:
    (problem,) = selected_members.problems(of_run(("n",), tuple(f"m{number}" for number in range(25))), tuple)
    assert problem.remedy.endswith("m18, m19, and 5 more")
    (problem,) = selected_members.problems(of_run(("n",), ()), tuple)
    assert problem.remedy == "leave it out"


def test_a_limit_to_all_members_may_hold_clusters_of_others() -> None:
    assert not [*selected_members.problems(of_run(("m1", "theirs")), lambda: ("m1", "theirs"))]
