# SPDX-License-Identifier: Apache-2.0
"""Record of a restore as it begins: revisions that clients have seen before, and what was put aside."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup, RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import beginning
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Live
from ansible_collections.karmada.installer.tests.unit.support import samples

NOW = samples.NOW
LEAST = 10**9
#: Revision of the backup that is restored, which was taken an hour ago.
REVISION, AGE = 5_000, timedelta(hours=1)
FORMER = EtcdState("t", 2, bootstrapped=True, storage="volumeClaim", members=(EtcdMemberState("prod-etcd-0"),))
EARLIER = RestoreState(
    *("back", "nightly", "prod-20261124t020000z-1f3a9c", (NOW - timedelta(minutes=30)).isoformat(), "a", 2, 5 * LEAST),
    former=replace(FORMER, generation=1),
    members=("prod-etcd-0",),
    step="Released",
    aside=("gen-1",),
)


def begun(
    earlier: RestoreState | None = None,
    live: int | None = None,
    backups: dict[datetime, int] | None = None,
    name: str = "b",
) -> RestoreState:
    last = {str(at): LastBackup(str(at), at.isoformat(), 1, number, 1) for at, number in (backups or {}).items()}
    state = samples.state(etcd=FORMER, restore=earlier, backups=last)
    at = NOW - AGE
    record = SimpleNamespace(name=name, start=at, started=at.isoformat(), revision=REVISION, cluster_id="c", counts={})
    chosen: Any = SimpleNamespace(
        record=record, wanted=SimpleNamespace(name="again"), series=SimpleNamespace(name="nightly"), known=()
    )
    statuses = [EndpointStatus("u", healthy=True, revision=live)] if live else []
    source: Any = SimpleNamespace(chosen=chosen, live=Live(statuses), since=record.start, survivor="")
    run: Any = SimpleNamespace(state=state, now=NOW)
    return beginning.record(run, source)


def test_without_a_restore_since_its_age_is_enough() -> None:
    assert begun().bump == LEAST
    assert begun(live=REVISION + 7).bump == LEAST + 7
    before = replace(EARLIER, started=(NOW - timedelta(hours=2)).isoformat())
    assert begun(before).bump == LEAST


@pytest.mark.parametrize(
    ("live", "backups"),
    [
        (None, {}),
        (REVISION + 5 * LEAST + 100, {}),
        # Taken by the release; and by nobody since, so that what the restore has added is not in it.
        (None, {NOW - timedelta(minutes=20): REVISION + 5 * LEAST + 50}),
        (None, {NOW - timedelta(minutes=40): REVISION + 40}),
    ],
    ids=["nothing answers", "etcd answers", "a backup since", "a backup before"],
)
def test_what_a_restore_since_the_backup_has_added_is_passed(live: int | None, backups: dict[datetime, int]) -> None:
    """Else a client waits for revisions that have been, and is told nothing."""
    highest = REVISION + 5 * LEAST + 100
    assert REVISION + begun(EARLIER, live, backups).bump > highest


def test_what_a_restore_has_backed_up_itself_is_from_before_it() -> None:
    """It began before that. Its users are led to this backup; here nothing answers, and none was taken since."""
    long = replace(EARLIER, started=(NOW - AGE - timedelta(seconds=9)).isoformat(), before="b", step="PartReleased")
    for earlier in (long, replace(long, revision=REVISION + 5 * LEAST)):
        assert REVISION + begun(earlier).bump > REVISION + 5 * LEAST


def test_by_the_revision_on_record_it_goes_no_further_than_that_needs() -> None:
    noted = replace(EARLIER, revision=3 * LEAST)
    assert begun(noted).revision == 4 * LEAST
    assert begun(noted).revision == REVISION + begun(noted).bump
    # What is restored has it.
    assert begun(replace(EARLIER, revision=REVISION - 1)).bump == LEAST


def test_two_restores_since_are_passed_by_the_backup_between_them() -> None:
    between = {NOW - timedelta(minutes=35): REVISION + 3 * LEAST}
    assert REVISION + begun(EARLIER, None, between).bump > REVISION + 3 * LEAST + EARLIER.bump


def test_upon_a_part_goes_beside_the_data_in_use_and_gives_up_what_was_before_that() -> None:
    part = replace(EARLIER, step="PartReleased", parts={"m1": ()}, aside=())
    found = begun(part)
    assert (found.generation, found.former.generation, found.aside) == (3, 2, ("gen-1",))
    assert (found.held, found.closed, dict(found.parts)) == ((), False, {})
    assert found.former_restore == part
    # One that is given up half way back leads to the same.
    half = replace(found, undoing=True, step="SwitchBack", held=("etcd",), closed=True)
    third = begun(half)
    assert (third.generation, third.former_restore, third.held) == (4, part, ("etcd",))
    assert third.aside == ("gen-1", "gen-3")
    # And what was released in part itself is the one to go back to, not the one before it.
    again = begun(replace(found, step="PartReleased", parts={"m2": ()}, generation=2, former=FORMER))
    assert again.former_restore
    assert again.former_restore.former_restore is None
