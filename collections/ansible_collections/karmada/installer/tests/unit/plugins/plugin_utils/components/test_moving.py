# SPDX-License-Identifier: Apache-2.0
"""Records of a move are kept as they are, and say who leads the members; a mark of others is no claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import State, from_files, to_files
from ansible_collections.karmada.installer.plugins.plugin_utils.document import recorded
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.tests.unit.support import samples

LEFT = HandOverState("disk", "2026-11-25T02:41:00+00:00", held=("etcd",), closed=True)
TAKEN = TakeOverState("disk", "prod-20261125t020000z-1f3a9c", "karmada-prod/prod", planned=True)


@pytest.mark.parametrize("claim", [Claim(), Claim(1, "0a1b2c3d"), Claim(12, "ff")])
def test_a_claim_is_read_as_it_was_written(claim: Claim) -> None:
    assert Claim.of(str(claim)) == claim


@pytest.mark.parametrize("text", ["1", ".a", "1.", "x.a", "-1.a", "1.a b", "1" * 10 + ".a", "1." + "a" * 33])
def test_other_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no record of a move"):
        Claim.of(text)


def moved(**fields: object) -> State:
    return replace(samples.state(), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "state",
    [
        moved(handed_over=LEFT),
        moved(handed_over=replace(LEFT, step="HandedOver", backup=TAKEN.backup)),
        moved(claim=Claim(2, "0a1b2c3d"), taken_over=replace(TAKEN, fenced=True, unfenced=("m1", "m2"))),
    ],
)
def test_it_is_stored_as_it_is(state: State) -> None:
    assert recorded.read_state(to_files(state), "here") == replace(state, collection="")


def test_one_that_was_never_moved_has_nothing_of_it() -> None:
    state = from_files(to_files(samples.state()), "here")
    assert (state.claim, state.handed_over, state.taken_over) == (Claim(), None, None)
    assert state.leads_members


@pytest.mark.parametrize(
    "wrong",
    [
        {"taken_over": replace(TAKEN, source="../../etc")},
        {"taken_over": replace(TAKEN, unfenced=("m 1",))},
        {"handed_over": replace(LEFT, series="-e x")},
    ],
)
def test_words_that_nobody_has_written_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ProblemsError, match="does not write"):
        recorded.read_state(to_files(moved(**wrong)), "here")


def test_what_a_hand_over_holds_is_held_and_closed() -> None:
    state = moved(handed_over=LEFT)
    assert state.held == {"etcd"}
    assert state.closed_to_agents


@pytest.mark.parametrize(
    ("fields", "leads"),
    [
        ({}, True),
        ({"handed_over": LEFT}, True),
        ({"handed_over": replace(LEFT, step="HandedOver")}, False),
        ({"handed_over": replace(LEFT, step="HandedOver", undoing=True)}, True),
        ({"taken_over": TAKEN}, False),
        ({"taken_over": replace(TAKEN, fenced=True)}, True),
    ],
)
def test_one_place_leads_the_members(fields: dict[str, object], leads: bool) -> None:
    assert moved(**fields).leads_members is leads
