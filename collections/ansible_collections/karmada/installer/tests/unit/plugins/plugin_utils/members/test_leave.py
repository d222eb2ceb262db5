# SPDX-License-Identifier: Apache-2.0
"""A member leaves: whatever is met on the way, and wherever the run is killed, the end is the same."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_leave import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import apply
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.transport import READ_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.plugins.plugin_utils.members.join import Outcome
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import karmada_in_memory as memory
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.moments import Clock
from ansible_collections.karmada.installer.tests.unit.support.samples import OWNER, document, state

RECORD = {"mode": "Push", "secretRef": {"name": "m1"}, "context": None}
APPLICATIONS = {"web", "db"}


class World:
    """One control plane with one member that is not listed any more; ``leave`` is one run of the step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on_leave: str = "Retain", **how: bool) -> None:
        self.control_plane, self.member = memory.joined(**how)
        self.reachable = True
        uids = {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["uid"]
            for each in self.member.objects.values()
            if "installer.karmada.io/owner" in (each["metadata"].get("labels") or {})
        }
        record = {**RECORD, "onLeave": on_leave, "mode": "Pull" if how.get("pull") else "Push"}
        self.state = state(members={"m1": record}, owned={"member/m1": uids})
        self.said: list[str] = []
        for module in (member_leave, member_cleanup):
            monkeypatch.setattr(module, "connected", lambda *_: memory.to(self.member))
        #: of the step; what it hands to others takes no time at all
        self.clock = Clock()
        monkeypatch.setattr(member_leave, "time", self.clock)
        monkeypatch.setattr(apply, "LONGEST_PAUSE", 0)

    def run(self, *, check: bool = False) -> Run:
        run = fake_run(document(), FakeCluster("host cluster"), stored=self.state, check=check)
        run.__dict__["control_plane"] = self.control_plane
        run.say = self.said.append
        return run

    def leave(self, do: Any = member_leave.leave, *, timeout: float = 60, check: bool = False) -> Outcome:
        run = self.run(check=check)
        if not check:
            for each in member_works.policies(OWNER):
                self.control_plane.put(each)
        cluster = member_join.registered_clusters(run).get("m1") if not check else self._cluster()
        (entry,) = member_leave.entries(run, ["m1"])
        (outcome,) = member_join.of_each([entry], lambda each, out: do(run, each, cluster, timeout, out))
        return outcome

    def _cluster(self) -> Any:
        return self.control_plane.get(registration.CLUSTER_API, "Cluster", "m1")

    @property
    def applications(self) -> set[str]:
        return self.member.names("Deployment")

    def assert_gone(self) -> None:
        assert self.control_plane.names("Cluster") == set()
        assert self.control_plane.names("Work") == set()
        assert self.control_plane.names("Secret") == set()
        assert self.control_plane.names("Namespace") == set()
        left = {(each["kind"], each["metadata"]["name"]) for each in self.member.objects.values()}
        assert left - {("Deployment", name) for name in APPLICATIONS} == {("Namespace", "kube-system")}


@pytest.mark.parametrize(("on_leave", "left"), [("Retain", APPLICATIONS), ("Delete", set())])
def test_a_member_leaves_and_its_workloads_stay_or_go(
    on_leave: str, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, on_leave)
    assert world.leave().problem == ""
    world.assert_gone()
    assert world.applications == left
    assert not any(member_works.is_managed(each) for each in world.member.objects.values())


@pytest.mark.parametrize(("on_leave", "left"), [("Retain", APPLICATIONS), ("Delete", set())])
def test_one_in_mode_pull_leaves_with_all_that_its_agent_had(
    on_leave: str, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Works go before its Cluster: with that the agent loses the rights to see to them."""
    world = World(monkeypatch, on_leave, pull=True)
    assert world.leave().problem == ""
    world.assert_gone()
    assert world.applications == left
    assert not {kind for _, kind, _, _ in world.control_plane.objects} & {
        "ClusterRole",
        "ClusterRoleBinding",
        "Lease",
        "Role",
        "RoleBinding",
    }


@pytest.mark.parametrize("on_leave", ["Retain", "Delete"])
@pytest.mark.parametrize("writes", range(0, 32, 2))
def test_one_in_mode_pull_killed_at_any_write_comes_to_the_same_end(
    on_leave: str, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, on_leave, pull=True)
    world.control_plane.writes_left = writes
    with contextlib.suppress(memory.Killed):
        world.leave()
    world.control_plane.writes_left = None
    assert world.leave().problem == ""
    world.assert_gone()
    assert world.applications == (APPLICATIONS if on_leave == "Retain" else set())


def test_an_agent_that_does_not_finish_its_works_is_told_before_the_cluster_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, "Delete", pull=True)
    world.control_plane.reaches = False
    assert "Works are left, which its agent does not finish" in world.leave(timeout=10).problem
    assert world.control_plane.names("Cluster") == {"m1"}


def test_one_in_mode_pull_is_given_up_with_its_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, pull=True)
    world.member.dead = True
    outcome = world.leave(member_leave.give_up)
    assert "Deployment karmada-agent" in outcome.left
    assert world.control_plane.names("Role") == world.control_plane.names("ClusterRole") == set()


def test_what_its_estimator_had_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the document still has estimators for others does not matter."""
    world = World(monkeypatch, estimator=True)
    assert registration.estimator_account("m1") in world.member.names("ServiceAccount")
    assert registration.estimator_secret("m1") in world.control_plane.names("Secret")
    assert world.leave().problem == ""
    world.assert_gone()


def test_of_a_member_that_is_given_up_the_account_of_its_estimator_is_told_as_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, estimator=True)
    world.member.dead = True
    assert f"ServiceAccount {registration.estimator_account('m1')}" in world.leave(member_leave.give_up).left
    assert registration.estimator_secret("m1") not in world.control_plane.names("Secret")


def test_an_earlier_record_that_says_nothing_of_leaving_means_that_workloads_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.state = state(members={"m1": RECORD}, owned=world.state.owned)
    assert world.leave().problem == ""
    assert world.applications == APPLICATIONS


@pytest.mark.parametrize("on_leave", ["Retain", "Delete"])
@pytest.mark.parametrize("writes", range(24))
def test_killed_at_any_write_and_run_again_it_comes_to_the_same_end(
    on_leave: str, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, on_leave)
    world.control_plane.writes_left = writes
    with contextlib.suppress(memory.Killed):
        world.leave()
    world.control_plane.writes_left = None
    assert world.leave().problem == ""
    world.assert_gone()
    assert world.applications == (APPLICATIONS if on_leave == "Retain" else set())


def test_what_controllers_write_meanwhile_takes_no_workload_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """They write the spec of a Work anew when its template changes, which takes back what keeps the workload."""
    world = World(monkeypatch)
    world.control_plane.restless = {"deployment-web", "deployment-db"}
    assert world.leave().problem == ""
    assert world.applications == APPLICATIONS


def test_works_are_let_go_when_nobody_can_make_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    delete, seen = memory.ControlPlane.delete, []

    def watched(self: memory.ControlPlane, api_version: str, kind: str, name: str, *more: Any, **rest: Any) -> bool:
        if kind == "Work":
            space = self.objects["v1", "Namespace", None, member_works.execution_namespace("m1")]
            seen.append(member_works.is_going(space))
        return delete(self, api_version, kind, name, *more, **rest)

    monkeypatch.setattr(memory.ControlPlane, "delete", watched)
    assert world.leave().problem == ""
    assert seen
    assert all(seen)


def test_a_work_whose_object_is_not_on_the_member_does_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Karmada would try to take its labels off it for ever."""
    world = World(monkeypatch)
    world.control_plane.put(memory.work_for(memory.application("never-applied")))
    unmanaged = memory.application("somebody-elses")
    unmanaged["metadata"]["labels"] = {}
    world.member.put(unmanaged)
    world.control_plane.put(memory.work_for(unmanaged))
    assert world.leave().problem == ""
    assert world.control_plane.names("Cluster") == set()
    assert world.applications == {*APPLICATIONS, "somebody-elses"}


def test_a_member_that_does_not_answer_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.member.dead = True
    outcome = world.leave()
    assert "no answer" in outcome.problem
    assert outcome.changes == []
    assert world.control_plane.names("Cluster") == {"m1"}
    assert not [line for line in world.control_plane.log if "delete" in line]


@pytest.mark.parametrize(("on_leave", "part"), [("Retain", "leave its workloads in order"), ("Delete", "remove its")])
def test_a_member_that_the_control_plane_does_not_reach_stays_as_it_is(
    on_leave: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, on_leave, ready=False)
    outcome = world.leave()
    assert part in outcome.problem
    assert world.control_plane.names("Cluster") == {"m1"}
    assert world.applications == APPLICATIONS


def test_one_that_is_lost_on_the_way_is_told_with_what_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.control_plane.reaches = False
    outcome = world.leave(timeout=10)
    assert "Works are left, for" in outcome.problem
    assert "Deployment shop/db" in outcome.problem
    assert "nothing was forced" in outcome.problem
    world.control_plane.reaches = True
    assert world.leave().problem == ""
    world.assert_gone()


def test_one_that_dies_on_the_way_takes_no_more_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its Works are looked at there, an answer that does not come ends nothing and holds nobody."""
    world = World(monkeypatch)
    for number in range(50):
        world.control_plane.put(memory.work_for(memory.application(f"lost-{number}")))
    world.control_plane.reaches = False
    looks, answers = [0.0], {"left": 5}
    world.clock.meanwhile = lambda: looks.append(world.clock.now)

    def patient(*, retry_seconds: float, read_seconds: float = READ_SECONDS) -> Any:
        def get(*what: Any) -> Any:
            answers["left"] -= 1
            if answers["left"] >= 0:
                return world.member.get(*what)
            # Those of one look wait at the same time.
            world.clock.now = max(world.clock.now, looks[-1] + retry_seconds + read_seconds)
            raise Unreachable("member m1", "GET", "/", 0, "Unreachable", "no answer in time")

        return SimpleNamespace(get=get)

    monkeypatch.setattr(world.member, "with_patience", patient)
    outcome = world.leave(timeout=30)
    assert "Works are left, for" in outcome.problem
    assert answers["left"] < 0
    assert 30 <= world.clock.now <= 30 + member_leave.LOOK_SECONDS + member_leave._LONGEST_PAUSE


def test_who_waits_long_is_told_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.control_plane.reaches = False

    class Heard(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            world.control_plane.reaches = True

    world.said = Heard()
    assert world.leave(timeout=60).problem == ""
    assert any("/60 s] member m1 is not gone: 4 Works are left, for Deployment" in line for line in world.said)


@pytest.mark.parametrize("on_leave", ["Retain", "Delete"])
def test_one_that_is_given_up_goes_from_the_control_plane_and_what_is_on_it_is_told(
    on_leave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, on_leave, ready=False)
    world.member.dead, world.control_plane.reaches = True, False
    outcome = world.leave(member_leave.give_up)
    assert outcome.problem == ""
    assert world.control_plane.names("Cluster") == world.control_plane.names("Work") == set()
    assert world.control_plane.names("Secret") == set()
    assert "ServiceAccount karmada-m1" in outcome.left
    assert "Deployment shop/db, Deployment shop/web" in outcome.left
    assert world.member.log == []


def test_one_that_is_given_up_and_answers_is_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, ready=False)
    world.control_plane.reaches = False
    outcome = world.leave(member_leave.give_up)
    assert outcome.left == "Deployment shop/db, Deployment shop/web"
    assert world.member.names("ServiceAccount") == set()
    assert world.applications == APPLICATIONS


def test_a_namespace_that_hangs_without_its_cluster_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has forced the Cluster away: nobody is left who would finish its Works."""
    world = World(monkeypatch)
    del world.control_plane.objects[registration.CLUSTER_API, "Cluster", None, "m1"]
    assert world.leave().problem == ""
    world.assert_gone()
    assert world.applications == APPLICATIONS


@pytest.mark.parametrize("do", [member_leave.leave, member_leave.give_up])
def test_a_cluster_that_somebody_else_registered_is_not_touched(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    cluster = world.control_plane.objects[registration.CLUSTER_API, "Cluster", None, "m1"]
    cluster["metadata"]["labels"] = {}
    outcome = world.leave(do)
    assert ("somebody has registered it anew" in outcome.problem) is (do is member_leave.leave)
    assert world.control_plane.names("Cluster") == {"m1"}
    assert world.control_plane.names("Secret") == {"m1", "m1-impersonator"}
    assert len(world.control_plane.names("Work")) == 4


def test_a_kubeconfig_that_leads_to_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.member.objects["v1", "Namespace", None, "kube-system"]["metadata"]["uid"] = "another"
    outcome = world.leave()
    assert "leads to another cluster (id another)" in outcome.problem
    assert world.control_plane.names("Cluster") == {"m1"}


def test_one_that_was_registered_and_never_recorded_is_told_how_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.state = state()
    assert "list it once more with its Secret" in world.leave().next_step


def test_a_check_run_tells_what_would_go_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    outcome = world.leave(check=True)
    assert outcome.problem == ""
    told = {str(change.ref) for change in outcome.changes if change.action == "deleted"}
    assert {"Cluster m1", "Secret karmada-cluster/m1", "ServiceAccount karmada-cluster/karmada-m1"} <= told
    assert world.control_plane.log == world.member.log == []


def test_a_policy_that_is_not_in_force_stops_it_before_anything_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    monkeypatch.setattr(member_works, "policies", lambda _owner: [])
    outcome = world.leave(timeout=10)
    assert "does not apply the policy" in outcome.problem
    assert world.control_plane.names("Cluster") == {"m1"}
    assert world.applications == APPLICATIONS


def test_works_that_are_changed_back_for_ever_end_with_the_time_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    monkeypatch.setattr(member_works, "retains", lambda _work: world.clock.sleep(0.1))
    assert "do not take it that their workloads are to stay" in world.leave(timeout=10).problem
    assert world.control_plane.names("Cluster") == {"m1"}


# -- the action ------------------------------------------------------------------------------------------------


def act(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    *,
    check: bool = False,
    selected: tuple[str, ...] = (),
    **arguments: Any,
) -> dict[str, Any]:
    run = world.run(check=check)
    run.selected = selected

    @contextlib.contextmanager
    def writing(_step: str) -> Any:
        yield

    def save(saved: Any, **_: Any) -> None:
        world.state = saved

    monkeypatch.setattr(run, "writing", writing)
    monkeypatch.setattr(run, "save", save)
    if check:
        monkeypatch.setattr(type(run), "control_plane_exists", True)
    perform: Any = ActionModule.perform
    given = {"stage": "leave", "confirm": "", "abandon": [], "timeout": 5, "on_broken_member": "fail", **arguments}
    result: dict[str, Any] = perform(None, run, given)
    return result


def test_the_member_is_forgotten_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    result = act(world, monkeypatch)
    assert result["changed"] is True
    assert [(each["name"], each["gone"], each["workloads"]) for each in result["members"]] == [("m1", True, "Retain")]
    assert (world.state.members, world.state.owned) == ({}, {})
    world.control_plane.log.clear()
    nothing = {"changed": False, "members": [], "broken_members": [], "now": [], "has_agents_on_hosts": False}
    assert act(world, monkeypatch) == nothing
    assert world.control_plane.log == []


@pytest.mark.parametrize("check", [True, False])
def test_what_stays_on_a_member_is_counted_and_what_its_return_needs_is_said(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch)
    settings = {**memory.application("settings"), "apiVersion": "v1", "kind": "ConfigMap"}
    world.member.put(settings)
    world.control_plane.put(memory.work_for(settings))
    result = act(world, monkeypatch, check=check)
    assert result["members"][0]["stays"] == 3
    assert result["now"] == [
        "m1 would leave; 2 workloads and 1 other object would stay on it"
        if check
        else "m1 has left; 2 workloads and 1 other object stay on it"
    ]
    (hint,) = [line for line in world.said if "conflictResolution: Overwrite" in line]
    assert hint.startswith("hint: member m1: 2 workloads and 1 other object")


def test_nothing_is_said_of_a_return_where_nothing_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, on_leave="Delete")
    assert act(world, monkeypatch)["now"] == ["m1 has left"]
    assert not [line for line in world.said if "conflictResolution" in line]


def test_one_that_could_not_leave_is_not_forgotten_and_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.member.dead = True
    result = act(world, monkeypatch)
    assert result["failed"] is True
    assert "1 of 1 members that leave are not gone" in result["msg"]
    assert "left on it: ClusterRole karmada-controller-manager:karmada-m1" in result["msg"]
    assert '"member_leave_abandon": ["m1"]' in result["msg"]
    assert list(world.state.members) == ["m1"]
    told = act(world, monkeypatch, on_broken_member="tell")
    assert "failed" not in told
    assert "it has not left: member m1: no answer" in told["broken_members"][0]["problem"]
    assert "left on it: ClusterRole karmada-contr" in told["broken_members"][0]["problem"]
    world.control_plane.reaches = False
    given_up = act(world, monkeypatch, abandon=["m1"])
    assert given_up["members"][0]["gone"] is True
    assert any("left on member m1: " in line for line in world.said)
    assert world.state.members == {}


def test_to_forget_a_member_that_somebody_removed_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.control_plane.objects.clear()
    world.state = state(members=world.state.members)
    world.member.dead = True
    result = act(world, monkeypatch, abandon=["m1"])
    assert (result["changes"], result["changed"]) == ([], True)
    assert world.state.members == {}


@pytest.mark.parametrize("stage", ["confirm", "leave"])
def test_two_at_once_are_asked_for_before_anything_is_done(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.state = state(members={**world.state.members, "m2": RECORD}, owned=world.state.owned)
    with pytest.raises(ProblemsError, match="karmada_confirm_leave=m1,m2"):
        act(world, monkeypatch, stage=stage)
    assert world.control_plane.log == []
    found = act(world, monkeypatch, stage="confirm", confirm="m1,m2")
    assert [each["name"] for each in found["members"]] == ["m1", "m2"]


def test_of_two_the_one_that_was_selected_leaves_and_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.state = state(members={**world.state.members, "m2": RECORD}, owned=world.state.owned)
    assert act(world, monkeypatch, selected=("m3",))["members"] == []
    asked = act(world, monkeypatch, stage="confirm", selected=("m1",))
    assert [each["name"] for each in asked["members"]] == ["m1"]
    left = act(world, monkeypatch, selected=("m1",))
    assert [(each["name"], each["gone"]) for each in left["members"]] == [("m1", True)]
    assert list(world.state.members) == ["m2"]


def test_check_mode_asks_nothing_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    result = act(world, monkeypatch, check=True)
    assert "deleted Cluster m1" in result["changes"]
    assert world.control_plane.log == []
    assert list(world.state.members) == ["m1"]


def test_works_are_let_go_at_once_only_when_nobody_can_make_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    (cluster,) = world.control_plane.list(registration.CLUSTER_API, "Cluster")
    space = member_works.execution_namespace("m1")
    going = member_leave._Going(world.control_plane, cluster)
    before = world.control_plane.names("Work")
    assert {each["metadata"]["name"] for each in going.hasten(cluster)} == before
    assert world.control_plane.names("Work") == before
    assert not any(map(member_works.is_going, world.control_plane.list(member_works.WORK_API, "Work", space)))
    namespace = world.control_plane.objects["v1", "Namespace", None, space]
    namespace["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    going.hasten(cluster)
    assert all(map(member_works.is_going, world.control_plane.list(member_works.WORK_API, "Work", space)))
