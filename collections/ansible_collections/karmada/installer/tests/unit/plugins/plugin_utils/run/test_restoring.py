# SPDX-License-Identifier: Apache-2.0
"""What a restore holds does not run, agents have no way in, and no other operation changes anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import series
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import EtcdMemberState, EtcdState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import HandOverState, TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    RELEASED,
    UNDONE,
    RestoreState,
    State,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.table import (
    CLIENT_SIGNING_CA,
    KARMADA_CA,
    pod_components,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.encoding import base64_text
from ansible_collections.karmada.installer.plugins.plugin_utils.pki import x509
from ansible_collections.karmada.installer.plugins.plugin_utils.preflight import findings
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import workloads as render
from ansible_collections.karmada.installer.plugins.plugin_utils.report import hold
from ansible_collections.karmada.installer.plugins.plugin_utils.run import restoring, store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = ("prod-etcd-0", "prod-etcd-1", "prod-etcd-2")
ETCD = EtcdState(
    samples.TOKEN, bootstrapped=True, storage="volumeClaim", members=tuple(EtcdMemberState(name) for name in NAMES)
)
RESTORE = RestoreState(
    name="back",
    series="nightly",
    backup="prod-20261125t020000z-1f3a9c",
    started="2026-11-25T02:41:00+00:00",
    token="0d6c2a35",
    generation=2,
    bump=10**9,
    former=ETCD,
    members=NAMES,
)
THREE = samples.etcd(replicas=3)


def run_with(restore: RestoreState | None, operation: str = "install", etcd: EtcdState = ETCD) -> Run:
    stored = samples.state(etcd=etcd, restore=restore)
    return fake_run(samples.document(THREE), FakeCluster("host cluster"), stored=stored, operation=operation)


def replicas(run: Run) -> dict[str, int]:
    objects = run.workloads([each.name for each in pod_components(run.spec)])
    return {
        each["metadata"]["name"]: each["spec"]["replicas"] for each in objects if "replicas" in each.get("spec", {})
    }


def test_what_is_held_has_no_pods_and_all_else_is_as_it_was() -> None:
    before = replicas(run_with(None))
    held = replicas(run_with(replace(RESTORE, held=("etcd", "karmada-scheduler"))))
    assert held == {**before, "prod-etcd": 0, "prod-scheduler": 0}
    assert before["prod-etcd"] == 3
    assert replicas(run_with(RESTORE)) == before


def test_members_that_are_held_keep_their_volumes_on_the_nodes() -> None:
    on_nodes = replace(ETCD, storage="hostPath", nodes=("a", "b", "c"))
    kept = run_with(replace(RESTORE, held=("etcd",)), etcd=on_nodes).workloads(["etcd"])
    assert len([each for each in kept if each["kind"] == "PersistentVolume"]) == 6


def client_authorities(restore: RestoreState | None) -> str:
    run = run_with(restore)
    secrets = render.file_set_secrets(run.instance, run.layout, run.material)
    (found,) = [each for each in secrets if each["metadata"]["name"] == "prod-client-ca"]
    return str(found["data"]["ca.crt"])


def test_a_closed_api_server_trusts_no_certificate_of_an_agent() -> None:
    ours, of_agents = (samples.authorities()[name].certificate for name in (KARMADA_CA, CLIENT_SIGNING_CA))
    assert client_authorities(replace(RESTORE, closed=True)) == base64_text(ours)
    for opened in (None, RESTORE):
        assert client_authorities(opened) == base64_text(x509.bundle(ours, of_agents))


@pytest.mark.parametrize("operation", ["install", "members", "cordon", "drain", "etcd_maintenance", "preflight"])
def test_others_are_refused_with_the_ways_out(operation: str) -> None:
    told = restoring.problem(run_with(RESTORE).state, operation, "here")
    assert told is not None
    assert told.reason is Reason.QUARANTINED
    for way in ("restore", "release", "restore_undo"):
        assert f"karmada.installer.{way}" in told.remedy
    assert RESTORE.backup in told.what


@pytest.mark.parametrize("operation", ["restore", "release", "restore_undo", "uninstall"])
def test_what_belongs_to_it_is_not(operation: str) -> None:
    assert restoring.problem(run_with(RESTORE).state, operation, "here") is None


def told_of(run: Run) -> str:
    """Sentence of the report on what holds the control plane."""
    found = hold.of(run.state)
    assert found is not None
    return found.told


@pytest.mark.parametrize("restore", [None, replace(RESTORE, step=RELEASED), replace(RESTORE, step=UNDONE)])
def test_without_one_under_way_nothing_is(restore: RestoreState | None) -> None:
    assert restoring.problem(run_with(restore).state, "install", "here") is None
    assert hold.of(run_with(restore).state) is None


@pytest.mark.parametrize("over", [True, False])
def test_a_place_that_is_left_is_not_worked_on(over: bool) -> None:
    left = HandOverState("disk", "now", step="HandedOver" if over else "StopWriters", backup=RESTORE.backup)
    state = replace(run_with(None).state, handed_over=left)
    for operation in ("install", "members", "restore", "release", "cordon", "preflight"):
        told = restoring.problem(state, operation, "here")
        assert told is not None
        assert told.reason is Reason.MOVED
        assert "hand_over_undo=true" in told.remedy
    for operation in ("hand_over", "uninstall"):
        assert restoring.problem(state, operation, "here") is None


def test_a_place_to_which_nothing_has_come_yet_is_left_to_the_restore() -> None:
    taken = TakeOverState("disk", RESTORE.backup, "karmada-prod/prod")
    state = replace(run_with(None).state, taken_over=taken)
    for operation in ("install", "release", "hand_over"):
        told = restoring.problem(state, operation, "here")
        assert told is not None
        assert told.reason is Reason.QUARANTINED
    for operation in ("restore", "uninstall"):
        assert restoring.problem(state, operation, "here") is None


def test_backups_that_it_needs_are_kept_until_it_is_over() -> None:
    under_way = replace(RESTORE, before="prod-20261126t020000z-000000")
    assert series.in_use(run_with(under_way).state) == (RESTORE.backup, "prod-20261126t020000z-000000")
    upon = replace(under_way, backup="other", before="", former_restore=under_way)
    assert set(series.in_use(run_with(upon).state)) >= {"other", RESTORE.backup, under_way.before}
    assert series.in_use(run_with(replace(under_way, step=RELEASED)).state) == ()
    assert series.in_use(run_with(None).state) == ()


def test_preflight_tells_it_before_anything_is_looked_at() -> None:
    assert [each.reason for each in findings._managed(run_with(RESTORE))] == [Reason.QUARANTINED]
    assert list(findings._managed(run_with(RESTORE, operation="restore"))) == []


def test_nothing_is_written_by_a_run_that_never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is taken first, and the state read under it decides."""
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    run = run_with(RESTORE)
    before = run.host_cluster.list("v1", "Secret", "karmada")
    with pytest.raises(ProblemsError) as caught, run.writing("create a thing"):
        pytest.fail("it must not get here")
    assert caught.value.problems[0].reason is Reason.QUARANTINED
    assert run.host_cluster.list("v1", "Secret", "karmada") == before


def test_the_report_says_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    held = replace(RESTORE, held=("karmada-scheduler",))
    assert "being restored" in told_of(run_with(held))
    switched: State = replace(run_with(held).state, etcd=replace(ETCD, generation=2))
    run = run_with(held)
    monkeypatch.setattr(Run, "state", switched)
    told = told_of(run)
    assert f"restored from {RESTORE.backup}" in told
    assert "karmada-scheduler" in told


def test_after_the_release_of_a_part_only_the_rest_is_the_way_out() -> None:
    part = replace(RESTORE, step="PartReleased", parts={"m1": ()})
    told = restoring.problem(run_with(part).state, "install", "here")
    assert told
    assert "the rest is held" in told.what
    assert "restore_undo" not in told.remedy


def test_the_report_says_which_part_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"m1": (), "m2": ("shop",)}
    run = run_with(replace(RESTORE, step="PartReleased", parts=parts))
    monkeypatch.setattr(Run, "state", replace(run.state, etcd=replace(ETCD, generation=2)))
    told = told_of(run)
    assert f"restored from {RESTORE.backup}; released is m1, m2 (namespace shop), and all else is held" in told
