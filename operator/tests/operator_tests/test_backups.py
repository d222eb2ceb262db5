# SPDX-License-Identifier: Apache-2.0
"""Decisions about EtcdBackups: examples, and a history of hours, failures, restarts and clocks that are set."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.report.hold import Why
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from karmada_operator import schedules
from karmada_operator.actions import Cancel, Forget, Refuse, Start, Wait
from karmada_operator.backups import LOOK_AT_CLOCK, decide, seen_of
from karmada_operator.executor import Outcome
from karmada_operator.kinds import Lane
from karmada_operator.orders import Beside, Operation, Seen
from karmada_operator.reconcile import Memory, ended, started
from karmada_operator.schedules import Backups
from karmada_operator.wishes import PAUSED, RUN_NOW

NOW = datetime(2026, 11, 25, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
INSTALLED = Seen(uid="d1", generation=1, claimed=True, installed=True)
BESIDE = Beside(INSTALLED)
RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"


def an_object(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    asked = {
        "deploymentRef": {"name": "prod"},
        "recipients": [RECIPIENT],
        "target": {"s3": {"bucket": "backups", "secretRef": {"name": "store"}}},
        **(spec or {}),
    }
    return {
        "apiVersion": "installer.karmada.io/v1alpha1",
        "kind": "EtcdBackup",
        "metadata": {"name": "hourly", "namespace": "a", "uid": "u1", "generation": 1, **meta},
        "spec": asked,
        "status": status or {},
    }


def seen(newest: datetime | None = None, carried_out: int = 1, **meta: Any) -> Seen:
    status: dict[str, Any] = {"observedGeneration": carried_out}
    if newest:
        status["newest"] = {"startTime": schedules.text_of(newest)}
    return seen_of(an_object(status=status, **meta))


def test_a_backup_into_a_claim_is_due_like_any_other() -> None:
    """Of its control plane nothing but the name is known here: that it has a host cluster, its run finds."""
    claim = {"claimName": "backups", "image": "registry.example/python:3.13"}
    found = seen_of(an_object({"schedule": "0 * * * *", "target": {"persistentVolumeClaim": claim}}))
    assert found.backups
    assert found.backups.wanted
    assert not found.wishes.problems
    assert isinstance(decide(found, Memory(), 0.0, NOW, BESIDE), Start)


def test_what_decides_of_an_object() -> None:
    found = seen_of(an_object({"schedule": "0 * * * *"}, {"observedGeneration": 3, "requested": "w"}))
    assert found.deployment == "prod"
    assert found.references == (("Secret", "store"),)
    assert found.backups
    assert isinstance(found.backups.wanted, Wanted)
    assert (found.backups.requested, found.backups.carried_out, found.backups.newest) == ("w", 3, None)


def test_what_no_day_of_the_calendar_meets_is_refused() -> None:
    action = decide(seen_of(an_object({"schedule": "0 0 30 2 *"})), Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Refuse)
    assert "never comes" in str(action.problems[0])


def test_the_first_is_due_at_once_and_the_next_at_the_next_moment() -> None:
    action = decide(seen(carried_out=0), Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Start)
    assert (action.lane, action.order.operation) == (Lane.BACKUPS, Operation.BACK_UP)
    assert action.order.moment == "2026-11-25T12:00:00Z"
    done = seen(NOW)
    assert isinstance(decide(done, Memory(), 0.0, NOW, BESIDE), Wait)
    until = decide(done, Memory(), 100.0, NOW + timedelta(minutes=29, seconds=50), BESIDE)
    assert until == Wait("the next one is due at 2026-11-25T13:00:00Z", 110.0)
    assert isinstance(decide(done, Memory(), 0.0, NOW + HOUR / 2, BESIDE), Start)


def test_moments_without_a_backup_are_missed_and_told() -> None:
    action = decide(seen(NOW - 4 * HOUR), Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Start)
    assert action.order.missed == 3
    assert action.why == "one is due since 2026-11-25T12:00:00Z"


def test_one_is_taken_for_a_word_once_also_by_the_operator_after_this_one() -> None:
    asked = seen(NOW, annotations={RUN_NOW: "before-upgrade"})
    action = decide(asked, Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Start)
    assert (action.order.run_now, action.why) == ("before-upgrade", "run-now asks for it")
    memory = ended(started(Memory(), action.order), Outcome.SUCCEEDED, 0.0, period=1, chance=0.0)
    assert isinstance(decide(asked, memory, 0.0, NOW, BESIDE), Wait)
    assert asked.backups
    told = replace(asked, backups=replace(asked.backups, requested="before-upgrade"))
    assert isinstance(decide(told, Memory(), 0.0, NOW, BESIDE), Wait)


def test_one_that_fails_for_its_control_plane_is_tried_again_after_ten_minutes_at_most() -> None:
    action = decide(seen(carried_out=0), Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Start)
    memory, broken = Memory(), frozenset({Reason.INVALID_OVERLAY})
    for _ in range(9):
        running = started(memory, action.order)
        memory = ended(running, Outcome.FAILED, 0.0, period=21600, chance=0.0, reasons=broken)
    assert memory.retry_at == 600.0


@pytest.mark.parametrize("text", ["{{ lookup('pipe', 'id') }}", "$(id)", "a\nb"])
def test_a_word_that_is_none_starts_nothing(text: str) -> None:
    assert isinstance(decide(seen(annotations={RUN_NOW: text}), Memory(), 0.0, NOW, BESIDE), Refuse)


def test_a_suspended_one_is_taken_for_a_word_only() -> None:
    spec, status = {"suspend": True}, {"observedGeneration": 1}
    assert decide(seen_of(an_object(spec, status)), Memory(), 0.0, NOW, BESIDE) == Wait("none is due", LOOK_AT_CLOCK)
    asked = an_object(spec, status, annotations={RUN_NOW: "now"})
    assert isinstance(decide(seen_of(asked), Memory(), 0.0, NOW, BESIDE), Start)


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        (Beside(), "NoDeployment"),
        (Beside(replace(INSTALLED, installed=False)), "NotInstalled"),
        (Beside(replace(INSTALLED, deleting=True)), "BeingDeleted"),
        (Beside(replace(INSTALLED, quarantined=True)), "Quarantined"),
        (Beside(replace(INSTALLED, quarantined=True, held=Why.RESTORED)), "Quarantined"),
        (Beside(replace(INSTALLED, quarantined=True, held=Why.HANDING_OVER)), "HandingOver"),
        (Beside(replace(INSTALLED, quarantined=True, held=Why.HANDED_OVER)), "HandedOver"),
    ],
    ids=["none", "new", "going", "quarantined", "restored", "handing over", "handed over"],
)
def test_what_holds_the_control_plane_holds_its_backups(beside: Beside, reason: str) -> None:
    action = decide(seen(), Memory(), 0.0, NOW, beside)
    assert isinstance(action, Wait)
    assert (action.reason, action.until) == (reason, LOOK_AT_CLOCK)


def test_what_holds_it_is_told_as_what_it_is() -> None:
    action = decide(seen(), Memory(), 0.0, NOW, Beside(replace(INSTALLED, quarantined=True, held=Why.HANDED_OVER)))
    assert isinstance(action, Wait)
    assert action.why == "the control plane was handed over, and is backed up where it is now"


def test_a_control_plane_of_which_a_part_is_released_is_backed_up() -> None:
    partly = replace(INSTALLED, quarantined=True, held=Why.PART_RELEASED)
    assert isinstance(decide(seen(), Memory(), 0.0, NOW, Beside(partly)), Start)


def test_a_paused_control_plane_is_backed_up() -> None:
    paused = replace(INSTALLED, wishes=replace(INSTALLED.wishes, paused=True))
    assert isinstance(decide(seen(), Memory(), 0.0, NOW, Beside(paused)), Start)
    assert isinstance(decide(seen(annotations={PAUSED: "true"}), Memory(), 0.0, NOW, BESIDE), Wait)


@pytest.mark.parametrize(
    ("now", "beside", "why"),
    [
        (None, BESIDE, "the object is gone"),
        (replace(seen(), uid="u2"), BESIDE, "another object has the name"),
        (seen(annotations={PAUSED: "true"}), BESIDE, "it was paused"),
        (seen(), Beside(replace(INSTALLED, deleting=True)), "the control plane goes"),
    ],
    ids=["gone", "another", "paused", "going"],
)
def test_what_ends_a_run(now: Seen | None, beside: Beside, why: str) -> None:
    action = decide(seen(), Memory(), 0.0, NOW, BESIDE)
    assert isinstance(action, Start)
    memory = started(Memory(), action.order)
    assert decide(now, memory, 0.0, NOW, beside) == Cancel(why)
    for goes_on in (BESIDE, Beside()):
        # An operator that starts may see its control plane later than the run that an earlier one has left.
        assert decide(seen(), memory, 0.0, NOW, goes_on) == Wait("a run is under way")


def test_its_age_is_told_in_words_that_stay() -> None:
    fresh = seen(NOW).backups
    assert fresh
    first, later = schedules.age(fresh, NOW), schedules.age(fresh, NOW + HOUR / 3)
    assert first == later
    assert first
    assert (first.healthy, first.reason) == (True, "Recent")
    old = schedules.age(fresh, NOW + 3 * HOUR)
    assert old
    assert (old.healthy, old.reason) == (False, "TooOld")
    assert (
        old.message
        == "the newest verified backup was begun at 2026-11-25T12:30:00Z, longer ago than its schedule allows"
    )
    none = schedules.age(replace(fresh, newest=None), NOW)
    assert none
    assert none.reason == "NoBackup"


def test_an_object_that_is_gone_is_forgotten() -> None:
    assert decide(None, Memory(), 0.0, NOW, BESIDE) == Forget()


@dataclass
class _World:
    """A target with the starts of its backups, and what the status of the object tells of it."""

    seen: Seen = field(default_factory=lambda: seen(carried_out=0))
    stored: list[datetime] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    now: float = 0.0
    clock: datetime = NOW
    runs_at: list[str] = field(default_factory=list)


class History(RuleBasedStateMachine):
    """Time passes, clocks are set, runs end in every way, the status is told late, the operator is restarted."""

    def __init__(self) -> None:
        super().__init__()
        self.world = _World()

    @property
    def backups(self) -> Backups:
        assert self.world.seen.backups
        return self.world.seen.backups

    @rule(seconds=st.sampled_from([1, 61, 1800, 3600, 5 * 3600]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds
        self.world.clock += timedelta(seconds=seconds)

    @rule(hours=st.sampled_from([-30, -2, -1, 1, 2, 30]))
    def clock_is_set(self, hours: int) -> None:
        self.world.clock += hours * HOUR

    @rule()
    def restart(self) -> None:
        self.world.memory = Memory()

    @rule()
    def status_is_told(self) -> None:
        if self.world.stored:
            found = replace(self.backups, newest=max(self.world.stored), carried_out=self.world.seen.generation)
            self.world.seen = replace(self.world.seen, backups=found)

    @rule()
    def edit(self) -> None:
        self.world.seen = replace(self.world.seen, generation=self.world.seen.generation + 1)

    @rule(outcome=st.sampled_from(Outcome), hopeless=st.booleans())
    def operator_looks(self, outcome: Outcome, hopeless: bool) -> None:
        world = self.world
        action = decide(world.seen, world.memory, world.now, world.clock, BESIDE)
        if not isinstance(action, Start):
            assert isinstance(action, Wait)
            assert action.until is not None
            assert world.now <= action.until <= world.now + LOOK_AT_CLOCK, "a clock that was set is noticed"
            return
        # A moment that was met is met by no second run of this process.
        assert action.order != world.memory.done
        world.memory = started(world.memory, action.order)
        if outcome is Outcome.SUCCEEDED:
            world.stored.append(world.clock)
        reasons = frozenset({Reason.INVALID_DOCUMENT.value}) if hopeless else frozenset[str]()
        world.memory = ended(world.memory, outcome, world.now, period=21600, chance=0.5, reasons=reasons)

    @rule()
    def nothing_is_ever_stuck(self) -> None:
        """An hour without failures, and with the status told, has a young backup at its end."""
        world = self.world
        for _ in range(130):
            self.time_passes(61)
            self.operator_looks(Outcome.SUCCEEDED, False)
            self.status_is_told()
        assert any(world.clock - 2 * HOUR <= each <= world.clock for each in world.stored)

    @invariant()
    def a_run_is_over_when_it_has_ended(self) -> None:
        assert self.world.memory.running is None


TestHistory = History.TestCase
TestHistory.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
