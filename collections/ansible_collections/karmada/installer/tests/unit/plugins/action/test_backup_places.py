# SPDX-License-Identifier: Apache-2.0
"""Backups of a control plane that has come to another place, beside those of the place that was left."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.backup_series import NOW, document, names, perform, run_of

#: The place to which a control plane has moved with a backup of 02:00, while the other one was lost.
CAME = TakeOverState("nightly", "prod-20261125t020000z-1f3a9c", "karmada/prod", fenced=True, epoch=1)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return run_of(tmp_path, monkeypatch)


def test_the_place_that_was_left_neither_backs_up_beside_the_new_one_nor_deletes_its_backups(
    run: Run, tmp_path: Path
) -> None:
    there = run.state
    here = replace(there, claim=Claim(1, "ab"), taken_over=CAME)
    run.go_on_with(here)
    perform(run)
    (newest,) = names(tmp_path)
    # It comes back, and so does its timer; and somebody asks it for one within the same hour.
    run.go_on_with(there)
    for minutes, more in ((10, {"now": "nightly"}), (35, {})):
        run.now = NOW + timedelta(minutes=minutes)
        with pytest.raises(ProblemsError, match="move number 1") as refused:
            perform(run, **more)
        assert refused.value.problems[0].reason is Reason.MOVED
    assert names(tmp_path) == [newest]
    run.go_on_with(here)
    run.now = NOW + timedelta(minutes=40)
    assert perform(run)["changed"]
    assert newest in names(tmp_path)


def test_what_the_other_place_took_before_it_could_know_meets_no_schedule_and_keeps_nothing(
    run: Run, tmp_path: Path
) -> None:
    there, here = run.state, replace(run.state, claim=Claim(1, "ab"), taken_over=CAME)
    for hour in (1, 11):
        # Of before the move, and of the lost place, which went on.
        run.now = NOW.replace(hour=hour, minute=0)
        run.go_on_with(there)
        perform(run)
    before, other = names(tmp_path)
    run.now = NOW.replace(hour=11, minute=30)
    run.go_on_with(here)
    done = perform(run)
    assert done["changed"], "that of the other place is none of its own"
    (status,) = [each["status"] for each in done["backups"]]
    assert status["count"] == 2
    assert status["newest"]["name"] not in (before, other)
    own = series.own(series.found(series.opened(run, wanted(run)), series.signer(run)), "nightly", run.state)
    assert before in own
    assert other not in own


def test_a_backup_of_this_place_from_before_its_claim_was_raised_stays_its_own(run: Run, tmp_path: Path) -> None:
    """A hand-over that was taken back has raised it."""
    for state in (
        replace(run.state, claim=Claim(1, "ab"), taken_over=CAME),
        replace(run.state, claim=Claim(1, "ab"), taken_over=replace(CAME, epoch=0)),
        replace(run.state),
    ):
        run.go_on_with(state)
        run.now += timedelta(hours=1)
        (made,) = perform(run)["changes"]
        run.go_on_with(replace(state, claim=state.claim.raised("cd")))
        assert made.split()[-1] in series.own(
            series.found(series.opened(run, wanted(run)), series.signer(run)), "nightly", run.state
        )
        for each in names(tmp_path):
            shutil.rmtree(tmp_path / "backups" / "prod" / each)


def test_a_place_that_was_handed_over_and_is_started_by_hand_takes_none(run: Run) -> None:
    run.go_on_with(replace(run.state, handed_over=HandOverState("nightly", "t", "HandedOver", "b1")))
    with pytest.raises(ProblemsError, match="was handed over"):
        perform(run)


def wanted(run: Run) -> Wanted:
    (found,) = series.wanted(run, backups.resolved((document(),), run.deployment))
    return found
