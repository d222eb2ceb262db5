# SPDX-License-Identifier: Apache-2.0
"""What the step does with each series: due, taken, deleted, told; how one is taken is in the contract tests."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import backup as action
from ansible_collections.karmada.installer.plugins.plugin_utils import run_process
from ansible_collections.karmada.installer.plugins.plugin_utils.artifacts.programs import Program
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import (
    drill,
    record,
    series,
    take,
    targets,
    workplace,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.drill import Drilled
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.record import RECORD, SNAPSHOT, Purpose
from ansible_collections.karmada.installer.plugins.plugin_utils.backup.take import Taken
from ansible_collections.karmada.installer.plugins.plugin_utils.components.image_pins import Held
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.document import backups, crd
from ansible_collections.karmada.installer.plugins.plugin_utils.document.backups import Wanted
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.backup_series import (
    IDENTITY,
    NOW,
    document,
    names,
    perform,
    run_of,
    stored,
)
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return run_of(tmp_path, monkeypatch)


def test_the_first_is_taken_at_once_and_then_none_until_the_next_hour(run: Run, tmp_path: Path) -> None:
    first = perform(run)
    assert first["changed"]
    assert [f"created Backup {name}" for name in names(tmp_path)] == first["changes"]
    (told,) = first["backups"]
    assert (told["name"], told["status"]["count"], told["status"]["nextTime"]) == ("nightly", 1, "2026-11-25T13:00:00Z")
    assert told["status"]["conditions"][0]["status"] == "True"
    again = perform(run)
    assert (again["changed"], again["changes"]) == (False, [])
    assert "no backup of nightly is due before 2026-11-25T13:00:00Z" in run.said  # type: ignore[attr-defined]
    run.now = NOW + timedelta(minutes=30)
    assert perform(run)["changed"]
    assert len(names(tmp_path)) == 2


def test_where_none_is_due_nothing_is_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer calls it every few minutes: each probe would be a version in a bucket that keeps all of them."""
    perform(run)

    def written(*_: Any) -> None:
        raise AssertionError("something was written")

    for method in ("check", "put", "delete"):
        monkeypatch.setattr(targets.DirectoryTarget, method, written)
    assert not perform(run)["changed"]


@pytest.mark.parametrize("check", [False, True])
def test_what_a_killed_run_has_left_in_plain_goes_also_where_none_is_due(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    left = workplace.folder() / "run-killed"
    left.mkdir(parents=True)
    (left / "holder").write_text(run_process.holder_identity().rpartition("/")[0] + "/1")
    run.check = check
    perform(run, document(suspend=True))
    assert left.exists() is check


def test_the_one_that_was_taken_now_stays_although_a_clock_was_ahead_once(run: Run, tmp_path: Path) -> None:
    few = document(retention={"hourly": 1, "daily": 0, "weekly": 0})
    wanted = Wanted.of(backups.resolved([few], run.deployment)[0])
    ahead = stored(run, wanted, series.opened(run, wanted), Purpose.SCHEDULED, NOW + timedelta(days=900)).record.name
    (taken,) = [each for each in perform(run, few)["changes"] if each.startswith("created")]
    assert names(tmp_path) == [taken.removeprefix("created Backup "), ahead]


def test_by_a_clock_that_was_ahead_nothing_is_swept_and_none_is_the_newest(run: Run, tmp_path: Path) -> None:
    """Another series stores its data right now, its record last: swept, it would be a verified backup without data."""
    wanted = Wanted.of(backups.resolved([document()], run.deployment)[0])
    target = series.opened(run, wanted)
    stored(run, wanted, target, Purpose.SCHEDULED, NOW + timedelta(days=900))
    draft = record.new_name("prod", NOW, "abcdef")
    target.put(draft, SNAPSHOT, io.BytesIO(b"x"), 1)
    result = perform(run)
    (taken,) = [each.removeprefix("created Backup ") for each in result["changes"]]
    assert draft in names(tmp_path)
    assert result["backups"][0]["status"]["newest"]["name"] == taken
    (verified,) = perform(run, state="verified")["verified"]
    assert verified["name"] == taken


def test_a_quarantined_control_plane_is_backed_up_only_if_somebody_asks_for_it(run: Run, tmp_path: Path) -> None:
    """Taken by a timer, it would be the newest of its series after the way back, of an etcd that nobody uses."""
    (good,) = [each.removeprefix("created Backup ") for each in perform(run)["changes"]]
    before, later = run.state, NOW + timedelta(hours=15)
    restore = RestoreState("back", "nightly", good, NOW.isoformat(), "0d6c", 2, 10**9, before.etcd)
    run.now = later
    for step, undoing in (("", False), ("Compare", False), ("Hold", False), ("StartFormer", True)):
        run.go_on_with(replace(before, restore=replace(restore, step=step, undoing=undoing)))
        assert perform(run)["changes"] == []
        assert "a restore holds the control plane; the release takes one" in run.said[-1]  # type: ignore[attr-defined]
    assert len(perform(run, now="nightly")["changes"]) == 1
    run.now = later + timedelta(hours=1)
    for step in ("PartReleased", "Undone", "Released"):
        run.now += timedelta(hours=1)
        run.go_on_with(replace(before, restore=replace(restore, step=step)))
        assert [each for each in perform(run)["changes"] if each.startswith("created")]


@pytest.mark.parametrize(("step", "stays"), [("Compare", True), ("Released", False)])
def test_what_a_restore_under_way_needs_stays(run: Run, tmp_path: Path, step: str, stays: bool) -> None:
    few = document(retention={"hourly": 1, "daily": 0, "weekly": 0})
    wanted = Wanted.of(backups.resolved([few], run.deployment)[0])
    older, newer = (
        stored(run, wanted, series.opened(run, wanted), Purpose.SCHEDULED, NOW - timedelta(days=days)).record.name
        for days in (2, 1)
    )
    restore = RestoreState("back", "nightly", older, NOW.isoformat(), "0d6c", 2, 10**9, run.state.etcd, step=step)
    run.go_on_with(replace(run.state, restore=replace(restore, before=newer)))
    perform(run, few)
    assert set(names(tmp_path)) >= {older, newer} if stays else not {older, newer} & set(names(tmp_path))


@pytest.mark.parametrize("as_object", [False, True])
def test_what_waits_to_be_confirmed_stays_until_its_restore_is_over(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_object: bool
) -> None:
    few = document(retention={"hourly": 1, "daily": 0, "weekly": 0})
    wanted = Wanted.of(backups.resolved([few], run.deployment)[0])
    older = stored(run, wanted, series.opened(run, wanted), Purpose.SCHEDULED, NOW - timedelta(days=2)).record.name
    restore = {"metadata": {"name": "back"}, "spec": {"backup": older}, "status": {"phase": "AwaitsConfirmation"}}
    given = [] if as_object else [restore]
    monkeypatch.setattr(series, "wanted", lambda *_: [wanted])
    monkeypatch.setattr(series, "names", lambda *_: ["nightly"])
    if as_object:
        run.connection = replace(run.connection, object_uid="uid")
        run.home = SimpleNamespace(list=lambda _version, kind, _home: [restore] if kind == "EtcdRestore" else [])  # type: ignore[misc,assignment]
    perform(run, few, restores=given)
    assert older in names(tmp_path)
    done = RestoreState("back", "nightly", older, NOW.isoformat(), "0d6c", 2, 10**9, run.state.etcd, step="Released")
    run.go_on_with(replace(run.state, restore=done))
    run.now = NOW + timedelta(hours=1)
    perform(run, few, restores=given)
    assert older not in names(tmp_path)


def test_what_is_told_of_a_series_is_the_status_of_its_object(run: Run) -> None:
    (told,) = perform(run)["backups"]
    findings = crd.structure_findings({**document(), "status": told["status"]}, backups.BACKUP.schema)
    assert [each for each in findings if each.path[:1] == ("status",)] == []


def test_one_that_is_asked_for_is_taken_and_no_other(run: Run, tmp_path: Path) -> None:
    both = (document(suspend=True), document("weekly", schedule="0 2 * * 0"))
    assert perform(run, *both, now="nightly")["changed"]
    assert [each.partition("-")[0] for each in names(tmp_path)] == ["prod"]
    with pytest.raises(ProblemsError, match=r"other is no EtcdBackup of prod.*Name one of nightly, weekly"):
        perform(run, *both, now="other")


def test_a_suspended_one_is_not_due(run: Run, tmp_path: Path) -> None:
    result = perform(run, document(suspend=True))
    assert not result["changed"]
    assert result["backups"][0]["status"]["conditions"][0]["reason"] == "NoBackup"


def test_only_the_one_that_is_named_is_looked_at_and_it_has_to_be_due(run: Run, tmp_path: Path) -> None:
    both = (document(), document("weekly"))
    result = perform(run, *both, only="weekly")
    assert [each["name"] for each in result["backups"]] == ["weekly"]
    assert result["changed"]
    assert not perform(run, *both, only="weekly")["changed"]
    with pytest.raises(ProblemsError, match="hourly is no EtcdBackup"):
        perform(run, *both, only="hourly")


def test_missed_ones_are_told(run: Run, tmp_path: Path) -> None:
    perform(run)
    run.now = NOW + timedelta(hours=4)
    perform(run)
    assert [(each.reason, each.what) for each in run.told] == [
        (Reason.BACKUP_MISSED, "EtcdBackup nightly has missed 3 backups")
    ]


def test_old_ones_go_after_a_success_and_only_then(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = document(retention={"hourly": 1, "daily": 0, "weekly": 0})
    perform(run, few)
    (first,) = names(tmp_path)
    run.now = NOW + timedelta(hours=1)

    def failing(*_: Any, **_more: Any) -> Taken:
        raise ProblemsError(Problem("etcd is away", reason=Reason.ETCD_UNHEALTHY))

    monkeypatch.setattr(take, "backup", failing)
    with pytest.raises(ProblemsError, match="etcd is away"):
        perform(run, few)
    assert names(tmp_path) == [first]
    monkeypatch.setattr(take, "backup", stored)
    result = perform(run, few)
    assert f"deleted Backup {first}" in result["changes"]
    assert len(names(tmp_path)) == 1


def test_a_series_that_fails_keeps_no_other_from_its_work(run: Run, tmp_path: Path) -> None:
    run.connection = replace(run.connection, secrets=str(tmp_path))
    bucket = {"s3": {"bucket": "backups", "endpoint": "https://127.0.0.1:1", "secretRef": {"name": "absent"}}}
    with pytest.raises(ProblemsError) as caught:
        perform(run, document("a-bucket", target=bucket), document())
    assert [each.reason for each in caught.value.problems] == [Reason.SECRET_NOT_FOUND]
    assert "done nevertheless: created Backup prod-" in str(caught.value)
    assert len(names(tmp_path)) == 1


def test_a_check_takes_nothing(run: Run, tmp_path: Path) -> None:
    run.check = True
    assert perform(run)["changes"] == ["created Backup nightly"]
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_wrong_public_key_is_told_before_anything_is_asked(run: Run, tmp_path: Path) -> None:
    text = str(IDENTITY.to_public())
    wrong = text[:-1] + ("q" if text[-1] != "q" else "p")
    with pytest.raises(ProblemsError, match=r"EtcdBackup nightly: spec\.recipients\[0\]"):
        perform(run, document(recipients=[wrong]))
    assert list((tmp_path / "backups").iterdir()) == []


def test_all_that_lies_there_is_listed(run: Run, tmp_path: Path) -> None:
    perform(run)
    (mine,) = names(tmp_path)
    damaged = tmp_path / "backups" / "prod" / record.new_name("prod", NOW - timedelta(days=1), "000000")
    damaged.mkdir()
    (damaged / RECORD).write_text("{}")
    result = perform(run, state="listed")
    assert not result["changed"]
    (told,) = result["backups"]
    assert [(each["name"], each["ours"]) for each in told["backups"]] == [(damaged.name, False), (mine, True)]
    assert "no record of a backup" in told["backups"][0]["trouble"]
    assert told["status"]["count"] == 1


def test_the_newest_or_a_named_one_is_verified(run: Run, tmp_path: Path) -> None:
    perform(run)
    (first,) = names(tmp_path)
    run.now = NOW + timedelta(hours=1)
    perform(run)
    newest = names(tmp_path)[-1]
    assert perform(run, state="verified")["verified"] == [{"name": newest, "series": "nightly", "proofs": ["stored"]}]
    assert perform(run, state="verified", name=first)["verified"][0]["name"] == first
    assert [each.reason for each in run.told] == [Reason.CHECK_SKIPPED] * 2
    with pytest.raises(ProblemsError, match="there is no backup other"):
        perform(run, state="verified", name="other")
    (tmp_path / "backups" / "prod" / newest / SNAPSHOT).write_bytes(b"damaged")
    with pytest.raises(ProblemsError, match="it is not what was stored"):
        perform(run, state="verified")


def test_a_drill_is_with_the_newest_or_a_named_one_and_tells_what_it_took(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(run)
    run.now = NOW + timedelta(hours=1)
    perform(run)
    first, newest = names(tmp_path)
    identity = tmp_path / "key.txt"
    identity.write_text(str(IDENTITY))
    seconds = {"fetched": 0.5, "restored": 1.0, "served": 3.0, "read": 9.0}
    monkeypatch.setattr(
        drill, "drill", lambda _run, _target, found, _keys: Drilled(found.name, 7, {"works": 3}, seconds)
    )
    run.now += timedelta(minutes=30)
    told = perform(run, state="drilled", identity=str(identity))["drilled"]
    assert told == [
        {
            "name": newest,
            "series": "nightly",
            "ageSeconds": 1800,
            "revision": 7,
            "counts": {"works": 3},
            "seconds": seconds,
        }
    ]
    (line,) = [each for each in run.said if newest in each and "served" in each]  # type: ignore[attr-defined]
    assert "30 min old, served after 4.5 s" in line
    assert perform(run, state="drilled", identity=str(identity), name=first)["drilled"][0]["name"] == first
    with pytest.raises(ProblemsError, match="no private key is here"):
        perform(run, state="drilled")
    with pytest.raises(ProblemsError, match="there is no backup other"):
        perform(run, state="drilled", identity=str(identity), name="other")


def test_a_file_without_a_private_key_is_told(run: Run, tmp_path: Path) -> None:
    perform(run)
    with pytest.raises(ProblemsError, match="cannot be read: no such file"):
        perform(run, state="verified", identity=str(tmp_path / "absent"))


def test_without_any_document_it_is_told_how_one_is_written(run: Run) -> None:
    step = object.__new__(action.ActionModule)
    with pytest.raises(ProblemsError, match="there is no EtcdBackup for prod") as caught:
        step.perform(
            run, {"state": "taken", "restores": [], "backups": [], "now": "", "only": "", "name": "", "identity": ""}
        )
    assert "kind: EtcdBackup" in str(caught.value)


def test_an_etcd_that_is_not_ours_is_refused() -> None:
    run = fake_run(samples.document(samples.external_etcd()), FakeCluster("host cluster"), stored=samples.state())
    with pytest.raises(ProblemsError, match="etcd is not of this control plane"):
        take.refuse(run)


@pytest.mark.parametrize(
    ("artifacts", "kind"),
    [
        # Of a control plane in pods that is where CRDs come from, and its programs are in its images.
        ({}, "Image"),
        ({"url": "https://mirror.example.com/karmada"}, "URL"),
        ({"source": "GoModules"}, "GoModules"),
    ],
)
def test_programs_are_of_the_etcd_that_runs(
    artifacts: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def programs(release: Any, architecture: str, components: Any, spec: Any, source: Any, held: Any) -> Any:
        asked.update(etcd=release.etcd, kind=source.kind, names=[each.name for each in components], held=held)
        return {each.name: Program(Path(f"/cache/{each.name}"), "", 0, release.etcd, "") for each in components}

    monkeypatch.setattr(take.program_files, "programs", programs)
    stored_state = samples.state(digests={"quay.io/coreos/etcd:v3.6.16": "sha256:" + "a" * 64})
    run = fake_run(samples.document({"artifacts": artifacts}), FakeCluster("host cluster"), stored=stored_state)
    found = take.programs(run)
    assert (found.etcd, found.etcdutl) == (Path("/cache/etcd"), Path("/cache/etcdutl"))
    assert (asked["etcd"], asked["kind"], asked["names"]) == (run.instance.release.etcd, kind, ["etcd", "etcdutl"])
    assert asked["held"] == Held(stored_state.digests)


def test_objects_are_looked_for_where_the_document_is_one(run: Run) -> None:
    home = FakeCluster("home")
    theirs = document("theirs", deploymentRef={"name": "stage"})
    for each in (document(), theirs):
        home.put({**each, "metadata": {**each["metadata"], "namespace": "karmada"}})
    run.connection = replace(run.connection, object_uid="uid")
    run.__dict__["home"] = home
    run.deployment["metadata"]["namespace"] = "karmada"
    step = object.__new__(action.ActionModule)
    given = {"state": "taken", "restores": [], "backups": [], "now": "", "only": "", "name": "", "identity": ""}
    assert [each["name"] for each in step.perform(run, given)["backups"]] == ["nightly"]
    # One that nobody could carry out keeps another from nothing.
    never = document("never", schedule="0 0 30 2 *")
    home.put({**never, "metadata": {**never["metadata"], "namespace": "karmada"}})
    with pytest.raises(ProblemsError, match="never comes"):
        step.perform(run, given)
    assert [each["name"] for each in step.perform(run, {**given, "only": "nightly"})["backups"]] == ["nightly"]
