# SPDX-License-Identifier: Apache-2.0
"""Revisions over restores and moves of any kind, in any order: each one begins above all that a client has seen.

A client that watches from a revision which etcd has not come to yet waits, and is told nothing until then.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import Record
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup, RestoreState, State
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import beginning, new_data
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Chosen, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.source import Source
from ansible_collections.karmada.installer.tests.unit.support import samples
from hypothesis import given
from hypothesis import strategies as st

LEAST = new_data.LEAST_BUMP
HOUR, DAY = 3600, 86400
#: What a busy etcd writes of what is allowed for in each second.
BUSY = 0.99


class History:
    """A control plane with its etcd, the state of its place, and one target of backups, which goes along."""

    def __init__(self) -> None:
        self.now = samples.NOW
        self.revision = self.seen = 100
        self.cluster = "c0"
        self.state: State = samples.state(etcd=EtcdState("t", 1, bootstrapped=True))
        self.target: list[Record] = []
        self.keys: dict[str, State] = {}
        self.back_up()

    @property
    def run(self) -> Any:
        return SimpleNamespace(state=self.state, now=self.now)

    def write(self, seconds: int, share: float = BUSY) -> None:
        """So many seconds pass, while etcd writes this share of what it never does."""
        self.now += timedelta(seconds=seconds)
        self.revision += int(seconds * new_data.BUMP_PER_SECOND * share)
        self.seen = max(self.seen, self.revision)

    def back_up(self) -> Record:
        none: Any = None
        name, started = f"prod-{len(self.target)}", self.now.isoformat()
        made = Record(
            *(name, "nightly", "prod", "karmada", self.state.owner, "requested", started, 1, {}, self.cluster),
            *(self.revision, 1, 1, none, (), ()),
        )
        self.target.append(made)
        self.keys[name] = self.state
        last = LastBackup(name, started, 1, self.revision, 1)
        self.state = replace(self.state, backups={"nightly": last})
        return made

    def chosen(self, index: int) -> Chosen:
        named: Any = SimpleNamespace(name="nightly")
        return Chosen(named, named, named, self.target[index % len(self.target)], tuple(self.target))

    def statuses(self, revision: int) -> list[EndpointStatus]:
        return [EndpointStatus("u", healthy=True, revision=revision, cluster_id=self.cluster)]

    def restore(self, index: int = 0, *, answers: bool = True, end: str = "released") -> None:
        """A restore of one of the backups, while etcd answers or not, with two hours of quarantine."""
        chosen, live = self.chosen(index), Live(self.statuses(self.revision) if answers else [])
        source = Source(chosen, Asked(), live, [], chosen.record.start)
        self._begin(beginning.record(self.run, source), chosen)
        if answers:
            self.write(60)
            self.back_up()
        restore, former = self._of_state, (self.revision, self.cluster)
        self._switch(restore)
        if end == "undone":
            self.revision, self.cluster = former
            self._note(Step.UNDONE)
            return
        self._note(Step.PART_RELEASED if end == "part" else Step.RELEASED)
        if end != "without a backup":
            self.back_up()

    def move(self, index: int = 0, *, planned: bool = False) -> None:
        """A move by one of the backups; by the final one, if it was ``planned``."""
        if planned:
            self.back_up()
        chosen = self.chosen(-1 if planned else index)
        then, record = self.keys[chosen.record.name], chosen.record
        there = beginning.revision_there(then, chosen)
        taken = TakeOverState("nightly", record.name, "karmada/prod", planned=planned, revision=there)
        last = LastBackup(record.name, record.started, 1, record.revision, 1)
        self.state = samples.state(etcd=EtcdState("t", 1), taken_over=taken, backups={**then.backups, "nightly": last})
        self._begin(beginning.of_a_move(self.run, chosen, taken, self.statuses(1)), chosen)
        self._switch(self._of_state)
        self._note(Step.RELEASED)
        self.back_up()

    def by_an_earlier_version(self) -> None:
        """The restore on record was that of a version which did not note its revision."""
        if (restore := self.state.restore) and not restore.came_back:
            self.state = replace(self.state, restore=replace(restore, revision=0))

    def _begin(self, made: RestoreState, chosen: Chosen) -> None:
        assert made.revision == chosen.record.revision + made.bump
        assert made.revision > self.seen
        self.state = replace(self.state, restore=made)

    def _switch(self, restore: RestoreState) -> None:
        self.revision, self.cluster = restore.revision, f"{self.cluster}+"
        self.state = replace(self.state, etcd=replace(self.state.etcd, generation=restore.generation))
        self.write(2 * HOUR)

    @property
    def _of_state(self) -> RestoreState:
        assert self.state.restore
        return self.state.restore

    def _note(self, step: Step) -> None:
        by = cast(Any, SimpleNamespace(_restore=self._of_state))
        self.state = replace(self.state, restore=Restoring._recorded_after(by, step, ""))


INDEX = st.integers(0, 20)
ENDS = st.sampled_from(["released", "without a backup", "undone", "part"])
ACTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda seconds, share: ("write", (seconds, share), {}), st.integers(1, 30 * DAY), st.floats(0, BUSY)),
    st.just(("back_up", (), {})),
    st.builds(
        lambda index, answers, end: ("restore", (index,), {"answers": answers, "end": end}), INDEX, st.booleans(), ENDS
    ),
    st.builds(lambda index, planned: ("move", (index,), {"planned": planned}), INDEX, st.booleans()),
    st.just(("by_an_earlier_version", (), {})),
)


# Not more than the restores that are allowed for at a place that was lost.
@given(st.lists(ACTS, max_size=beginning.UNKNOWN_RESTORES))
def test_whatever_was_done_before_each_restore_and_each_move_begins_above_it(acts: list[Any]) -> None:
    history = History()
    for name, arguments, options in acts:
        getattr(history, name)(*arguments, **options)


@pytest.mark.parametrize("end", ["released", "undone", "part", "without a backup"])
@pytest.mark.parametrize("planned", [True, False])
def test_a_move_by_an_older_backup_of_a_place_that_was_restored_since(end: str, *, planned: bool) -> None:
    history = History()
    history.write(HOUR)
    history.back_up()
    history.restore(1, end=end)
    history.write(HOUR)
    history.move(1, planned=planned)


def test_a_move_by_the_backup_that_a_restore_took_of_what_was_there() -> None:
    """In its keys is the restore that had begun, with all that was reckoned in there."""
    history = History()
    history.write(400 * DAY, share=0)
    history.restore(0, end="without a backup")
    assert history.target[-1].revision < history.revision - 100 * LEAST
    history.move(-1)


def test_a_move_after_a_restore_that_was_taken_back() -> None:
    history = History()
    history.write(400 * DAY, share=0)
    history.restore(0, end="undone")
    history.move(planned=True)


def test_a_hand_over_leaves_nothing_unknown_and_a_lost_place_allows_for_restores() -> None:
    by_plan, lost = History(), History()
    for each in (by_plan, lost):
        each.write(HOUR)
    by_plan.move(planned=True)
    lost.move(0)
    for each, times in ((by_plan, 1), (lost, 1 + beginning.UNKNOWN_RESTORES)):
        assert each.state.restore
        assert each.state.restore.bump == times * LEAST
