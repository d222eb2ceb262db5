# SPDX-License-Identifier: Apache-2.0
"""Which backups stay: by what holds for every history."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from ansible_collections.karmada.installer.plugins.plugin_utils.backup.retention import kept, to_delete
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Retention
from hypothesis import given
from hypothesis import strategies as st

DEFAULT = Retention(24, 7, 4)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
HISTORIES = st.lists(st.integers(0, 120 * 24 * 60), unique=True, max_size=150).map(
    lambda minutes: {f"b{each:06}": BEGIN + timedelta(minutes=each) for each in minutes}
)
NUMBERS = st.integers(0, 30)
RETENTIONS = st.builds(Retention, NUMBERS, NUMBERS, NUMBERS)


@given(HISTORIES, RETENTIONS, st.data())
def test_never_the_newest_nor_one_in_use(
    history: dict[str, datetime], retention: Retention, data: st.DataObject
) -> None:
    in_use = data.draw(st.sets(st.sampled_from(sorted(history)))) if history else set()
    gone = set(to_delete(history, retention, in_use))
    assert gone <= set(history)
    assert gone.isdisjoint(in_use)
    if history:
        assert max(history, key=lambda name: history[name]) not in gone


@given(HISTORIES, RETENTIONS)
def test_no_more_than_asked_for(history: dict[str, datetime], retention: Retention) -> None:
    assert len(kept(history, retention)) <= max(1, retention.hourly + retention.daily + retention.weekly)


@given(HISTORIES, RETENTIONS)
def test_what_stays_stays_when_asked_again(history: dict[str, datetime], retention: Retention) -> None:
    stay = kept(history, retention)
    assert kept({name: history[name] for name in stay}, retention) == stay


@given(HISTORIES, RETENTIONS)
def test_deleting_after_each_success_is_the_same_as_once_at_the_end(
    history: dict[str, datetime], retention: Retention
) -> None:
    there: dict[str, datetime] = {}
    for name, start in sorted(history.items()):
        there[name] = start
        for gone in to_delete(there, retention):
            del there[gone]
    assert set(there) == kept(history, retention)


@given(HISTORIES)
def test_each_of_the_last_days_and_weeks_with_a_backup_keeps_one(history: dict[str, datetime]) -> None:
    stay = [history[name] for name in kept(history, DEFAULT)]
    days = sorted({each.date() for each in history.values()}, reverse=True)[:7]
    weeks = sorted({each.isocalendar()[:2] for each in history.values()}, reverse=True)[:4]
    hours = sorted({each.replace(minute=0) for each in history.values()}, reverse=True)[:24]
    assert set(days) <= {each.date() for each in stay}
    assert set(weeks) <= {each.isocalendar()[:2] for each in stay}
    assert set(hours) <= {each.replace(minute=0) for each in stay}


def test_the_oldest_go_first() -> None:
    history = {f"b{each}": BEGIN + timedelta(minutes=each) for each in range(5)}
    assert to_delete(history, Retention(0, 0, 0)) == ["b0", "b1", "b2", "b3"]


def test_thirty_days_of_failing_backups_keep_the_newest_verified() -> None:
    """Each hour a backup is tried, nine of ten fail, and what fails is never in the list."""
    chance = random.Random(21)
    there: dict[str, datetime] = {}
    newest = ""
    for hour in range(30 * 24):
        if chance.random() < 0.1:
            newest = f"b{hour:04}"
            there[newest] = BEGIN + timedelta(hours=hour)
            for gone in to_delete(there, DEFAULT):
                del there[gone]
        if newest:
            assert newest in there
            assert len(there) <= 35
    # a third week without any changes nothing
    assert to_delete(there, DEFAULT) == []
