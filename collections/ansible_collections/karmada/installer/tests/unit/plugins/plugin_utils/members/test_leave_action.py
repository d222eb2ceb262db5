# SPDX-License-Identifier: Apache-2.0
"""The action by which members leave: who is asked for first, what is told, and when a member is forgotten."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_leave import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import Claim, TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.members import epoch, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import karmada_in_memory as memory
from ansible_collections.karmada.installer.tests.unit.support.leaving import RECORD, World
from ansible_collections.karmada.installer.tests.unit.support.samples import state


def act(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    check: bool = False,
    selected: tuple[str, ...] = (),
    **arguments: Any,
) -> dict[str, Any]:
    run = world.run(check=check)
    run.selected = selected

    @contextlib.contextmanager
    def writing(_step: str) -> Any:
        yield

    def save(saved: Any, **_: Any) -> None:
        world.state = saved
        run.go_on_with(saved)

    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", save)
    if check:
        monkeypatch.setattr(type(run), "control_plane_exists", True)
    perform: Any = ActionModule.perform
    given = {"stage": "leave", "confirm": "", "abandon": [], "timeout": 5, "on_broken_member": "fail", **arguments}
    result: dict[str, Any] = perform(None, run, given)
    return result


def test_the_member_is_forgotten_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    result = act(world, monkeypatch)
    assert result["changed"] is True
    assert [(each["name"], each["gone"], each["workloads"]) for each in result["members"]] == [("m1", True, "Retain")]
    assert (world.state.members, world.state.owned) == ({}, {})
    world.control_plane.log.clear()
    nothing = {"changed": False, "members": [], "broken_members": [], "now": [], "has_agents_on_hosts": False}
    assert act(world, monkeypatch) == nothing
    assert world.control_plane.log == []


@pytest.mark.parametrize("check", [True, False])
def test_what_stays_on_a_member_is_counted_and_what_its_return_needs_is_said(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    settings = {**memory.application("settings"), "apiVersion": "v1", "kind": "ConfigMap"}
    world.member.put(settings)
    world.control_plane.put(memory.work_for(settings))
    result = act(world, monkeypatch, check=check)
    assert result["members"][0]["stays"] == 3
    assert result["now"] == [
        "m1 would leave; 2 workloads and 1 other object would stay on it"
        if check
        else "m1 has left; 2 workloads and 1 other object stay on it"
    ]
    (hint,) = [line for line in world.said if "conflictResolution: Overwrite" in line]
    assert hint.startswith("hint: member m1: 2 workloads and 1 other object")


def test_nothing_is_said_of_a_return_where_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, on_leave="Delete")
    assert act(world, monkeypatch)["now"] == ["m1 has left"]
    assert not [line for line in world.said if "conflictResolution" in line]


def test_one_that_could_not_leave_is_not_forgotten_and_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.member.dead = True
    result = act(world, monkeypatch)
    assert result["failed"] is True
    assert "1 of 1 members that leave are not gone" in result["msg"]
    assert "left on it: ClusterRole karmada-controller-manager:karmada-m1" in result["msg"]
    assert '"member_leave_abandon": ["m1"]' in result["msg"]
    assert list(world.state.members) == ["m1"]
    told = act(world, monkeypatch, on_broken_member="tell")
    assert "failed" not in told
    assert "it has not left: no answer" in told["broken_members"][0]["problem"]
    assert "left on it: ClusterRole karmada-contr" in told["broken_members"][0]["problem"]
    world.control_plane.reaches = False
    given_up = act(world, monkeypatch, abandon=["m1"])
    assert given_up["members"][0]["gone"] is True
    assert any("left on member m1: " in line for line in world.said)
    assert world.state.members == {}


def test_to_forget_a_member_that_somebody_removed_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.control_plane.objects.clear()
    world.state = state(members=world.state.members)
    world.member.dead = True
    result = act(world, monkeypatch, abandon=["m1"])
    assert (result["changes"], result["changed"]) == ([], True)
    assert world.state.members == {}


@pytest.mark.parametrize("stage", ["confirm", "leave"])
def test_two_at_once_are_asked_for_before_anything_is_done(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.state = state(members={**world.state.members, "m2": RECORD}, owned=world.state.owned)
    with pytest.raises(ProblemsError, match="karmada_confirm_leave=m1,m2"):
        act(world, monkeypatch, stage=stage)
    assert world.control_plane.log == []
    found = act(world, monkeypatch, stage="confirm", confirm="m1,m2")
    assert [each["name"] for each in found["members"]] == ["m1", "m2"]


def test_of_two_the_one_that_was_selected_leaves_and_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.state = state(members={**world.state.members, "m2": RECORD}, owned=world.state.owned)
    assert act(world, monkeypatch, selected=("m3",))["members"] == []
    asked = act(world, monkeypatch, stage="confirm", selected=("m1",))
    assert [each["name"] for each in asked["members"]] == ["m1"]
    left = act(world, monkeypatch, selected=("m1",))
    assert [(each["name"], each["gone"]) for each in left["members"]] == [("m1", True)]
    assert list(world.state.members) == ["m2"]


def test_check_mode_asks_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    result = act(world, monkeypatch, check=True)
    assert "deleted Cluster m1" in result["changes"]
    assert world.control_plane.log == []
    assert list(world.state.members) == ["m1"]


# -- one that a take-over could not reach ------------------------------------------------------------------------------


def unfenced(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The control plane was taken over, and the member, which the document does not list, was out of reach then.

    Returns the UIDs of the tokens by which the place that was left knows it.
    """
    taken = TakeOverState("disk", "b1", "there/prod", fenced=True, unfenced=("m1",))
    world.state = replace(world.state, claim=Claim(1, "aa"), taken_over=taken)
    monkeypatch.setattr(member_join, "connected", lambda *_: memory.to(world.member))
    monkeypatch.setattr(member_join, "_credentials", lambda *_: registration.Credentials("t", "t", b"c"))
    return tokens(world)


def tokens(world: World) -> dict[str, str]:
    names = registration.token_secrets("m1", estimator=True)
    found = {each: world.member.get("v1", "Secret", each, MEMBER_NAMESPACE) for each in names}
    return {name: each["metadata"]["uid"] for name, each in found.items() if each}


def mark(world: World) -> str:
    found = world.member.get(*epoch.account("m1"))
    return str(((found or {"metadata": {}})["metadata"].get("annotations") or {}).get(registration.CLAIM_ANNOTATION))


def still_named(world: World) -> tuple[str, ...]:
    assert world.state.taken_over
    return world.state.taken_over.unfenced


def test_who_leaves_and_was_not_fenced_follows_this_place_before(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    had = unfenced(world, monkeypatch)
    assert had, "there is nothing by which the other place knows it"
    # Its Works do not go, so it cannot leave; but the other place cannot write there from now on.
    world.control_plane.reaches = False
    world.state = replace(world.state, members={"m1": {**world.state.members["m1"], "onLeave": "Delete"}})
    result = act(world, monkeypatch, on_broken_member="tell")
    assert result["members"][0]["gone"] is False
    assert mark(world) == str(Claim(1, "aa"))
    assert not set(tokens(world).values()) & set(had.values())
    assert still_named(world) == ()
    # What was done for that is told with the rest, and on record for its removal.
    assert any("Secret" in each for each in result["members"][0]["changes"])
    assert set(tokens(world).values()) <= set(world.state.owned["member/m1"].values())


def test_who_leaves_and_was_not_fenced_is_gone_in_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    unfenced(world, monkeypatch)
    result = act(world, monkeypatch)
    assert result["members"][0]["gone"] is True
    assert (world.state.members, still_named(world), tokens(world)) == ({}, (), {})


def test_who_does_not_answer_stays_named_until_he_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    had = unfenced(world, monkeypatch)
    world.member.dead = True
    result = act(world, monkeypatch, on_broken_member="tell")
    assert result["members"][0]["gone"] is False
    assert still_named(world) == ("m1",)
    world.control_plane.reaches = False
    asked: list[str] = []
    monkeypatch.setattr(member_join, "connected", lambda _run, entry, *_: asked.append(entry.name))
    assert act(world, monkeypatch, abandon=["m1"])["members"][0]["gone"] is True
    assert asked == [], "who is given up is not asked"
    world.member.dead = False
    assert (still_named(world), tokens(world)) == ((), had)


@pytest.mark.parametrize("how", ["check", "fenced before"])
def test_nobody_else_is_made_to_follow(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    had = unfenced(world, monkeypatch)
    if how == "fenced before":
        assert world.state.taken_over
        world.state = replace(world.state, taken_over=replace(world.state.taken_over, unfenced=()))
    world.control_plane.reaches = False
    world.state = replace(world.state, members={"m1": {**world.state.members["m1"], "onLeave": "Delete"}})
    act(world, monkeypatch, check=how == "check", on_broken_member="tell")
    assert tokens(world) == had
    assert mark(world) != str(Claim(1, "aa"))
