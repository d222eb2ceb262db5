# SPDX-License-Identifier: Apache-2.0
"""A member leaves: whatever is met on the way, and wherever the run is killed, the end is the same."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.transport import READ_SECONDS
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import registration
from ansible_collections.karmada.installer.plugins.plugin_utils.members import works as member_works
from ansible_collections.karmada.installer.tests.unit.support import karmada_in_memory as memory
from ansible_collections.karmada.installer.tests.unit.support.leaving import APPLICATIONS, RECORD, World
from ansible_collections.karmada.installer.tests.unit.support.samples import state


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


@pytest.mark.parametrize(
    ("hosts", "log"),
    [
        ([], "(kubectl logs -n karmada-cluster deployment/karmada-agent on the member)"),
        (["gw1", "gw2"], "(journalctl -u karmada-prod-agent-m1 on gw1, gw2)"),
    ],
    ids=["on the member", "on hosts"],
)
@pytest.mark.parametrize("ready", [True, False], ids=["its Works stay", "it does not report"])
def test_an_agent_that_does_not_do_its_part_is_told_with_its_log_before_the_cluster_goes(
    ready: bool, hosts: list[str], log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(monkeypatch, "Delete", pull=True, ready=ready)
    known = {**world.state.members["m1"], **({"agentHosts": hosts} if hosts else {})}
    world.state = state(members={"m1": known}, owned=world.state.owned)
    world.control_plane.reaches = False
    outcome = world.leave(timeout=10)
    assert ("Works are left, which its agent does not finish" in outcome.problem) is ready
    assert log in outcome.next_step
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
