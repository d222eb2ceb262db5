# SPDX-License-Identifier: Apache-2.0
"""Restores of a control plane in pods whose runs are killed at any write, and what members were told by then."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.module_utils.etcd_requests import Hash
from ansible_collections.karmada.installer.plugins.plugin_utils.backup import take
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import RestoreState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.etcd.client import EndpointStatus
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.labels import MEMBER_LABEL, NAME_LABEL, OWNER_LABEL
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import Problem, ProblemsError, Reason, Severity
from ansible_collections.karmada.installer.plugins.plugin_utils.render import etcd_restore
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import (
    agents,
    check,
    closed,
    delivery,
    drift,
    in_pods,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.carry_out import Restoring
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.check import Asked, Live
from ansible_collections.karmada.installer.plugins.plugin_utils.restore.plan import Goal, Step
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.restore_pods_in_memory import (
    DOCUMENT,
    FORMER,
    NAMES,
    Client,
    World,
    assert_quarantined,
    assert_undisturbed,
    everything,
    made,
    stored,
    take_steps,
)
from ansible_collections.karmada.installer.tests.unit.support.restores_in_memory import (
    BACKUP,
    BACKUP_BEFORE,
    MOMENTS,
    Killed,
)

_NUMBERS = itertools.count(1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return made(monkeypatch)


def test_a_restore_ends_in_quarantine_and_a_release_lets_it_work(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    restore = stored(world)
    assert restore.before == BACKUP_BEFORE
    assert (restore.generation, restore.former) == (2, FORMER)
    state = fake_run(DOCUMENT, world).state
    assert (state.etcd.token, state.etcd.bootstrapped) == (restore.token, True)
    assert [each.name for each in state.etcd.members] == list(NAMES)
    assert state.etcd.token != FORMER.token
    take_steps(world, Goal.RELEASE)
    assert world.told == {"before", "backup"}
    assert world.running() == everything()
    assert (stored(world).step, stored(world).aside) == ("Released", ("gen-1",))
    assert not fake_run(DOCUMENT, world).state.journal.interrupted
    assert all("gen-1" in folders for folders in world.folders.values()), "data is never deleted"


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.RELEASE])
def test_what_is_done_is_done_once(world: World, goal: Goal) -> None:
    take_steps(world, Goal.QUARANTINE)
    if goal is Goal.RELEASE:
        take_steps(world, Goal.RELEASE)
    before = world.writes
    if goal is Goal.QUARANTINE:
        take_steps(world, Goal.QUARANTINE, confirm="")
    else:
        take_steps(world, Goal.RELEASE)
    assert world.writes == before


def test_a_run_that_is_killed_at_any_write_is_gone_on_with_or_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write of a whole restore, one after the other."""
    whole = made(monkeypatch)
    take_steps(whole, Goal.QUARANTINE)
    assert whole.writes > 20
    for killed_after in range(0, whole.writes, MOMENTS):
        for goal, holds in ((Goal.QUARANTINE, assert_quarantined), (Goal.UNDO, assert_undisturbed)):
            here = made(monkeypatch)
            take_steps(here, Goal.QUARANTINE, killed_after)
            assert here.told <= {"before"}
            if goal is Goal.UNDO and fake_run(DOCUMENT, here).state.restore is None:
                assert_undisturbed(here)  # nothing had begun
                continue
            take_steps(here, goal)
            holds(here)


def test_the_way_back_that_is_killed_at_any_write_is_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(monkeypatch)
    take_steps(whole, Goal.QUARANTINE)
    begun = whole.writes
    take_steps(whole, Goal.UNDO)
    assert_undisturbed(whole)
    assert stored(whole).aside == ("gen-2",)
    for killed_after in range(0, whole.writes - begun, MOMENTS):
        here = made(monkeypatch)
        take_steps(here, Goal.QUARANTINE)
        take_steps(here, Goal.UNDO, killed_after)
        take_steps(here, Goal.UNDO)
        assert_undisturbed(here)


def test_after_one_that_was_taken_back_another_uses_no_folder_again(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.UNDO)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).generation == 3
    take_steps(world, Goal.RELEASE)
    assert stored(world).aside == ("gen-1", "gen-2")


def test_one_that_was_released_is_not_restored_by_the_same_command_again(world: World) -> None:
    take_steps(world, Goal.QUARANTINE)
    take_steps(world, Goal.RELEASE)
    before = world.writes
    take_steps(world, Goal.QUARANTINE)
    assert world.writes == before
    assert stored(world).step == "Released"


def test_there_is_no_quarantine_with_an_api_server_that_accepts_agents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", lambda _run: ["prod-apiserver-1"])
        with pytest.raises(ProblemsError, match="certificates of agents are accepted by prod-apiserver-1") as caught:
            take_steps(world, Goal.QUARANTINE)
    assert [each.reason for each in caught.value.problems] == [Reason.QUARANTINE_OPEN]
    assert stored(world).step == Step.START_SERVERS
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", lambda _run: ["prod-apiserver-1"])
        run = fake_run(DOCUMENT, world, operation="restore")
        run.holder = "a later one"
        with pytest.raises(ProblemsError, match="are accepted"):
            Restoring(run, Goal.QUARANTINE, Asked(), timeout=0).look_again()
    take_steps(world, Goal.UNDO)
    assert_undisturbed(world)


def test_an_api_server_that_cannot_be_asked_is_not_taken_for_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_run: Run) -> list[str]:
        raise Unreachable("the API server", "GET", "/version", 0, "", "it is silent")

    with monkeypatch.context() as broken:
        broken.setattr(closed, "accepting_agents", silent)
        with pytest.raises(ProblemsError, match="could not be asked whether it refuses agents"):
            take_steps(world, Goal.QUARANTINE)
    assert stored(world).step == Step.START_SERVERS


def test_in_quarantine_members_are_compared_again_and_nothing_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(world, Goal.QUARANTINE)
    before, run = world.writes, fake_run(DOCUMENT, world, operation="restore")
    run.holder = "a later one"
    restoring = Restoring(run, Goal.QUARANTINE, Asked(), timeout=0)
    assert not restoring.begin()
    assert restoring.next() is None
    restoring.look_again()
    assert restoring.report == drift.Report([])
    same_run = fake_run(DOCUMENT, world, operation="restore")
    first = Restoring(same_run, Goal.QUARANTINE, Asked(), timeout=0)
    first.look_again()
    assert first.report is None, "it has just told it"
    assert world.writes == before
    releasing = Restoring(run, Goal.RELEASE, Asked(), timeout=0)
    releasing.look_again()
    assert releasing.report is None


def test_a_former_etcd_that_does_not_start_again_does_not_keep_another_restore_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_steps(world, Goal.QUARANTINE)
    with monkeypatch.context() as broken:
        broken.setattr(in_pods, "wait_until", never)
        with pytest.raises(ProblemsError, match="two of its disks are gone"):
            take_steps(world, Goal.UNDO)
    assert stored(world).undoing
    assert world.running() == {"etcd"}
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert (stored(world).generation, stored(world).former, stored(world).undoing) == (3, FORMER, False)
    take_steps(world, Goal.UNDO)
    assert_undisturbed(world)
    assert stored(world).aside == ("gen-2", "gen-3")


@pytest.mark.parametrize("undone", [True, False])
def test_a_check_of_another_restore_is_not_judged_by_the_record_of_the_one_before(
    world: World, monkeypatch: pytest.MonkeyPatch, undone: bool
) -> None:
    assert predicted(world) == (True, None), "no record yet"
    take_steps(world, Goal.QUARANTINE, killed_after=5)
    assert predicted(world) == (False, Step.BACK_UP)
    with monkeypatch.context() as broken:
        if undone:
            take_steps(world, Goal.UNDO)
        else:
            take_steps(world, Goal.QUARANTINE)
            broken.setattr(in_pods, "wait_until", never)
            with pytest.raises(ProblemsError, match="two of its disks are gone"):
                take_steps(world, Goal.UNDO)
    assert stored(world).is_over == undone
    writes = world.writes
    assert predicted(world) == (True, None)
    # Not so for those who go on with the one on record.
    with pytest.raises(ProblemsError, match="it is over" if undone else "is being taken back"):
        Restoring(fake_run(DOCUMENT, world, check=True), Goal.RELEASE, Asked(), timeout=0).predicted()
    assert world.writes == writes


def predicted(world: World) -> tuple[bool, Step | None]:
    """Whether a restore would begin, and the step that would follow, as a run in check mode tells them."""
    run = fake_run(DOCUMENT, world, operation="restore", check=True)
    restoring = Restoring(run, Goal.QUARANTINE, Asked(confirm=BACKUP, keys=("a key",)), timeout=0)
    return restoring.begin(), restoring.predicted()


def never(*_: Any, **__: Any) -> None:
    raise ProblemsError(Problem("two of its disks are gone", "etcd", "", reason=Reason.NOT_READY_IN_TIME))


@pytest.mark.parametrize(
    ("statuses", "said"),
    [
        ([("u1", True, "a"), ("u2", True, "a"), ("u3", True, "a")], "which is not a new one"),
        ([("u1", True, "b"), ("u2", True, "d")], "which is not a new one"),
        ([("u1", True, "b"), ("u2", False, ""), ("u3", False, "")], "u2: it does not answer"),
        ([("u1", True, "b"), ("u2", True, "b"), ("u3", False, "")], ""),
    ],
)
def test_nothing_is_released_on_an_etcd_that_is_not_the_one_that_was_compared(
    world: World, monkeypatch: pytest.MonkeyPatch, statuses: list[tuple[str, bool, str]], said: str
) -> None:
    monkeypatch.setattr(check, "look", lambda _run: Live([EndpointStatus("u", cluster_id="a")]))
    take_steps(world, Goal.QUARANTINE)
    answers = [
        EndpointStatus(url, healthy=well, message="" if well else "it does not answer", cluster_id=cluster)
        for url, well, cluster in statuses
    ]
    monkeypatch.setattr(Client, "status", lambda _self: answers)
    if not said:
        take_steps(world, Goal.RELEASE)
        assert stored(world).step == "Released"
        return
    with pytest.raises(ProblemsError) as caught:
        take_steps(world, Goal.RELEASE)
    assert said in str(caught.value)
    assert_quarantined(world)


def test_what_another_run_has_begun_meanwhile_is_not_begun_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_run(*_: Any) -> None:
        monkeypatch.setattr(check, "require_confirmed", lambda *_: None)
        fake = fake_run(DOCUMENT, world, operation="restore")
        Restoring(fake, Goal.QUARANTINE, Asked(confirm=BACKUP, keys=("a key",)), timeout=0).begin()

    monkeypatch.setattr(check, "require_confirmed", other_run)
    with pytest.raises(ProblemsError, match="another run has changed etcd"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()


def test_what_was_released_is_backed_up_and_where_that_fails_it_is_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def full(_run: Run, series: Any, *_: Any) -> None:
        taken.append(series.name)
        raise ProblemsError(Problem("it is full", "there", "", reason=Reason.BACKUP_TARGET_UNUSABLE))

    take_steps(world, Goal.QUARANTINE)
    told: list[Problem] = []
    monkeypatch.setattr(take, "backup", full)
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    take_steps(world, Goal.RELEASE)
    assert (taken, stored(world).step) == (["nightly"], "Released")
    assert [(each.severity, each.what) for each in told if "no backup" in each.what] == [
        (Severity.WARNING, "there is no backup of it since it was restored: it is full")
    ]


def test_agents_of_ours_begin_anew_and_no_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = [{"name": name, "mode": "Pull", "secretRef": {"name": name}} for name in ("m1", "silent", "to-come")]
    member = FakeCluster("member m1")
    for name, owner in (("ours", samples.OWNER), ("theirs", "somebody"), ("other", samples.OWNER)):
        labels = {NAME_LABEL: "karmada-agent", OWNER_LABEL: owner, MEMBER_LABEL: "m2" if name == "other" else "m1"}
        metadata = {"name": name, "namespace": MEMBER_NAMESPACE, "labels": labels, "uid": name}
        member.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})

    @contextmanager
    def connected(_run: Run, entry: Any) -> Iterator[FakeCluster]:
        assert entry.name != "to-come", "it has not joined"
        if entry.name == "silent":
            raise Unreachable("member silent", "GET", "/", 0, "", "no answer")
        yield member

    told: list[Problem] = []
    monkeypatch.setattr(agents.join, "connected", connected)
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    journal = RestoreState("back", "nightly", BACKUP, "", "0d6c", 2, 10**9, FORMER, step=Step.START_ALL)
    joined = {name: {"mode": "Pull"} for name in ("m1", "silent")}
    state = samples.state(etcd=FORMER, members=joined, restore=journal)
    run = fake_run(
        samples.document({"members": pulls, "endpoint": {"type": "NodePort"}}), world, stored=state, operation="release"
    )
    restoring = Restoring(run, Goal.RELEASE, Asked(), timeout=0)
    assert restoring.next() is Step.WAKE_AGENTS
    restoring.take(Step.WAKE_AGENTS)
    assert [each.ref.name for each in restoring.changes] == ["ours"]
    left = [each["metadata"]["name"] for each in member.list("v1", "Pod", MEMBER_NAMESPACE)]
    assert sorted(left) == ["other", "theirs"]
    assert [each.where for each in told] == ["member silent"]


@pytest.mark.parametrize("goal", [Goal.QUARANTINE, Goal.UNDO])
def test_pods_that_a_killed_run_has_left_go(world: World, monkeypatch: pytest.MonkeyPatch, goal: Goal) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(delivery, "forget", lambda _run: (_ for _ in ()).throw(Killed))
        take_steps(world, Goal.QUARANTINE)
    assert stored(world).prepared
    owners = [each["metadata"].get("ownerReferences") for each in world.list("v1", "Pod", "karmada")]
    assert [each[0]["name"] for each in owners if each] == ["prod-etcd"] * 3, "who uninstalls deletes them, too"
    assert etcd_restore.NAME in {each["metadata"]["labels"][NAME_LABEL] for each in world.list("v1", "Pod", "karmada")}
    take_steps(world, goal)
    left = [
        each["metadata"]["name"] for each in world.list("v1", "Pod", "karmada") if "-gen-" in each["metadata"]["name"]
    ]
    assert left == []


def test_without_its_name_nothing_begins(world: World) -> None:
    for confirm, said in (("", "loses everything since"), ("prod-1", "prod-1 was confirmed")):
        with pytest.raises(ProblemsError) as caught:
            take_steps(world, Goal.QUARANTINE, confirm=confirm)
        (problem,) = caught.value.problems
        assert problem.reason is Reason.RESTORE_NOT_CONFIRMED
        assert said in problem.what
        assert f"restore_confirm={BACKUP}" in problem.remedy
        # It confirms, and does not choose.
        assert ("name it in spec.backup" in problem.remedy) == bool(confirm)
    assert world.writes == 0


@pytest.mark.parametrize("goal", [Goal.RELEASE, Goal.UNDO])
def test_where_none_is_under_way_that_is_told(world: World, goal: Goal) -> None:
    with pytest.raises(ProblemsError, match="no restore is under way"):
        take_steps(world, goal)
    assert world.writes == 0


def test_etcd_that_does_not_answer_is_no_reason_to_restore_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead(*_: Any) -> None:
        raise ProblemsError(Problem("no member can be asked", "etcd", "", reason=Reason.ETCD_UNHEALTHY))

    monkeypatch.setattr(take, "backup", dead)
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).before == ""


def test_a_target_that_takes_no_backup_of_what_is_there_stops_it_before_anything_stops(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise ProblemsError(Problem("it is full", "there", "", reason=Reason.BACKUP_TARGET_UNUSABLE))

    monkeypatch.setattr(take, "backup", full)
    with pytest.raises(ProblemsError, match="it is full"):
        take_steps(world, Goal.QUARANTINE)
    assert world.running() == everything()
    with pytest.raises(ProblemsError, match=f"restore_without_backup={BACKUP}"):
        take_steps(world, Goal.QUARANTINE, without_backup="prod-20261125t030000z-1f3a9c")
    assert world.running() == everything()
    take_steps(world, Goal.QUARANTINE, without_backup=BACKUP)
    assert_quarantined(world)
    assert stored(world).before == ""


def test_a_corrupt_member_is_a_reason_to_restore_and_none_against_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its snapshot shows differs from another member, so that nothing there can be backed up and proved."""

    def corrupt(*_: Any) -> None:
        what = "at revision 7 its content differs from that of a member"
        raise ProblemsError(Problem(what, "etcd", "", reason=Reason.INVALID_BACKUP))

    told: list[Problem] = []
    monkeypatch.setattr(take, "backup", corrupt)
    monkeypatch.setattr(Run, "tell", lambda _self, problem: told.append(problem))
    take_steps(world, Goal.QUARANTINE)
    assert_quarantined(world)
    assert stored(world).before == ""
    assert [each.what for each in told if "differs" in each.what]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"count_below": lambda _self, _prefix: 2}, "it has 2 works, and the backup has 3"),
        ({"hash_at": lambda _self, revision: Hash(revision, next(_NUMBERS))}, "the content of its members differs"),
        (
            {"hash_at": lambda _self, revision: Hash(revision, 7, compacted=next(_NUMBERS))},
            "its members have not discarded the same revisions yet",
        ),
        (
            {"status": lambda _self: [EndpointStatus("u", healthy=True, cluster_id="c", revision=10**15)]},
            "which is not a new one",
        ),
        (
            {"status": lambda _self: [EndpointStatus("u", healthy=True, cluster_id="d", revision=5)]},
            "1 of 3 members have the data of the backup",
        ),
    ],
)
def test_an_etcd_that_is_not_the_backup_is_not_gone_on_with(
    world: World, monkeypatch: pytest.MonkeyPatch, broken: dict[str, Any], said: str
) -> None:
    for name, instead in broken.items():
        monkeypatch.setattr(Client, name, instead)
    with pytest.raises(ProblemsError) as caught:
        take_steps(world, Goal.QUARANTINE)
    assert said in str(caught.value)
    assert "restore_undo" in str(caught.value)
    assert "nothing was changed" not in str(caught.value)
    assert world.running() == {"etcd"}


def test_a_pod_that_does_not_stop_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "_pods_of", lambda *_: None)
    with pytest.raises(ProblemsError, match=r"still there: .*prod-controller-manager-0"):
        take_steps(world, Goal.QUARANTINE)
