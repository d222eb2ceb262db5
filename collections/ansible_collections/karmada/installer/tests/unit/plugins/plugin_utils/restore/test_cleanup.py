# SPDX-License-Identifier: Apache-2.0
"""Old data of a restore: what goes, by whose word, and how a run that is killed ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.components.etcd_state import (
    EtcdMemberState,
    LeftFolder,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import NAME_LABEL, OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import check, cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.beginnings import begin
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    DOCUMENT,
    FORMER,
    NAMES,
    World,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import Killed

BUSY = f"unlinkat {etcd_cleanup.SCRATCH}/log.tmp: device or resource busy"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return made(monkeypatch)


@pytest.fixture
def old(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A host cluster whose pods empty what is mounted to them, beside a control plane that was released."""

    def bring_about() -> None:
        take_steps(world, Goal.QUARANTINE)
        take_steps(world, Goal.RELEASE)

    begin("pods released", (world, world.inside), bring_about)
    apply = World.apply

    def with_pods(self: World, obj: Any, **more: Any) -> Applied:
        applied = apply(self, obj, **more)
        if obj["metadata"].get("labels", {}).get(NAME_LABEL) == etcd_cleanup.NAME:
            claim = obj["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"]
            (mount,) = [each for each in obj["spec"]["containers"][0]["volumeMounts"] if "subPath" in each]
            self.folders[claim.removeprefix("data-")][mount["subPath"]] = ""
            self.objects[self._key(obj)]["status"] = {"phase": "Failed"}
        return applied

    monkeypatch.setattr(World, "apply", with_pods)
    monkeypatch.setattr(World, "logs", lambda *_: f'{{"msg":"failed to create WAL","error":"{BUSY}"}}', raising=False)
    monkeypatch.setattr(cleanup, "_LOOK_SECONDS", 0)
    return world


def clean(world: World, confirm: str = "prod", killed_after: int | None = None, *, check: bool = False) -> list[Any]:
    run = fake_run(DOCUMENT, world, operation="restore_cleanup", check=check)
    world.until = None if killed_after is None else world.writes + killed_after
    try:
        return cleanup.clean(run, confirm, timeout=0)
    except Killed:
        return []
    finally:
        world.until = None
        run.close()


def left(world: World) -> set[tuple[str, str]]:
    return {(folder, content) for folders in world.folders.values() for folder, content in folders.items()}


def assert_cleaned(world: World) -> None:
    assert left(world) == {("gen-1", ""), ("gen-2", "backup")}
    assert stored(world).aside == ()
    assert etcd_cleanup.NAME not in {
        each["metadata"]["labels"][NAME_LABEL] for each in world.list("v1", "Pod", "karmada")
    }
    journal = fake_run(DOCUMENT, world).state.journal
    assert (journal.operation, journal.interrupted) == ("restore_cleanup", False)
    writes = world.writes
    assert clean(world) == []
    assert world.writes == writes, "a second run has nothing to do"


def test_what_was_put_aside_goes_from_every_volume_and_what_etcd_uses_stays(old: World) -> None:
    assert left(old) == {("gen-1", "before"), ("gen-2", "backup")}
    changes = clean(old)
    assert [each.ref.name for each in changes] == [f"data-{name}" for name in NAMES]
    assert_cleaned(old)
    assert old.content() == {"backup"}


@pytest.mark.parametrize("killed_after", range(14))
def test_a_run_that_is_killed_anywhere_is_carried_on_by_the_next(old: World, killed_after: int) -> None:
    clean(old, killed_after=killed_after)
    assert ("gen-2", "backup") in left(old)
    clean(old)
    assert_cleaned(old)


@pytest.mark.parametrize("confirm", ["", "other"])
def test_without_its_name_nothing_goes_and_what_would_is_named(old: World, confirm: str) -> None:
    writes = old.writes
    with pytest.raises(ProblemsError) as refused:
        clean(old, confirm)
    (problem,) = refused.value.problems
    assert problem.reason is Reason.CONFIRMATION_REQUIRED
    assert f"gen-1 would be removed for good from the volumes of {', '.join(NAMES)}" in problem.what
    assert ("other was confirmed" in problem.what) == bool(confirm)
    assert "restore_cleanup_confirm=prod" in problem.remedy
    assert old.writes == writes


def test_a_check_run_names_it_and_writes_nothing(old: World) -> None:
    writes = old.writes
    assert [each.note for each in clean(old, "", check=True)] == ["gen-1 emptied"] * 3
    assert old.writes == writes


def test_in_quarantine_and_on_the_way_back_it_is_refused_and_after_it_the_new_data_goes(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "is_done", lambda *_: False)
    take_steps(old, Goal.QUARANTINE)
    for killed_after in (0, 4):
        with pytest.raises(ProblemsError, match="old data goes when that is over"):
            clean(old)
        take_steps(old, Goal.UNDO, killed_after)
    take_steps(old, Goal.UNDO)
    assert stored(old).aside == ("gen-1", "gen-3")
    clean(old)
    assert left(old) == {("gen-1", ""), ("gen-2", "backup"), ("gen-3", "")}


def test_a_pod_that_has_not_emptied_its_folder_is_told_and_the_folder_stays_on_record(
    old: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        said = '{"error":"unlinkat /var/lib/etcd-cleanup/log.tmp/member/snap/db: permission denied"}'
        broken.setattr(World, "logs", lambda *_: said)
        with pytest.raises(ProblemsError, match="permission denied") as told:
            clean(old)
    assert len(told.value.problems) == len(NAMES)
    assert stored(old).aside == ("gen-1",)
    clean(old)
    assert_cleaned(old)


def test_where_no_restore_was_there_is_nothing_to_remove(world: World) -> None:
    assert clean(world) == []
    with pytest.raises(ProblemsError, match="there is no etcd yet"):
        cleanup.clean(fake_run(DOCUMENT, FakeCluster("empty")), "prod", 0)


def with_left(world: World, *left: LeftFolder) -> None:
    """Put folders on record that members have left in volumes; each member's volume is called as it is."""
    run = fake_run(DOCUMENT, world, operation="install")
    with run.writing("replace a member"):
        etcd = run.state.etcd
        members = tuple(replace(each, id=f"a{each.name[-1]}", volume=f"{each.name[-1]}{UID}") for each in etcd.members)
        run.save(replace(run.state, etcd=replace(etcd, members=members, left=left)))
    run.close()
    for each in left:
        world.folders[each.member][each.folder] = "of a member before"


UID = "0000000-0000-000000000001"
LEFT = LeftFolder(NAMES[1], "gen-2-8e9e", f"1{UID}")


def test_what_a_replaced_member_left_goes_from_its_volume_by_name(old: World) -> None:
    with_left(old, LEFT, LeftFolder(NAMES[2], "gen-2-8e9f", f"9{UID}"))
    with pytest.raises(ProblemsError) as refused:
        clean(old, "")
    (problem,) = refused.value.problems
    assert f"gen-2-8e9e in the volume of {NAMES[1]} would be removed for good" in problem.what
    assert "gen-2-8e9f" not in problem.what, "the volume that had it is gone"
    assert [each.ref.name for each in clean(old, "", check=True)] == [
        *(f"data-{name}" for name in NAMES),
        f"data-{NAMES[1]}",
    ]
    clean(old)
    assert old.folders[NAMES[1]]["gen-2-8e9e"] == ""
    assert old.folders[NAMES[2]]["gen-2-8e9f"] == "of a member before"
    assert old.content() == {"backup"}
    assert clean(old, "") == [], "a second run has nothing to do"


@pytest.mark.parametrize("killed_after", range(9))
def test_a_run_that_is_killed_while_such_a_folder_goes_is_carried_on_by_the_next(old: World, killed_after: int) -> None:
    clean(old)
    with_left(old, LEFT)
    clean(old, killed_after=killed_after)
    clean(old)
    assert old.folders[NAMES[1]]["gen-2-8e9e"] == ""
    state = fake_run(DOCUMENT, old).state
    assert (state.etcd.left, state.journal.interrupted) == ((), False)


def test_what_a_member_uses_is_never_taken_for_left(old: World) -> None:
    with_left(old, replace(LEFT, folder="gen-2"))
    writes = old.writes
    with pytest.raises(AssertionError, match="data in use"):
        clean(old)
    assert old.writes == writes


def claim(world: World, name: str, owner: str = samples.OWNER) -> None:
    metadata = {"name": name, "namespace": "karmada", "labels": {OWNER_LABEL: owner}, "uid": f"of-{name}"}
    world.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata})


@pytest.fixture
def shrunk(world: World) -> World:
    """Three members, with claims of two more that went, and others that are none of these."""
    for name in ("prod-etcd-0", "prod-etcd-2", "prod-etcd-3", "prod-etcd-4", "prod-etcd-5", "prod-other-9"):
        claim(world, f"data-{name}")
    claim(world, "data-prod-etcd-x")
    claim(world, "data-prod-etcd-7", "another")
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-prod-etcd-5"}}]
    metadata = {"name": "looks-into-it", "namespace": "karmada"}
    world.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"volumes": volumes}})
    return world


def claims(world: World) -> set[str]:
    return set(world.names("PersistentVolumeClaim"))


GONE = {"data-prod-etcd-3", "data-prod-etcd-4"}


def test_claims_of_members_that_etcd_has_no_more_go_by_the_name_of_the_control_plane(shrunk: World) -> None:
    before, writes = claims(shrunk), shrunk.writes
    assert [(each.action, each.ref.name) for each in clean(shrunk, "", check=True)] == [
        ("deleted", name) for name in sorted(GONE)
    ]
    with pytest.raises(ProblemsError) as refused:
        clean(shrunk, "")
    (problem,) = refused.value.problems
    assert problem.what.startswith("data-prod-etcd-3, data-prod-etcd-4 would be deleted with all data")
    assert "restore_cleanup_confirm=prod" in problem.remedy
    assert (claims(shrunk), shrunk.writes) == (before, writes)
    clean(shrunk)
    assert claims(shrunk) == before - GONE
    journal = fake_run(DOCUMENT, shrunk).state.journal
    assert (journal.operation, journal.interrupted) == ("restore_cleanup", False)
    assert clean(shrunk, "") == [], "a second run has nothing to do"


@pytest.mark.parametrize("killed_after", range(6))
def test_a_run_that_is_killed_while_claims_go_is_carried_on_by_the_next(shrunk: World, killed_after: int) -> None:
    before = claims(shrunk)
    clean(shrunk, killed_after=killed_after)
    clean(shrunk)
    assert claims(shrunk) == before - GONE
    assert not fake_run(DOCUMENT, shrunk).state.journal.interrupted


def test_a_claim_goes_neither_while_the_document_asks_for_its_member_nor_during_a_restore(shrunk: World) -> None:
    five = samples.document({"components": {"etcd": {"local": {"replicas": 5}}}})
    run = fake_run(five, shrunk, operation="restore_cleanup", check=True)
    assert cleanup.clean(run, "prod", 0) == []
    run.close()
    take_steps(shrunk, Goal.QUARANTINE)
    before = claims(shrunk)
    with pytest.raises(ProblemsError, match="old data goes when that is over"):
        clean(shrunk)
    assert claims(shrunk) == before


@pytest.mark.parametrize(
    ("aside", "members"),
    [("gen-1", FORMER.members), ("gen-1-8e9e", [EtcdMemberState(NAMES[0], id="8e9e", added=True)])],
)
def test_data_in_use_is_never_removed(aside: str, members: Any) -> None:
    etcd = replace(FORMER, members=tuple(members))
    restore = RestoreState("back", "nightly", "b", "", "t", 2, 10**9, FORMER, NAMES, step="Undone", aside=(aside,))
    with pytest.raises(AssertionError, match="data in use"):
        cleanup.due(samples.state(etcd=etcd, restore=restore))
