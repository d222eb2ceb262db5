# SPDX-License-Identifier: Apache-2.0
"""What moves with a backup's keys and what is new, and members that cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    SILENT,
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import EtcdState, RestoreState, State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    CLIENT_SIGNING_CA,
    ETCD_CA,
    KARMADA_CA,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check, take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import (
    EVERYTHING,
    Goal,
    Seen,
    Step,
    next_step,
    recorded,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.take_over import TakingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

NOTHING = Asked()
BACKUP = "prod-20261125t020000z-1f3a9c"
TAKEN = TakeOverState("disk", BACKUP, "karmada-prod/prod", planned=True)
MEMBERS = {"m1": {"mode": "Push", "secretRef": {"name": "m1"}, "onLeave": "Retain"}}
THERE = replace(
    samples.state(),
    members=MEMBERS,
    owned={"host": {"Secret x": "1"}, "member/m1": {"Secret y": "2"}},
    service_subnet="10.90.0.0/16",
    endpoint_host="192.0.2.9",
    host_cluster="uid-of-the-other",
    claim=Claim(3, "aa"),
    handed_over=HandOverState("disk", "now", step=SILENT),
    restarts={"karmada-scheduler": 2},
)


def first() -> State:
    return fake_run(samples.document(namespace="karmada-next"), FakeCluster("host cluster")).place.first_state()


def test_what_moves_and_what_is_new() -> None:
    new = first()
    state = take_over.adopted(new, THERE, TAKEN, "bb")
    assert (state.owner, state.members, state.service_subnet) == (THERE.owner, MEMBERS, "10.90.0.0/16")
    assert (state.service_account_key, state.encryption_key) == (THERE.service_account_key, THERE.encryption_key)
    assert {name: state.authorities[name] for name in (KARMADA_CA, CLIENT_SIGNING_CA)} == {
        name: THERE.authorities[name] for name in (KARMADA_CA, CLIENT_SIGNING_CA)
    }
    assert state.owned == {"member/m1": {"Secret y": "2"}}
    assert state.claim == Claim(4, "bb")
    # Nothing of the other place.
    assert state.authorities[ETCD_CA] == new.authorities[ETCD_CA] != THERE.authorities[ETCD_CA]
    assert state.etcd == new.etcd
    assert (state.endpoint_host, state.host_cluster, state.restarts) == ("", "", {})
    assert (state.handed_over, state.restore, state.document) == (None, None, None)
    assert not state.leads_members


def test_until_members_follow_it_is_no_place_to_start_from() -> None:
    restore = RestoreState(
        "moved", "disk", BACKUP, "now", "t", 2, 10**9, EtcdState("a"), ("e",), ("e",), step=Step.COMPARE, closed=True
    )
    seen = Seen(restore, 2, frozenset(), fenced=False)
    assert next_step(seen, Goal.RELEASE) is Step.FENCE
    assert recorded(seen, Step.FENCE) == Step.COMPARE
    assert next_step(replace(seen, fenced=True), Goal.RELEASE) is Step.OPEN
    assert next_step(seen, Goal.QUARANTINE) is None


def reasons(then: State, document: Any = None, asked: Asked = NOTHING, *objects: Any) -> list[Problem]:
    run = fake_run(document or samples.document(), FakeCluster("host cluster", *objects))
    chosen = SimpleNamespace(where="there", record=SimpleNamespace(home="karmada-prod", deployment="prod"))
    return list(TakingOver(run, asked, cast(Any, None))._reasons_against(cast(Any, chosen), then))


@pytest.mark.parametrize(
    "left",
    [None, HandOverState("disk", "now", step="StopWriters"), HandOverState("disk", "now", step=SILENT, undoing=True)],
)
def test_a_place_that_was_not_left_has_to_be_named(left: HandOverState | None) -> None:
    (told,) = reasons(replace(THERE, handed_over=left))
    assert told.reason is Reason.CONFIRMATION_REQUIRED
    assert "-e restore_take_over=prod" in told.remedy
    assert "out of reach" in told.what
    assert reasons(replace(THERE, handed_over=left), None, Asked(take_over="prod")) == []
    assert reasons(replace(THERE, handed_over=left), None, Asked(take_over="other")) == [told]


def test_one_that_was_left_has_not() -> None:
    assert reasons(THERE) == []


def test_data_that_is_there_is_not_taken_for_its_own() -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-prod-etcd-0", "namespace": "karmada"},
    }
    (told,) = reasons(THERE, None, NOTHING, claim)
    assert "data-prod-etcd-0" in told.what


def test_tokens_that_nobody_would_accept() -> None:
    other = samples.document({"hostCluster": {"domain": "other.local"}})
    (told,) = reasons(replace(THERE, document=samples.document()), other)
    assert "cluster.local" in told.what


class Noted:
    """A run with a state that it saves."""

    def __init__(self, state: State) -> None:
        self.state = state

    def save(self, state: State) -> None:
        self.state = state


def broken(name: str, reason: Reason = Reason.MEMBER_UNREACHABLE) -> dict[str, Any]:
    return BrokenMember.of_problems(
        name, [Problem("it says nothing", f"member {name}", "mend it", reason=reason)]
    ).plain


def test_members_that_are_out_of_reach_are_named_or_stop_the_release() -> None:
    run = Noted(replace(samples.state(), taken_over=TAKEN))
    with pytest.raises(ProblemsError, match="restore_unfenced") as refused:
        take_over.fenced(cast(Run, run), [broken("m1"), broken("m2")], ["m2"])
    assert [each.where for each in refused.value.problems] == ["member m1"]
    assert run.state.taken_over == TAKEN
    take_over.fenced(cast(Run, run), [broken("m2")], ["m2"])
    assert run.state.taken_over == replace(TAKEN, fenced=True, unfenced=("m2",))


def test_a_member_that_follows_a_third_place_stops_it_whoever_names_it() -> None:
    run = Noted(replace(samples.state(), taken_over=TAKEN))
    with pytest.raises(ProblemsError) as refused:
        take_over.fenced(cast(Run, run), [broken("m1", Reason.MOVED)], ["m1"])
    assert refused.value.problems[0].reason is Reason.MOVED


def test_there_is_nothing_to_go_back_to() -> None:
    restore = RestoreState("moved", "disk", BACKUP, "now", "t", 2, 10**9, EtcdState("a"), step=Step.COMPARE)
    moved = replace(samples.state(), taken_over=TAKEN, restore=restore)
    with pytest.raises(ProblemsError, match="nothing here before"):
        take_over.refuse_undo(moved, "here")
    # A restore of later may be taken back.
    take_over.refuse_undo(replace(moved, restore=replace(restore, backup="another")), "here")
    take_over.refuse_undo(samples.state(), "here")


def test_the_place_of_another_control_plane_is_not_taken() -> None:
    run = fake_run(samples.document(), FakeCluster("host cluster"), stored=samples.state())
    with pytest.raises(ProblemsError, match="is here already"):
        take_over.refuse_place_of_another(run, Asked(signer="KEY"))
    take_over.refuse_place_of_another(run, Asked())


def test_nothing_runs_that_is_not_asked_for_before_its_data_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    state = take_over.adopted(first(), THERE, TAKEN, "bb")
    run = fake_run(samples.document(namespace="karmada-next"), FakeCluster("host cluster"), stored=state)
    record = SimpleNamespace(name=BACKUP, cluster_id="c1", counts={"secrets": 3}, start=run.now)
    chosen = SimpleNamespace(
        record=record, wanted=SimpleNamespace(name="moved"), series=SimpleNamespace(name="disk"), where="there"
    )
    monkeypatch.setattr(check, "choose", lambda *_: chosen)
    monkeypatch.setattr(take_over.check_in_pods, "problems", lambda *_: iter(()))

    class Means:
        def statuses(self) -> list[Any]:
            return [SimpleNamespace(healthy=True, cluster_id="c2", db_size=1, url="u", message="")]

        @contextmanager
        def writing(self, _step: str) -> Iterator[None]:
            yield

    monkeypatch.setattr(Run, "save", lambda self, new: setattr(self.store, "state", new))
    taking = TakingOver(run, Asked(), cast(Any, Means()))
    taking.begin()
    made = run.stored_state.restore if run.stored_state else None
    assert made is not None
    assert made.replaced == ("c1", "c2")
    assert made.closed
    assert set(made.held) | {"etcd"} == EVERYTHING
    # Its data comes next: there is nothing to back up, and nothing to stop.
    begun = replace(made, members=("prod-etcd-0",))
    assert next_step(Seen(begun, begun.generation - 1, frozenset({"etcd"})), Goal.QUARANTINE) is Step.PREPARE
    ready = replace(begun, prepared=begun.members)
    assert next_step(Seen(ready, ready.generation - 1, frozenset({"etcd"})), Goal.QUARANTINE) is Step.STOP_ETCD
