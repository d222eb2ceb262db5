# SPDX-License-Identifier: Apache-2.0
"""What moves with a backup's keys and what is new, and members that cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import record as backup_record
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series as backup_series
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import verify
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import (
    KEYS,
    SNAPSHOT,
    AuthorityRecord,
    Level,
    Purpose,
    Record,
    StoredFile,
    Versions,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import (
    SILENT,
    Claim,
    HandOverState,
    TakeOverState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import LastBackup, RestoreState, State
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    CLIENT_SIGNING_CA,
    ETCD_CA,
    KARMADA_CA,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.document.schedule import schedule_of
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.members.broken import BrokenMember
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    beginning,
    check,
    check_in_pods,
    take_over,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.in_pods import InPods
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import (
    EVERYTHING,
    Goal,
    Seen,
    Step,
    next_step,
    recorded,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.take_over import TakingOver
from ansible_collections.karmada.installer.plugins.plugin_utils.run import store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run, storage_class
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

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


#: The backup itself, and one of another series from before the last move.
LAST = LastBackup(BACKUP, "2026-11-25T02:00:00+00:00", 9, 8, 7, 172800, epoch=3)
EARLIER = LastBackup("prod-20261120t020000z-1f3a9c", "2026-11-20T02:00:00+00:00", 9, 8, 7, 172800, epoch=2)


def first() -> State:
    return fake_run(samples.document(namespace="karmada-next"), FakeCluster("host cluster")).place.first_state()


def test_what_moves_and_what_is_new() -> None:
    new = first()
    state = take_over.adopted(new, THERE, TAKEN, "bb", LAST)
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


def test_the_backup_that_was_taken_over_is_on_record_and_other_places_may_use_it_until_members_follow() -> None:
    state = take_over.adopted(first(), replace(THERE, backups={"weekly": EARLIER}), TAKEN, "bb", LAST)
    assert state.backups == {"weekly": EARLIER, "disk": LAST}
    assert state.may_be_taken_over(LAST), "if this place is given up"
    assert not state.may_be_taken_over(EARLIER), "members have noted a move since"
    assert state.taken_over
    released = replace(state, taken_over=replace(state.taken_over, fenced=True))
    assert not released.may_be_taken_over(LAST)
    assert released.may_be_taken_over(replace(LAST, epoch=released.claim.epoch))


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
    run = fake_run(document or samples.document(), FakeCluster("host cluster", storage_class("disks"), *objects))
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


def test_directories_of_nodes_that_are_named_after_the_same_owner_are_not_shared() -> None:
    on_nodes = {"components": {"etcd": {"local": {"volumeData": {"hostPath": {"path": "/var/lib/etcd"}}}}}}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "prod-etcd-0-data-x", "labels": {OWNER_LABEL: samples.OWNER}},
        "spec": {"claimRef": {"namespace": "karmada-prod", "name": "data-prod-etcd-0"}},
    }
    run = fake_run(samples.document(on_nodes), FakeCluster("host cluster", volume), stored=samples.state())
    run.go_on_with(replace(run.state, etcd=replace(run.state.etcd, storage="hostPath")))
    (told,) = check_in_pods.data_there(run)
    assert "prod-etcd-0-data-x" in told.what


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
        take_over.fenced(cast(Run, run), [], [broken("m1"), broken("m2")], ["m2"])
    assert [each.where for each in refused.value.problems] == ["member m1"]
    assert run.state.taken_over == TAKEN
    take_over.fenced(cast(Run, run), ["m1"], [broken("m2")], ["m2"])
    assert run.state.taken_over == replace(TAKEN, fenced=True, unfenced=("m2",))


def test_a_member_that_nobody_has_asked_is_none_that_follows() -> None:
    run = Noted(samples.state(taken_over=TAKEN, members={"m1": {}, "m2": {}}))
    with pytest.raises(ProblemsError, match="has not asked it") as refused:
        take_over.fenced(cast(Run, run), ["m1"], [], [])
    assert [each.where for each in refused.value.problems] == ["member m2"]
    take_over.fenced(cast(Run, run), ["m1"], [], ["m2"])
    assert run.state.taken_over == replace(TAKEN, fenced=True, unfenced=("m2",))


def test_a_member_that_follows_a_third_place_stops_it_whoever_names_it() -> None:
    run = Noted(replace(samples.state(), taken_over=TAKEN))
    with pytest.raises(ProblemsError) as refused:
        take_over.fenced(cast(Run, run), [], [broken("m1", Reason.MOVED)], ["m1"])
    assert refused.value.problems[0].reason is Reason.MOVED


def test_there_is_nothing_to_go_back_to() -> None:
    restore = RestoreState("moved", "disk", BACKUP, "now", "t", 2, 10**9, EtcdState("a"), step=Step.COMPARE)
    moved = replace(samples.state(), taken_over=TAKEN, restore=restore)
    assert "uninstall" in refusal_of_undo(moved)
    # Nor once members follow: an uninstallation would take from them what joining made.
    fenced = replace(moved, taken_over=replace(TAKEN, fenced=True))
    assert refusal_of_undo(fenced) == "go on with karmada.installer.release"
    # What is released, as a whole or in part, has its own refusal.
    for step in (Step.OPEN, Step.PART_RELEASED):
        take_over.refuse_undo(replace(fenced, restore=replace(restore, step=step)), "here")
    # A restore of later may be taken back, also one of the same backup.
    again = replace(restore, generation=3, former=EtcdState("t", 2))
    take_over.refuse_undo(replace(fenced, restore=again), "here")
    take_over.refuse_undo(replace(moved, restore=replace(restore, backup="another")), "here")
    take_over.refuse_undo(samples.state(), "here")


def refusal_of_undo(state: State) -> str:
    with pytest.raises(ProblemsError, match="nothing here before") as refused:
        take_over.refuse_undo(state, "here")
    return refused.value.problems[0].remedy


def test_the_place_of_another_control_plane_is_not_taken() -> None:
    run = fake_run(samples.document(), FakeCluster("host cluster"), stored=samples.state())
    with pytest.raises(ProblemsError, match="is here already"):
        take_over.refuse_place_of_another(run, Asked(signer="KEY"))
    take_over.refuse_place_of_another(run, Asked())


def test_nothing_runs_that_is_not_asked_for_before_its_data_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    state = take_over.adopted(first(), THERE, TAKEN, "bb", LAST)
    run = fake_run(samples.document(namespace="karmada-next"), FakeCluster("host cluster"), stored=state)
    record = SimpleNamespace(name=BACKUP, cluster_id="c1", counts={"secrets": 3}, start=run.now, revision=100)
    record.files = {SNAPSHOT: SimpleNamespace(plain_size=1)}
    chosen = SimpleNamespace(
        record=record,
        wanted=SimpleNamespace(name="moved"),
        series=SimpleNamespace(name="disk"),
        where="there",
        known=(),
    )
    monkeypatch.setattr(check, "choose", lambda *_: chosen)
    monkeypatch.setattr(check_in_pods, "problems", lambda *_: iter(()))

    class Means:
        def statuses(self) -> list[Any]:
            return [SimpleNamespace(healthy=True, cluster_id="c2", db_size=1, url="u", message="", revision=1)]

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


# -- which backup, and what is written ---------------------------------------------------------------------------------

KEY, STRANGER = backup_record.new_signing_key(), backup_record.new_signing_key()
SIGNER = backup_record.signer_of(KEY)


def a_record(run: Run, **fields: Any) -> Record:
    release = run.instance.release
    known: dict[str, Any] = {
        "name": BACKUP,
        "series": "disk",
        "deployment": "prod",
        "home": "karmada-prod",
        "owner": THERE.owner,
        "purpose": Purpose.REQUESTED,
        "started": run.now.replace(microsecond=0).isoformat(),
        "duration_seconds": 1,
        "files": {KEYS: StoredFile(1, "0" * 64, 1, "0" * 64)},
        "cluster_id": "c",
        "revision": 100,
        "hash": 1,
        "total_keys": 1,
        "versions": Versions(release.karmada, release.kubernetes, release.etcd, "0.1.0"),
        "levels": (Level.HASH.value,),
        "recipients": (),
        "authorities": {
            name: AuthorityRecord(x509.fingerprint(pair.certificate), "") for name, pair in THERE.authorities.items()
        },
        "encryption_provider": run.spec.encryption_provider,
        # The other mode is no reason against it.
        "mode": "Binary",
    }
    return Record(**{**known, **fields})


class Store:
    """A target with one backup."""

    where = "there"

    def __init__(self, text: bytes) -> None:
        self.text = text

    def names(self) -> list[str]:
        return [BACKUP]

    def get(self, _name: str, _file: str, sink: Any) -> None:
        sink.write(self.text)


def offer_backup(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Have one backup of another place lie in the target of the run, with a private key here."""
    target = Store(backup_record.signed(a_record(run), KEY))
    series = SimpleNamespace(name="disk", schedule=schedule_of("", "24h"))
    monkeypatch.setattr(check, "_wanted", lambda *_: WantedRestore("moved", "disk"))
    monkeypatch.setattr(backup_series, "wanted", lambda *_: [series])
    monkeypatch.setattr(backup_series, "opened", lambda *_: target)
    monkeypatch.setattr(verify, "verify", lambda *_: [])
    monkeypatch.setattr(verify, "decrypted", lambda *_: None)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run where nothing is yet, for which one backup lies there, with a private key here."""
    run = fake_run(
        samples.document(namespace="karmada-next"),
        FakeCluster("host cluster", storage_class("disks")),
        operation="restore",
    )
    offer_backup(monkeypatch, run)
    monkeypatch.setattr(verify, "state_of", lambda *_: replace(THERE, backup_key=KEY))
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    return run


def taking(run: Run, **asked: Any) -> TakingOver:
    wishes = {"keys": ("key",), "signer": SIGNER, "confirm": BACKUP, **asked}
    return TakingOver(run, Asked(**wishes), InPods(run, 1, []))


@pytest.mark.parametrize(
    ("asked", "reason", "said"),
    [
        ({"signer": ""}, Reason.CONFIRMATION_REQUIRED, f"by {SIGNER}"),
        ({"signer": backup_record.signer_of(STRANGER)}, Reason.INVALID_BACKUP, "not by the key that was named"),
        ({"keys": ()}, Reason.RESTORE_IMPOSSIBLE, "no private key is here"),
        ({"confirm": ""}, Reason.RESTORE_NOT_CONFIRMED, f"-e restore_confirm={BACKUP}"),
    ],
    # Keys are made anew in each process.
    ids=["no signer", "another signer", "no private key", "no confirmation"],
)
def test_nothing_is_made_before_a_person_has_said_what_is_meant(
    place: Run, asked: dict[str, Any], reason: Reason, said: str
) -> None:
    with pytest.raises(ProblemsError) as refused:
        taking(place, **asked).judge()
    assert [each.reason for each in refused.value.problems] == [reason]
    assert said in str(refused.value)
    assert not cast(Any, place.host_cluster).names("Secret")


def test_keys_of_somebody_else_in_a_backup_that_was_signed_are_not_taken(
    place: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "state_of", lambda *_: replace(THERE, backup_key=STRANGER))
    with pytest.raises(ProblemsError, match="not those of the control plane that signed it"):
        taking(place).judge()


def test_the_first_state_of_the_place_is_that_of_the_backup_and_no_other_one_is_ever_stored(
    place: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[str] = []
    kept = store.SecretStore.write
    monkeypatch.setattr(
        store.SecretStore,
        "write",
        lambda self, state, instance: (stored.append(state.owner), kept(self, state, instance))[1],
    )
    one = taking(place)
    one.judge()
    assert stored == []
    one.adopt()
    assert set(stored) == {THERE.owner}
    again = fake_run(samples.document(namespace="karmada-next"), cast(Any, place.host_cluster), operation="restore")
    found = again.stored_state
    assert found is not None
    assert (found.owner, found.claim.epoch, found.journal.operation) == (THERE.owner, 4, "restore")
    assert take_over.is_under_way(found)
    assert found.taken_over is not None
    assert found.taken_over.planned
    # Nothing else is known of it here, and it was verified.
    last = found.backups["disk"]
    assert (last.name, last.allowed, last.epoch) == (BACKUP, 2 * 86400, THERE.claim.epoch)
    assert taking(again).goes_on()
    with pytest.raises(ProblemsError, match="is meant now"):
        taking(again, confirm="prod-20260101t000000z-000000").goes_on()


# -- revisions that clients of the other place have seen ---------------------------------------------------------------

LATER, STRANGE = "prod-20261125t030000z-2a3b4c", "prod-20261125t040000z-3c4d5e"


class Several(Store):
    """A target with a newer backup of another series, and one of somebody else."""

    def __init__(self, run: Run, kept: bytes) -> None:
        self.texts = {
            BACKUP: kept,
            LATER: backup_record.signed(a_record(run, name=LATER, series="weekly", revision=7 * 10**9), KEY),
            STRANGE: backup_record.signed(a_record(run, name=STRANGE, revision=2**60), STRANGER),
        }

    def names(self) -> list[str]:
        return list(self.texts)

    def get(self, name: str, _file: str, sink: Any) -> None:
        sink.write(self.texts[name])


def test_every_backup_of_the_other_place_tells_how_far_its_clients_had_come_and_nothing_of_a_stranger_does(
    place: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = a_record(place, started=LAST.started)
    target = Several(place, backup_record.signed(kept, KEY))
    monkeypatch.setattr(backup_series, "opened", lambda *_: target)
    one = taking(place)
    chosen = one.judge()
    assert (chosen.record.name, [each.name for each in chosen.known]) == (BACKUP, [BACKUP, LATER])
    taken = place.state.taken_over
    assert taken is not None
    assert taken.revision == 0
    made = beginning.of_a_move(place, chosen, taken, [])
    assert made.revision == chosen.record.revision + made.bump
    assert 7 * 10**9 < made.revision < 2**60
    # By the run after one that was killed, which finds the state of this place.
    one.adopt()
    again = check.choose(place, one.asked, BACKUP)
    assert [each.name for each in again.known] == [BACKUP, LATER]


def test_a_restore_that_had_begun_when_the_backup_was_taken_is_noted_with_the_place_that_was_left(
    place: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = RestoreState(
        *("back", "disk", BACKUP, place.now.isoformat(timespec="seconds"), "0d6c", 2, 10**9),
        former=THERE.etcd,
        revision=9 * 10**9,
    )
    monkeypatch.setattr(verify, "state_of", lambda *_: replace(THERE, backup_key=KEY, restore=begun))
    one = taking(place)
    chosen = one.judge()
    one.adopt()
    found = place.stored_state
    assert found is not None
    assert found.taken_over is not None
    assert found.taken_over.revision == 9 * 10**9
    assert found.restore is None
    assert beginning.of_a_move(place, chosen, found.taken_over, []).revision > 9 * 10**9
