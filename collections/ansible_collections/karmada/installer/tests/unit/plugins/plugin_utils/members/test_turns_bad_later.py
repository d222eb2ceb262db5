# SPDX-License-Identifier: Apache-2.0
"""A member that turns bad in the middle of a run is its own problem: it ends no run, and stops no other member."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action import member_join as join_action
from ansible_collections.karmada.installer.plugins.action.uninstall import ActionModule as Uninstall
from ansible_collections.karmada.installer.plugins.plugin_utils.components.spec import MemberEntry
from ansible_collections.karmada.installer.plugins.plugin_utils.kube import apply
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Cluster
from ansible_collections.karmada.installer.plugins.plugin_utils.members import agent_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import cleanup as member_cleanup
from ansible_collections.karmada.installer.plugins.plugin_utils.members import join as member_join
from ansible_collections.karmada.installer.plugins.plugin_utils.members import leave as member_leave
from ansible_collections.karmada.installer.plugins.plugin_utils.members import mode as member_mode
from ansible_collections.karmada.installer.plugins.plugin_utils.members import ready as member_ready
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import faulty_answers
from ansible_collections.karmada.installer.tests.unit.support import karmada_in_memory as memory
from ansible_collections.karmada.installer.tests.unit.support.clusters import cluster_of
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.leaving import RECORD, World
from ansible_collections.karmada.installer.tests.unit.support.samples import document, state
from ansible_collections.karmada.installer.tests.unit.support.stub_api import Fault, StubApi
from ansible_collections.karmada.installer.tests.unit.support.turning_member import WAYS, TurningMember

#: More than a member gets that leaves.
MANY_REQUESTS = 1000


def turning(world: World, monkeypatch: pytest.MonkeyPatch, good: int, way: str = "silent") -> TurningMember:
    """Have the member of this world turn after some requests."""
    member: Any = TurningMember(world.member, good, way)
    for module in (member_leave, member_cleanup):
        monkeypatch.setattr(module, "connected", lambda *_: memory.to(member))
    monkeypatch.setattr(apply, "time", world.clock)
    return member  # type: ignore[no-any-return]


@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
@pytest.mark.parametrize("way", WAYS)
def test_one_that_turns_while_it_leaves_is_told_and_leaves_when_it_is_well_again(
    way: str, pull: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It turns at every fourth of its requests; which of the four it is differs from way to way."""
    told = 0
    for good in range(list(WAYS).index(way) % 4, MANY_REQUESTS, 4):
        world = World(monkeypatch, pull=pull)
        member = turning(world, monkeypatch, good, way)
        outcome = world.leave(timeout=20)
        if member.asked <= good:
            assert outcome.problem == ""
            break
        if outcome.problem:
            told += 1
            assert all(line.isprintable() for line in (outcome.problem + outcome.next_step).splitlines())
            turning(world, monkeypatch, MANY_REQUESTS)
            assert world.leave().problem == "", f"it turned after {good} requests, and is well now"
        world.assert_gone()
    assert told > 5


@pytest.mark.parametrize("way", WAYS)
def test_one_that_turns_while_it_is_given_up_is_given_up(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for good in range(4):
        world = World(monkeypatch)
        turning(world, monkeypatch, good, way)
        outcome = world.leave(member_leave.give_up, timeout=20)
        assert outcome.problem == ""
        assert world.control_plane.names("Cluster") == set()
        assert "ServiceAccount" in outcome.left, f"it turned after {good} requests"


# -- uninstall ---------------------------------------------------------------------------------------------------------


class Site:
    """A control plane with two members that is uninstalled; what is on them is as joining left it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.members = {name: memory.joined(name)[1] for name in ("m1", "m2")}
        uids = {
            f"member/{name}": {
                f"{each['kind']} {each['metadata']['name']}": each["metadata"]["uid"]
                for each in member.objects.values()
                if "installer.karmada.io/owner" in (each["metadata"].get("labels") or {})
            }
            for name, member in self.members.items()
        }
        records = {name: {**RECORD, "secretRef": {"name": name}} for name in self.members}
        self.run = fake_run(document(), FakeCluster("host cluster"), stored=state(members=records, owned=uids))
        monkeypatch.setattr(self.run, "writing", lambda _step: contextlib.nullcontext())
        self.run.trace = lambda _text: None
        self.monkeypatch = monkeypatch

    def clean(self, connected: Mapping[str, Any]) -> dict[str, Any]:
        """Result of the stage that cleans members, with these in their place."""
        self.monkeypatch.setattr(member_cleanup, "connected", lambda _run, entry, *_: memory.to(connected[entry.name]))
        perform: Any = Uninstall.perform
        found: dict[str, Any] = perform(None, self.run, {"stage": "members", "abandon_members": [], "timeout": 1})
        return found

    def left_on(self, name: str) -> set[str]:
        """Kinds of what is left there of joining."""
        return {kind for _, kind, _, each in self.members[name].objects if each not in ("web", "db", "kube-system")}


@pytest.mark.parametrize("way", WAYS)
def test_one_that_turns_while_it_is_cleaned_is_told_and_the_other_is_clean(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "LONGEST_PAUSE", 0)
    told = 0
    for good in range(list(WAYS).index(way) % 4, MANY_REQUESTS, 4):
        site = Site(monkeypatch)
        turned: Any = TurningMember(site.members["m1"], good, way)
        found = site.clean({**site.members, "m1": turned})
        assert site.left_on("m2") == set()
        if turned.asked <= good:
            assert not found.get("failed")
            break
        if found.get("failed"):
            told += 1
            assert found["msg"].startswith("1 members could not be cleaned:\n  - m1: ")
            assert not site.clean(site.members).get("failed")
        assert site.left_on("m1") == set(), f"it turned after {good} requests"
    assert told > 3


def test_members_are_asked_all_together_whether_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take half a minute to say nothing; one after the other that would be half an hour."""
    site, together = Site(monkeypatch), threading.Barrier(2)

    @contextlib.contextmanager
    def connected(_run: Run, entry: MemberEntry, *_: Any) -> Iterator[Any]:
        together.wait(60)
        yield TurningMember(site.members[entry.name], 0, "silent")

    monkeypatch.setattr(member_cleanup, "connected", connected)
    found = member_cleanup.unreachable_members(site.run, [])
    assert [each.where for each in found] == ["member m1", "member m2"]
    assert all("it does not come to an end" in each.what for each in found)


# -- readiness and agents ----------------------------------------------------------------------------------------------

#: Those that take no time to send.
QUICK = ("cut-json", "nested", "not-utf8", "escapes", "other-types", "packed-otherwise")
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "karmada-agent", "namespace": "karmada-cluster", "generation": 1},
    "spec": {"replicas": 1},
}
RUNS = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("good", [0, 1])
@pytest.mark.parametrize("way", QUICK)
def test_one_that_turns_while_its_agent_is_waited_for_is_told_and_the_others_are_waited_for(
    way: str, good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []

    def wait_until(_cluster: Any, targets: Any, **_: Any) -> None:
        waited.extend(ref.name for ref in targets)

    with StubApi() as m1, StubApi() as m2:
        members = {"m1": m1, "m2": m2}

        def turn(_method: str, _path: str) -> None:
            if len(m1.requests) > good:
                m1.faults = [Fault("raw", pieces=faulty_answers.FIRST_ANSWERS[way], times=1000, last=True)]

        m1.on_request = turn
        m1.put("apis/apps/v1/deployments", {**DEPLOYMENT, "status": {}})
        m2.put("apis/apps/v1/deployments", {**DEPLOYMENT, "status": RUNS})

        @contextlib.contextmanager
        def connected(_run: Run, entry: MemberEntry) -> Iterator[Cluster]:
            with cluster_of(members[entry.name].kubeconfig(), name=f"member {entry.name}") as cluster:
                cluster.limits, cluster.retry_seconds = member_join.OF_A_MEMBER, 0.2
                yield cluster

        wait = agent_join.wait
        # What turns may be waited for until the time is over; what is sound has all the time that it needs.
        monkeypatch.setattr(
            agent_join, "wait", lambda run, member, _time: wait(run, member, 1 if member.name == "member m1" else 60)
        )
        monkeypatch.setattr(member_ready, "connected", connected)
        monkeypatch.setattr(member_ready, "wait_until", wait_until)
        run = fake_run(document(), FakeCluster("host cluster"), stored=state())
        run.__dict__["control_plane"] = FakeCluster("control plane")
        entries = [MemberEntry({"name": name, "mode": "Pull", "secretRef": {"name": name}}) for name in members]
        found = {each.name: each for each in member_ready.wait_ready(run, entries, 60)}
    assert found["m1"].problem
    if way == "other-types" and not good:
        assert "AttributeError" in found["m1"].problem, "nobody waits for what cannot be read"
    assert all(line.isprintable() for line in found["m1"].problem.splitlines())
    assert (found["m2"].problem, waited) == ("", ["m2"])


def test_where_the_agent_of_one_meets_what_nobody_thought_of_is_shown_to_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traces: list[str] = []

    def install_agent(*_: Any) -> None:
        raise KeyError("status")

    run = fake_run(document(), FakeCluster("host cluster"), stored=state())
    run.trace = traces.append
    monkeypatch.setattr(run, "writing", lambda _step: contextlib.nullcontext())
    monkeypatch.setattr(run, "save", lambda _state: None)
    monkeypatch.setattr(member_mode, "waits_for_agent", lambda *_: True)
    monkeypatch.setattr(member_join, "install_agent", install_agent)
    outcomes = {"m1": member_join.Outcome("m1")}
    join_action._agents(run, [MemberEntry({"name": "m1", "mode": "Pull", "secretRef": {"name": "m1"}})], outcomes)
    assert "KeyError" in outcomes["m1"].problem
    (trace,) = traces
    assert "in install_agent" in trace
