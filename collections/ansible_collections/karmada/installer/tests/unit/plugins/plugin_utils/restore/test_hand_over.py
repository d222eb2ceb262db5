# SPDX-License-Identifier: Apache-2.0
"""A hand-over that is taken back: members follow the place that goes on, and refuse one that takes its backup over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    HANDED_OVER,
    SILENT,
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup, State
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups
from ansible_collections.karmada.installer.plugins.plugin_utils.document.references import Connection
from ansible_collections.karmada.installer.plugins.plugin_utils.members import epoch, join, registration
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.hand_over import Asked, HandingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.backup_series import document
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

KNOWN = {name: {"mode": "Push", "secretRef": {"name": name}, "onLeave": "Retain"} for name in ("m1", "m2")}
#: The final backup, as the state has it.
FINAL = LastBackup("prod-b1", "2026-11-25T02:00:00+00:00", 9, 8, 7)
LEFT = HandOverState("disk", "now", step=HANDED_OVER, backup="prod-b1", held=("etcd",), closed=True)


def on_member(name: str, claim: str = "") -> FakeCluster:
    return FakeCluster(f"member {name}", *registration.objects_on_member(name, OWNER, "here/prod", claim=claim))


class Place:
    """A control plane that was handed over, and two members that answer or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: HandOverState | None = LEFT, storage: str = "") -> None:
        self.members = {name: on_member(name) for name in KNOWN}
        self.silent: set[str] = set()
        state = samples.state()
        etcd = replace(state.etcd, storage=storage or state.etcd.storage)
        stored = replace(state, members=KNOWN, handed_over=left, etcd=etcd)
        self.said: list[str] = []
        self.run = fake_run(samples.document(), FakeCluster("host cluster"), operation="hand_over", stored=stored)
        self.run.__dict__["say"] = self.said.append
        monkeypatch.setattr(join, "connected", self._connected)
        monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())

    @contextmanager
    def _connected(self, _run: Run, entry: MemberEntry, _patience: float) -> Iterator[FakeCluster]:
        if entry.name in self.silent:
            what, where = "it says nothing", f"member {entry.name}"
            raise ProblemsError(Problem(what, where, "Mend it", reason=Reason.MEMBER_UNREACHABLE))
        yield self.members[entry.name]

    def take(self, *steps: Step, **asked: Any) -> HandingOver:
        found = HandingOver(self.run, Asked(undo=True, **asked), 1)
        for step in steps:
            assert found.next() is step
            found.take(step)
        return found

    def mark(self, name: str) -> str:
        account = self.members[name].get(*epoch.account(name))
        assert account is not None
        return str((account["metadata"].get("annotations") or {}).get(registration.CLAIM_ANNOTATION, ""))

    def tokens(self, name: str) -> list[str]:
        found = self.members[name].objects.values()
        return sorted(each["metadata"]["name"] for each in found if each["kind"] == "Secret")

    @property
    def state(self) -> State:
        assert self.run.stored_state is not None
        return self.run.stored_state


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(monkeypatch)


def test_members_have_on_record_that_it_goes_on_before_anything_starts(place: Place) -> None:
    tokens = place.tokens("m1")
    assert tokens
    back = place.take(Step.TURN_BACK, Step.CLAIM)
    assert place.state.claim.epoch == 1
    assert {place.mark("m1"), place.mark("m2")} == {str(place.state.claim)}
    assert place.tokens("m1") == tokens, "it works on with the tokens that it has"
    assert back.next() is Step.START_FORMER
    assert "prod-b1 is no final backup any more" in " ".join(place.said)
    assert "Take another one now: karmada.installer.backup -e backup_now=disk" in " ".join(place.said)
    assert len(back.changes) >= len(KNOWN)


def test_a_place_that_takes_the_final_backup_over_is_refused_by_each_member(place: Place) -> None:
    taken = TakeOverState("disk", "prod-b1", "here/prod", planned=True)
    there = take_over.adopted(samples.state(), place.state, taken, "bb", FINAL)
    place.take(Step.TURN_BACK, Step.CLAIM)
    for name, member in place.members.items():
        found = epoch.problem(there, name, member.get(*epoch.account(name)))
        assert found is not None
        assert found.reason is Reason.MOVED
        assert epoch.problem(place.state, name, member.get(*epoch.account(name))) is None
    # The next final backup has the claim that members have on record, and may be taken over again.
    again = take_over.adopted(samples.state(), place.state, taken, "cc", FINAL)
    assert epoch.problem(again, "m1", place.members["m1"].get(*epoch.account("m1"))) is None


def test_after_it_was_taken_back_no_older_backup_can_be_taken_over_until_there_is_another(place: Place) -> None:
    """As members judge it, and as the state tells the report."""
    before, taken = place.state, TakeOverState("disk", "prod-b1", "here/prod")
    assert before.may_be_taken_over(FINAL)
    place.take(Step.TURN_BACK, Step.CLAIM)
    assert not place.state.may_be_taken_over(FINAL)
    account = place.members["m1"].get(*epoch.account("m1"))
    assert epoch.problem(take_over.adopted(samples.state(), before, taken, "bb", FINAL), "m1", account) is not None
    another = replace(FINAL, name="prod-b2", epoch=place.state.claim.epoch)
    assert place.state.may_be_taken_over(another)
    assert epoch.problem(take_over.adopted(samples.state(), place.state, taken, "cc", another), "m1", account) is None


def test_what_is_stopped_once_more_at_a_place_that_was_left_does_not_make_it_one_that_is_not(place: Place) -> None:
    for step in (Step.STOP_WRITERS, Step.STOP_SERVERS, Step.STOP_ETCD):
        HandingOver(place.run, Asked(), 1).take(step)
        assert place.state.handed_over
        assert (place.state.handed_over.is_over, place.state.handed_over.backup) == (True, "prod-b1")


def test_who_leaves_data_that_goes_with_its_pods_is_told_that_there_is_no_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "once it has stopped there is no way back"
    place = Place(monkeypatch, None, storage="emptyDir")
    place.run.connection = Connection(backups=str(tmp_path))
    beside = backups.resolved([document()], place.run.deployment)
    with pytest.raises(ProblemsError, match="this stops the control plane prod for good") as refused:
        HandingOver(place.run, Asked(beside), 1).begin()
    assert words in str(refused.value)
    assert HandingOver(place.run, Asked(beside, confirm="prod"), 1).begin()
    assert [(words in each.what, each.reason) for each in place.run.told] == [(True, Reason.DATA_NOT_DURABLE)]
    assert place.state.handed_over


def test_data_that_went_with_its_pods_is_not_taken_back_and_members_take_the_final_backup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would refuse it, the only one, for a place whose etcd has no data to start with."""
    place = Place(monkeypatch, storage="emptyDir")
    with pytest.raises(ProblemsError, match="Take prod-b1 over at another place") as refused:
        place.take(Step.TURN_BACK)
    assert [each.reason for each in refused.value.problems] == [Reason.RESTORE_IMPOSSIBLE]
    assert (place.state.handed_over, place.state.claim) == (LEFT, Claim())
    assert (place.mark("m1"), place.mark("m2")) == ("", "")


def test_one_without_a_final_backup_leaves_members_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, HandOverState("disk", "now", step=Step.STOP_WRITERS, held=("karmada-scheduler",)))
    place.take(Step.TURN_BACK, Step.CLAIM)
    assert place.state.claim == Claim()
    assert (place.mark("m1"), place.mark("m2")) == ("", "")


def test_one_that_was_killed_while_it_took_the_final_backup_may_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(monkeypatch, HandOverState("disk", "now", step=SILENT, held=("karmada-scheduler",), closed=True))
    place.take(Step.TURN_BACK, Step.CLAIM)
    assert place.mark("m1") == str(place.state.claim) != ""


def test_killed_between_two_members_it_goes_on_with_the_claim_that_it_had(place: Place) -> None:
    place.silent = {"m2"}
    place.take(Step.TURN_BACK, without=["m2"])
    claim = place.state.claim
    with pytest.raises(ProblemsError, match="nothing of it was started") as refused:
        HandingOver(place.run, Asked(undo=True), 1).take(Step.CLAIM)
    assert """-e '{"hand_over_without": ["m2"]}'""" in str(refused.value)
    assert (place.mark("m1"), place.mark("m2")) == (str(claim), "")
    place.silent = set()
    back = place.take(Step.CLAIM)
    assert (place.mark("m1"), place.mark("m2")) == (str(claim), str(claim))
    assert len(back.changes) == 1, "m1 has it already"


def test_a_member_that_was_named_and_does_not_answer_is_told_and_gets_the_mark_by_its_next_join(place: Place) -> None:
    place.silent = {"m2"}
    place.take(Step.TURN_BACK, Step.CLAIM, without=["m2"])
    assert "is refused, but by m2" in " ".join(place.said)
    assert place.mark("m2") == ""
    assert epoch.problem(place.state, "m2", place.members["m2"].get(*epoch.account("m2"))) is None


def test_once_a_member_follows_another_place_it_is_not_taken_back(place: Place) -> None:
    place.members["m2"] = on_member("m2", str(Claim(1, "bb")))
    with pytest.raises(ProblemsError, match="it stays handed over") as refused:
        place.take(Step.TURN_BACK, without=["m2"])
    assert [each.reason for each in refused.value.problems] == [Reason.MOVED]
    assert place.state.handed_over == LEFT
    assert place.mark("m1") == ""


def test_a_member_that_begins_to_follow_another_place_meanwhile_keeps_everything_stopped(place: Place) -> None:
    place.take(Step.TURN_BACK)
    place.members["m2"] = on_member("m2", str(Claim(1, "bb")))
    with pytest.raises(ProblemsError, match="nothing of it was started"):
        place.take(Step.CLAIM)
    assert place.mark("m2") == str(Claim(1, "bb"))
