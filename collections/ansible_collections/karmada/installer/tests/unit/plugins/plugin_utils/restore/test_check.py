# SPDX-License-Identifier: Apache-2.0
"""What is refused before a restore begins, all of it at once, and what is told of the loss."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import encryption, verify
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series as backup_series
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
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.series import Found
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    PART_RELEASED,
    RELEASED,
    UNDONE,
    RestoreState,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.document.restores import WantedRestore
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Forbidden
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check, new_data
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Chosen, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run

MIB = 1 << 20
ETCD = EtcdState(
    samples.TOKEN,
    bootstrapped=True,
    storage="volumeClaim",
    members=(EtcdMemberState("prod-etcd-0"), EtcdMemberState("prod-etcd-1", coming=True)),
)
STATE = samples.state(etcd=ETCD, members={"ours": {"mode": "Pull"}})
START = datetime(2026, 3, 1, 11, 0, tzinfo=UTC)


def a_run(etcd: EtcdState = ETCD, size: str = "1Gi", phase: str = "Bound", restore: RestoreState | None = None) -> Run:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-prod-etcd-0", "namespace": "karmada"},
        "status": {"phase": phase, "capacity": {"storage": size}},
    }
    run = fake_run(
        samples.document({}), FakeCluster("host cluster", claim), stored=replace(STATE, etcd=etcd, restore=restore)
    )
    run.__dict__["now"] = samples.NOW
    return run


def record(run: Run, **fields: Any) -> Record:
    release = run.instance.release
    known: dict[str, Any] = {
        "name": "prod-20260301t110000z-1f3a9c",
        "series": "nightly",
        "deployment": "prod",
        "home": "karmada",
        "owner": samples.OWNER,
        "purpose": Purpose.SCHEDULED,
        "started": START.isoformat(),
        "duration_seconds": 1,
        "files": {SNAPSHOT: StoredFile(1, "", 100 * MIB, ""), KEYS: StoredFile(1, "", 1, "")},
        "cluster_id": "c",
        "revision": 100,
        "hash": 1,
        "total_keys": 1,
        "versions": Versions(release.karmada, release.kubernetes, release.etcd, "0.1.0"),
        "levels": (Level.HASH,),
        "recipients": (),
        "clusters": ("m1", "left"),
        "authorities": {
            name: AuthorityRecord(x509.fingerprint(pair.certificate), "") for name, pair in STATE.authorities.items()
        },
        "encryption_provider": run.spec.encryption_provider,
        "mode": "Container",
    }
    return Record(**{**known, **fields})


def chosen(run: Run, **fields: Any) -> Chosen:
    series: Any = SimpleNamespace(name="nightly")
    target: Any = SimpleNamespace(where="there")
    return Chosen(WantedRestore("back", "nightly"), series, target, record(run, **fields))


@pytest.fixture(autouse=True)
def _good_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "verify", lambda *_: [])
    monkeypatch.setattr(verify, "decrypted", lambda *_: None)
    monkeypatch.setattr(verify, "state_of", lambda *_: STATE)


def problems(run: Run, found: Chosen, live: Live | None = None, **asked: Any) -> list[Problem]:
    with pytest.raises(ProblemsError) as caught:
        check.refuse(run, found, live or Live(clusters={}), Asked(**{"keys": ("key",), **asked}))
    assert "nothing was stopped" in str(caught.value)
    return list(caught.value.problems)


def test_a_good_backup_is_not_refused() -> None:
    run = a_run()
    check.refuse(run, chosen(run), Live(clusters={"m1": "Push", "ours": "Pull"}), Asked(keys=("key",)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"versions": Versions("v1.17.0", "v1.35.4", "v3.6.16", "")}, "it is of Karmada v1.17.0"),
        ({"versions": Versions("", "v1.30.0", "v3.6.16", "")}, "it is of Kubernetes v1.30.0"),
        ({"mode": "Binary"}, "it is of mode Binary"),
        ({"encryption_provider": "identity"}, "its Secrets are encrypted by identity"),
        ({"authorities": {}}, "it was taken with another authority"),
        (
            {"files": {SNAPSHOT: StoredFile(1, "", 900 * MIB, ""), KEYS: StoredFile(1, "", 1, "")}},
            "1478 MiB are needed",
        ),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict[str, Any], said: str) -> None:
    run = a_run()
    assert any(said in each.what for each in problems(run, chosen(run, **fields)))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (lambda: a_run(phase="Lost"), "it is Lost and has no volume"),
        (lambda: a_run(replace(ETCD, storage="emptyDir")), "(emptyDir)"),
        (lambda: a_run(replace(ETCD, bootstrapped=False)), "its etcd has never worked"),
        (lambda: a_run(replace(ETCD, members=(EtcdMemberState("prod-etcd-7"),))), "it is not there"),
    ],
)
def test_what_cannot_take_it_is_refused(run: Any, said: str) -> None:
    found = run()
    assert any(said in each.what for each in problems(found, chosen(found)))


def test_an_authority_that_has_ended_is_refused() -> None:
    run = a_run()
    run.__dict__["now"] = samples.NOW + timedelta(days=365 * 50)
    assert any("has ended" in each.what for each in problems(run, chosen(run)))


def test_an_agent_of_others_is_refused_until_its_member_is_named() -> None:
    run, live = a_run(), Live(clusters={"ours": "Pull", "theirs": "Pull", "pushed": "Push"})
    (problem,) = problems(run, chosen(run), live)
    assert (problem.where, problem.reason) == ("member theirs", Reason.RESTORE_IMPOSSIBLE)
    assert '"theirs"' in problem.remedy
    check.refuse(run, chosen(run), live, Asked(keys=("key",), foreign_agents=["theirs"]))


def test_where_no_api_answers_whoever_others_have_registered_may_have_an_agent() -> None:
    run = a_run()
    found = chosen(run, clusters=("ours", "theirs"))
    (problem,) = problems(run, found, Live())
    assert problem.where == "member theirs"
    assert "no API answers" in problem.what
    check.refuse(run, found, Live(), Asked(keys=("key",), foreign_agents=["theirs"]))


def test_room_is_needed_beside_what_etcd_has() -> None:
    """And beside its log: six pieces of 64 MiB, which are no part of its size."""
    run = a_run(size="702Mi")
    small = Live([EndpointStatus("u", db_size=40 * MIB)], {})
    check.refuse(run, chosen(run), small, Asked(keys=("key",)))
    (problem,) = problems(run, chosen(run), replace(small, statuses=[EndpointStatus("u", db_size=41 * MIB)]))
    assert "278 MiB are needed beside the data that is there with its log (425 MiB)" in problem.what
    assert problem.remedy == "enlarge the claim"


def with_old_data(size: str, *aside: str, step: str = RELEASED) -> Run:
    earlier = RestoreState(
        "back",
        "nightly",
        "prod-20260301t110000z-1f3a9c",
        START.isoformat(),
        samples.TOKEN,
        3,
        1,
        replace(ETCD, generation=2),
        aside=aside,
        step=step,
    )
    return a_run(replace(ETCD, generation=3), size, restore=earlier)


def test_old_data_is_counted_and_what_removes_it_is_named() -> None:
    """A volume that a restore has filled stops an etcd that serves."""
    small = Live([EndpointStatus("u", db_size=40 * MIB)], {})
    # 484 MiB each: old databases may have been as large as the one that is restored.
    check.refuse(run := with_old_data("1186Mi", "gen-1"), chosen(run), small, Asked(keys=("key",)))
    (problem,) = problems(run := with_old_data("1185Mi", "gen-1"), chosen(run), small)
    assert "and 1 folder of old data (up to 484 MiB)" in problem.what
    assert "karmada.installer.restore_cleanup" in problem.remedy
    (problem,) = problems(run := with_old_data("1186Mi", "gen-1", "gen-0"), chosen(run), small)
    assert "2 folders of old data (up to 968 MiB)" in problem.what


def test_of_a_restore_that_is_not_over_what_was_there_before_it_is_counted_too() -> None:
    small = Live([EndpointStatus("u", db_size=40 * MIB)], {})
    (problem,) = problems(run := with_old_data("1186Mi", "gen-1", step="Compare"), chosen(run), small)
    assert "2 folders of old data" in problem.what
    assert "before the restore is over" in problem.remedy


def test_pods_that_are_not_admitted_are_told_before_anything_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    run, tried = a_run(), []

    def refused(obj: Any, *, dry_run: bool = False, **_: Any) -> None:
        tried.append((obj["kind"], obj["metadata"]["name"], dry_run))
        raise Forbidden("host cluster", "PATCH", "/", 403, "Forbidden", "pods is forbidden")

    monkeypatch.setattr(run.host_cluster, "apply", refused)
    (problem,) = problems(run, chosen(run))
    assert "pods is forbidden" in problem.what
    assert tried == [("Pod", "prod-etcd-0-gen-2", True)]


RESTORE = RestoreState("back", "nightly", "b1", START.isoformat(), "t", 2, 10**9, ETCD)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, ""),
        ({"confirm": "b1"}, ""),
        ({"restores": []}, ""),
        ({"confirm": "b2"}, "b1 is being restored (back), and b2 is meant now"),
        ({"name": "other"}, "b1 is being restored (back), and other is meant now"),
        ({"restores": [("back", "b3")]}, "b3 is meant now"),
        ({"restores": [("back", "b3")], "confirm": "b1"}, ""),
    ],
)
def test_another_than_the_one_under_way_is_refused(asked: dict[str, Any], said: str) -> None:
    documents = [written(name, backup=backup) for name, backup in asked.pop("restores", [("back", "b1")])]
    where, given = a_run(), Asked(documents, **asked)
    # Where a part is released, another one may begin: what is held then is held by the data that is put beside.
    part = replace(RESTORE, step=PART_RELEASED, parts={"m1": ()})
    assert check.goes_on(where, given, part, RESTORE.generation) is (not said)
    # Nor is anybody asked where nothing is under way.
    for over in (RELEASED, UNDONE):
        assert not check.goes_on(where, given, replace(RESTORE, step=over), RESTORE.generation)
    if not said:
        assert check.goes_on(where, given, RESTORE, RESTORE.generation)
        return
    with pytest.raises(ProblemsError) as caught:
        check.goes_on(where, given, RESTORE, RESTORE.generation)
    assert said in str(caught.value)
    assert "restore_undo" in str(caught.value)
    # While a release is under way there is no way back, and it is gone on with.
    with pytest.raises(ProblemsError) as caught:
        check.goes_on(where, given, replace(RESTORE, step="StartAll"), RESTORE.generation)
    assert "ave its release come to its end" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "done"),
    [({}, True), ({"step": UNDONE}, False), ({"name": "earlier"}, False), ({"backup": "older"}, False)],
)
def test_a_document_that_was_carried_out_has_nothing_to_do(fields: dict[str, str], done: bool) -> None:
    found = chosen(a_run())
    assert check.is_done(replace(RESTORE, **{"step": RELEASED, "backup": found.record.name, **fields}), found) is done


def test_everything_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: Any) -> None:
        raise ProblemsError(Problem("it is not what was stored", "there", "", reason=Reason.INVALID_BACKUP))

    monkeypatch.setattr(verify, "verify", damaged)
    run = a_run(phase="Lost")
    told = problems(run, chosen(run, mode="Binary"))
    assert len(told) == 3
    assert "it is not what was stored" in told[-1].what
    (without_key,) = [each for each in problems(run, chosen(run), keys=()) if "private key" in each.what]
    assert "restore_identity" in without_key.remedy


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"encryption_key": "b3RoZXI="}, "the key that encrypts Secrets was another one"),
        ({"service_account_key": b"other"}, "the key that signs tokens of service accounts was another one"),
    ],
)
def test_keys_that_are_others_by_now_are_refused(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(verify, "state_of", lambda *_: replace(STATE, **fields))
    run = a_run()
    (problem,) = problems(run, chosen(run))
    assert problem.what == said
    assert "b3RoZXI" not in str(problem)


def test_what_the_command_line_does_not_say_the_document_does(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run()
    secrets = {"restore-key": {"identity": b"AGE-SECRET-KEY-1X"}, "empty": {}}
    monkeypatch.setattr(type(run), "secret", lambda _run, name, _where: secrets[name])
    monkeypatch.setattr(encryption, "identities", lambda text, _where: [text])
    wanted = WantedRestore("back", "nightly", confirm="prod-1", secret="restore-key", foreign_agents=("m3",))
    found = Asked().completed(run, wanted)
    assert (found.confirm, found.foreign_agents, found.keys) == ("prod-1", ("m3",), ["AGE-SECRET-KEY-1X"])
    said = Asked(confirm="prod-2", foreign_agents=("m4",), keys=("key",))
    assert said.completed(run, wanted) == said
    with pytest.raises(ProblemsError, match=r"karmada/empty.*has no key identity"):
        Asked().completed(run, replace(wanted, secret="empty"))
    with pytest.raises(ProblemsError, match="no private key is here"):
        check.refuse(run, chosen(run), Live(clusters={}), Asked().completed(run, replace(wanted, secret="")))


def test_a_decision_upon_another_restore_is_refused() -> None:
    under_way = RestoreState("back", "nightly", "prod-1", "", "", 2, 1, ETCD, ())
    check.require_named(under_way, "", "there")
    check.require_named(under_way, "back", "there")
    with pytest.raises(ProblemsError, match="is back, not forth"):
        check.require_named(under_way, "forth", "there")


def test_the_loss_is_told() -> None:
    run = a_run()
    live = Live([EndpointStatus("u", revision=350)], {"m1": "Push", "joined": "Push"})
    told = "; ".join(check.loss(run, chosen(run, dirty="install had not come to its end"), live))
    for said in (
        "(1 h ago)",
        "250 revisions",
        "joined, which joined since",
        "that left left",
        "had not come to its end",
    ):
        assert said in told
    blind = "; ".join(check.loss(run, chosen(run), Live()))
    assert "no member of etcd answers" in blind
    assert "the API server does not answer" in blind


def test_the_revision_is_above_any_that_a_client_has_seen() -> None:
    assert new_data.bump(timedelta(hours=1)) == 10**9
    assert new_data.bump(timedelta(days=1)) == 86_400 * 50_000


def written(name: str = "back", series: str = "nightly", **fields: Any) -> dict[str, Any]:
    spec = {"deploymentRef": {"name": "prod"}, "backupRef": {"name": series}, **fields}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """With three backups in the target: one of its own, one of another series, one that nobody of ours has signed."""
    found = a_run()
    of_other = record(found, name="prod-20260301t120000z-000002", series="other")
    unsigned = record(found, name="prod-20260301t120000z-000003")
    listed = [
        Found(record(found).name, record(found), ours=True),
        Found(of_other.name, of_other, ours=True),
        Found(unsigned.name, unsigned, ours=False),
        Found("prod-20260301t120000z-000004", None, trouble="it is no record"),
    ]
    monkeypatch.setattr(backup_series, "wanted", lambda *_: [SimpleNamespace(name="nightly")])
    monkeypatch.setattr(backup_series, "opened", lambda *_: SimpleNamespace(where="there"))
    monkeypatch.setattr(backup_series, "signer", lambda _run: "k")
    monkeypatch.setattr(backup_series, "found", lambda *_: listed)
    return found


def test_the_newest_of_its_own_is_meant_if_none_is_named(run: Run) -> None:
    assert check.choose(run, Asked([written()])).record.name == record(run).name
    assert check.choose(run, Asked([written(backup=record(run).name)])).record.name == record(run).name
    assert check.choose(run, Asked([written(backup="prod-x")]), record(run).name).record.name == record(run).name


@pytest.mark.parametrize(
    ("restores", "asked", "said"),
    [
        ([], {}, "there is no EtcdRestore for prod"),
        ([written(), written("other")], {}, "there are 2"),
        ([written()], {"name": "else"}, "else is no EtcdRestore"),
        ([written(series="hourly")], {}, "there is no EtcdBackup hourly"),
        ([written(backup="prod-x")], {}, "there is no backup prod-x"),
        ([written(backup="prod-20260301t120000z-000002")], {}, "is of another series"),
        ([written(backup="prod-20260301t120000z-000003")], {}, "is not signed by this control plane"),
        ([written(backup="prod-20260301t120000z-000004")], {}, "is of no use: it is no record"),
    ],
)
def test_another_is_not_taken_for_it(run: Run, restores: list[Any], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ProblemsError, match=said):
        check.choose(run, Asked(restores, **asked))


def test_of_several_one_is_named(run: Run) -> None:
    assert check.choose(run, Asked([written(), written("other")], name="other")).wanted.name == "other"
