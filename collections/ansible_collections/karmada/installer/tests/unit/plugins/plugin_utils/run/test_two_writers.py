# SPDX-License-Identifier: Apache-2.0
"""Two runs, or one that was killed and the next: none replaces what the other has stored, and each asks the lock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.errors import Conflict
from ansible_collections.karmada.installer.plugins.plugin_utils.kube.lease import Lock, LockLost
from ansible_collections.karmada.installer.plugins.plugin_utils.problems import ProblemsError
from ansible_collections.karmada.installer.plugins.plugin_utils.run.run import Run
from ansible_collections.karmada.installer.tests.unit.support.fake_cluster import (
    FakeCluster,
    fake_run,
    storage_class,
)
from ansible_collections.karmada.installer.tests.unit.support.samples import (
    document,
    state,
)
from ansible_collections.karmada.installer.tests.unit.support.writing_runs import NoLock, webhook

STATE = ("v1", "Secret", "karmada", "prod-installer-state")


def read_by_two(host: FakeCluster) -> tuple[Run, Run]:
    """Two runs that have both taken the lock, the second while the first stood still."""
    runs = fake_run(document(), host), fake_run(document(), host)
    for run, holder in zip(runs, ("first", "second"), strict=True):
        run.holder = holder
    return runs


@pytest.mark.usefixtures("unlocked")
def test_who_lost_the_lock_unawares_replaces_no_state_of_another_run() -> None:
    host = FakeCluster("host", storage_class("standard"))
    first, second = read_by_two(host)
    fake_run(document(), host, stored=state())
    with first.writing("begins"):
        with second.writing("takes over"):
            second.save(replace(second.state, endpoint_host="192.0.2.9"))
        written = json.dumps(host.objects[STATE])
        with pytest.raises(LockLost, match=r"somebody else has written Secret karmada/prod-installer-state\. It was"):
            first.save(replace(first.state, endpoint_host="192.0.2.1"))
    assert json.dumps(host.objects[STATE]) == written
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.9"


@pytest.mark.usefixtures("unlocked")
def test_of_two_first_installs_one_has_its_keys_stored_and_the_other_writes_none() -> None:
    host = FakeCluster("host", storage_class("standard"))
    first, second = read_by_two(host)
    assert (first.stored_state, second.stored_state) == (None, None)
    second.save(second.state)
    with pytest.raises(LockLost):
        first.save(first.state)
    assert fake_run(document(), host).state.authorities == second.state.authorities


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("again", [False, True], ids=["gone", "there again"])
def test_a_state_that_was_removed_meanwhile_is_not_brought_back(again: bool) -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    with run.writing("begins"):
        gone = host.objects.pop(STATE)
        if again:
            host.put({**gone, "metadata": {**gone["metadata"], "uid": "of another instance"}})
        with pytest.raises(LockLost):
            run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert (STATE in host.objects) is again


def test_what_is_noted_beside_an_operation_holds_the_lock_no_longer() -> None:
    """As the record of a backup: another run may begin at once, and this one may note something again."""
    host = FakeCluster("host", storage_class("standard"))
    run, other = fake_run(document(), host, stored=state()), fake_run(document(), host)
    other.holder = "other"
    for number in range(2):
        with run.recording():
            run.save(replace(run.state, endpoint_host=f"192.0.2.{number}"))
        with other.recording():
            assert other.state.endpoint_host == f"192.0.2.{number}"
    assert run.state.journal == state().journal


def test_what_is_noted_in_a_run_with_the_lock_leaves_it_the_lock() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    run.store.take_lock()
    with run.recording():
        pass
    assert Lock(host, "karmada", "prod-installer", "me").is_ours()  # type: ignore[arg-type]
    run.close()


def test_nothing_is_noted_of_what_was_uninstalled_meanwhile() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    assert run.state
    host.objects.clear()
    with pytest.raises(ProblemsError, match="has been uninstalled meanwhile"), run.recording():
        run.save(run.state)
    assert host.objects == {}


@pytest.mark.usefixtures("unlocked")
def test_a_write_that_is_refused_although_nobody_wrote_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy, or an API server that was asked twice."""
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host, stored=state())
    real, refusals = host.apply, [2]

    def apply(obj: Any, **more: Any) -> Any:
        if obj["kind"] == "Secret" and refusals[0]:
            refusals[0] -= 1
            raise Conflict("host", "PATCH", "/", 409, "Conflict", "somebody else was faster")
        return real(obj, **more)

    monkeypatch.setattr(host, "apply", apply)
    with run.writing("begins"):
        refusals[0] = 2
        run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.1"
    with run.writing("goes on"):
        refusals[0] = 100
        with pytest.raises(Conflict):
            run.save(replace(run.state, endpoint_host="192.0.2.2"))


@pytest.mark.usefixtures("unlocked")
def test_each_write_of_a_run_goes_on_from_its_last_one() -> None:
    host = FakeCluster("host", storage_class("standard"))
    run = fake_run(document(), host)
    with run.writing("begins"):
        for passage_of in ("Ingress", "Route"):
            run.save(replace(run.state, passages=(passage_of,)))
    with run.writing("goes on"):
        assert run.state.passages == ("Route",)


class Unheard(FakeCluster):
    """The answer to the next apply of a Secret is lost; it is sent again, as the client does."""

    lost = False

    def apply(self, obj: dict[str, Any], **options: Any) -> Any:
        if self.lost and obj["kind"] == "Secret":
            self.lost = False
            super().apply(obj, **options)
        return super().apply(obj, **options)


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("stored", [None, state()], ids=["first", "later"])
def test_a_write_that_got_through_unheard_is_taken_for_ours(stored: Any) -> None:
    host = Unheard("host", storage_class("standard"))
    run = fake_run(document(), host, stored=stored)
    host.lost = True
    with run.writing("begins"):
        assert not host.lost
        run.save(replace(run.state, endpoint_host="192.0.2.1"))
    assert fake_run(document(), host).state.endpoint_host == "192.0.2.1"


def lease(name: str, holder: str = "another run") -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"{name}-installer", "namespace": "karmada"},
        "spec": {"holderIdentity": holder},
    }


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(("ours", "theirs"), [("prod", "prod-kube"), ("prod-aggregated", "prod")])
@pytest.mark.parametrize("installed", [True, False])
def test_of_two_first_installs_whose_names_meet_one_gives_way(ours: str, theirs: str, installed: bool) -> None:
    host = FakeCluster("host", storage_class("standard"), lease(theirs, "" if installed else "another run"))
    if installed:
        metadata = {"name": f"{theirs}-installer-state", "namespace": "karmada"}
        host.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with pytest.raises(ProblemsError, match=f"nothing was installed:\n.*control plane {theirs} is being installed"):
        fake_run(document(name=ours), host).apply_to_host_cluster("start", webhook)
    assert not host.names("Deployment")
    assert f"{ours}-installer-state" not in host.names("Secret")


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("there", [lease("prod-kube", ""), lease("other")], ids=["gave way", "another name"])
def test_a_first_install_goes_on_beside_others(there: dict[str, Any]) -> None:
    host = FakeCluster("host", storage_class("standard"), there)
    fake_run(document(), host).apply_to_host_cluster("start", webhook)
    assert "prod-webhook" in host.names("Deployment")


@pytest.mark.usefixtures("unlocked")
def test_an_instance_that_is_there_gives_way_to_none() -> None:
    host = FakeCluster("host", storage_class("standard"), lease("prod-kube"))
    fake_run(document(), host, stored=state()).apply_to_host_cluster("start", webhook)
    assert "prod-webhook" in host.names("Deployment")


@pytest.mark.usefixtures("unlocked")
def test_every_cluster_of_a_run_asks_the_lock_before_it_writes() -> None:
    run = fake_run(document(), FakeCluster("host", storage_class("standard")), stored=state())
    member = FakeCluster("member m1")
    run.attend(member)  # type: ignore[arg-type]
    NoLock.lost = True
    member.before_write()
    NoLock.lost = False
    with run.writing("start"):
        member.before_write()
        NoLock.lost = True
        with pytest.raises(LockLost):
            member.before_write()
        NoLock.lost = False
