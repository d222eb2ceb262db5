# SPDX-License-Identifier: Apache-2.0
"""A member follows the place with the highest claim; tokens of another one go before the mark is raised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.api_object import Object
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.objects import Ref
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup, epoch, join, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER

FIRST, MINE, OTHER = Claim(), Claim(1, "aa"), Claim(1, "bb")


def on_member(claim: Claim, owner: str = OWNER) -> list[Object]:
    return registration.objects_on_member("m1", owner, "there/prod", estimator=True, claim=str(claim))


def account(claim: Claim, owner: str = OWNER) -> Object:
    return next(each for each in on_member(claim, owner) if each["metadata"]["name"] == "karmada-m1")


def state(claim: Claim, **fields: Any) -> State:
    return replace(samples.state(), claim=claim, **fields)


def test_only_the_account_of_the_control_plane_has_the_mark_and_only_after_a_move() -> None:
    marked = [
        (each["kind"], each["metadata"]["name"])
        for each in on_member(MINE)
        if registration.CLAIM_ANNOTATION in (each["metadata"].get("annotations") or {})
    ]
    assert marked == [("ServiceAccount", "karmada-m1")]
    assert registration.CLAIM_ANNOTATION not in str(on_member(FIRST))


@pytest.mark.parametrize(
    ("ours", "there", "refused"),
    [
        (FIRST, FIRST, False),
        (MINE, FIRST, False),
        (MINE, MINE, False),
        (Claim(2, "cc"), MINE, False),
        (FIRST, MINE, True),
        (MINE, Claim(2, "cc"), True),
        # Two places took over at once: whoever came second is the one that stops.
        (MINE, OTHER, True),
        (OTHER, MINE, True),
    ],
)
def test_the_highest_claim_counts(ours: Claim, there: Claim, refused: bool) -> None:
    found = epoch.problem(state(ours), "m1", account(there))
    assert bool(found) is refused
    if found:
        assert found.reason is Reason.MOVED
        assert "there/prod" in found.what


def test_the_account_of_another_control_plane_is_no_concern_of_this_one() -> None:
    assert epoch.problem(state(FIRST), "m1", account(MINE, owner="0" * 8 + "-0000-0000-0000-" + "0" * 12)) is None


def test_a_mark_that_nobody_of_us_writes_is_told() -> None:
    strange = account(MINE)
    strange["metadata"]["annotations"][registration.CLAIM_ANNOTATION] = "mine!"
    found = epoch.problem(state(FIRST), "m1", strange)
    assert found is not None
    assert "not what this collection writes" in found.what


def deleted(ours: Claim, there: Claim) -> set[str]:
    member = FakeCluster("member m1", *on_member(there))
    return {ref.name for step in epoch.fence(state(ours), "m1", member) for ref, _uid in step.delete}


def test_tokens_of_the_other_place_go_before_the_mark_is_raised() -> None:
    tokens = {"karmada-m1", registration.IMPERSONATOR, "karmada-m1.scheduler-estimator"}
    assert deleted(MINE, FIRST) == tokens
    assert deleted(Claim(2, "cc"), MINE) == tokens


def test_with_the_mark_there_tokens_stay() -> None:
    assert deleted(MINE, MINE) == set()
    assert deleted(FIRST, FIRST) == set()
    assert list(epoch.fence(state(MINE), "m1", FakeCluster("member m1"))) == []


def test_nothing_is_written_where_another_place_is_followed() -> None:
    member = FakeCluster("member m1", *on_member(OTHER))
    with pytest.raises(ProblemsError, match="follows the control plane at another place"):
        list(epoch.fence(state(MINE), "m1", member))


def test_a_token_that_was_made_anew_is_on_record_with_its_new_uid() -> None:
    secret = Ref("v1", "Secret", "karmada-m1", MEMBER_NAMESPACE)
    entry = samples.spec_of({"members": [{"name": "m1", "secretRef": {"name": "m1"}}]}).member_by_name["m1"]
    old, new = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
    before = samples.state().with_owned("member/m1", {str(secret): old})
    gone, made = join.Change(secret, "deleted", old), join.Change(secret, "created", new)
    assert join.recorded(before, entry, [gone, made]).owned["member/m1"] == {str(secret): new}
    assert join.recorded(before, entry, [gone]).owned["member/m1"] == {}


def test_members_that_were_reached_are_not_named_any_more() -> None:
    taken = TakeOverState("disk", "b1", "there/prod", fenced=True, unfenced=("m1", "m2"))
    after = epoch.settled(state(MINE, taken_over=taken), ["m2", "m3"])
    assert after.taken_over is not None
    assert after.taken_over.unfenced == ("m1",)
    assert epoch.settled(samples.state(), ["m1"]) == samples.state()


def test_an_uninstall_of_a_place_that_was_left_cleans_no_member() -> None:
    known = {"m1": {"mode": "Push", "secretRef": {"name": "m1"}, "onLeave": "Retain"}}
    left = HandOverState("disk", "now", step="HandedOver", backup="b1")
    for stored, found in ((state(FIRST, members=known), 1), (state(FIRST, members=known, handed_over=left), 0)):
        run = fake_run(samples.document(), FakeCluster("host cluster"), stored=stored)
        assert len(cleanup.member_entries(run)) == found
