# SPDX-License-Identifier: Apache-2.0
"""Decisions after edits in the course of a run: the next one begins when the document is still."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from karmada_operator import reconcile
from karmada_operator.actions import Start, Wait
from karmada_operator.executor import Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Seen
from karmada_operator.reconcile import LONGEST_STILL, STILL, Memory, decide, ended, noticed, order_of, started

from operator_tests.test_reconcile import PERIOD, SEEN, after


def edited_during(outcome: Outcome = Outcome.SUCCEEDED, at: float = 9.5, **more: Any) -> Memory:
    """Memory after a run from 0 to 10 s for generation 1, whose document was edited to generation 2 meanwhile."""
    running = started(noticed(Memory(), SEEN, 0.0), order_of(SEEN))
    running = noticed(running, replace(SEEN, generation=2), at)
    return ended(running, outcome, 10.0, period=PERIOD, chance=0.0, **more)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
def test_after_an_edit_during_a_run_the_document_has_to_be_still(outcome: Outcome) -> None:
    edited, memory = replace(SEEN, generation=2), edited_during(outcome)
    assert isinstance(decide(SEEN, after(SEEN), 1.0), Wait)
    found = decide(edited, memory, 10.0)
    assert isinstance(found, Wait)
    assert (found.reason, found.until) == ("BeingEdited", 9.5 + STILL)
    assert isinstance(decide(edited, memory, 9.5 + STILL), Start)
    # Another edit begins that anew, whether or not it is on record yet.
    again = replace(SEEN, generation=3)
    assert decide(again, memory, 11.0).until == 11.0 + STILL  # type: ignore[union-attr]
    assert decide(again, noticed(memory, again, 11.0), 11.5).until == 11.0 + STILL  # type: ignore[union-attr]
    # Who edits without an end does not keep it from beginning.
    restless = noticed(memory, again, 10.0 + LONGEST_STILL - 0.1)
    assert isinstance(decide(again, restless, 10.0 + LONGEST_STILL - 0.05), Wait)
    assert isinstance(decide(again, restless, 10.0 + LONGEST_STILL), Start)


def test_nothing_but_edits_of_the_document_waits_until_it_is_still() -> None:
    edited = replace(SEEN, generation=2)
    assert isinstance(decide(edited, edited_during(at=7.0), 10.0), Start), "it has been still"
    rest = noticed(noticed(Memory(), SEEN, 0.0), edited, 50.0)
    assert isinstance(decide(edited, rest, 50.0), Start), "nothing was under way"
    done = ended(started(noticed(Memory(), SEEN, 0.0), order_of(SEEN)), Outcome.SUCCEEDED, 10.0, period=9, chance=0)
    assert isinstance(decide(edited, noticed(done, edited, 10.1), 10.1), Start), "it was edited after the run"
    going = replace(edited, deleting=True)
    assert isinstance(decide(going, edited_during(Outcome.CANCELLED), 10.0), Start)
    other = replace(edited, uid="u2")
    assert isinstance(decide(other, edited_during(Outcome.CANCELLED), 10.0), Start)
    # The next run is for what there is now, and its end is no news of the edits before it.
    memory = started(edited_during(), order_of(edited))
    assert ended(memory, Outcome.CANCELLED, 20.0, period=PERIOD, chance=0.0).overtaken_at is None


def test_a_run_may_find_an_edit_before_the_watch_tells_it() -> None:
    running = started(noticed(Memory(), SEEN, 0.0), order_of(SEEN))
    changed = frozenset({Reason.DOCUMENT_CHANGED})
    memory = ended(running, Outcome.CANCELLED, 10.0, period=PERIOD, chance=0.0, reasons=changed)
    assert decide(SEEN, memory, 10.0).until == 10.0 + STILL  # type: ignore[union-attr]
    assert isinstance(decide(SEEN, memory, 10.0 + STILL), Start), "it was made anew, or edited back"


@pytest.mark.parametrize("during", [True, False])
@pytest.mark.parametrize("still", [STILL, 0.0])
def test_ten_edits_in_a_row_take_two_runs(still: float, during: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run reads the document after 1.4 s, and ends if it is another one then; else it takes 9 s."""
    monkeypatch.setattr(reconcile, "STILL", still)
    edits = [1.5 + 1.2 * number for number in range(10)]
    memory, runs, now = noticed(Memory(), SEEN, 0.0), 0, 0.0 if during else edits[0]

    def at(moment: float) -> Seen:
        return replace(SEEN, generation=1 + sum(each <= moment for each in edits))

    while now < 60.0:
        memory = noticed(memory, at(now), now)
        action = decide(at(now), memory, now)
        if isinstance(action, Wait):
            if action.reason == "Idle":
                break
            assert action.until is not None
            now = min([each for each in edits if each > now] + [action.until])
            continue
        assert isinstance(action, Start)
        runs, memory = runs + 1, started(memory, action.order)
        overtaken = at(now + 1.4) != at(now)
        end = now + (1.4 if overtaken else 9.0)
        for each in edits:
            if now < each <= end:
                memory = noticed(memory, at(each), each)
        found = frozenset({Reason.DOCUMENT_CHANGED}) if overtaken else frozenset[Reason]()
        outcome, now = Outcome.CANCELLED if overtaken else Outcome.SUCCEEDED, end
        memory = ended(memory, outcome, now, period=PERIOD, chance=0.0, reasons=found)
    assert memory.done == order_of(at(60.0))
    assert (runs == 2) if still else (runs >= 4), "two, and many where none waits"


def test_what_follows_a_cancelled_run_is_not_told_as_new() -> None:
    cancelled = ended(started(Memory(), order_of(SEEN)), Outcome.CANCELLED, 0.0, period=PERIOD, chance=0.0)
    edited = replace(SEEN, generation=2)
    assert decide(edited, cancelled, 0.0) == Start(order_of(edited), Lane.CHANGES, "the last run was cancelled")
