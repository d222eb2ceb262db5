# SPDX-License-Identifier: Apache-2.0
"""A control plane whose place is lost is taken over from a backup while a member is out of reach; both come back later.

Members, both places and what is inside them are in memory; joining, which has members follow a place, is the action's.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.action.member_join import ActionModule
from ansible_collections.karmada.installer.plugins.plugin_utils.components.moving import TakeOverState
from ansible_collections.karmada.installer.plugins.plugin_utils.components.state import (
    RELEASED,
    LastBackup,
    RestoreState,
    State,
)
from ansible_collections.karmada.installer.plugins.plugin_utils.components.types import MEMBER_NAMESPACE
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.cluster import Applied
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Unreachable
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.step import Step
from ansible_collections.karmada.installer.plugins.plugin_utils.members import epoch, join, registration, service_types
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError, Reason
from ansible_collections.karmada.installer.plugins.plugin_utils.restore import take_over
from ansible_collections.karmada.installer.plugins.plugin_utils.run import selection, store
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support import samples
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import FakeCluster, fake_run
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock

NAMES = ("m1", "m2")
ENTRIES = [{"name": name, "mode": "Push", "secretRef": {"name": name}} for name in NAMES]
BACKUP = "prod-20261125t020000z-1f3a9c"
LAST = LastBackup(BACKUP, "2026-11-25T02:00:00+00:00", 9, 8, 7)
OF_M2 = ("Cluster", "m2")
#: Nobody has handed it over.
LOST = TakeOverState("disk", BACKUP, "karmada-prod/prod", planned=False)


class Member(FakeCluster):
    """A member, which fills the tokens of its accounts: each Secret has its own, and they go together."""

    def __init__(self, name: str) -> None:
        super().__init__(f"member {name}")
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": f"id-{name}"}})

    def apply(self, obj: Any, *, dry_run: bool = False, **more: Any) -> Applied:
        applied = super().apply(obj, dry_run=dry_run, **more)
        if obj["kind"] == "Secret" and not dry_run:
            key = ("v1", "Secret", obj["metadata"]["namespace"], obj["metadata"]["name"])
            live = self.objects[key]
            token = base64.b64encode(f"token of {live['metadata']['uid']}".encode()).decode()
            live["data"] = {"token": token, "ca.crt": base64.b64encode(b"authority").decode()}
        return applied

    def tokens(self) -> set[str]:
        """Tokens that it accepts."""
        secrets = [each for each in self.objects.values() if each["kind"] == "Secret"]
        return {each["data"]["token"] for each in secrets}


class World:
    """Members, of which some are silent."""

    def __init__(self) -> None:
        self.members = {name: Member(name) for name in NAMES}
        self.silent: set[str] = set()

    @contextmanager
    def connected(self, _run: Run, entry: Any, _patience: float | None = None) -> Iterator[Member]:
        if entry.name in self.silent:
            raise Unreachable(f"member {entry.name}", "GET", "/", 0, "", "no answer")
        yield self.members[entry.name]


class Place:
    """A place of the control plane: its host cluster with the state, and what is inside."""

    def __init__(self, world: World, namespace: str, state: State, inside: FakeCluster | None = None) -> None:
        self.world, self.host_cluster = world, FakeCluster("host cluster")
        self.inside = inside or FakeCluster("control plane")
        self.document = samples.document({"members": ENTRIES}, namespace=namespace)
        fake_run(self.document, self.host_cluster, stored=state)

    def run(self) -> Run:
        """A release while members may follow another place, and any other run after it."""
        stored = fake_run(self.document, self.host_cluster).stored_state
        operation = "members" if stored is None or take_over.is_fenced(stored) else "release"
        found = fake_run(self.document, self.host_cluster, operation=operation)
        found.__dict__["control_plane"] = self.inside
        return found

    @property
    def state(self) -> State:
        stored = self.run().stored_state
        assert stored
        return stored

    def join(self) -> dict[str, str]:
        """One run that joins members; returns those that are broken, each with its reason."""
        arguments = {
            "stage": "registration",
            "noted": True,
            "on_record": not take_over.is_fenced(self.state),
            "timeout": 600,
            "broken": [],
            "on_broken_member": "tell",
        }
        action: Any = ActionModule
        done = action.perform(None, self.run(), arguments)
        self.broken = done["broken_members"]
        self.joined = [each["name"] for each in done["members"] if each["joined"]]
        return {each["name"]: each["problem"] for each in self.broken}

    def fenced(self, *named: str) -> None:
        """End of the step by which members follow this place, and of the release that begins with it."""
        run = self.run()
        with run.writing("note that members follow this place"):
            take_over.fenced(run, self.joined, self.broken, named)
            assert run.state.restore
            run.save(replace(run.state, restore=replace(run.state.restore, step=RELEASED)))

    def writes_to(self, name: str) -> bool:
        """Whether the member would take what this place writes with the token that it has."""
        secret = self.inside.get("v1", "Secret", name, MEMBER_NAMESPACE)
        assert secret
        return secret["data"]["token"] in self.world.members[name].tokens()

    @property
    def unfenced(self) -> tuple[str, ...]:
        taken = self.state.taken_over
        assert taken
        return taken.unfenced


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(join, "connected", found.connected)
    monkeypatch.setattr(service_types, "step", lambda *_: Step())
    monkeypatch.setattr(store, "Lock", lambda *_, **__: NoLock())
    return found


@pytest.fixture
def left(world: World) -> Place:
    """The place that is lost later, with both members."""
    found = Place(world, "karmada-prod", samples.state())
    assert found.join() == {}
    assert all(found.writes_to(name) for name in NAMES)
    return found


def taken_over(left: Place, claim_id: str = "bb") -> Place:
    """The place to which it moves: the keys and the content of the backup, in quarantine."""
    first = fake_run(samples.document(namespace="karmada-next"), FakeCluster("host cluster")).place.first_state()
    adopted = take_over.adopted(first, left.state, LOST, claim_id, LAST)
    restored = RestoreState("moved", "disk", BACKUP, LAST.started, "0d6c", 2, 1, adopted.etcd, step="Compare")
    state = replace(adopted, restore=restored)
    inside = FakeCluster("control plane")
    inside.objects = copy.deepcopy(left.inside.objects)
    return Place(left.world, "karmada-next", state, inside)


def test_a_member_out_of_reach_is_named_and_follows_with_the_first_run_that_reaches_it(
    world: World, left: Place
) -> None:
    came = taken_over(left)
    world.silent = {"m2"}
    assert list(came.join()) == ["m2"]
    with pytest.raises(ProblemsError, match="restore_unfenced") as asked:
        came.fenced()
    assert [each.where for each in asked.value.problems] == ["member m2"]
    assert not take_over.is_fenced(came.state), "nothing is released before somebody has answered"
    came.fenced("m2")
    assert take_over.is_fenced(came.state)
    assert came.unfenced == ("m2",)
    assert came.writes_to("m1")

    # The place that was lost comes back by itself: one member refuses it, and the other one knows nothing yet.
    assert not left.writes_to("m1")
    assert left.writes_to("m2")
    world.silent.clear()
    assert list(left.join()) == ["m1"]
    assert [each["name"] for each in left.broken] == ["m1"]
    assert "karmada-next/prod" in left.broken[0]["problem"]

    # The first run that reaches it.
    assert came.join() == {}
    assert came.unfenced == ()
    assert all(came.writes_to(name) for name in NAMES)
    assert not any(left.writes_to(name) for name in NAMES)
    assert sorted(left.join()) == list(NAMES)
    assert not any(left.writes_to(name) for name in NAMES)

    # Then there is nothing to do.
    before = [copy.deepcopy(each.objects) for each in world.members.values()]
    assert came.join() == {}
    assert [each.objects for each in world.members.values()] == before


def killed_once(act: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """``act``, which does its work the first time and does not come to say so."""
    left = [error]

    def instead(*arguments: Any, **more: Any) -> Any:
        done = act(*arguments, **more)
        if left:
            raise left.pop()
        return done

    return instead


class Killed(BaseException):
    """The run was killed at this moment."""


def test_a_run_that_is_killed_when_it_has_reached_the_member_is_gone_on_with(
    world: World, left: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = taken_over(left)
    world.silent = {"m2"}
    came.join()
    came.fenced("m2")
    world.silent.clear()
    with monkeypatch.context() as killed:
        killed.setattr(epoch, "settled", killed_once(epoch.settled, Killed()))
        with pytest.raises(Killed):
            came.join()
    assert came.unfenced == ("m2",)
    assert came.join() == {}
    assert came.unfenced == ()
    assert came.writes_to("m2")
    assert not left.writes_to("m2")


def test_a_member_that_took_everything_and_whose_last_answer_was_lost_is_not_named_for_ever(
    world: World, left: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = taken_over(left)
    lost = Unreachable("member m2", "PATCH", "/", 0, "", "no answer")
    register = join.register_member
    of_m2 = killed_once(register, lost)
    with monkeypatch.context() as once:
        once.setattr(
            join,
            "register_member",
            lambda run, entry, *more: (of_m2 if entry.name == "m2" else register)(run, entry, *more),
        )
        assert list(came.join()) == ["m2"]
    came.fenced("m2")
    assert came.unfenced == ("m2",)
    assert came.join() == {}
    assert came.unfenced == ()


def rights_on(member: Member) -> list[Any]:
    return [each for each in member.objects.values() if each["kind"] in ("ClusterRole", "ClusterRoleBinding")]


def test_a_member_that_the_new_place_does_not_list_follows_it_too(world: World, left: Place) -> None:
    came = taken_over(left)
    came.document = samples.document({"members": ENTRIES[:1]}, namespace="karmada-next")
    rights, cluster = copy.deepcopy(rights_on(world.members["m2"])), came.inside.get(registration.CLUSTER_API, *OF_M2)
    assert rights
    assert cluster
    assert came.join() == {}
    assert came.joined == list(NAMES)
    came.fenced()
    assert came.unfenced == ()
    assert all(came.writes_to(name) for name in NAMES)
    assert not any(left.writes_to(name) for name in NAMES)
    assert sorted(left.join()) == list(NAMES)
    # What was asked for it by a document that is not here stays as it is.
    assert rights_on(world.members["m2"]) == rights
    assert came.inside.get(registration.CLUSTER_API, *OF_M2) == cluster
    # What is on it is on record: it leaves with all of that.
    there = {each["metadata"]["uid"] for each in world.members["m2"].objects.values() if each["kind"] == "Secret"}
    assert there <= came.state.uids("member/m2")


def test_a_member_that_is_not_listed_and_out_of_reach_is_named_too(world: World, left: Place) -> None:
    came = taken_over(left)
    came.document = samples.document({"members": ENTRIES[:1]}, namespace="karmada-next")
    world.silent = {"m2"}
    assert list(came.join()) == ["m2"]
    with pytest.raises(ProblemsError, match="restore_unfenced") as asked:
        came.fenced()
    assert [each.where for each in asked.value.problems] == ["member m2"]


def test_a_release_that_is_limited_to_some_members_has_all_of_them_follow(
    left: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = taken_over(left)
    monkeypatch.setattr(selection, "holds", lambda _run, name: name == "m1")
    assert came.join() == {}
    came.fenced()
    assert all(came.writes_to(name) for name in NAMES)
    assert not any(left.writes_to(name) for name in NAMES)


def test_a_second_place_that_takes_the_same_backup_over_comes_too_late_where_the_first_one_was(
    world: World, left: Place
) -> None:
    came, other = taken_over(left, "bb"), taken_over(left, "cc")
    world.silent = {"m2"}
    came.join()
    came.fenced("m2")
    world.silent.clear()
    assert "m1" in other.join()
    with pytest.raises(ProblemsError) as refused:
        other.fenced("m1", "m2")
    assert {each.reason for each in refused.value.problems} == {Reason.MOVED}
    assert came.writes_to("m1")
